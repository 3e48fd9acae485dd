/* What the tests of the CUDA backend share: the open backend, a queue with its run, and memory that
 * can be looked into. Include the headers of cmocka before it. */
#ifndef GPU_FIXTURE_H
#define GPU_FIXTURE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/executor/backend.h"
#include "proto/ring.h"
#include "proto/status.h"
#include "tests/host_view.h"
#include "tests/seed.h"

#define MIB (1ull << 20)

static const struct cgm_backend_ops *const ops = &cgm_backend_cuda;
static struct cgm_backend *backend;
static struct cgm_random rng;
static const struct cgm_label label = {.rank = 1, .queue = 0, .chunk = 2, .peer = 3};

static inline uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

/* ---- a queue, its run, and memory that can be looked into ------------------------------------ */

struct lane {
    struct cgm_queue *queue;
    struct cgm_flag *done;
    struct cgm_run run;
    uint64_t epoch;
};

static inline void lane_open(struct lane *lane, uint32_t device)
{
    memset(lane, 0, sizeof(*lane));
    assert_int_equal(ops->queue_new(backend, device, 0, 8, &lane->queue), CGM_OK);
    assert_int_equal(ops->flag_new(backend, device, CGM_FLAG_HOST, &lane->done), CGM_OK);
    lane->run.begin_ns = now_ns();
    ops->set_run(lane->queue, &lane->run);
}

static inline bool lane_is_through(struct lane *lane, uint64_t within_ms)
{
    uint64_t until = now_ns() + within_ms * 1000000;
    while (ops->flag_read(lane->done) < lane->epoch)
        if (now_ns() > until)
            return false;
    return true;
}

static inline void lane_finish(struct lane *lane)
{
    assert_int_equal(ops->signal(lane->queue, lane->done, ++lane->epoch), CGM_OK);
    assert_true(lane_is_through(lane, 20000));
    assert_int_equal(atomic_load(&lane->run.status), CGM_OK);
}

static inline void lane_close(struct lane *lane)
{
    ops->queue_free(lane->queue);
    ops->flag_free(lane->done);
}

struct memory {
    struct cgm_mem *mem;
    struct host_view view;
};

static inline void memory_open(struct memory *memory, uint32_t device, uint64_t bytes)
{
    int fd;
    assert_int_equal(ops->mem_alloc(backend, device, bytes, 0, &memory->mem), CGM_OK);
    assert_int_equal(ops->mem_export(memory->mem, &fd), CGM_OK);
    assert_int_equal(host_view_open(&memory->view, fd, bytes), 0);
    close(fd);
}

static inline void memory_close(struct memory *memory)
{
    host_view_close(&memory->view);
    ops->mem_free(memory->mem);
}

static inline struct cgm_view view_of(struct cgm_mem *mem, uint64_t offset, uint64_t rows,
                                      uint64_t cols, uint64_t stride, int dtype)
{
    return (struct cgm_view){mem, offset, rows, cols, stride, dtype};
}

static inline int open_backend(void **state)
{
    char detail[256];
    const struct cgm_backend_options options = {0};
    uint64_t begin_ns = now_ns();
    (void)state;
    if (ops->open(&options, detail, sizeof(detail), &backend) != CGM_OK) {
        print_error("%s\n", detail);
        return -1;
    }
    print_message("opened in %.0f ms\n", (double)(now_ns() - begin_ns) / 1e6);
    test_seed(&rng);
    return 0;
}

/* The program's argument: which tests to run, with * and ?. */
static inline void take_filter(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
}

static inline int close_backend(void **state)
{
    (void)state;
    if (backend)
        ops->close(backend);
    return 0;
}

#endif
