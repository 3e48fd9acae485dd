#include "client/examples/mlp/mlp.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/common/npy.h"
#include "kernels/number_format.h"
#include "kernels/random.h"

#define DEMO_M 512u
#define DEMO_K 512u
#define DEMO_H 2048u

enum dim { DIM_ONE, DIM_M, DIM_K, DIM_H };
enum split { SPLIT_ROWS, SPLIT_COLS };

static const struct {
    const char *name;
    enum dim rows, cols;
    enum split split;
    bool has_file;
} tensors[MLP_TENSORS] = {
    [MLP_X] = {"x", DIM_M, DIM_K, SPLIT_ROWS, true},
    [MLP_W1] = {"w1", DIM_K, DIM_H, SPLIT_COLS, true},
    [MLP_B1] = {"b1", DIM_ONE, DIM_H, SPLIT_COLS, true},
    [MLP_W2] = {"w2", DIM_H, DIM_K, SPLIT_ROWS, true},
    [MLP_PRE_SERIAL] = {"pre_serial", DIM_M, DIM_H, SPLIT_COLS, false},
    [MLP_PRE] = {"pre", DIM_M, DIM_H, SPLIT_COLS, false},
    [MLP_ACT] = {"act", DIM_M, DIM_H, SPLIT_COLS, false},
    [MLP_Y_SERIAL] = {"y_serial", DIM_M, DIM_K, SPLIT_ROWS, false},
    [MLP_Y] = {"y", DIM_M, DIM_K, SPLIT_ROWS, false},
};

const struct mlp_job mlp_jobs[MLP_JOBS] = {
    {COMMGEMM_OP_AG_GEMM, COMMGEMM_METHOD_NONE, MLP_X, MLP_W1, MLP_B1, MLP_PRE_SERIAL},
    {COMMGEMM_OP_AG_GEMM, COMMGEMM_METHOD_RING_EXCHANGE, MLP_X, MLP_W1, MLP_B1, MLP_PRE},
    {COMMGEMM_OP_GEMM_RS, COMMGEMM_METHOD_NONE, MLP_ACT, MLP_W2, MLP_NO_TENSOR, MLP_Y_SERIAL},
    {COMMGEMM_OP_GEMM_RS, COMMGEMM_METHOD_RING_EXCHANGE, MLP_ACT, MLP_W2, MLP_NO_TENSOR, MLP_Y},
};

void mlp_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("mlp: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

void mlp_check(int status, const char *what)
{
    if (status != COMMGEMM_OK)
        mlp_fail("%s: %s: %s", what, commgemm_strerror(status), commgemm_last_error());
}

void mlp_path(const struct mlp *mlp, const char *name, int rank, char *ret_path)
{
    int n = rank < 0 ? snprintf(ret_path, MLP_PATH_BYTES, "%s/%s", mlp->folder, name)
                     : snprintf(ret_path, MLP_PATH_BYTES, "%s/%s-%d", mlp->folder, name, rank);
    if (n < 0 || (unsigned)n >= MLP_PATH_BYTES)
        mlp_fail("the folder's name is too long: %s", mlp->folder);
}

static uint64_t dim_of(const struct mlp *mlp, enum dim dim)
{
    const uint64_t sizes[] = {[DIM_ONE] = 1, [DIM_M] = mlp->m, [DIM_K] = mlp->k, [DIM_H] = mlp->h};
    return sizes[dim];
}

const char *mlp_tensor_name(enum mlp_tensor tensor)
{
    return tensors[tensor].name;
}

bool mlp_tensor_has_file(enum mlp_tensor tensor)
{
    return tensors[tensor].has_file;
}

struct mlp_block mlp_tensor_block(const struct mlp *mlp, enum mlp_tensor tensor, uint32_t rank)
{
    struct mlp_block block = {.rows = dim_of(mlp, tensors[tensor].rows),
                              .cols = dim_of(mlp, tensors[tensor].cols)};
    if (tensors[tensor].split == SPLIT_ROWS) {
        block.rows /= mlp->world;
        block.row = rank * block.rows;
    } else {
        block.cols /= mlp->world;
        block.col = rank * block.cols;
    }
    return block;
}

uint64_t mlp_block_bytes(const struct mlp_block *block)
{
    return block->rows * block->cols * commgemm_dtype_bytes(COMMGEMM_BF16);
}

void mlp_buffer_name(enum mlp_tensor tensor, uint32_t rank, char *ret_name)
{
    snprintf(ret_name, MLP_NAME_BYTES, "mlp.%s.%u", tensors[tensor].name, rank);
}

static void tensor_path(const struct mlp *mlp, enum mlp_tensor tensor, char *ret_path)
{
    char name[MLP_NAME_BYTES];
    snprintf(name, sizeof(name), "%s.npy", tensors[tensor].name);
    mlp_path(mlp, name, -1, ret_path);
}

static void make_file(const struct mlp *mlp, enum mlp_tensor tensor, struct cgm_random *random)
{
    char path[MLP_PATH_BYTES], detail[CGM_NPY_DETAIL_BYTES];
    uint64_t rows = dim_of(mlp, tensors[tensor].rows), cols = dim_of(mlp, tensors[tensor].cols);
    unsigned dimensions = tensors[tensor].rows == DIM_ONE ? 1 : 2;
    float *values = malloc(rows * cols * sizeof(float));
    if (!values)
        mlp_fail("out of memory");
    cgm_random_fill(random, CGM_FILL_NORMAL, values, rows * cols);
    tensor_path(mlp, tensor, path);
    if (cgm_npy_save(path, dimensions, rows, cols, values, detail) != COMMGEMM_OK)
        mlp_fail("%s", detail);
    printf("%s: %llu x %llu float32\n", path, (unsigned long long)rows, (unsigned long long)cols);
    free(values);
}

void mlp_make_files(const char *folder)
{
    struct mlp mlp = {.folder = folder, .world = 1, .m = DEMO_M, .k = DEMO_K, .h = DEMO_H};
    struct cgm_random random;
    uint64_t seed = cgm_random_seed();
    cgm_random_init(&random, seed);
    for (int tensor = 0; tensor < MLP_TENSORS; tensor++)
        if (tensors[tensor].has_file)
            make_file(&mlp, tensor, &random);
    printf("seed %llu\n", (unsigned long long)seed);
}

static void open_file(const struct mlp *mlp, enum mlp_tensor tensor, struct cgm_npy *ret_npy,
                      char *path)
{
    char detail[CGM_NPY_DETAIL_BYTES];
    tensor_path(mlp, tensor, path);
    if (cgm_npy_open(path, ret_npy, detail) != COMMGEMM_OK)
        mlp_fail("%s", detail);
}

void mlp_open(const char *folder, uint32_t world, struct mlp *ret_mlp)
{
    char path[MLP_PATH_BYTES];
    struct cgm_npy x, w1;
    *ret_mlp = (struct mlp){.folder = folder, .world = world};
    open_file(ret_mlp, MLP_X, &x, path);
    cgm_npy_close(&x);
    open_file(ret_mlp, MLP_W1, &w1, path);
    cgm_npy_close(&w1);
    ret_mlp->m = x.rows;
    ret_mlp->k = x.cols;
    ret_mlp->h = w1.cols;
    if (world == 0 || x.rows % world || w1.cols % world)
        mlp_fail("%llu rows and %llu columns do not divide by %u ranks", (unsigned long long)x.rows,
                 (unsigned long long)w1.cols, world);
}

void mlp_tensor_read(const struct mlp *mlp, enum mlp_tensor tensor, const struct mlp_block *block,
                     void *ret_values)
{
    char path[MLP_PATH_BYTES], detail[CGM_NPY_DETAIL_BYTES];
    struct cgm_npy npy;
    open_file(mlp, tensor, &npy, path);
    if (npy.rows != dim_of(mlp, tensors[tensor].rows) ||
        npy.cols != dim_of(mlp, tensors[tensor].cols))
        mlp_fail("%s does not fit the other files", path);
    float *values = malloc(block->rows * block->cols * sizeof(float));
    if (!values)
        mlp_fail("out of memory");
    if (cgm_npy_read_block(&npy, block->row, block->rows, block->col, block->cols, values, 0,
                           detail) != COMMGEMM_OK)
        mlp_fail("%s", detail);
    cgm_format_store(CGM_FORMAT_BF16, values, block->rows * block->cols, ret_values);
    free(values);
    cgm_npy_close(&npy);
}
