/* The CPU backend, with products that have to be prepared as on a GPU: those of an odd number of
 * rows need something loaded. It aborts when a product comes that was not prepared, or while
 * launches should be held. Its doctor counts what was prepared how. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "daemon/executor/executor.h"
#include "proto/status.h"

#define SHAPES_MAX 256
#define STAND_INS 64

struct shape {
    const struct cgm_queue *queue;
    uint64_t m, n, k;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shape shapes[SHAPES_MAX];
static unsigned n_shapes, counts[CGM_PREPARE_TRIALS + 1];
static _Atomic bool held;

/* What is recorded on a stand-in is its queue's. */
static struct stand_in {
    const struct cgm_queue *queue, *of; /* NULL: free */
} stand_ins[STAND_INS];

static struct stand_in *find_stand_in(const struct cgm_queue *queue)
{
    for (unsigned i = 0; i < STAND_INS; i++)
        if (stand_ins[i].queue == queue)
            return &stand_ins[i];
    return NULL;
}

static const struct cgm_queue *real_queue(const struct cgm_queue *queue)
{
    pthread_mutex_lock(&lock);
    const struct stand_in *stand_in = find_stand_in(queue);
    const struct cgm_queue *real = stand_in ? stand_in->of : queue;
    pthread_mutex_unlock(&lock);
    return real;
}

static void replace(const struct cgm_queue *queue, struct stand_in by)
{
    pthread_mutex_lock(&lock);
    struct stand_in *stand_in = find_stand_in(queue);
    if (!stand_in)
        abort();
    *stand_in = by;
    pthread_mutex_unlock(&lock);
}

static int record_begin(struct cgm_queue *queue, struct cgm_queue **ret_stand_in)
{
    int status = cgm_backend_cpu.record_begin(queue, ret_stand_in);
    if (status == CGM_OK)
        replace(NULL, (struct stand_in){*ret_stand_in, queue});
    return status;
}

static int record_end(struct cgm_queue *stand_in, struct cgm_recording **ret_recording)
{
    replace(stand_in, (struct stand_in){NULL, NULL});
    return cgm_backend_cpu.record_end(stand_in, ret_recording);
}

static struct shape shape_of(const struct cgm_queue *queue, const struct cgm_gemm *gemm)
{
    return (struct shape){real_queue(queue), gemm->out.rows, gemm->out.cols,
                          gemm->transa ? gemm->a.rows : gemm->a.cols};
}

static bool is_prepared(const struct shape *shape)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < n_shapes; i++)
        found |= shapes[i].queue == shape->queue && shapes[i].m == shape->m &&
                 shapes[i].n == shape->n && shapes[i].k == shape->k;
    pthread_mutex_unlock(&lock);
    return found;
}

static int prepare(struct cgm_queue *queue, const struct cgm_gemm *gemm, enum cgm_prepare how)
{
    static const struct timespec trial = {.tv_nsec = 8000000};
    struct shape shape = shape_of(queue, gemm);
    if (is_prepared(&shape))
        return CGM_OK;
    if (how == CGM_PREPARE_KNOWN && shape.m % 2)
        return CGM_NOT_FOUND;
    atomic_store(&held, how != CGM_PREPARE_KNOWN);
    if (how == CGM_PREPARE_TRIALS)
        nanosleep(&trial, NULL);
    pthread_mutex_lock(&lock);
    counts[how]++;
    if (n_shapes == SHAPES_MAX)
        abort();
    shapes[n_shapes++] = shape;
    pthread_mutex_unlock(&lock);
    atomic_store(&held, false);
    return CGM_OK;
}

static int multiply(struct cgm_queue *queue, const struct cgm_gemm *gemm)
{
    struct shape shape = shape_of(queue, gemm);
    bool is_first_run = shape.m <= 2; /* of a plan of two ranks, on the slow way */
    if (atomic_load(&held) || (!is_first_run && !is_prepared(&shape)))
        abort();
    return cgm_backend_cpu.gemm(queue, gemm);
}

static void count(struct cgm_backend *backend, cgm_doctor_add *add, void *context)
{
    char text[64];
    (void)backend;
    snprintf(text, sizeof(text), "known %u, loaded %u, tried %u", counts[CGM_PREPARE_KNOWN],
             counts[CGM_PREPARE_LOAD], counts[CGM_PREPARE_TRIALS]);
    add(context, "count", CGM_DOCTOR_OK, text, "");
}

int main(void)
{
    struct cgm_backend_ops ops = cgm_backend_cpu;
    ops.prepare_gemm = prepare;
    ops.gemm = multiply;
    ops.record_begin = record_begin;
    ops.record_end = record_end;
    ops.doctor = count;
    return cgm_executor_serve(&ops, 3);
}
