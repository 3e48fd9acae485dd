/* Checks what the ranks left in their buffers against the unsharded products in float64, and prints
 * the table. */
#include "client/examples/mlp/mlp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/common/text_table.h"
#include "client/examples/mlp/figures.h"
#include "kernels/number_format.h"
#include "kernels/reference.h"

/* Every rank's shard of every tensor, read-only. */
struct shards {
    const struct mlp *mlp;
    commgemm_client *client;
    const uint16_t *memory[MLP_TENSORS][MLP_WORLD_MAX];
};

static void shards_open(const struct mlp *mlp, const char *socket, struct shards *ret_shards)
{
    struct commgemm_connect_options options;
    commgemm_connect_options_init(&options);
    options.socket = socket;
    options.name = "mlp-report";
    ret_shards->mlp = mlp;
    mlp_check(commgemm_connect(&options, &ret_shards->client), "connect");
    for (int tensor = 0; tensor < MLP_TENSORS; tensor++) {
        for (uint32_t rank = 0; rank < mlp->world; rank++) {
            char name[MLP_NAME_BYTES];
            struct commgemm_buffer buffer;
            void *memory;
            mlp_buffer_name(tensor, rank, name);
            mlp_check(commgemm_buffer_open(ret_shards->client, name, 0, 1, &buffer), name);
            mlp_check(commgemm_buffer_map(ret_shards->client, &buffer, &memory), name);
            ret_shards->memory[tensor][rank] = memory;
        }
    }
}

/* The whole tensor as float32, to be freed. */
static float *whole_tensor(const struct shards *shards, enum mlp_tensor tensor, uint64_t *ret_cols)
{
    struct mlp_block first = mlp_tensor_block(shards->mlp, tensor, 0);
    struct mlp_block last = mlp_tensor_block(shards->mlp, tensor, shards->mlp->world - 1);
    uint64_t rows = last.row + first.rows, cols = last.col + first.cols;
    float *values = malloc(rows * cols * sizeof(float));
    if (!values)
        mlp_fail("out of memory");
    for (uint32_t rank = 0; rank < shards->mlp->world; rank++) {
        struct mlp_block block = mlp_tensor_block(shards->mlp, tensor, rank);
        for (uint64_t row = 0; row < block.rows; row++)
            cgm_format_load(CGM_FORMAT_BF16, shards->memory[tensor][rank] + row * block.cols,
                            block.cols, values + (block.row + row) * cols + block.col);
    }
    *ret_cols = cols;
    return values;
}

/* Adds lhs columns [begin, begin + depth) times the rhs rows of the same numbers. */
static void add_slice(struct cgm_reference *reference, const float *lhs, uint64_t lhs_cols,
                      const float *rhs, uint64_t rhs_cols, uint64_t begin, uint64_t depth)
{
    struct cgm_reference_product product = {
        .a = lhs + begin,
        .b = rhs + begin * rhs_cols,
        .a_stride = lhs_cols,
        .b_stride = rhs_cols,
        .depth = depth,
        .threads = (unsigned)sysconf(_SC_NPROCESSORS_ONLN),
    };
    if (cgm_reference_add_product(reference, &product) != 0)
        mlp_fail("out of memory");
}

/* The unsharded product. gemm_rs rounds one partial product of each rank before it adds them. */
static void reference_of(const struct shards *shards, const struct mlp_job *job,
                         struct cgm_reference *ret_reference)
{
    uint64_t lhs_cols, rhs_cols, bias_cols;
    uint32_t parts = job->op == COMMGEMM_OP_GEMM_RS ? shards->mlp->world : 1;
    float *lhs = whole_tensor(shards, job->lhs, &lhs_cols);
    float *rhs = whole_tensor(shards, job->rhs, &rhs_cols);
    if (cgm_reference_init(ret_reference, shards->mlp->m, rhs_cols, parts > 1) != 0)
        mlp_fail("out of memory");
    for (uint32_t i = 0; i < parts; i++)
        add_slice(ret_reference, lhs, lhs_cols, rhs, rhs_cols, i * (lhs_cols / parts),
                  lhs_cols / parts);
    if (job->bias != MLP_NO_TENSOR) {
        float *bias = whole_tensor(shards, job->bias, &bias_cols);
        cgm_reference_add_bias(ret_reference, bias);
        free(bias);
    }
    free(lhs);
    free(rhs);
}

static struct cgm_verdict judge(const struct shards *shards, const struct mlp_job *job,
                                const struct cgm_reference *reference)
{
    struct cgm_verdict verdict = {0};
    for (uint32_t rank = 0; rank < shards->mlp->world; rank++) {
        struct mlp_block block = mlp_tensor_block(shards->mlp, job->out, rank);
        struct cgm_reference_found found = {
            .data = shards->memory[job->out][rank],
            .format = CGM_FORMAT_BF16,
            .row = block.row,
            .col = block.col,
            .rows = block.rows,
            .cols = block.cols,
            .stride = block.cols,
        };
        cgm_reference_check(reference, &found, &verdict);
    }
    return verdict;
}

/* The processes computed act from pre; here that is done once more. */
static void check_activation(const struct shards *shards)
{
    for (uint32_t rank = 0; rank < shards->mlp->world; rank++) {
        struct mlp_block block = mlp_tensor_block(shards->mlp, MLP_ACT, rank);
        for (uint64_t i = 0; i < block.rows * block.cols; i++) {
            float pre = cgm_bf16_to_float(shards->memory[MLP_PRE][rank][i]);
            float act = cgm_bf16_to_float(shards->memory[MLP_ACT][rank][i]);
            if (!(act == (pre > 0 ? pre : 0)))
                mlp_fail("act of rank %u is not max(pre, 0) of element %llu", rank,
                         (unsigned long long)i);
        }
    }
}

static void add_row(struct cgm_text_table *table, const struct mlp_job *job,
                    const struct mlp_figure *figure, const struct cgm_verdict *verdict)
{
    if (cgm_text_table_addf(table, "%s%s", commgemm_op_name(job->op),
                            job->bias == MLP_NO_TENSOR ? "" : " + bias") != 0 ||
        cgm_text_table_add(table, figure->algorithm) != 0 ||
        cgm_text_table_addf(table, "%.2f ms", figure->ms) != 0 ||
        cgm_text_table_addf(table, "%.0f %%", figure->overlap * 100) != 0 ||
        cgm_text_table_addf(table, "%.3f", verdict->ratio) != 0 ||
        cgm_text_table_add(table, cgm_verdict_is_right(verdict) ? "right" : "WRONG") != 0)
        mlp_fail("out of memory");
}

static bool report_job(const struct shards *shards, uint32_t index, const struct mlp_figure *figure,
                       struct cgm_text_table *table)
{
    struct cgm_reference reference;
    reference_of(shards, &mlp_jobs[index], &reference);
    struct cgm_verdict verdict = judge(shards, &mlp_jobs[index], &reference);
    cgm_reference_fini(&reference);
    add_row(table, &mlp_jobs[index], figure, &verdict);
    return cgm_verdict_is_right(&verdict);
}

void mlp_report(const struct mlp *mlp, const char *socket)
{
    static const struct cgm_text_column columns[] = {
        {"operation", CGM_ALIGN_LEFT}, {"algorithm", CGM_ALIGN_LEFT},    {"time", CGM_ALIGN_RIGHT},
        {"overlap", CGM_ALIGN_RIGHT},  {"error ratio", CGM_ALIGN_RIGHT}, {"result", CGM_ALIGN_LEFT},
    };
    static struct shards shards;
    struct mlp_figure figures[MLP_JOBS];
    bool right = true;
    mlp_figures_read(mlp, figures);
    shards_open(mlp, socket, &shards);
    check_activation(&shards);
    struct cgm_text_table *table =
        cgm_text_table_new(columns, sizeof(columns) / sizeof(columns[0]));
    if (!table)
        mlp_fail("out of memory");
    for (uint32_t i = 0; i < MLP_JOBS; i++)
        right &= report_job(&shards, i, &figures[i], table);
    cgm_text_table_print(table, stdout);
    cgm_text_table_free(table);
    commgemm_disconnect(shards.client);
    if (!right)
        mlp_fail("a result is outside the error bound");
}
