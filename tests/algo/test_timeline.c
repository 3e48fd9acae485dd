/* The timeline of a job shows what an algorithm is for: while a rank multiplies one chunk, another
 * chunk is on its way from or to it. Every algorithm of the table that promises it is run until it
 * has been seen; how long things take is nobody's business here. */
#include "tests/algo/trial.h"

#define PHASES 1024u
#define SIDE 256u
#define ATTEMPTS 4000u

static struct cgm_phase phases[PHASES];

static bool is_push(const struct cgm_phase *phase)
{
    return phase->kind == CGM_PHASE_COPY && phase->queue == 1 && phase->rank != phase->peer_or_zero;
}

static bool concerns(const struct cgm_phase *push, uint32_t rank)
{
    return push->rank == rank || push->peer_or_zero == rank;
}

static bool meet(const struct cgm_phase *a, const struct cgm_phase *b)
{
    return a->begin_ns < b->end_ns && b->begin_ns < a->end_ns;
}

static bool shows_overlap(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; phases[i].kind == CGM_PHASE_GEMM && j < count; j++)
            if (is_push(&phases[j]) && concerns(&phases[j], phases[i].rank) &&
                meet(&phases[i], &phases[j]))
                return true;
    return false;
}

static uint32_t run_once(struct rig *rig, const struct config *config)
{
    struct trial trial = {.config = config, .rig = rig, .count = 1};
    const uint64_t sizes[3] = {config->op == CGM_OP_A2AV ? count_rows(config) : SIDE, SIDE, SIDE};
    trial.layout = layout_of(config->op);
    set_spec(config, (int)config->algorithm->number, sizes, &trial.spec);
    job_init(&trial, 0);
    rig->phases = phases;
    rig->phases_max = PHASES;
    trial_run(&trial, &trial.spec, config->algorithm);
    rig->phases = NULL;
    job_fini(&trial.jobs[0], trial.spec.world);
    uint32_t count = atomic_load(&trial.launches[0].run.n_phases);
    return count < PHASES ? count : PHASES;
}

static void try_algorithm(struct rig *rig, const struct cgm_algorithm *algorithm, int op,
                          bool variant)
{
    struct config config = {.algorithm = algorithm,
                            .op = op,
                            .dtype = CGM_DTYPE_FP32,
                            .out_dtype = CGM_DTYPE_FP32,
                            .buffer_dtype = -1,
                            .aux = true,
                            .full_rows = true,
                            .world = 4,
                            .moved = {SIDE, SIDE}};
    config.aggregate = variant && algorithm->parameters >> CGM_PARAMETER_AGGREGATE_AG & 1;
    config.first_gemm = variant && algorithm->parameters >> CGM_PARAMETER_RS_OVERLAP_FIRST_GEMM & 1;
    for (uint32_t i = 0; i < ATTEMPTS; i++)
        if (shows_overlap(run_once(rig, &config)))
            return;
    fail_msg("%s: no GEMM and no push at the same time in %u jobs", algorithm->name, ATTEMPTS);
}

/* Its tiles are stored where the peers want them: nothing is pushed while they are multiplied. */
static bool stores_at_peers(const struct cgm_algorithm *algorithm)
{
    return algorithm->number == CGM_ALGO_FUSED_RS || algorithm->number == CGM_ALGO_FUSED_AR ||
           algorithm->number == CGM_ALGO_FUSED_AS;
}

/* Those with a product that are not the serial one. */
static void test_overlap(void **state)
{
    (void)state;
    struct rig *rig = rig_open(4, 0);
    for (size_t i = 0; i < cgm_algorithm_count; i++)
        for (int op = 0; op < 32; op++) {
            const struct cgm_algorithm *algorithm = cgm_algorithms[i];
            if (!(algorithm->ops & 1u << op) || algorithm->method == CGM_METHOD_NONE ||
                layouts[layout_of(op)].rhs == NOTHING || stores_at_peers(algorithm))
                continue;
            try_algorithm(rig, algorithm, op, false);
            try_algorithm(rig, algorithm, op, true);
        }
    rig_close(rig);
}

/* ---- what parameters do ---------------------------------------------------------------------- */

/* Rank 0's products, and the sums that end before its last product begins. */
static void count_steps(uint32_t count, uint32_t *ret_gemms, uint32_t *ret_early_sums)
{
    uint64_t last_ns = 0;
    *ret_gemms = *ret_early_sums = 0;
    for (uint32_t i = 0; i < count; i++)
        if (phases[i].rank == 0 && phases[i].kind == CGM_PHASE_GEMM) {
            ++*ret_gemms;
            last_ns = phases[i].begin_ns > last_ns ? phases[i].begin_ns : last_ns;
        }
    for (uint32_t i = 0; i < count; i++)
        *ret_early_sums += phases[i].rank == 0 && phases[i].kind == CGM_PHASE_REDUCE &&
                           phases[i].end_ns <= last_ns;
}

static void test_parameters(void **state)
{
    (void)state;
    static const struct {
        int algorithm, op;
        uint32_t num_splits;
        bool first_gemm, aggregate;
        uint32_t gemms, early_sums;
    } rows[] = {
        {CGM_ALGO_SPLIT_PIPELINED_RS, CGM_OP_GEMM_RS, 0, false, false, 4, 0},
        {CGM_ALGO_SPLIT_PIPELINED_RS, CGM_OP_GEMM_RS, 7, false, false, 7, 0},
        {CGM_ALGO_SPLIT_PIPELINED_RS, CGM_OP_GEMM_RS, 7, true, false, 7, 5},
        {CGM_ALGO_ONE_SHOT_AR, CGM_OP_GEMM_AR, 0, false, false, 4, 0},
        {CGM_ALGO_ONE_SHOT_AR, CGM_OP_GEMM_AR, 5, false, false, 5, 0},
        {CGM_ALGO_TWO_SHOT_AR, CGM_OP_GEMM_AR, 0, false, false, 4, 0},
        {CGM_ALGO_SPLIT_AS, CGM_OP_GEMM_AS, 6, false, false, 6, 0},
        {CGM_ALGO_ATOMIC_GEMM_AS, CGM_OP_GEMM_AS, 6, false, false, 6, 0},
        {CGM_ALGO_SPLIT_PIPELINED_AG_P2P, CGM_OP_AG_GEMM, 0, false, true, 2, 0},
        {CGM_ALGO_ATOMIC_GEMM_RS, CGM_OP_GEMM_RS, 6, false, false, 6, 0},
        {CGM_ALGO_FUSED_AG, CGM_OP_AG_GEMM, 3, false, false, 10, 0},
        {CGM_ALGO_FUSED_RS, CGM_OP_GEMM_RS, 2, false, false, 8, 0},
        {CGM_ALGO_FUSED_AR, CGM_OP_GEMM_AR, 3, false, false, 12, 0},
        {CGM_ALGO_FUSED_AS, CGM_OP_GEMM_AS, 0, false, false, 1, 0},
        {CGM_ALGO_SPLIT_PIPELINED_RS_P2P, CGM_OP_GEMM_RS, 0, false, false, 4, 0},
    };
    struct rig *rig = rig_open(4, 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct config config = {.algorithm = cgm_algorithm_find(rows[i].algorithm),
                                .op = rows[i].op,
                                .num_splits = rows[i].num_splits,
                                .first_gemm = rows[i].first_gemm,
                                .aggregate = rows[i].aggregate,
                                .dtype = CGM_DTYPE_FP32,
                                .out_dtype = CGM_DTYPE_FP32,
                                .buffer_dtype = -1,
                                .full_rows = true,
                                .world = 4};
        uint32_t gemms, early_sums;
        count_steps(run_once(rig, &config), &gemms, &early_sums);
        if (gemms != rows[i].gemms || early_sums != rows[i].early_sums)
            fail_msg("row %zu: %u products, %u sums before the last one", i, gemms, early_sums);
    }
    rig_close(rig);
}

int main(void)
{
    seed_trials();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_overlap),
                                       cmocka_unit_test(test_parameters)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
