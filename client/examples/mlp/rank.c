/* One rank's process: its shards in named buffers, and the forward pass. */
#include "client/examples/mlp/mlp.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/common/checksum.h"
#include "client/examples/mlp/figures.h"
#include "kernels/number_format.h"

#define REPEATS 9u
#define WAIT_MS 60000
#define POLL_US 20000

struct rank {
    const struct mlp *mlp;
    uint32_t rank;
    commgemm_client *client;
    uint64_t comm;
    struct commgemm_buffer buffers[MLP_TENSORS];
    void *memory[MLP_TENSORS];
    struct commgemm_plan plans[MLP_JOBS];
};

static void rank_connect(const struct mlp *mlp, const char *socket, uint32_t number,
                         struct rank *ret_rank)
{
    struct commgemm_connect_options options;
    commgemm_connect_options_init(&options);
    options.socket = socket;
    options.name = "mlp";
    *ret_rank = (struct rank){.mlp = mlp, .rank = number};
    mlp_check(commgemm_connect(&options, &ret_rank->client), "connect");
    mlp_check(
        commgemm_comm_join_simple(ret_rank->client, "mlp", mlp->world, number, &ret_rank->comm),
        "join comm mlp");
}

static void rank_map(struct rank *rank, enum mlp_tensor tensor)
{
    mlp_check(commgemm_buffer_map(rank->client, &rank->buffers[tensor], &rank->memory[tensor]),
              mlp_tensor_name(tensor));
}

static void rank_create_buffers(struct rank *rank)
{
    char name[MLP_NAME_BYTES];
    for (int i = 0; i < MLP_TENSORS; i++) {
        struct mlp_block block = mlp_tensor_block(rank->mlp, i, rank->rank);
        mlp_buffer_name(i, rank->rank, name);
        mlp_check(commgemm_buffer_create(rank->client, name, mlp_block_bytes(&block),
                                         (int)rank->rank, 0, 0, &rank->buffers[i]),
                  name);
        rank_map(rank, i);
        if (mlp_tensor_has_file(i))
            mlp_tensor_read(rank->mlp, i, &block, rank->memory[i]);
    }
}

static void rank_open_buffers(struct rank *rank)
{
    char name[MLP_NAME_BYTES];
    for (int i = 0; i < MLP_TENSORS; i++) {
        mlp_buffer_name(i, rank->rank, name);
        mlp_check(commgemm_buffer_open(rank->client, name, 0, 0, &rank->buffers[i]), name);
        rank_map(rank, i);
    }
}

static void rank_close_buffers(struct rank *rank)
{
    for (int i = 0; i < MLP_TENSORS; i++) {
        mlp_check(commgemm_buffer_unmap(rank->memory[i], rank->buffers[i].bytes), "unmap");
        mlp_check(commgemm_buffer_close(rank->client, rank->buffers[i].id), "close");
    }
}

/* The inner dimension is x's for the first product and act's for the second. */
static void rank_create_plans(struct rank *rank)
{
    const struct mlp *mlp = rank->mlp;
    for (uint32_t i = 0; i < MLP_JOBS; i++) {
        bool first = mlp_jobs[i].op == COMMGEMM_OP_AG_GEMM;
        struct commgemm_plan_options options;
        commgemm_plan_options_init(&options);
        options.comm = rank->comm;
        options.op = mlp_jobs[i].op;
        options.method = mlp_jobs[i].method;
        options.m = mlp->m;
        options.n = first ? mlp->h : mlp->k;
        options.k = first ? mlp->k : mlp->h;
        options.dtype = COMMGEMM_BF16;
        options.epilogue = mlp_jobs[i].bias == MLP_NO_TENSOR ? 0 : COMMGEMM_EPILOGUE_BIAS;
        mlp_check(commgemm_plan_create(rank->client, &options, &rank->plans[i]), "plan");
    }
}

static void rank_run(struct rank *rank, uint32_t index, struct commgemm_completion *ret_completion)
{
    const struct mlp_job *spec = &mlp_jobs[index];
    struct commgemm_job job;
    uint64_t ticket;
    commgemm_job_init(&job);
    job.plan = rank->plans[index].id;
    job.rank = rank->rank;
    job.lhs = commgemm_operand_at(&rank->buffers[spec->lhs], 0);
    job.rhs = commgemm_operand_at(&rank->buffers[spec->rhs], 0);
    job.out = commgemm_operand_at(&rank->buffers[spec->out], 0);
    if (spec->bias != MLP_NO_TENSOR)
        job.bias = commgemm_operand_at(&rank->buffers[spec->bias], 0);
    job.want_phases = 1;
    mlp_check(commgemm_submit(rank->client, &job, &ticket), "submit");
    mlp_check(commgemm_wait(rank->client, ticket, WAIT_MS, ret_completion), "wait");
    if (ret_completion->status != COMMGEMM_OK)
        mlp_fail("job %" PRIu64 " of %s: %s: %s", ret_completion->comm_number,
                 commgemm_op_name(spec->op), commgemm_strerror(ret_completion->status),
                 ret_completion->detail);
}

/* The first run warms caches and is not counted. */
static void rank_measure(struct rank *rank, uint32_t index, struct mlp_figure *ret_figure)
{
    struct commgemm_completion completions[REPEATS + 1];
    for (uint32_t i = 0; i <= REPEATS; i++)
        rank_run(rank, index, &completions[i]);
    mlp_figure_of(completions + 1, REPEATS, ret_figure);
    for (uint32_t i = 0; i <= REPEATS; i++)
        commgemm_completion_fini(&completions[i]);
}

static void rank_activate(struct rank *rank)
{
    struct mlp_block block = mlp_tensor_block(rank->mlp, MLP_ACT, rank->rank);
    const uint16_t *pre = rank->memory[MLP_PRE];
    uint16_t *act = rank->memory[MLP_ACT];
    for (uint64_t i = 0; i < block.rows * block.cols; i++)
        act[i] = cgm_bf16_to_float(pre[i]) > 0 ? pre[i] : 0;
}

static void rank_forward(struct rank *rank, struct mlp_figure *ret_figures)
{
    for (uint32_t i = 0; i < MLP_JOBS; i++) {
        if (mlp_jobs[i].lhs == MLP_ACT)
            rank_activate(rank);
        rank_measure(rank, i, &ret_figures[i]);
    }
}

static uint64_t rank_checksum(const struct rank *rank, enum mlp_tensor tensor)
{
    struct mlp_block block = mlp_tensor_block(rank->mlp, tensor, rank->rank);
    return cgm_checksum(rank->memory[tensor], mlp_block_bytes(&block));
}

static void rank_write_checksums(const struct rank *rank)
{
    char path[MLP_PATH_BYTES];
    mlp_path(rank->mlp, "checksums", (int)rank->rank, path);
    FILE *file = fopen(path, "w");
    if (!file)
        mlp_fail("cannot write %s", path);
    for (int i = 0; i < MLP_TENSORS; i++)
        fprintf(file, "%016" PRIx64 "\n", rank_checksum(rank, i));
    if (fclose(file) != 0)
        mlp_fail("cannot write %s", path);
}

/* Compares every buffer with what the process that was killed had written down. */
static void rank_compare_checksums(const struct rank *rank, const char *when)
{
    char path[MLP_PATH_BYTES];
    uint64_t before;
    mlp_path(rank->mlp, "checksums", (int)rank->rank, path);
    FILE *file = fopen(path, "r");
    if (!file)
        mlp_fail("cannot read %s", path);
    for (int i = 0; i < MLP_TENSORS; i++)
        if (fscanf(file, "%" SCNx64, &before) != 1 || before != rank_checksum(rank, i))
            mlp_fail("rank %u, %s: buffer %s has other contents than before", rank->rank, when,
                     mlp_tensor_name(i));
    fclose(file);
    printf("  rank %u, process %d: %d buffers as before, y %016" PRIx64 "  %s\n", rank->rank,
           (int)getpid(), MLP_TENSORS, rank_checksum(rank, MLP_Y), when);
    fflush(stdout);
}

/* Tells the script that this rank has come so far. */
static void rank_signal(const struct rank *rank, const char *name)
{
    char path[MLP_PATH_BYTES];
    mlp_path(rank->mlp, name, (int)rank->rank, path);
    FILE *file = fopen(path, "w");
    if (!file || fclose(file) != 0)
        mlp_fail("cannot write %s", path);
}

static uint64_t rank_executor_life(const struct rank *rank)
{
    struct commgemm_info info;
    mlp_check(commgemm_get_info(rank->client, &info), "info");
    return info.executor_life;
}

static void rank_await_new_executor(const struct rank *rank, uint64_t old_life)
{
    while (rank_executor_life(rank) == old_life)
        usleep(POLL_US);
    mlp_check(commgemm_wait_executor(rank->client, WAIT_MS), "wait for a new executor");
}

void mlp_rank_load(const struct mlp *mlp, const char *socket, uint32_t number)
{
    struct rank rank;
    struct mlp_figure figures[MLP_JOBS];
    rank_connect(mlp, socket, number, &rank);
    rank_create_buffers(&rank);
    rank_create_plans(&rank);
    rank_forward(&rank, figures);
    if (number == 0)
        mlp_figures_write(mlp, figures);
    rank_write_checksums(&rank);
    rank_signal(&rank, "loaded");
    for (;;)
        pause();
}

void mlp_rank_find(const struct mlp *mlp, const char *socket, uint32_t number)
{
    struct rank rank;
    struct mlp_figure figures[MLP_JOBS];
    rank_connect(mlp, socket, number, &rank);
    rank_open_buffers(&rank);
    rank_compare_checksums(&rank, "found");
    rank_create_plans(&rank);
    rank_forward(&rank, figures);
    rank_compare_checksums(&rank, "computed again");

    uint64_t life = rank_executor_life(&rank);
    rank_signal(&rank, "found");
    rank_await_new_executor(&rank, life);
    rank_close_buffers(&rank);
    rank_open_buffers(&rank);
    rank_compare_checksums(&rank, "found after the executor's death");
    rank_forward(&rank, figures);
    rank_compare_checksums(&rank, "computed by the new executor");
    commgemm_disconnect(rank.client);
}
