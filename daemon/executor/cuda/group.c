/* Groups: one NCCL communicator for each rank. A part of a collective is enqueued by the thread of
 * its rank's device, without ncclGroupStart: a call neither waits for the other ranks' calls nor
 * for anything on a device. Since all devices' threads enqueue launches in one order, so are the
 * collectives of all groups.
 *
 * A kernel of NCCL that waits for a part that never comes ends only when its communicator is
 * aborted. That may block and frees memory, for which every queue has to come to its end: threads
 * of their own do it, all ranks at once, while launches are held. */
#include <stdlib.h>
#include <time.h>

#include "daemon/executor/cuda/nccl.h"
#include "daemon/executor/cuda/queue.h"
#include "daemon/executor/cuda/view.h"
#include "proto/status.h"
#include "proto/types.h"

/* A failed run may take this long to come to its end before its groups are aborted, and an abort
 * this long before the process is. */
#define DRAIN_NS 2000000000ull
#define ABORT_S 10

struct member {
    struct cgm_group *group;
    uint32_t device;
    ncclComm_t comm;
    pthread_mutex_t lock; /* of comm: the device's thread, or its end */
    pthread_t aborter;
};

struct cgm_group {
    struct cgm_group *next; /* in the backend's list */
    struct cgm_backend *backend;
    uint32_t size;
    bool doomed; /* to be aborted; the poller's */
    _Atomic bool aborted, ended;
    /* The run of the collective that was enqueued last, and when it began. */
    const struct cgm_run *_Atomic run;
    _Atomic uint64_t run_begin_ns;
    uint64_t failing_since_ns; /* that run; 0: it is not. Poller */
    pthread_t aborter;
    struct member members[CGM_CUDA_DEVICES_MAX];
};

static int check(ncclResult_t result, const char *operation, uint32_t device)
{
    if (result == ncclSuccess)
        return CGM_OK;
    cgm_cuda_log(3, "device %u: %s: %s", device, operation, cgm_nccl.GetErrorString(result));
    cgm_cuda_check(cudaPeekAtLastError(), operation, device);
    return CGM_INTERNAL;
}

/* ---- calls ---------------------------------------------------------------------------------- */

static ncclDataType_t data_type(int dtype)
{
    static const ncclDataType_t types[] = {[CGM_DTYPE_FP32] = ncclFloat32,
                                           [CGM_DTYPE_FP16] = ncclFloat16,
                                           [CGM_DTYPE_BF16] = ncclBfloat16,
                                           [CGM_DTYPE_INT8] = ncclInt8,
                                           [CGM_DTYPE_INT32] = ncclInt32};
    return types[dtype];
}

struct call {
    const void *src;
    void *dst;
    uint64_t src_count, dst_count;
    int dtype;
};

static ncclResult_t gather(const struct call *c, ncclComm_t comm, cudaStream_t stream)
{
    return cgm_nccl.AllGather(c->src, c->dst, c->src_count, data_type(c->dtype), comm, stream);
}

static ncclResult_t scatter(const struct call *c, ncclComm_t comm, cudaStream_t stream)
{
    return cgm_nccl.ReduceScatter(c->src, c->dst, c->dst_count, data_type(c->dtype), ncclSum, comm,
                                  stream);
}

static ncclResult_t reduce(const struct call *c, ncclComm_t comm, cudaStream_t stream)
{
    return cgm_nccl.AllReduce(c->src, c->dst, c->src_count, data_type(c->dtype), ncclSum, comm,
                              stream);
}

static const struct kind {
    const char *name;
    bool grows, shrinks; /* dst is the world times src, or the reverse */
    ncclResult_t (*run)(const struct call *call, ncclComm_t comm, cudaStream_t stream);
} kinds[] = {
    [CGM_COLLECTIVE_GATHER] = {"ncclAllGather", true, false, gather},
    [CGM_COLLECTIVE_SCATTER] = {"ncclReduceScatter", false, true, scatter},
    [CGM_COLLECTIVE_REDUCE] = {"ncclAllReduce", false, false, reduce},
};
#define KIND_COUNT (sizeof(kinds) / sizeof(kinds[0]))

static bool is_dense(const struct cgm_kernel_matrix *matrix)
{
    return matrix->rows == 1 || matrix->stride == matrix->cols;
}

static int resolve(const struct cgm_collective *collective, const struct cgm_group *group,
                   uint32_t device, struct call *ret_call)
{
    struct cgm_kernel_matrix dst, src;
    const struct kind *kind = &kinds[collective->kind];
    int status = cgm_view_resolve(&collective->dst, device, true, &dst);
    if (status == CGM_OK)
        status = cgm_view_resolve(&collective->src, device, false, &src);
    if (status != CGM_OK)
        return status;
    *ret_call =
        (struct call){src.data, dst.data, src.rows * src.cols, dst.rows * dst.cols, dst.format};
    if (!is_dense(&dst) || !is_dense(&src) || dst.format != src.format ||
        ret_call->dst_count * (kind->shrinks ? group->size : 1) !=
            ret_call->src_count * (kind->grows ? group->size : 1))
        return CGM_INVALID_ARGUMENT;
    return CGM_OK;
}

int cgm_cuda_collective(struct cgm_queue *queue, struct cgm_group *group, uint32_t rank,
                        const struct cgm_collective *collective)
{
    struct call call;
    struct member *member = &group->members[rank];
    const struct kind *kind = &kinds[collective->kind];
    uint32_t device = queue->device->index;
    int status = resolve(collective, group, device, &call);
    if (status == CGM_OK && queue->recording)
        status = CGM_NOT_SUPPORTED;
    if (status != CGM_OK)
        return status;
    cgm_queue_begin(queue, "a collective");
    if (queue->run) {
        atomic_store(&group->run_begin_ns, queue->run->begin_ns);
        atomic_store(&group->run, queue->run);
    }
    struct cgm_span *span = cgm_span_begin(queue, CGM_PHASE_COLLECTIVE, &collective->label);
    pthread_mutex_lock(&member->lock);
    if (atomic_load(&group->aborted))
        status = CGM_INTERNAL;
    else
        status = check(kind->run(&call, member->comm, queue->stream->handle), kind->name, device);
    pthread_mutex_unlock(&member->lock);
    cgm_span_end(span);
    return status;
}

/* ---- coming --------------------------------------------------------------------------------- */

#define WARM_BYTES 4096u

static int warm_up(struct cgm_group *group, char *const *memory)
{
    int status = CGM_OK;
    for (size_t kind = 0; kind < KIND_COUNT; kind++)
        for (int dtype = CGM_DTYPE_FP32; dtype <= CGM_DTYPE_INT32; dtype++) {
            cgm_nccl.GroupStart();
            for (uint32_t r = 0; r < group->size && status == CGM_OK; r++) {
                const struct member *member = &group->members[r];
                const struct call call = {memory[r], memory[r] + WARM_BYTES / 2, 8, 8, dtype};
                status = check(kinds[kind].run(&call, member->comm,
                                               group->backend->devices[member->device].service),
                               kinds[kind].name, member->device);
            }
            int ended = check(cgm_nccl.GroupEnd(), "ncclGroupEnd", group->members[0].device);
            status = status != CGM_OK ? status : ended;
        }
    return status;
}

/* Every collective once, on nothing, so that nothing is loaded later. */
static int run_once(struct cgm_group *group)
{
    char *memory[CGM_CUDA_DEVICES_MAX] = {0};
    int status = CGM_OK;
    for (uint32_t r = 0; r < group->size && status == CGM_OK; r++) {
        cgm_device_use(group->members[r].device);
        status = cgm_cuda_check(cudaMalloc((void **)&memory[r], WARM_BYTES), "cudaMalloc",
                                group->members[r].device);
    }
    if (status == CGM_OK)
        status = warm_up(group, memory);
    for (uint32_t r = 0; r < group->size; r++) {
        uint32_t device = group->members[r].device;
        cgm_device_use(device);
        int ended = cgm_cuda_check(cudaStreamSynchronize(group->backend->devices[device].service),
                                   "the first collectives", device);
        status = status != CGM_OK ? status : ended;
        if (memory[r])
            cgm_cuda_check(cudaFree(memory[r]), "cudaFree", device);
    }
    return status;
}

/* NCCL's own runtime makes devices current, and cgm_device_use is not told. */
static int connect(struct cgm_group *group)
{
    int devices[CGM_CUDA_DEVICES_MAX], before = 0;
    ncclComm_t comms[CGM_CUDA_DEVICES_MAX];
    for (uint32_t r = 0; r < group->size; r++)
        devices[r] = (int)group->members[r].device;
    cgm_device_use(group->members[0].device);
    cudaGetDevice(&before);
    int status = check(cgm_nccl.CommInitAll(comms, (int)group->size, devices), "ncclCommInitAll",
                       group->members[0].device);
    for (uint32_t r = 0; r < group->size && status == CGM_OK; r++)
        group->members[r].comm = comms[r];
    if (status == CGM_OK)
        status = run_once(group);
    cgm_device_use(group->members[0].device);
    cudaSetDevice(before);
    return status;
}

static void list_add(struct cgm_group *group)
{
    pthread_mutex_lock(&group->backend->lock);
    group->next = group->backend->groups;
    group->backend->groups = group;
    pthread_mutex_unlock(&group->backend->lock);
}

static void list_remove(struct cgm_group *group)
{
    pthread_mutex_lock(&group->backend->lock);
    struct cgm_group **link = &group->backend->groups;
    while (*link && *link != group)
        link = &(*link)->next;
    if (*link)
        *link = group->next;
    pthread_mutex_unlock(&group->backend->lock);
}

void cgm_cuda_group_library(char *ret_text, size_t text_bytes)
{
    if (cgm_nccl_load(ret_text, text_bytes) != CGM_OK)
        cgm_detail(ret_text, text_bytes, CGM_OK, "no NCCL");
}

int cgm_cuda_group_new(struct cgm_backend *backend, const uint32_t *devices, uint32_t size,
                       char *ret_text, size_t text_bytes, struct cgm_group **ret_group)
{
    if (size > CGM_CUDA_DEVICES_MAX)
        return cgm_detail(ret_text, text_bytes, CGM_INVALID_ARGUMENT, "%u ranks are too many",
                          size);
    int status = cgm_nccl_load(ret_text, text_bytes);
    if (status != CGM_OK)
        return status;
    struct cgm_group *group = calloc(1, sizeof(*group));
    if (!group)
        return cgm_detail(ret_text, text_bytes, CGM_NO_MEMORY, "out of host memory");
    group->backend = backend;
    group->size = size;
    for (uint32_t r = 0; r < size; r++) {
        group->members[r].group = group;
        group->members[r].device = devices[r];
        pthread_mutex_init(&group->members[r].lock, NULL);
    }
    status = connect(group);
    if (status != CGM_OK) {
        cgm_cuda_group_free(group);
        return cgm_detail(ret_text, text_bytes, status, "NCCL does not start");
    }
    list_add(group);
    *ret_group = group;
    return CGM_OK;
}

/* ---- going ---------------------------------------------------------------------------------- */

void cgm_cuda_group_free(struct cgm_group *group)
{
    int before = 0;
    /* Listed until its abort has ended: launches are held for that (abort_waits). */
    bool joined = atomic_load(&group->aborted);
    if (joined)
        pthread_join(group->aborter, NULL);
    list_remove(group);
    if (!joined && atomic_load(&group->aborted))
        pthread_join(group->aborter, NULL);
    cgm_device_use(group->members[0].device);
    cudaGetDevice(&before);
    for (uint32_t r = 0; r < group->size; r++) {
        struct member *member = &group->members[r];
        if (member->comm)
            check(cgm_nccl.CommDestroy(member->comm), "ncclCommDestroy", member->device);
        pthread_mutex_destroy(&member->lock);
    }
    cudaSetDevice(before);
    free(group);
}

/* ---- aborting ------------------------------------------------------------------------------- */

static void *abort_member(void *argument)
{
    struct member *member = argument;
    cgm_device_use(member->device);
    pthread_mutex_lock(&member->lock);
    check(cgm_nccl.CommAbort(member->comm), "ncclCommAbort", member->device);
    member->comm = NULL;
    pthread_mutex_unlock(&member->lock);
    return NULL;
}

static void *abort_group(void *argument)
{
    struct cgm_group *group = argument;
    struct timespec deadline;
    for (uint32_t r = 0; r < group->size; r++)
        if (pthread_create(&group->members[r].aborter, NULL, abort_member, &group->members[r]) != 0)
            cgm_cuda_end(true, "no thread for the abort of a collective");
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += ABORT_S;
    for (uint32_t r = 0; r < group->size; r++)
        if (pthread_timedjoin_np(group->members[r].aborter, NULL, &deadline) != 0)
            cgm_cuda_end(true, "the abort of a collective does not end");
    atomic_store(&group->ended, true);
    return NULL;
}

static bool holds_up(struct cgm_group *group, const struct cgm_run *run)
{
    if (atomic_load(&group->aborted) || atomic_load(&group->run) != run ||
        atomic_load(&group->run_begin_ns) != run->begin_ns)
        return false;
    if (group->failing_since_ns < run->begin_ns)
        group->failing_since_ns = cgm_cuda_now_ns();
    return cgm_cuda_now_ns() - group->failing_since_ns >= DRAIN_NS;
}

bool cgm_groups_release(struct cgm_backend *backend, const struct cgm_run *run)
{
    bool doomed = false;
    pthread_mutex_lock(&backend->lock);
    for (struct cgm_group *group = backend->groups; group; group = group->next) {
        group->doomed |= holds_up(group, run);
        doomed |= group->doomed;
    }
    pthread_mutex_unlock(&backend->lock);
    return doomed;
}

static void start_abort(struct cgm_group *group)
{
    cgm_cuda_log(4, "a run has failed and its collective does not end: its %u ranks are aborted",
                 group->size);
    atomic_store(&group->aborted, true);
    if (pthread_create(&group->aborter, NULL, abort_group, group) != 0)
        cgm_cuda_end(true, "no thread for the abort of a collective");
}

bool cgm_cuda_abort_waits(struct cgm_backend *backend)
{
    bool under_way = false;
    pthread_mutex_lock(&backend->lock);
    for (struct cgm_group *group = backend->groups; group; group = group->next) {
        if (group->doomed && !atomic_load(&group->aborted))
            start_abort(group);
        group->doomed &= !atomic_load(&group->ended);
        under_way |= group->doomed;
    }
    pthread_mutex_unlock(&backend->lock);
    return under_way;
}

void cgm_groups_check(struct cgm_backend *backend)
{
    pthread_mutex_lock(&backend->lock);
    for (struct cgm_group *group = backend->groups; group; group = group->next)
        for (uint32_t r = 0; r < group->size && !atomic_load(&group->aborted); r++) {
            ncclResult_t error = ncclSuccess;
            cgm_nccl.CommGetAsyncError(group->members[r].comm, &error);
            if (error != ncclSuccess && error != ncclInProgress) {
                check(error, "NCCL while jobs were running", group->members[r].device);
                cgm_cuda_end(true, "a communicator is broken");
            }
        }
    pthread_mutex_unlock(&backend->lock);
}
