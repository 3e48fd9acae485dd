/* What the conformance test runs on: a backend, queues for up to RIG_RANKS ranks, and launches of
 * one plan that are enqueued by one thread a device, as the executor does it.
 *
 * Every rank of every launch has an arena, which holds its operands. All memory is NaN before a run
 * except for what was put there. The moment a rank's done flag rises, its arena is saved and made
 * NaN again: whoever still reads or writes it then shows. */
#ifndef RIG_H
#define RIG_H

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/executor/algorithm.h"
#include "daemon/executor/recorded.h"
#include "kernels/number_format.h"
#include "kernels/random.h"
#include "kernels/reference.h"
#include "proto/status.h"
#include "tests/host_view.h"

#define RIG_RANKS 8u
#define RIG_LAUNCHES 3u
#define RIG_FLAGS 80u
#define ARENA_BYTES (2u << 20)
#define GUARD_BYTES 64u
#define POISON 0xff /* every format has a NaN of these bytes */

static const struct cgm_backend_ops *const ops = &CGM_TEST_BACKEND;

struct arena {
    struct cgm_mem *mem;
    struct host_view view;
    unsigned char *base; /* of the view */
    size_t used;
};

struct rig_batch;

/* The thread that enqueues for a device. */
struct rig_device {
    struct rig *rig;
    uint32_t device;
    pthread_t thread;
    sem_t begin, end;
    const struct rig_batch *batch; /* NULL at begin: stop */
    int status;
};

struct rig {
    struct cgm_backend *backend;
    uint32_t devices;
    struct rig_device threads[RIG_RANKS];
    struct cgm_plan_rank ranks[RIG_RANKS];
    struct cgm_flag *flags[RIG_RANKS][RIG_FLAGS];
    struct cgm_flag *done[RIG_RANKS];
    struct arena user[RIG_RANKS], scratch[RIG_RANKS];
    struct arena operands[RIG_LAUNCHES][RIG_RANKS];
    struct cgm_group *groups[RIG_RANKS + 1]; /* by world; NULL: there is none */
    uint64_t epoch;
    struct cgm_phase *phases; /* of the launches; NULL: nobody asked */
    uint32_t phases_max;
    void (*explain)(const void *context); /* prints what is being run, when it does not end */
    const void *explain_context;
    bool keep;    /* arenas stay as they are when a rank is done */
    bool replays; /* launches are recorded, where that can be, and enqueued from that */
    uint64_t n_replayed;
    sem_t wake;
};

static inline void rig_wake(void *context)
{
    sem_post(&((struct rig *)context)->wake);
}

static inline struct arena arena_new(struct rig *rig, uint32_t device)
{
    struct arena arena = {0};
    int fd;
    assert_int_equal(ops->mem_alloc(rig->backend, device, ARENA_BYTES, 0, &arena.mem), CGM_OK);
    assert_int_equal(ops->mem_export(arena.mem, &fd), CGM_OK);
    assert_int_equal(host_view_open(&arena.view, fd, ARENA_BYTES), 0);
    close(fd);
    arena.base = arena.view.base;
    memset(arena.base, POISON, ARENA_BYTES);
    host_view_push(&arena.view, 0, ARENA_BYTES);
    return arena;
}

static inline void arena_free(struct arena *arena)
{
    host_view_close(&arena->view);
    ops->mem_free(arena->mem);
}

static inline void arena_poison(struct arena *arena)
{
    memset(arena->base, POISON, arena->used + GUARD_BYTES);
    host_view_push(&arena->view, 0, arena->used + GUARD_BYTES);
}

static inline void rig_open_rank(struct rig *rig, uint32_t rank)
{
    struct cgm_plan_rank *self = &rig->ranks[rank];
    self->device = rank % rig->devices;
    uint32_t beside = rank / rig->devices * 2;
    assert_int_equal(ops->queue_new(rig->backend, self->device, 0, beside, &self->compute), CGM_OK);
    assert_int_equal(ops->queue_new(rig->backend, self->device, 0, beside + 1, &self->comm),
                     CGM_OK);
    for (uint32_t i = 0; i < RIG_FLAGS; i++)
        assert_int_equal(
            ops->flag_new(rig->backend, self->device, CGM_FLAG_DEVICE, &rig->flags[rank][i]),
            CGM_OK);
    self->flags = rig->flags[rank];
    assert_int_equal(ops->flag_new(rig->backend, self->device, CGM_FLAG_HOST, &rig->done[rank]),
                     CGM_OK);
    rig->user[rank] = arena_new(rig, self->device);
    rig->scratch[rank] = arena_new(rig, self->device);
    for (uint32_t i = 0; i < RIG_LAUNCHES; i++)
        rig->operands[i][rank] = arena_new(rig, self->device);
}

/* Groups of the first ranks, as far as each has a device of its own. */
static inline void rig_open_groups(struct rig *rig)
{
    uint32_t devices[RIG_RANKS];
    char text[CGM_CQE_DETAIL];
    for (uint32_t rank = 0; rank < RIG_RANKS; rank++)
        devices[rank] = rig->ranks[rank].device;
    for (uint32_t world = 2; ops->group_new && world <= rig->devices && world <= RIG_RANKS; world++)
        if (ops->group_new(rig->backend, devices, world, text, sizeof text, &rig->groups[world]) !=
            CGM_OK)
            print_message("no group of %u ranks: %s\n", world, text);
}

/* Gives every rank the plan's user buffer and scratch, with guards behind them, and its group. */
static inline void rig_set_plan(struct rig *rig, const struct cgm_spec *spec,
                                const struct cgm_algorithm *algorithm, bool by_library)
{
    struct cgm_shape shape = cgm_operation_user_buffer(spec);
    size_t scratch = algorithm->scratch_bytes ? (size_t)algorithm->scratch_bytes(spec) : 0;
    size_t user = (size_t)(shape.rows * shape.cols) * cgm_dtype_bytes(shape.dtype);
    assert_true(scratch + GUARD_BYTES <= ARENA_BYTES && user + GUARD_BYTES <= ARENA_BYTES);
    assert_true(!algorithm->flags || algorithm->flags(spec) <= RIG_FLAGS);
    for (uint32_t rank = 0; rank < spec->world; rank++) {
        rig->user[rank].used = user;
        rig->scratch[rank].used = scratch;
        arena_poison(&rig->user[rank]);
        arena_poison(&rig->scratch[rank]);
        rig->ranks[rank].user = rig->user[rank].mem;
        rig->ranks[rank].scratch = scratch ? rig->scratch[rank].mem : NULL;
        rig->ranks[rank].group = by_library ? rig->groups[spec->world] : NULL;
    }
}

static inline bool guard_is_intact(struct arena *arena)
{
    host_view_pull(&arena->view, arena->used, GUARD_BYTES);
    for (size_t i = 0; i < GUARD_BYTES; i++)
        if (arena->base[arena->used + i] != POISON)
            return false;
    return true;
}

/* ---- launches ---------------------------------------------------------------------------------
 */

struct rig_launch {
    struct cgm_run run;
    struct cgm_launch launch;
    struct cgm_view operands[RIG_RANKS][CGM_OPERAND_COUNT];
    struct arena *arenas;            /* [rank]: where the operands lie */
    unsigned char *after[RIG_RANKS]; /* arenas as they were when the rank was done */
    bool ended[RIG_RANKS];
    struct cgm_recorded recorded[RIG_RANKS];
    bool is_recorded;
};

struct rig_batch {
    const struct cgm_algorithm *algorithm;
    struct rig_launch *launches;
    uint32_t count, world;
    uint64_t first_epoch;
};

static inline void rig_enqueue(struct rig_device *device, struct rig_launch *launch, uint32_t rank)
{
    const struct cgm_plan_rank *self = &device->rig->ranks[rank];
    ops->set_run(self->compute, &launch->run);
    ops->set_run(self->comm, &launch->run);
    int status = launch->is_recorded
                     ? cgm_recorded_replay(&launch->recorded[rank], &launch->launch, rank)
                     : cgm_launch_enqueue(device->batch->algorithm, &launch->launch, rank);
    if (status != CGM_OK)
        atomic_store(&launch->run.status, device->status = status);
    ops->signal(self->compute, device->rig->done[rank], launch->launch.epoch);
}

static inline void *rig_device_main(void *argument)
{
    struct rig_device *device = argument;
    for (;;) {
        sem_wait(&device->begin);
        if (!device->batch)
            return NULL;
        for (uint32_t i = 0; i < device->batch->count; i++)
            for (uint32_t rank = device->device; rank < device->batch->world;
                 rank += device->rig->devices)
                rig_enqueue(device, &device->batch->launches[i], rank);
        sem_post(&device->end);
    }
}

/* Every other one in an epoch of its own, and foreseen. */
static inline void rig_record(struct rig *rig, const struct rig_batch *batch,
                              struct rig_launch *launch)
{
    struct cgm_launch earlier = launch->launch;
    int status = CGM_OK;
    earlier.epoch = 1 + launch->launch.epoch / 2;
    for (uint32_t rank = 0; rank < batch->world && status == CGM_OK; rank++)
        status = cgm_recorded_make(batch->algorithm, &earlier, rank, &launch->recorded[rank]);
    launch->is_recorded = status == CGM_OK;
    rig->n_replayed += launch->is_recorded;
    assert_true(status == CGM_OK || status == CGM_NOT_SUPPORTED);
    for (uint32_t rank = 0; rank < batch->world && launch->is_recorded; rank++)
        if (launch->launch.epoch % 2)
            cgm_recorded_foresee(&launch->recorded[rank], &earlier, rank, 1);
}

static inline void rig_forget(struct rig_launch *launch, uint32_t world)
{
    for (uint32_t rank = 0; rank < world; rank++)
        cgm_recorded_free(ops, &launch->recorded[rank]);
    launch->is_recorded = false;
}

/* Saves what has ended; returns how many of the batch's parts have. */
static inline uint32_t rig_collect(struct rig *rig, const struct rig_batch *batch)
{
    uint32_t ended = 0;
    for (uint32_t rank = 0; rank < batch->world; rank++) {
        uint64_t epoch = ops->flag_read(rig->done[rank]);
        for (uint32_t i = 0; i < batch->count && batch->first_epoch + i <= epoch; i++) {
            struct rig_launch *launch = &batch->launches[i];
            struct arena *arena = &launch->arenas[rank];
            ended++;
            if (launch->ended[rank])
                continue;
            host_view_pull(&arena->view, 0, arena->used + GUARD_BYTES);
            memcpy(launch->after[rank], arena->base, arena->used + GUARD_BYTES);
            if (!rig->keep)
                arena_poison(arena);
            launch->ended[rank] = true;
        }
    }
    return ended;
}

static inline void rig_post(struct rig *rig, const struct rig_batch *batch)
{
    for (uint32_t i = 0; i < rig->devices; i++) {
        rig->threads[i].batch = batch;
        rig->threads[i].status = CGM_OK;
        sem_post(&rig->threads[i].begin);
    }
}

/* Fails when nothing ends for a minute. */
static inline void rig_await_wake(struct rig *rig, const struct timespec *deadline)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (rig->explain && now.tv_sec + 50 > deadline->tv_sec) {
        rig->explain(rig->explain_context);
        rig->explain = NULL;
        print_error("a launch takes more than ten seconds\n");
        if (ops->check) /* ends the process where a device is lost */
            ops->check(rig->backend);
    }
    if (ops->host_flags_need_polling && now.tv_sec < deadline->tv_sec)
        sched_yield();
    else if (ops->host_flags_need_polling || sem_timedwait(&rig->wake, deadline) != 0)
        fail_msg("a launch does not end");
}

/* Runs launches whose arenas are filled. The first failure of an enqueue or of a run. */
static inline int rig_run(struct rig *rig, const struct cgm_spec *spec,
                          const struct cgm_algorithm *algorithm, struct rig_launch *launches,
                          uint32_t count)
{
    struct rig_batch batch = {algorithm, launches, count, spec->world, rig->epoch + 1};
    int status = CGM_OK;
    for (uint32_t i = 0; i < count; i++) {
        memset(&launches[i].run, 0, sizeof launches[i].run);
        launches[i].run.phases = rig->phases;
        launches[i].run.phases_max = rig->phases_max;
        memset(launches[i].ended, 0, sizeof launches[i].ended);
        launches[i].launch.ops = ops;
        launches[i].launch.spec = spec;
        launches[i].launch.ranks = rig->ranks;
        launches[i].launch.epoch = ++rig->epoch;
        launches[i].launch.quiet = i == 0 && rig->epoch % 2 == 0;
        launches[i].launch.operands =
            (const struct cgm_view(*)[CGM_OPERAND_COUNT])(const void *)launches[i].operands;
        launches[i].launch.run = &launches[i].run;
    }
    for (uint32_t i = 0; rig->replays && ops->replay && i < count; i++)
        rig_record(rig, &batch, &launches[i]);
    rig_post(rig, &batch);
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += 60;
    while (rig_collect(rig, &batch) < count * spec->world)
        rig_await_wake(rig, &deadline);
    for (uint32_t i = 0; i < rig->devices; i++) {
        sem_wait(&rig->threads[i].end);
        status = status != CGM_OK ? status : rig->threads[i].status;
    }
    for (uint32_t i = 0; i < count; i++) {
        status = status != CGM_OK ? status : atomic_load(&launches[i].run.status);
        rig_forget(&launches[i], spec->world);
    }
    return status;
}

/* ---- opening and closing ----------------------------------------------------------------------
 */

/* On the heap: a failed assertion leaves the frames of the test behind, while threads go on. */
static inline struct rig *rig_open(uint32_t devices, uint32_t delay_us)
{
    char detail[CGM_CQE_DETAIL];
    struct rig *rig = calloc(1, sizeof *rig);
    assert_non_null(rig);
    rig->devices = devices;
    sem_init(&rig->wake, 0, 0);
    struct cgm_backend_options options = {
        .devices = devices, .test_delay_us = delay_us, .wake = rig_wake, .wake_context = rig};
    if (ops->open(&options, detail, sizeof detail, &rig->backend) != CGM_OK)
        fail_msg("%s", detail);
    rig->devices = ops->device_count(rig->backend);
    for (uint32_t rank = 0; rank < RIG_RANKS; rank++)
        rig_open_rank(rig, rank);
    rig_open_groups(rig);
    for (uint32_t i = 0; i < rig->devices; i++) {
        struct rig_device *device = &rig->threads[i];
        device->rig = rig;
        device->device = i;
        sem_init(&device->begin, 0, 0);
        sem_init(&device->end, 0, 0);
        assert_int_equal(pthread_create(&device->thread, NULL, rig_device_main, device), 0);
    }
    return rig;
}

static inline void rig_close(struct rig *rig)
{
    rig_post(rig, NULL);
    for (uint32_t i = 0; i < rig->devices; i++) {
        pthread_join(rig->threads[i].thread, NULL);
        sem_destroy(&rig->threads[i].begin);
        sem_destroy(&rig->threads[i].end);
    }
    for (uint32_t world = 0; world <= RIG_RANKS; world++)
        if (rig->groups[world])
            ops->group_free(rig->groups[world]);
    for (uint32_t rank = 0; rank < RIG_RANKS; rank++) {
        ops->queue_free(rig->ranks[rank].compute);
        ops->queue_free(rig->ranks[rank].comm);
        for (uint32_t i = 0; i < RIG_FLAGS; i++)
            ops->flag_free(rig->flags[rank][i]);
        ops->flag_free(rig->done[rank]);
        arena_free(&rig->user[rank]);
        arena_free(&rig->scratch[rank]);
        for (uint32_t i = 0; i < RIG_LAUNCHES; i++)
            arena_free(&rig->operands[i][rank]);
    }
    ops->close(rig->backend);
    sem_destroy(&rig->wake);
    free(rig);
}

#endif
