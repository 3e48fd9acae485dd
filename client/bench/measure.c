/* The timed runs: in every iteration each variant once, all ranks released together. */
#include <time.h>

#include "client/bench/worker.h"

#define LEAST_ITERATIONS 3u

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Worker 0 decides, before the barrier of the iteration that the decision is about. The warm-up may
 * take a third of the time. */
static void look_at_clock(const struct cgm_bench *bench, double begin_s, uint64_t warmup,
                          uint64_t done)
{
    const struct cgm_bench_options *o = bench->options;
    double limit_s = o->time_limit_s, spent_s = now_s() - begin_s;
    if (limit_s == 0 || o->iters_given)
        return;
    if (done < warmup ? spent_s > limit_s / 3
                      : spent_s > limit_s && done >= warmup + LEAST_ITERATIONS)
        atomic_store(&bench->results->stop_at, done);
}

static void run_all(const struct cgm_worker *worker, uint64_t iteration, bool keep)
{
    const struct cgm_bench *bench = worker->bench;
    struct cgm_sample sample;
    for (int v = 0; v < CGM_VARIANT_COUNT; v++) {
        if (!bench->results->wanted[v])
            continue;
        cgm_barrier_wait(&worker->seat->board->step);
        cgm_worker_run(worker, (enum cgm_variant)v, NULL, &sample);
        if (keep)
            cgm_bench_samples(bench, (enum cgm_variant)v, worker->seat->worker)[iteration] = sample;
    }
}

/* Runs up to `count` iterations, fewer when the time is up; the number that was run. */
static uint64_t run_many(const struct cgm_worker *worker, uint64_t count, uint64_t warmup,
                         uint64_t before, double begin_s, bool keep)
{
    const struct cgm_bench *bench = worker->bench;
    struct cgm_crew_board *board = worker->seat->board;
    uint64_t i;
    for (i = 0; i < count; i++) {
        if (worker->seat->worker == 0)
            look_at_clock(bench, begin_s, warmup, before + i);
        cgm_barrier_wait(&board->step);
        if (atomic_load(&bench->results->stop_at) == before + i)
            break;
        run_all(worker, i, keep);
        if (worker->seat->worker == 0)
            atomic_fetch_add(&board->progress, 1);
    }
    return i;
}

void cgm_worker_measure(const struct cgm_worker *worker)
{
    const struct cgm_bench *bench = worker->bench;
    struct cgm_bench_results *results = bench->results;
    const struct cgm_bench_options *o = bench->options;
    double begin_s = now_s();
    if (worker->seat->worker == 0)
        atomic_store(&results->stop_at, UINT64_MAX);
    cgm_barrier_wait(&worker->seat->board->step);
    uint64_t warmups = run_many(worker, o->warmup, o->warmup, 0, begin_s, false);
    cgm_barrier_wait(&worker->seat->board->step);
    if (worker->seat->worker == 0)
        atomic_store(&results->stop_at, UINT64_MAX);
    cgm_barrier_wait(&worker->seat->board->step);
    uint64_t iterations = run_many(worker, o->iters, warmups, warmups, begin_s, true);
    if (worker->seat->worker == 0) {
        results->warmups = warmups;
        results->iterations = iterations;
    }
}
