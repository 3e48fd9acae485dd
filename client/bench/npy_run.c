/* Real tensors: from .npy files into the job, and its results back into files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/bench/inputs.h"
#include "kernels/number_format.h"
#include "proto/status.h"
#include "proto/types.h"

#define BLOCK_ROWS_BYTES (8u << 20)

typedef unsigned long long ull;

/* ---- sizes ---- */

static const char *file_option(int name)
{
    static const char *const options[CGM_MATRIX_COUNT] = {"lhs",      "rhs",      "bias-file",
                                                          "save-out", "save-aux", "op"};
    return options[name];
}

static void file_paths(const struct cgm_bench_options *o, const char *ret_paths[CGM_MATRIX_COUNT])
{
    memset(ret_paths, 0, CGM_MATRIX_COUNT * sizeof(*ret_paths));
    ret_paths[CGM_MATRIX_LHS] = o->lhs_file;
    ret_paths[CGM_MATRIX_RHS] = o->rhs_file;
    ret_paths[CGM_MATRIX_BIAS] = o->bias_file;
}

static bool has_product(int op)
{
    return op != CGM_OP_AG && op != CGM_OP_RS && op != CGM_OP_AR && op != CGM_OP_A2AV;
}

static bool is_reduction(int op)
{
    return op == CGM_OP_RS || op == CGM_OP_AR;
}

/* What the files say; a size that no file decides stays as it is. */
static void sizes_of_files(const struct cgm_bench_options *o, const struct cgm_input_files *files,
                           uint64_t ret_sizes[3])
{
    const struct cgm_npy *lhs = &files->npy[CGM_MATRIX_LHS], *rhs = &files->npy[CGM_MATRIX_RHS];
    uint64_t rows = o->transa ? lhs->cols : lhs->rows, cols = o->transa ? lhs->rows : lhs->cols;
    ret_sizes[0] = is_reduction(o->op) ? rows / o->world : rows;
    ret_sizes[1] = o->n;
    ret_sizes[2] = o->k;
    ret_sizes[has_product(o->op) ? 2 : 1] = cols;
    if (has_product(o->op) && files->open[CGM_MATRIX_RHS])
        ret_sizes[1] = o->transb ? rhs->rows : rhs->cols;
}

static int take_sizes(struct cgm_bench_options *o, const struct cgm_input_files *files,
                      char *ret_detail)
{
    static const char letters[] = "mnk";
    uint64_t *const sizes[3] = {&o->m, &o->n, &o->k};
    uint64_t of_files[3];
    sizes_of_files(o, files, of_files);
    if (o->rows && o->rows != of_files[0]) {
        snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES,
                 "--rows %llu: --lhs %s has %llu rows of the "
                 "product",
                 (ull)o->rows, o->lhs_file, (ull)of_files[0]);
        return CGM_INVALID_ARGUMENT;
    }
    for (int i = 0; i < 3; i++) {
        bool capacity = i == 0 && o->rows && o->sizes_given[0];
        if (!o->sizes_given[i])
            *sizes[i] = of_files[i];
        else if (capacity ? *sizes[i] < of_files[i] : *sizes[i] != of_files[i]) {
            snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "-%c %llu: the files have %llu",
                     letters[i], (ull)*sizes[i], (ull)of_files[i]);
            return CGM_INVALID_ARGUMENT;
        }
    }
    return CGM_OK;
}

/* Every file against the shape that the operation has with these sizes. */
static int check_shapes(const struct cgm_bench_options *o, const struct cgm_input_files *files,
                        char *ret_detail)
{
    struct cgm_case cases[CGM_VARIANT_COUNT];
    const char *paths[CGM_MATRIX_COUNT];
    file_paths(o, paths);
    cgm_cases_derive(o, cases);
    const struct cgm_matrix *matrix = cases[CGM_VARIANT_JOB].matrix;
    for (int i = CGM_MATRIX_LHS; cases[CGM_VARIANT_JOB].shaped && i <= CGM_MATRIX_BIAS; i++) {
        const struct cgm_npy *npy = &files->npy[i];
        if (matrix[i].present != files->open[i]) {
            snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "--%s%s%s: %s %s", file_option(i),
                     paths[i] ? " " : "", paths[i] ? paths[i] : "",
                     cgm_type_name(CGM_TABLE_OP, o->op),
                     files->open[i] ? "has none" : "needs it, as --lhs is given");
            return CGM_INVALID_ARGUMENT;
        }
        if (files->open[i] && (npy->rows != matrix[i].rows || npy->cols != matrix[i].cols)) {
            snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES,
                     "--%s %s: is %llu x %llu; with m %llu, n %llu, k %llu, world %llu%s%s it must "
                     "be %llu x %llu",
                     file_option(i), paths[i], (ull)npy->rows, (ull)npy->cols, (ull)o->m, (ull)o->n,
                     (ull)o->k, (ull)o->world, o->transa ? ", --transa" : "",
                     o->transb ? ", --transb" : "", (ull)matrix[i].rows, (ull)matrix[i].cols);
            return CGM_INVALID_ARGUMENT;
        }
    }
    return CGM_OK;
}

static int open_file(const struct cgm_bench_options *o, int name, const char *path,
                     struct cgm_npy *ret_npy, char *ret_detail)
{
    uint64_t axis = name == CGM_MATRIX_LHS ? o->lhs_axis : name == CGM_MATRIX_RHS ? o->rhs_axis : 0;
    int status = cgm_npy_open(path, ret_npy, ret_detail);
    if (status == CGM_IO) /* what the command line names is wrong */
        status = CGM_INVALID_ARGUMENT;
    if (status || !axis)
        return status;
    status = cgm_npy_collapse(ret_npy, (unsigned)axis, ret_detail);
    if (status)
        cgm_npy_close(ret_npy);
    return status;
}

int cgm_input_files_open(struct cgm_bench_options *options, char *ret_detail,
                         struct cgm_input_files *ret_files)
{
    const char *paths[CGM_MATRIX_COUNT];
    char why[CGM_NPY_DETAIL_BYTES];
    int status = CGM_OK;
    memset(ret_files, 0, sizeof(*ret_files));
    file_paths(options, paths);
    for (int i = 0; !status && i < CGM_MATRIX_COUNT; i++) {
        if (!paths[i])
            continue;
        status = open_file(options, i, paths[i], &ret_files->npy[i], why);
        ret_files->open[i] = status == CGM_OK;
        if (status)
            snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "--%s: %s", file_option(i), why);
    }
    if (!status && ret_files->open[CGM_MATRIX_LHS] &&
        !(status = take_sizes(options, ret_files, ret_detail)))
        status = check_shapes(options, ret_files, ret_detail);
    if (status)
        cgm_input_files_close(ret_files);
    return status;
}

void cgm_input_files_close(struct cgm_input_files *files)
{
    for (int i = 0; i < CGM_MATRIX_COUNT; i++)
        if (files->open[i])
            cgm_npy_close(&files->npy[i]);
    memset(files, 0, sizeof(*files));
}

/* ---- contents ---- */

static uint64_t rows_at_once(uint64_t cols)
{
    uint64_t rows = BLOCK_ROWS_BYTES / sizeof(float) / (cols ? cols : 1);
    return rows ? rows : 1;
}

static int load_matrix(const struct cgm_npy *npy, const struct cgm_matrix *matrix, void *ret_values,
                       char *ret_why)
{
    uint64_t step = rows_at_once(npy->cols), element = cgm_dtype_bytes(matrix->dtype);
    float *block = malloc(step * npy->cols * sizeof(*block));
    int status = block ? CGM_OK : CGM_NO_MEMORY;
    if (!block)
        snprintf(ret_why, CGM_NPY_DETAIL_BYTES, "no memory for %s", npy->path);
    for (uint64_t row = 0; !status && row < npy->rows; row += step) {
        uint64_t rows = npy->rows - row < step ? npy->rows - row : step;
        status = cgm_npy_read_block(npy, row, rows, 0, npy->cols, block, 0, ret_why);
        if (!status)
            cgm_format_store(matrix->dtype, block, rows * npy->cols,
                             (char *)ret_values + row * npy->cols * element);
    }
    free(block);
    return status;
}

int cgm_input_files_load(const struct cgm_input_files *files, const struct cgm_bench *bench,
                         char *ret_detail)
{
    char why[CGM_NPY_DETAIL_BYTES];
    int status = CGM_OK;
    for (int i = 0; !status && i < CGM_MATRIX_COUNT; i++) {
        if (!files->open[i])
            continue;
        status = load_matrix(&files->npy[i], &bench->cases[CGM_VARIANT_JOB].matrix[i],
                             bench->whole[i], why);
        if (status)
            snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "--%s: %s", file_option(i), why);
    }
    return status;
}

/* The whole matrix from the ranks' shards; where each rank has all of it they must agree. */
static int assemble(const struct cgm_bench *bench, enum cgm_matrix_name name, void *ret_whole,
                    char *ret_detail)
{
    const struct cgm_matrix *matrix = &bench->cases[CGM_VARIANT_JOB].matrix[name];
    uint64_t bytes = cgm_matrix_shard_bytes(matrix);
    for (uint32_t rank = 0; rank < bench->options->world; rank++) {
        const char *shard = cgm_bench_shard(bench, name, rank);
        if (matrix->split == CGM_SPLIT_NONE && rank > 0 &&
            memcmp(shard, cgm_bench_shard(bench, name, 0), bytes) != 0) {
            snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "%s of rank %u differs from rank 0's",
                     cgm_matrix_text(name), rank);
            return CGM_MISMATCH;
        }
        cgm_matrix_put(matrix, shard, rank, ret_whole);
    }
    return CGM_OK;
}

static int save(const struct cgm_bench *bench, enum cgm_matrix_name name, const char *path,
                char *ret_detail)
{
    const struct cgm_matrix *matrix = &bench->cases[CGM_VARIANT_JOB].matrix[name];
    char why[CGM_NPY_DETAIL_BYTES];
    if (!path)
        return CGM_OK;
    void *whole = malloc(cgm_matrix_bytes(matrix) + 1);
    float *values = malloc(matrix->rows * matrix->cols * sizeof(*values) + 1);
    int status = whole && values ? CGM_OK : CGM_NO_MEMORY;
    if (status)
        snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "--%s %s: no memory", file_option(name), path);
    else
        status = assemble(bench, name, whole, ret_detail);
    if (!status) {
        cgm_format_load(matrix->dtype, whole, matrix->rows * matrix->cols, values);
        status = cgm_npy_save(path, 2, matrix->rows, matrix->cols, values, why);
        if (status)
            snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "--%s: %s", file_option(name), why);
    }
    free(values);
    free(whole);
    return status;
}

int cgm_results_save(const struct cgm_bench *bench, char *ret_detail)
{
    int status = save(bench, CGM_MATRIX_OUT, bench->options->save_out, ret_detail);
    if (!status)
        status = save(bench, CGM_MATRIX_AUX, bench->options->save_aux, ret_detail);
    return status;
}
