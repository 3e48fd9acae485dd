/* What the files of the CUDA backend share. Device d is CUDA device d; its primary context is used.
 *
 * Streams. Every queue is a stream. Streams share a fixed number of hardware queues, in which one
 * that waits for a flag holds up those behind it: so a device has no more streams than those, and
 * queues beyond share them. That is safe because launches are enqueued in one order on all devices,
 * and because the queues of one launch, which are made one after the other, are on different
 * streams.
 *
 * Addresses. The same memory may lie elsewhere for each device (a cudaIpc handle is opened once on
 * each): cgm_mem.at[device]. */
#ifndef CGM_CUDA_H
#define CGM_CUDA_H

#include <pthread.h>

#include "daemon/executor/backend.h"
#include "daemon/executor/cuda/blas.h"
#include "daemon/executor/cuda/driver.h"
#include "proto/messages.h"

#define CGM_CUDA_DEVICES_MAX 16u
/* Hardware queues of a context, and how many of them queues use; the others are for the streams of
 * struct cgm_device. */
#define CGM_CUDA_CONNECTIONS 32u
#define CGM_CUDA_STREAMS 28u
#define CGM_CUDA_WARM_BYTES (128u << 10)

struct cgm_stream {
    cudaStream_t handle;
    int priority;
    uint32_t n_queues; /* mapping thread */
    uint64_t taken;    /* device->taken when a queue took it last */
    void *workspace;   /* of cuBLASLt; NULL until a product is prepared */
    /* Of flagged products (kernels/flagged_gemm.h); in the workspace's memory, behind it. */
    uint64_t *counters, expected[CGM_GEMM_PARTS_MAX];
    uint32_t *meetings;
};

struct cgm_gemm_table;
struct cgm_gemm_codes;
struct cgm_flag_slab;
struct cgm_last_product;

enum { CGM_KIND_MAJOR, CGM_KIND_MINOR, CGM_KIND_SMS };

struct cgm_device {
    uint32_t index;
    int kind[CGM_KIND_SMS + 1]; /* compute capability, multiprocessors: code that suits it */
    bool has_flagged;           /* kernels/flagged_gemm.h */
    bool reaches[CGM_CUDA_DEVICES_MAX]; /* whose memory it can access; itself too */
    cudaStream_t service;               /* the mapping thread's: zeroing */
    cudaStream_t rescue;                /* the poller's: waits that are let go, reference times */
    /* Of the device's thread, for warming up: what needs no device is captured in `warm`, the rest
     * is left out unless others' kernels can run beside it. */
    cudaStream_t warm;
    cudaGraphExec_t warm_graph; /* a kernel that does nothing */
    char *warm_memory;          /* CGM_CUDA_WARM_BYTES, of no meaning */
    struct cgm_last_product *last;
    bool beside_others;
    bool warms_up;            /* false after a failure */
    cublasLtHandle_t blas;    /* of the device's thread, and of trials while launches are held */
    cublasLtHandle_t chooser; /* the mapping thread's */
    struct cgm_gemm_table *gemms;
    struct cgm_gemm_codes *codes; /* the mapping thread's */
    struct cgm_stream streams[CGM_CUDA_STREAMS];
    _Atomic uint32_t n_sharing; /* queues that have no stream of their own */
    uint32_t n_streams;         /* mapping thread */
    uint64_t taken;             /* how many queues were made; mapping thread */
    bool has_lent;              /* a stream to a queue of another priority; mapping thread */
    int priority_greatest;
    struct cgm_flag_slab *slabs; /* of device flags; mapping thread */
    struct cgm_queue *spare;     /* by next; mapping thread */
    /* A point in time on both clocks; the poller's. */
    cudaEvent_t reference;
    uint64_t reference_ns;
};

struct cgm_backend {
    struct cgm_backend_options options;
    uint32_t n_devices;
    struct cgm_device devices[CGM_CUDA_DEVICES_MAX];
    struct cgm_flag_slab *host_slabs;         /* mapping thread */
    _Atomic uint64_t allocations, unprepared; /* unprepared: products on the slow way */
    pthread_mutex_t lock;                     /* of the lists of queues and groups */
    struct cgm_queue *queues;                 /* by next */
    struct cgm_group *groups;                 /* by next; under the lock */
};

enum cgm_mem_kind {
    CGM_MEM_DURABLE, /* VMM memory, ours or adopted */
    CGM_MEM_IPC,     /* cudaMalloc memory of ours */
    CGM_MEM_VMM,     /* a client's VMM memory */
    CGM_MEM_OPENED,  /* a client's cudaIpc handle */
    CGM_MEM_HOST,    /* a client's memfd */
};

struct cgm_mem {
    struct cgm_backend *backend;
    enum cgm_mem_kind kind;
    uint32_t device;
    bool read_only;
    uint64_t bytes;                 /* usable */
    char *at[CGM_CUDA_DEVICES_MAX]; /* NULL where a device cannot reach it */

    /* DURABLE, VMM: a range of addresses and what is mapped there one behind the other. HOST: a
     * range and nothing else. OPENED: where each device has its mapping is at[] - opened_offset. */
    char *range;
    uint64_t range_bytes, opened_offset;
    uint32_t n_parts;
    uint64_t part_bytes[CGM_IMPORT_SEGMENTS_MAX];
    CUmemGenericAllocationHandle handle; /* DURABLE */
};

/* Makes the device current on this thread. Every function that calls CUDA begins with it. */
void cgm_device_use(uint32_t device);
/* Streams, handles and tables of a device whose index is set; any thread, one for each device. */
int cgm_device_open(struct cgm_device *device);
void cgm_device_close(struct cgm_device *device);
/* Whether this machine has a driver and devices that will do. The number of devices to use. */
int cgm_devices_find(const struct cgm_backend_options *options, char *ret_detail,
                     size_t detail_bytes, uint32_t *ret_count);
/* Loads every kernel of ours on the current device. */
void cgm_kernels_load(uint32_t device);
/* The device's access to every other's memory, as far as the machine has it. Every device is open.
 * Any thread, one for each device. */
int cgm_device_connect(struct cgm_backend *backend, struct cgm_device *device);

int cgm_cuda_mem_alloc(struct cgm_backend *backend, uint32_t device, uint64_t bytes, uint32_t flags,
                       struct cgm_mem **ret_mem);
int cgm_cuda_mem_export(struct cgm_mem *mem, int *ret_fd);
int cgm_cuda_mem_ipc_handle(struct cgm_mem *mem, uint8_t *ret_handle);
int cgm_cuda_mem_adopt(struct cgm_backend *backend, uint32_t device, int fd, uint64_t bytes,
                       struct cgm_mem **ret_mem);
int cgm_cuda_mem_import(struct cgm_backend *backend, uint32_t device,
                        const struct cgm_memory_segment *segments, uint32_t n_segments,
                        bool read_only, char *ret_detail, size_t detail_bytes,
                        struct cgm_mem **ret_mem);
uint64_t cgm_cuda_mem_bytes(const struct cgm_mem *mem);
void cgm_cuda_mem_free(struct cgm_mem *mem);
bool cgm_cuda_mem_holds_up(const struct cgm_mem *mem);

int cgm_cuda_flag_new(struct cgm_backend *backend, uint32_t device, enum cgm_flag_kind kind,
                      struct cgm_flag **ret_flag);
uint64_t cgm_cuda_flag_read(const struct cgm_flag *flag);
void cgm_cuda_flag_free(struct cgm_flag *flag);
void cgm_flag_slabs_free(struct cgm_backend *backend);

int cgm_cuda_queue_new(struct cgm_backend *backend, uint32_t device, int priority, uint32_t beside,
                       struct cgm_queue **ret_queue);
void cgm_cuda_queue_free(struct cgm_queue *queue);
uint32_t cgm_cuda_queue_count(const struct cgm_queue *queue);
void cgm_cuda_set_run(struct cgm_queue *queue, struct cgm_run *run);

int cgm_cuda_copy(struct cgm_queue *queue, const struct cgm_copy *copy);
int cgm_cuda_copy_all(struct cgm_queue *queue, const struct cgm_copy *copies, uint32_t count);
int cgm_cuda_gemm(struct cgm_queue *queue, const struct cgm_gemm *gemm);
int cgm_cuda_prepare_gemm(struct cgm_queue *queue, const struct cgm_gemm *gemm,
                          enum cgm_prepare how);
int cgm_cuda_flagged_gemm(struct cgm_queue *queue, const struct cgm_flagged_gemm *flagged);
int cgm_cuda_prepare_flagged_gemm(struct cgm_queue *queue, const struct cgm_flagged_gemm *flagged,
                                  enum cgm_prepare how);
int cgm_cuda_reduce(struct cgm_queue *queue, const struct cgm_reduce *reduce);
int cgm_cuda_activate(struct cgm_queue *queue, const struct cgm_activation *activation);
int cgm_cuda_sum(struct cgm_queue *queue, const struct cgm_sum *sum);
int cgm_cuda_poison(struct cgm_queue *queue, const struct cgm_view *view);
int cgm_cuda_signal(struct cgm_queue *queue, struct cgm_flag *flag, uint64_t value);
int cgm_cuda_wait(struct cgm_queue *queue, struct cgm_flag *flag, uint64_t value,
                  const struct cgm_label *label);
int cgm_cuda_signal_all(struct cgm_queue *queue, const struct cgm_flag_value *signals,
                        uint32_t count);
int cgm_cuda_wait_all(struct cgm_queue *queue, const struct cgm_wait *waits, uint32_t count);

int cgm_cuda_record_begin(struct cgm_queue *queue, struct cgm_queue **ret_stand_in);
int cgm_cuda_record_end(struct cgm_queue *stand_in, struct cgm_recording **ret_recording);
int cgm_cuda_replay(struct cgm_queue *queue, struct cgm_recording *recording, uint64_t raise);
void cgm_cuda_foresee(struct cgm_queue *queue, struct cgm_recording *recording, uint64_t raise);
bool cgm_cuda_recording_is_outdated(const struct cgm_backend *backend,
                                    const struct cgm_recording *recording);
void cgm_cuda_recording_free(struct cgm_recording *recording);

/* Whose collectives groups are made of: "NCCL 2.28.3", or "no NCCL". Loads it. */
void cgm_cuda_group_library(char *ret_text, size_t text_bytes);
int cgm_cuda_group_new(struct cgm_backend *backend, const uint32_t *devices, uint32_t size,
                       char *ret_text, size_t text_bytes, struct cgm_group **ret_group);
void cgm_cuda_group_free(struct cgm_group *group);
int cgm_cuda_collective(struct cgm_queue *queue, struct cgm_group *group, uint32_t rank,
                        const struct cgm_collective *collective);
/* check: on the mapping thread, ends the process when a communicator reports an error. release: on
 * the poller, true when a group holds up a run that has failed and is to be aborted. */
void cgm_groups_check(struct cgm_backend *backend);
bool cgm_groups_release(struct cgm_backend *backend, const struct cgm_run *run);
bool cgm_cuda_abort_waits(struct cgm_backend *backend);

bool cgm_cuda_release_waits(struct cgm_backend *backend, const struct cgm_run *run);
void cgm_cuda_warm_up(struct cgm_backend *backend, uint32_t device);
int cgm_warm_open(struct cgm_device *device);
void cgm_warm_close(struct cgm_device *device);
void cgm_cuda_finish_phases(struct cgm_backend *backend, struct cgm_run *run);
void cgm_cuda_health(struct cgm_backend *backend);

#endif
