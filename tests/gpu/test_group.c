/* Groups of ranks on devices of their own: right results, and what happens to a part whose peers
 * never come. Needs two GPUs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <cmocka.h>

#include "daemon/executor/cuda/cuda.h"
#include "proto/status.h"
#include "tests/seed.h"

#define RANKS_MAX 4u
#define COUNT 4096u /* elements of one rank */
#define TIMEOUT_S 60

static const struct cgm_backend_ops *const ops = &cgm_backend_cuda;

struct stand {
    struct cgm_backend *backend;
    uint32_t world;
    struct cgm_group *group;
    struct cgm_queue *queue[RANKS_MAX];
    struct cgm_flag *done[RANKS_MAX];
    struct cgm_mem *in[RANKS_MAX], *out[RANKS_MAX];
};

static void stand_open(struct stand *stand)
{
    const struct cgm_backend_options options = {0};
    char text[256];
    uint32_t devices[RANKS_MAX];
    *stand = (struct stand){0};
    if (ops->open(&options, text, sizeof(text), &stand->backend) != CGM_OK)
        fail_msg("%s", text);
    stand->world = ops->device_count(stand->backend);
    stand->world = stand->world < RANKS_MAX ? stand->world : RANKS_MAX;
    for (uint32_t r = 0; r < stand->world; r++) {
        devices[r] = r;
        assert_int_equal(ops->queue_new(stand->backend, r, 0, 0, &stand->queue[r]), CGM_OK);
        assert_int_equal(ops->flag_new(stand->backend, r, CGM_FLAG_HOST, &stand->done[r]), CGM_OK);
        assert_int_equal(ops->mem_alloc(stand->backend, r, COUNT * 4, 0, &stand->in[r]), CGM_OK);
        assert_int_equal(ops->mem_alloc(stand->backend, r, COUNT * 16, 0, &stand->out[r]), CGM_OK);
    }
    if (stand->world < 2) {
        ops->close(stand->backend);
        skip();
    }
    if (ops->group_new(stand->backend, devices, stand->world, text, sizeof(text), &stand->group) !=
        CGM_OK)
        fail_msg("%s", text);
    print_message("%u ranks, %s\n", stand->world, text);
}

static void stand_close(struct stand *stand)
{
    ops->group_free(stand->group);
    for (uint32_t r = 0; r < stand->world; r++) {
        ops->queue_free(stand->queue[r]);
        ops->flag_free(stand->done[r]);
        ops->mem_free(stand->in[r]);
        ops->mem_free(stand->out[r]);
    }
    ops->close(stand->backend);
}

/* Fails after TIMEOUT_S. */
static void await(const struct stand *stand, uint32_t rank, const struct cgm_run *failing)
{
    const struct timespec tick = {.tv_nsec = 1000000};
    time_t begin = time(NULL);
    while (ops->flag_read(stand->done[rank]) < 1) {
        if (failing && ops->release_waits(stand->backend, failing))
            ops->abort_waits(stand->backend);
        ops->check(stand->backend);
        if (time(NULL) - begin > TIMEOUT_S)
            fail_msg("rank %u does not end", rank);
        nanosleep(&tick, NULL);
    }
}

static int gather(const struct stand *stand, uint32_t rank)
{
    const struct cgm_collective collective = {
        .kind = CGM_COLLECTIVE_GATHER,
        .dst = {stand->out[rank], 0, stand->world, COUNT, COUNT, CGM_DTYPE_FP32},
        .src = {stand->in[rank], 0, 1, COUNT, COUNT, CGM_DTYPE_FP32},
    };
    return ops->collective(stand->queue[rank], stand->group, rank, &collective);
}

static void test_a_gather_is_exact(void **state)
{
    (void)state;
    struct stand stand;
    struct cgm_run run = {.begin_ns = 1};
    struct cgm_random rng;
    static float values[RANKS_MAX * COUNT], found[RANKS_MAX * COUNT];
    stand_open(&stand);
    test_seed(&rng);
    cgm_random_fill(&rng, CGM_FILL_WIDE, values, stand.world * COUNT);
    for (uint32_t r = 0; r < stand.world; r++) {
        cgm_device_use(r);
        assert_int_equal(
            cudaMemcpy(stand.in[r]->at[r], values + r * COUNT, COUNT * 4, cudaMemcpyDefault),
            cudaSuccess);
        assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
    }
    for (uint32_t r = 0; r < stand.world; r++) {
        ops->set_run(stand.queue[r], &run);
        assert_int_equal(gather(&stand, r), CGM_OK);
        assert_int_equal(ops->signal(stand.queue[r], stand.done[r], 1), CGM_OK);
    }
    for (uint32_t r = 0; r < stand.world; r++) {
        await(&stand, r, NULL);
        assert_int_equal(
            cudaMemcpy(found, stand.out[r]->at[r], stand.world * COUNT * 4, cudaMemcpyDefault),
            cudaSuccess);
        assert_memory_equal(found, values, stand.world * COUNT * 4);
    }
    stand_close(&stand);
}

static void test_a_part_without_peers_is_aborted(void **state)
{
    (void)state;
    struct stand stand;
    struct cgm_run run = {.begin_ns = 1};
    stand_open(&stand);
    ops->set_run(stand.queue[0], &run);
    assert_int_equal(gather(&stand, 0), CGM_OK);
    assert_int_equal(ops->signal(stand.queue[0], stand.done[0], 1), CGM_OK);
    atomic_store(&run.status, CGM_WATCHDOG);
    await(&stand, 0, &run);
    assert_int_not_equal(gather(&stand, 0), CGM_OK);
    stand_close(&stand);
}

static void test_views_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    struct stand stand;
    stand_open(&stand);
    struct cgm_collective collective = {
        .kind = CGM_COLLECTIVE_REDUCE,
        .dst = {stand.out[0], 0, 2, 8, 8, CGM_DTYPE_FP32},
        .src = {stand.in[0], 0, 1, 8, 8, CGM_DTYPE_FP32},
    };
    assert_int_equal(ops->collective(stand.queue[0], stand.group, 0, &collective),
                     CGM_INVALID_ARGUMENT);
    collective.src = (struct cgm_view){stand.in[0], 0, 2, 8, 9, CGM_DTYPE_FP32};
    assert_int_equal(ops->collective(stand.queue[0], stand.group, 0, &collective),
                     CGM_INVALID_ARGUMENT);
    collective.src = (struct cgm_view){stand.in[0], 0, 2, 8, 8, CGM_DTYPE_BF16};
    assert_int_equal(ops->collective(stand.queue[0], stand.group, 0, &collective),
                     CGM_INVALID_ARGUMENT);
    stand_close(&stand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_gather_is_exact),
        cmocka_unit_test(test_views_that_do_not_fit_are_refused),
        cmocka_unit_test(test_a_part_without_peers_is_aborted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
