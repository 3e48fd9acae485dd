/* A job may read what the job before it writes, without anybody waiting in between: queues of a
 * rank keep the order of its jobs. Two jobs are enqueued at once, the second on the first one's
 * output, and then once more with a wait between them; the results must be the same bits. */
#include "tests/algo/trial.h"

#define ROUNDS 12

static const struct {
    int op, algorithm;
    bool aggregate;
} cases[] = {
    {CGM_OP_GEMM, CGM_ALGO_NO_OVERLAP, false},
    {CGM_OP_AG, CGM_ALGO_NO_OVERLAP, false},
    {CGM_OP_AR, CGM_ALGO_NO_OVERLAP, false},
    {CGM_OP_AG_GEMM, CGM_ALGO_NO_OVERLAP, false},
    {CGM_OP_AG_GEMM, CGM_ALGO_SPLIT_PIPELINED_AG_P2P, false},
    {CGM_OP_AG_GEMM, CGM_ALGO_SPLIT_PIPELINED_AG_P2P, true},
    {CGM_OP_GEMM_AR, CGM_ALGO_NO_OVERLAP, false},
    {CGM_OP_GEMM_AR, CGM_ALGO_ONE_SHOT_AR, false},
    {CGM_OP_GEMM_AR, CGM_ALGO_TWO_SHOT_AR, false},
    {CGM_OP_AR, CGM_ALGO_ONE_SHOT_AR, false},
    {CGM_OP_AR, CGM_ALGO_TWO_SHOT_AR, false},
    {CGM_OP_GEMM_AS, CGM_ALGO_NO_OVERLAP, false},
    {CGM_OP_GEMM_AS, CGM_ALGO_SPLIT_AS, false},
    {CGM_OP_BULK_AG, CGM_ALGO_BULK_OVERLAP_AG, false},
    {CGM_OP_BULK_RS, CGM_ALGO_BULK_OVERLAP_RS, false},
};

/* The second job's lhs is the upper left corner of the first one's out. */
static void link_jobs(struct trial *trial)
{
    for (uint32_t rank = 0; rank < trial->spec.world; rank++) {
        struct cgm_view *lhs = &trial->launches[1].operands[rank][CGM_OPERAND_LHS];
        struct cgm_view out = trial->launches[0].operands[rank][CGM_OPERAND_OUT];
        out = cgm_view_rows(&out, 0, lhs->rows);
        *lhs = cgm_view_cols(&out, 0, lhs->cols);
    }
}

static void fill_arenas(struct trial *trial)
{
    rig_set_plan(trial->rig, &trial->spec, trial->config->algorithm, false);
    for (uint32_t i = 0; i < trial->count; i++)
        for (uint32_t rank = 0; rank < trial->spec.world; rank++) {
            struct job *job = &trial->jobs[i];
            memcpy(trial->rig->operands[i][rank].base, job->before[rank],
                   job->used[rank] + GUARD_BYTES);
        }
}

static void save_into(struct trial *trial, unsigned char *const *first,
                      unsigned char *const *second)
{
    for (uint32_t rank = 0; rank < trial->spec.world; rank++) {
        trial->launches[0].after[rank] = first[rank];
        trial->launches[1].after[rank] = second[rank];
    }
}

static void judge(const struct trial *trial, uint32_t rank)
{
    const struct job *job = &trial->jobs[1];
    const struct cgm_view *out = &trial->launches[1].operands[rank][CGM_OPERAND_OUT];
    float value;
    if (memcmp(job->after[rank], job->again[rank], job->used[rank]) != 0) {
        describe(trial->config, &trial->spec);
        fail_msg("rank %u: without a wait between the jobs the result is another", rank);
    }
    for (uint64_t i = 0; i < out->rows; i++)
        for (uint64_t j = 0; j < out->cols; j++) {
            memcpy(&value, job->after[rank] + out->offset_bytes + (i * out->stride + j) * 4, 4);
            assert_false(value != value);
        }
}

/* Sizes whose out is no smaller than lhs. */
static void plan_sizes(const struct config *config, uint64_t *ret_sizes)
{
    bool shards = cgm_operation_shards_rows(config->op);
    uint64_t part = 1 + pick(20);
    ret_sizes[0] = (1 + pick(8)) * (shards ? config->world : 1);
    bool shards_cols = config->op == CGM_OP_AG_GEMM || config->op == CGM_OP_GEMM_AS;
    ret_sizes[1] = part * (shards_cols ? config->world : 1);
    ret_sizes[2] = part * (config->op == CGM_OP_GEMM_AR ? config->world : 1);
}

static void try_chain(struct rig *rig, const struct config *config)
{
    struct trial trial = {
        .config = config, .rig = rig, .count = 2, .layout = layout_of(config->op)};
    uint64_t sizes[3];
    plan_sizes(config, sizes);
    set_spec(config, (int)config->algorithm->number, sizes, &trial.spec);
    for (uint32_t i = 0; i < trial.count; i++)
        job_init(&trial, i);
    link_jobs(&trial);
    fill_arenas(&trial);
    save_into(&trial, trial.jobs[0].after, trial.jobs[1].after);
    int status = rig_run(rig, &trial.spec, config->algorithm, trial.launches, 2);
    assert_int_equal(status, CGM_OK);
    fill_arenas(&trial);
    save_into(&trial, trial.jobs[0].again, trial.jobs[1].again);
    for (uint32_t i = 0; i < trial.count; i++) {
        status = rig_run(rig, &trial.spec, config->algorithm, &trial.launches[i], 1);
        assert_int_equal(status, CGM_OK);
    }
    for (uint32_t rank = 0; rank < trial.spec.world; rank++) {
        memcpy(trial.jobs[1].again[rank], rig->operands[1][rank].base, trial.jobs[1].used[rank]);
        judge(&trial, rank);
    }
    for (uint32_t i = 0; i < trial.count; i++)
        job_fini(&trial.jobs[i], trial.spec.world);
}

static void run_chains(uint32_t delay_us)
{
    struct rig *rig = rig_open(4, delay_us);
    rig->keep = true;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (uint32_t round = 0; round < ROUNDS; round++) {
            struct config config = {.algorithm = cgm_algorithm_find(cases[i].algorithm),
                                    .op = cases[i].op,
                                    .aggregate = cases[i].aggregate,
                                    .dtype = CGM_DTYPE_FP32,
                                    .out_dtype = CGM_DTYPE_FP32,
                                    .buffer_dtype = -1,
                                    .full_rows = true,
                                    .world = worlds[round % WORLDS]};
            pick_rest(&config);
            try_chain(rig, &config);
        }
    rig_close(rig);
}

static void test_chains(void **state)
{
    (void)state;
    run_chains(0);
}

static void test_chains_with_random_delays(void **state)
{
    (void)state;
    run_chains(300);
}

int main(void)
{
    seed_trials();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_chains_with_random_delays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
