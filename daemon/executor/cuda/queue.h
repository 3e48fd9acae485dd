/* A queue: a stream, the run that it works for, and what is remembered of its operations. */
#ifndef CGM_CUDA_QUEUE_H
#define CGM_CUDA_QUEUE_H

#include "daemon/executor/cuda/cuda.h"
#include "proto/ring.h"

/* More than a stream holds: an entry that is overwritten belongs to a wait that is over. */
#define CGM_QUEUE_WAITS 4096u

struct cgm_wait_record {
    const struct cgm_run *run;
    uint64_t run_begin_ns; /* tells runs in the same memory apart */
    struct cgm_flag *flag;
    uint64_t value;
    /* A kernel waits: which word it looks at whether to give up, and which bit. Else the stream
     * waits, and there is no bit. */
    uint32_t give_up;
    uint64_t bit;
};

/* The events around one operation whose time is wanted. Linked while free. */
struct cgm_span {
    struct cgm_span *next;
    struct cgm_queue *queue;
    cudaEvent_t begin, end;
};

struct cgm_queue {
    struct cgm_queue *next; /* in the backend's list */
    struct cgm_backend *backend;
    struct cgm_device *device;
    struct cgm_stream *stream;
    cudaEvent_t through;             /* for queue_free */
    struct cgm_recording *recording; /* of a stand-in, which has nothing of the rest */
    uint64_t delay_state;

    /* Of the next operations; written by the device's thread. `doing` names the operation that was
     * enqueued last, for the log. */
    struct cgm_run *run;
    uint32_t n_begun; /* operations; counts on */
    const char *_Atomic doing;

    /* Guards what follows: the device's thread adds, the poller looks and takes. */
    pthread_mutex_t lock;
    struct cgm_wait_record waits[CGM_QUEUE_WAITS];
    uint32_t n_waits; /* counts on */
    struct cgm_span *spans;

    /* A word for each kernel that waits, in turn: what is in device memory, and where that is.
     * Multiprocessors that look into host memory hold up the device's copies (forty times as long,
     * with all of them looking now and then), so they do not. */
    uint64_t give_ups[CGM_QUEUE_WAITS];
    CUdeviceptr give_ups_at;
    uint32_t n_give_ups; /* counts on; the device's thread */
};

/* The word of one kernel that waits. */
struct cgm_give_up {
    uint32_t index, turn;
    CUdeviceptr at;
};

/* signal.c. Remembers a wait of the current run, for the case that it fails. */
void cgm_queue_remember(struct cgm_queue *queue, const struct cgm_flag_value *awaited,
                        uint32_t give_up, uint64_t bit);

/* The next word for a kernel that waits; it is zero when the stream comes there. */
int cgm_queue_take_give_up(struct cgm_queue *queue, struct cgm_give_up *ret_give_up);

/* Whether a word that was taken before may still be used: it is not soon another kernel's. */
bool cgm_queue_has_give_up(const struct cgm_queue *queue, const struct cgm_give_up *give_up);

/* Begins every operation: makes the device current, notes the name, delays when a test wants it.
 * False when the run has failed and its work is to be skipped. */
bool cgm_queue_begin(struct cgm_queue *queue, const char *doing);

/* Of a device whose queues are all free. */
void cgm_queues_close(struct cgm_device *device);

/* Whether a queue of any device shares its stream with another one. Any thread. */
bool cgm_streams_are_shared(const struct cgm_backend *backend);

/* phase.c. NULL: the run wants no times, or there is no room. */
struct cgm_span *cgm_span_begin(struct cgm_queue *queue, int kind, const struct cgm_label *label);
void cgm_span_end(struct cgm_span *span);
void cgm_spans_free(struct cgm_queue *queue);

#endif
