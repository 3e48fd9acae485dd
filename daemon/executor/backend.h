/* The seam between everything that knows about jobs and everything that touches devices: one table
 * of functions. A backend is one folder (cpu/, cuda/) and one executable.
 *
 * Threads. Memory, queue and flag functions are called by the mapping thread alone and may block.
 * Enqueue functions are called by the one thread of the queue's device; they only enqueue, allocate
 * nothing and wait for nothing but room in the queue.
 *
 * Order. A queue runs its operations one after the other. Between queues, of one device or of two,
 * there are only flags: monotonic 64-bit counters. `signal` stores its value after everything that
 * was enqueued before it on the same queue is done and visible everywhere; `wait` holds the queue
 * until the flag is at least its value. Host order of enqueueing does not matter.
 *
 * Failure. An enqueue function returns a status. What fails later, while it runs, sets run->status
 * once; from then on work of that run is skipped, its waits give up, and its signals still happen:
 * a queue always drains. */
#ifndef CGM_BACKEND_H
#define CGM_BACKEND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/ring.h"
#include "proto/types.h"

#define CGM_REDUCE_SOURCES_MAX 64
#define CGM_GEMM_PARTS_MAX 64 /* of a flagged product; the bits of a word */
#define CGM_ALSO_MAX 7        /* more places of one result */
#define CGM_COPIES_AT_ONCE 8
#define CGM_FLAGS_AT_ONCE 16
/* So many operations can be enqueued on a queue before any of them runs; a reduction counts one for
 * every four of its sources. A launch has no more of them on one queue of a rank: it would wait for
 * room that only ranks behind it in the same thread can make. */
#define CGM_QUEUE_ROOM 1000
/* More memory than this is made and given back in slices, where a backend can; each of them takes a
 * few milliseconds. */
#define CGM_MEM_AT_ONCE (1ull << 20)
#define CGM_MEM_SLICE (8ull << 20)

struct cgm_backend; /* the backend's own */
struct cgm_mem;
struct cgm_queue;
struct cgm_flag;
struct cgm_group;
struct cgm_recording;

/* One launched job of all its ranks, as its operations see it. Lives until every queue is through.
 */
struct cgm_run {
    _Atomic int status;       /* CGM_OK, else the first failure; setting it aborts the run */
    _Atomic int give_up;      /* not CGM_OK: poisoning may end as it is; and */
    _Atomic bool given_up;    /* some of it did */
    uint64_t begin_ns;        /* CLOCK_MONOTONIC of the launch */
    uint32_t uid;             /* whose it is */
    struct cgm_phase *phases; /* NULL: nobody asked */
    uint32_t phases_max;
    _Atomic uint32_t n_phases; /* counts on past phases_max */
};

/* A matrix as stored: rows x cols elements, rows `stride` elements apart. mem NULL: absent. */
struct cgm_view {
    struct cgm_mem *mem;
    uint64_t offset_bytes;
    uint64_t rows, cols, stride;
    int dtype;
};

static inline uint64_t cgm_view_stride_bytes(const struct cgm_view *view)
{
    return view->stride * cgm_dtype_bytes(view->dtype);
}

/* The byte behind a view's last element, from the start of its memory; false when that is no
 * number. rows is not 0. */
static inline bool cgm_view_end(const struct cgm_view *view, uint64_t *ret_end)
{
    uint64_t elements, bytes;
    return !__builtin_mul_overflow(view->rows - 1, view->stride, &elements) &&
           !__builtin_add_overflow(elements, view->cols, &elements) &&
           !__builtin_mul_overflow(elements, cgm_dtype_bytes(view->dtype), &bytes) &&
           !__builtin_add_overflow(bytes, view->offset_bytes, ret_end);
}

/* Who works for what: copied into the phases. */
struct cgm_label {
    uint16_t rank, queue; /* queue: 0 compute, 1 communication */
    uint32_t chunk, peer;
};

/* dst = src, element by element; the same shape and type. Either may be on another device. */
struct cgm_copy {
    struct cgm_label label;
    struct cgm_view dst, src;
    /* 0: by a copy engine. Else by a kernel of so many blocks, each as large as one multiprocessor
     * runs well. A backend that has neither copies in its one way. */
    uint32_t sms;
};

/* out = op(a) * op(b) [+ out] [+ bias], fp32 accumulation, rounded once; a device's library may
 * round once more before each of the two addends. a is stored rows x depth, or depth x rows with
 * transa; b is stored depth x cols, or cols x depth with transb; bias is one row of cols.
 * Of int8 a and b out is int32, the exact sum modulo 2^32, without bias and accumulation. */
struct cgm_gemm {
    struct cgm_label label;
    struct cgm_view a, b, out, bias;
    bool transa, transb, accumulate;
    bool tf32; /* fp32 inputs may be rounded to TF32 (10 bits); a backend without it does not */
    /* How many multiprocessors it leaves to others, where the device's library can be told so.
     * Never all: cgm_device_info.sms. */
    uint32_t spared_sms;
};

/* What a queue or a part of a flagged product awaits, or publishes: the flag is at least the value.
 */
struct cgm_flag_value {
    struct cgm_flag *flag; /* NULL: nothing */
    uint64_t value;
};

struct cgm_wait {
    struct cgm_flag_value until;
    struct cgm_label label;
};

/* One block of a flagged product: out = op(a) * columns [col, col + out.cols) of op(b). `a` holds
 * the block's rows with all of the depth; `out` may lie on another device. */
struct cgm_gemm_part {
    struct cgm_view a, out;
    struct cgm_view also[CGM_ALSO_MAX]; /* the same goes there too; of out's shape and type */
    uint32_t n_also;
    uint64_t col;
    struct cgm_flag_value await;   /* before a is read and out is written */
    struct cgm_flag_value publish; /* when out is written and visible everywhere */
    uint32_t chunk;                /* for the label */
};

/* One product whose parts await and publish flags, worked on in the order in which they are given;
 * a later part may be done before an earlier one. Every flag is published by one part of one
 * product, in a failed run too. A part's signal must not depend on anything that is enqueued later
 * than the product, nor need multiprocessors of its device. */
struct cgm_flagged_gemm {
    struct cgm_gemm gemm; /* of the whole: b, bias and how; a and out are not looked at */
    const struct cgm_gemm_part *parts; /* read while enqueueing only */
    uint32_t n_parts;                  /* 1 to CGM_GEMM_PARTS_MAX */
    bool shared; /* other ranks of the launch are on the device: not to be held while it waits */
    /* All parts side by side, none of which awaits: links are busy from the first tile to the last
     * where some parts go to other devices. */
    bool woven;
    uint32_t tile_cols; /* of a kernel's tiles, 256 or 128; 0: as suits the shape */
};

/* dst = src[0] + src[1] + ... in this order in fp32 [+ dst] [+ bias], rounded once. All sources
 * have dst's shape. Of int32 all are int32, without bias, and the sum is modulo 2^32. */
struct cgm_reduce {
    struct cgm_label label;
    struct cgm_view dst, bias;
    struct cgm_view src[CGM_REDUCE_SOURCES_MAX];
    uint32_t n_src;
    struct cgm_view also[CGM_ALSO_MAX]; /* the same goes there too; of dst's shape and type */
    uint32_t n_also;
    bool accumulate;
};

/* out in place, element by element: GELU in its tanh form (kernels/gelu.h), or multiplied by GELU's
 * derivative; computed in fp32, rounded once. `input` has out's shape: of GELU what it was applied
 * to, written where it is present; of its derivative what that is taken at. */
enum cgm_activation_kind { CGM_ACTIVATION_GELU, CGM_ACTIVATION_DGELU };
struct cgm_activation {
    struct cgm_label label;
    enum cgm_activation_kind kind;
    struct cgm_view out, input;
};

/* dst, one row: element j is the sum of column j of src, or with `across` of its row j. In fp32, in
 * an order that the shape alone decides, rounded once. */
struct cgm_sum {
    struct cgm_label label;
    struct cgm_view dst, src;
    bool across;
};

/* What a device library does at once over all ranks of a group. It adds in the views' own type and
 * rounds at every step. */
enum cgm_collective_kind {
    CGM_COLLECTIVE_GATHER,  /* dst: every rank's src, one behind the other; src may lie in dst */
    CGM_COLLECTIVE_SCATTER, /* dst: this rank's part of the sum of every rank's src */
    CGM_COLLECTIVE_REDUCE,  /* dst: the sum of every rank's src; dst may be src */
};

/* One rank's part. Both views are dense: their rows lie next to each other. */
struct cgm_collective {
    struct cgm_label label;
    enum cgm_collective_kind kind;
    struct cgm_view dst, src;
};

struct cgm_device_info {
    char uuid[48], name[64];
    uint64_t bytes_total, bytes_free;
    char limit[224];       /* whose limit these are, in words; "": the device's own */
    uint32_t sms;          /* multiprocessors; 0: it has no such thing */
    int priority_greatest; /* of queues: the most urgent one, at most 0, which is the least */
};

struct cgm_memory_segment {
    uint32_t kind; /* 1: fd, 2: cudaIpc handle */
    int fd;        /* borrowed */
    uint8_t handle[64];
    uint64_t offset, length;
};

struct cgm_backend_options {
    uint32_t devices;       /* 0: the backend's default */
    uint32_t test_delay_us; /* a random delay of up to this long before every operation */
    int log_level;          /* as syslog's; lines above it are left out. 0: none is */
    uint64_t spin_ns;       /* how long a queue polls for work before it sleeps */
    /* Called from any thread after a signal on a host flag. */
    void (*wake)(void *context);
    void *wake_context;
    /* Called from any thread when a device's context is dead (stuck: when work on it does not end)
     * and nothing is left but the end of the process; does not return. NULL: abort(). */
    void (*end)(void *context, bool stuck, const char *why);
    void *end_context;
};

/* One finding of a backend about its devices; the texts are copied. */
enum cgm_doctor_result { CGM_DOCTOR_OK, CGM_DOCTOR_WARNING, CGM_DOCTOR_FAILURE };
typedef void cgm_doctor_add(void *context, const char *check, enum cgm_doctor_result result,
                            const char *text, const char *fix);

/* How a product may be prepared. The later two while launches are held (quiet.h). */
enum cgm_prepare {
    CGM_PREPARE_KNOWN,  /* with what is loaded already: nothing runs, nothing is loaded */
    CGM_PREPARE_LOAD,   /* what is likely to be the best is loaded and run once */
    CGM_PREPARE_TRIALS, /* several are timed and the fastest one is kept */
};

enum cgm_memory_flags { CGM_MEMORY_IPC = 1u << 0 };
enum cgm_flag_kind { CGM_FLAG_DEVICE, CGM_FLAG_HOST };

struct cgm_backend_ops {
    const char *name;

    /* ret_detail receives a sentence on failure. */
    int (*open)(const struct cgm_backend_options *options, char *ret_detail, size_t detail_bytes,
                struct cgm_backend **ret_backend);
    void (*close)(struct cgm_backend *backend); /* every queue, flag and memory is gone before */
    uint32_t (*device_count)(struct cgm_backend *backend);
    int (*device_info)(struct cgm_backend *backend, uint32_t device,
                       struct cgm_device_info *ret_info);

    /* Zeroed memory on a device, readable and writable by every device of this node. With mem_fill,
     * only the first CGM_MEM_AT_ONCE bytes of it are there for certain. */
    int (*mem_alloc)(struct cgm_backend *backend, uint32_t device, uint64_t bytes, uint32_t flags,
                     struct cgm_mem **ret_mem);
    /* A new fd of the memory, the caller's. NOT_SUPPORTED for IPC memory. */
    int (*mem_export)(struct cgm_mem *mem, int *ret_fd);
    /* Memory that an earlier executor exported. The fd stays the caller's. */
    int (*mem_adopt)(struct cgm_backend *backend, uint32_t device, int fd, uint64_t bytes,
                     struct cgm_mem **ret_mem);
    /* A client's memory; the segments lie behind each other. Checks what it is given. After a
     * failure *ret_mem is what there is to be freed of it, or NULL. */
    int (*mem_import)(struct cgm_backend *backend, uint32_t device,
                      const struct cgm_memory_segment *segments, uint32_t n_segments,
                      bool read_only, char *ret_detail, size_t detail_bytes,
                      struct cgm_mem **ret_mem);
    uint64_t (*mem_bytes)(const struct cgm_mem *mem); /* usable, as rounded up */
    void (*mem_free)(struct cgm_mem *mem);            /* nothing may use it any more */

    /* Smaller priorities are more urgent; cgm_device_info has the limits, beyond which they are
     * cut. Where queues share what they run on it may be of another priority. The queue never holds
     * up the `beside` ones that were made before it on this device, whatever it waits for; those
     * before them it may. NOT_SUPPORTED when that cannot be. */
    int (*queue_new)(struct cgm_backend *backend, uint32_t device, int priority, uint32_t beside,
                     struct cgm_queue **ret_queue);
    void (*queue_free)(struct cgm_queue *queue); /* waits until it is through */
    /* How many operations were ever enqueued on it, modulo 2^32; the thread of its device. */
    uint32_t (*queue_count)(const struct cgm_queue *queue);
    /* Processor time that its thread has had, in ns. Any thread. NULL: it is not a thread that
     * works. */
    uint64_t (*queue_worked_ns)(const struct cgm_queue *queue);

    int (*flag_new)(struct cgm_backend *backend, uint32_t device, enum cgm_flag_kind kind,
                    struct cgm_flag **ret_flag);
    uint64_t (*flag_read)(const struct cgm_flag *flag); /* host flags; any thread; acquire */
    void (*flag_free)(struct cgm_flag *flag);

    /* The run that the following operations of this queue belong to. */
    void (*set_run)(struct cgm_queue *queue, struct cgm_run *run);
    int (*copy)(struct cgm_queue *queue, const struct cgm_copy *copy);
    int (*gemm)(struct cgm_queue *queue, const struct cgm_gemm *gemm);
    int (*flagged_gemm)(struct cgm_queue *queue, const struct cgm_flagged_gemm *flagged);
    int (*reduce)(struct cgm_queue *queue, const struct cgm_reduce *reduce);
    int (*activate)(struct cgm_queue *queue, const struct cgm_activation *activation);
    int (*sum)(struct cgm_queue *queue, const struct cgm_sum *sum);
    /* Every element NaN; the outputs of a failed job. Runs whatever run->status says, and may end
     * at run->give_up: it says so in run->given_up. */
    int (*poison)(struct cgm_queue *queue, const struct cgm_view *view);
    int (*signal)(struct cgm_queue *queue, struct cgm_flag *flag, uint64_t value);
    /* Of 1 to CGM_FLAGS_AT_ONCE flags. Costs less than one signal after the other where a device
     * takes them together. */
    int (*signal_all)(struct cgm_queue *queue, const struct cgm_flag_value *signals,
                      uint32_t count);
    int (*wait)(struct cgm_queue *queue, struct cgm_flag *flag, uint64_t value,
                const struct cgm_label *label);
    /* Holds the queue until all of them are there; likewise, and they may be one phase then. */
    int (*wait_all)(struct cgm_queue *queue, const struct cgm_wait *waits, uint32_t count);

    /* Several copies at once, in any order: 1 to CGM_COPIES_AT_ONCE, by the first one's sms in
     * all, not 0. NULL: copies come one after the other. */
    int (*copy_all)(struct cgm_queue *queue, const struct cgm_copy *copies, uint32_t count);

    /* Counted operations since open, for tests and the benchmark: what allocated on the way. */
    uint64_t (*allocations)(struct cgm_backend *backend);

    /* ---- what a backend may leave out: false, 0 or NULL ---- */

    /* A device writes the host flags and wakes nobody: whoever awaits one polls. */
    bool host_flags_need_polling;
    /* Launches of two users may come into the queues of one device in another order than into those
     * of another: no queue holds up another user's, and no collective is a library's. */
    bool launches_in_any_order;
    /* The first run of a plan does nothing that later ones do not: there is none where an executor
     * before this one has run it. */
    bool runs_are_alike;
    /* Threads poll for work at least this long before they sleep, whatever is configured: where
     * devices work in microseconds a thread's awakening is dear. */
    uint64_t spin_min_ns;
    /* Has what cgm_gemm.tf32 asks for; else a product is strict fp32. */
    bool has_tf32;
    /* How many queues one comm may have on a device; with more they could hold each other up. */
    uint32_t queues_max;

    /* Where making and freeing memory takes long, piece by piece; NULL where mem_alloc and mem_free
     * do all of it. Up to *bytes of what is missing are made, and what was done is subtracted. */
    int (*mem_fill)(struct cgm_mem *mem, uint64_t *bytes);
    /* Likewise gives back what mem_alloc or mem_adopt made, whoever still has an fd of it, or lets
     * go of what mem_import mapped; all that is left to do is mem_free. */
    void (*mem_drain)(struct cgm_mem *mem, uint64_t *bytes);

    /* mem_drain and mem_free may be called on any thread: where a client has the memory too, its
     * calls of the system can keep them waiting; where it is gone, mem_free may be the last one to
     * have the memory, and then takes as long as that is large. */
    bool mem_freed_anywhere;

    /* Whether mem_free of it waits until every queue of a device is through, and nothing can be
     * enqueued until then: that is only done while launches are held (quiet.h), on the mapping
     * thread. NULL: never. mem_free of any other memory waits for no queue, and neither does
     * anything else that is called while launches are not held, but for queue_free. */
    bool (*mem_holds_up)(const struct cgm_mem *mem);

    /* Whether a client took away pages of what mem_import mapped, and they were missed: the runs
     * that missed them have failed with STALE, and others would. Any thread. NULL: never. */
    bool (*mem_has_holes)(const struct cgm_mem *mem);

    /* Whether a device can read and write another one's memory; NULL: every one can. Any thread. */
    bool (*reaches)(const struct cgm_backend *backend, uint32_t device, uint32_t other);

    /* What times depend on, for people and to be compared: models of the devices, versions of
     * driver and libraries, links. */
    void (*describe)(struct cgm_backend *backend, char *ret_text, size_t text_bytes);
    /* The 64-byte handle of memory that was made with CGM_MEMORY_IPC. */
    int (*mem_ipc_handle)(struct cgm_mem *mem, uint8_t *ret_handle);
    /* Chooses and loads what a product of these shapes and types needs; mapping thread. Only the
     * shapes, the types and the alignment of the views count. NOT_FOUND: with KNOWN it cannot be.
     */
    int (*prepare_gemm)(struct cgm_queue *queue, const struct cgm_gemm *gemm, enum cgm_prepare how);
    int (*prepare_flagged_gemm)(struct cgm_queue *queue, const struct cgm_flagged_gemm *flagged,
                                enum cgm_prepare how);
    /* A group of ranks, no two of them on one device, for collectives of a device library. Mapping
     * thread, while launches are held (quiet.h). ret_text: the library and its version; when there
     * is no group, a sentence that says why. */
    int (*group_new)(struct cgm_backend *backend, const uint32_t *devices, uint32_t size,
                     char *ret_text, size_t text_bytes, struct cgm_group **ret_group);
    void (*group_free)(struct cgm_group *group); /* its queues are through */
    /* One rank's part. Every rank enqueues its own, in the same order of collectives, also in a
     * run that has failed: the others' parts wait for it. Those that wait in vain are aborted by
     * abort_waits, and the group fails from then on. */
    int (*collective)(struct cgm_queue *queue, struct cgm_group *group, uint32_t rank,
                      const struct cgm_collective *collective);
    /* The run has failed, and everything of it that will ever be enqueued is: lets go of its waits
     * whose signal will never come. Called until the run is through. True: some can only be let go
     * of by abort_waits. The poller. */
    bool (*release_waits)(struct cgm_backend *backend, const struct cgm_run *run);
    /* Has it done by threads of its own, and ends the process if they do not end: they free memory,
     * which may wait until every queue is through, and what the mapping thread frees may wait for
     * them. Called while launches are held and none is half-way, until it returns false. The
     * poller. */
    bool (*abort_waits)(struct cgm_backend *backend);
    /* Now and then while a job awaits its streams: brings back into the processor's caches what
     * enqueueing needs. Changes nothing that anybody sees, and waits for nothing. On the thread of
     * the device, while launches are not held (quiet.h). */
    void (*warm_up)(struct cgm_backend *backend, uint32_t device);
    /* The run is through: the times of its phases, which were not known before. The poller. */
    void (*finish_phases)(struct cgm_backend *backend, struct cgm_run *run);
    /* Called several times a second, and every few milliseconds while a run is under way: ends the
     * process, by options.end, when a device is lost. Mapping thread. */
    void (*check)(struct cgm_backend *backend);
    /* A stand-in for a queue: what is enqueued on it until record_end is not run, but kept, to be
     * enqueued on the queue later. record_end frees the stand-in and returns the first failure;
     * NOT_SUPPORTED: something cannot be kept. Mapping thread, while launches are held (quiet.h).
     */
    int (*record_begin)(struct cgm_queue *queue, struct cgm_queue **ret_stand_in);
    int (*record_end)(struct cgm_queue *stand_in, struct cgm_recording **ret_recording);
    /* Enqueues it all on the queue that it was recorded for, for less than it costs one by one;
     * every value of a flag is higher by `raise` than it was then. All memory is there still. */
    int (*replay)(struct cgm_queue *queue, struct cgm_recording *recording, uint64_t raise);
    /* The next replay will probably be with this: whatever can be done for it beforehand. On the
     * thread of the device. NULL: nothing can. */
    void (*foresee)(struct cgm_queue *queue, struct cgm_recording *recording, uint64_t raise);
    /* Whether it must not be replayed as things are: what it holds while it waits may be needed by
     * what it waits for. Enqueued as usual the same is right. Any thread. NULL: none ever is. */
    bool (*recording_is_outdated)(const struct cgm_backend *backend,
                                  const struct cgm_recording *recording);
    /* Mapping thread; no replay of it is under way. */
    void (*recording_free)(struct cgm_recording *recording);
    /* Looks at the devices, for less than a second. Mapping thread, while nothing is launched. */
    void (*doctor)(struct cgm_backend *backend, cgm_doctor_add *add, void *context);
};

extern const struct cgm_backend_ops cgm_backend_cpu;
extern const struct cgm_backend_ops cgm_backend_cuda;

#endif
