/* A queue: one thread that runs operations in order from a ring of fixed-size records. One thread
 * at a time enqueues; nothing is allocated on the way.
 *
 * Producer: record = cgm_queue_reserve(); fills it; cgm_queue_push(). */
#ifndef CGM_CPU_QUEUE_H
#define CGM_CPU_QUEUE_H

#include <pthread.h>

#include "daemon/executor/cpu/cpu.h"
#include "daemon/executor/cpu/epilogue.h"
#include "daemon/executor/cpu/gemm.h"
#include "daemon/executor/cpu/matrix.h"

#define CGM_QUEUE_RECORDS 1024u /* a power of two */
#define CGM_SOURCES_PER_RECORD 4u

enum cgm_record_kind {
    CGM_RECORD_COPY,
    CGM_RECORD_GEMM,
    CGM_RECORD_SOURCES, /* some sources of the reduction that follows */
    CGM_RECORD_REDUCE,
    CGM_RECORD_ACTIVATE,
    CGM_RECORD_SUM,
    CGM_RECORD_POISON,
    CGM_RECORD_SIGNAL,
    CGM_RECORD_WAIT,
    CGM_RECORD_STOP, /* ends the thread */
};

struct cgm_record {
    enum cgm_record_kind kind;
    struct cgm_label label;
    struct cgm_run *run; /* NULL: none */
    union {
        struct {
            struct cgm_matrix dst, src;
        } copy;
        struct cgm_matrix_gemm gemm;
        struct {
            struct cgm_matrix matrix[CGM_SOURCES_PER_RECORD];
            uint32_t first, count;
        } sources;
        struct cgm_matrix_reduce reduce;
        struct cgm_matrix_activation activation;
        struct cgm_matrix_sum sum;
        struct cgm_matrix poison;
        struct {
            struct cgm_flag *flag;
            uint64_t value;
        } flag;
    } of;
};

struct cgm_queue {
    struct cgm_backend *backend;
    uint32_t device;
    pthread_t thread;
    struct cgm_run *run;             /* producer's: of the next operations */
    struct cgm_recording *recording; /* of a stand-in: where they go */

    /* Free-running; the queue's thread writes head, the producer tail. The producer's too: which
     * one has the first record; whenever all are done it starts there again, so that no more memory
     * is used than there are at a time. */
    uint32_t base;
    _Alignas(64) _Atomic uint32_t head;
    struct cgm_park room; /* the producer */
    _Alignas(64) _Atomic uint32_t tail;
    struct cgm_park work; /* the queue's thread */

    /* The queue's thread's. */
    _Alignas(64) struct cgm_matrix sources[CGM_REDUCE_SOURCES_MAX];
    struct cgm_seat seat; /* none while it awaits work, a flag or the end of a delay */
    uint64_t delay_state;

    struct cgm_record records[CGM_QUEUE_RECORDS];
};

/* Waits for room. */
struct cgm_record *cgm_queue_reserve(struct cgm_queue *queue, enum cgm_record_kind kind);
void cgm_queue_push(struct cgm_queue *queue);

/* recording.c: what reserve and push do for a stand-in. */
struct cgm_record *cgm_recording_reserve(struct cgm_recording *recording);
void cgm_recording_push(struct cgm_recording *recording);

/* Runs one record on the queue's thread; run.c. */
void cgm_record_run(struct cgm_queue *queue, const struct cgm_record *record);

#endif
