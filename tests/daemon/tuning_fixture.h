/* What the tests of auto share: sessions, comms of two ranks that one session holds, plans. */
#ifndef TUNING_FIXTURE_H
#define TUNING_FIXTURE_H

#include "tests/daemon/enter.h"

#include <string.h>

#define RANKS 2
#define SIDE 64

#ifndef CGM_TEST_EXECUTOR
#define CGM_TEST_EXECUTOR "commgemm-executor-cpu"
#define CGM_TEST_BACKEND_NAME "cpu"
#endif
#define EXECUTOR "executor=" CGM_BIN_DIR "/" CGM_TEST_EXECUTOR
#define BACKEND "backend=" CGM_TEST_BACKEND_NAME

static inline int try_to_join(commgemm_client *client, const char *name, uint64_t *ret_comm)
{
    static const uint32_t ranks[RANKS] = {0, 1};
    struct commgemm_join_options options;
    commgemm_join_options_init(&options);
    options.name = name;
    options.size = options.n_ranks = RANKS;
    options.create = 1;
    options.ranks = ranks;
    return commgemm_comm_join(client, &options, ret_comm);
}

static inline uint64_t join(commgemm_client *client, const char *name)
{
    uint64_t comm;
    if (try_to_join(client, name, &comm))
        fail_msg("join: %s", commgemm_last_error());
    return comm;
}

/* num_splits 0: not given. */
static inline int make_split_plan(commgemm_client *client, uint64_t comm, int op, uint64_t side,
                                  uint32_t num_splits, struct commgemm_plan *ret_plan)
{
    struct commgemm_plan_options options;
    commgemm_plan_options_init(&options);
    options.comm = comm;
    options.op = op;
    options.m = options.n = options.k = side;
    options.num_splits = num_splits;
    return commgemm_plan_create(client, &options, ret_plan);
}

static inline int make_plan(commgemm_client *client, uint64_t comm, int op, uint64_t side,
                            struct commgemm_plan *ret_plan)
{
    return make_split_plan(client, comm, op, side, 0, ret_plan);
}

static inline void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in \"%s\"", part, text);
}

static inline uint32_t count_products(const struct commgemm_completion *done)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < done->n_phases; i++)
        count += strcmp(commgemm_phase_name(done->phases[i].kind), "gemm") == 0;
    return count;
}

/* A job of the plan ends well; its operands are the same memory everywhere. Returns how many
 * products all ranks had. */
static inline uint32_t run_job(commgemm_client *client, const struct commgemm_plan *plan)
{
    uint32_t products = 0;
    struct commgemm_buffer buffers[3 * RANKS];
    struct commgemm_completion done;
    uint64_t tickets[RANKS];
    for (int i = 0; i < 3 * RANKS; i++)
        assert_int_equal(
            commgemm_buffer_create(client, NULL, SIDE * SIDE * sizeof(float), 0, 0, 0, &buffers[i]),
            COMMGEMM_OK);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        struct commgemm_job job;
        commgemm_job_init(&job);
        job.plan = plan->id;
        job.want_phases = 1;
        job.rank = rank;
        job.lhs = commgemm_operand_at(&buffers[3 * rank], 0);
        job.rhs = commgemm_operand_at(&buffers[3 * rank + 1], 0);
        job.out = commgemm_operand_at(&buffers[3 * rank + 2], 0);
        if (commgemm_submit(client, &job, &tickets[rank]))
            fail_msg("submit: %s", commgemm_last_error());
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        assert_int_equal(commgemm_wait(client, tickets[rank], WAIT_S * 1000, &done), COMMGEMM_OK);
        if (done.status != COMMGEMM_OK)
            fail_msg("job: %s: %s", commgemm_strerror(done.status), done.detail);
        assert_string_equal(done.reason, plan->reason);
        if (rank == 0) /* each has those of all devices */
            products = count_products(&done);
        commgemm_completion_fini(&done);
    }
    for (int i = 0; i < 3 * RANKS; i++)
        assert_int_equal(commgemm_buffer_close(client, buffers[i].id), COMMGEMM_OK);
    return products;
}

#endif
