/* What the tests of the CPU backend share: a backend, filled views, and a host flag to wait for. */
#ifndef CPU_FIXTURE_H
#define CPU_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "daemon/executor/backend.h"
#include "kernels/number_format.h"
#include "kernels/reference.h"
#include "proto/status.h"
#include "tests/seed.h"

static const struct cgm_backend_ops *const ops = &cgm_backend_cpu;
static struct cgm_random rng;

static inline void fixture_seed(void)
{
    test_seed(&rng);
}

static inline uint64_t pick(uint64_t low, uint64_t high)
{
    return low + cgm_random_below(&rng, high - low + 1);
}

static inline struct cgm_backend *fixture_open(uint32_t delay_us)
{
    struct cgm_backend_options options = {.test_delay_us = delay_us, .spin_ns = 20000};
    struct cgm_backend *backend = NULL;
    char detail[200];
    assert_int_equal(ops->open(&options, detail, sizeof(detail), &backend), CGM_OK);
    return backend;
}

static inline struct cgm_queue *fixture_queue(struct cgm_backend *backend, uint32_t device)
{
    struct cgm_queue *queue = NULL;
    assert_int_equal(ops->queue_new(backend, device, 0, 0, &queue), CGM_OK);
    return queue;
}

static inline struct cgm_flag *fixture_flag(struct cgm_backend *backend, enum cgm_flag_kind kind)
{
    struct cgm_flag *flag = NULL;
    assert_int_equal(ops->flag_new(backend, 0, kind, &flag), CGM_OK);
    return flag;
}

static inline void fixture_await(struct cgm_flag *flag, uint64_t value)
{
    struct timespec pause = {0, 50000};
    while (ops->flag_read(flag) < value)
        nanosleep(&pause, NULL);
}

/* Runs everything that was enqueued. */
static inline void fixture_drain(struct cgm_backend *backend, struct cgm_queue *queue)
{
    struct cgm_flag *flag = fixture_flag(backend, CGM_FLAG_HOST);
    assert_int_equal(ops->signal(queue, flag, 1), CGM_OK);
    fixture_await(flag, 1);
    ops->flag_free(flag);
}

#endif
