/* In place of group.c where a build has no nccl.h. */
#include "daemon/executor/cuda/cuda.h"
#include "proto/status.h"

void cgm_cuda_group_library(char *ret_text, size_t text_bytes)
{
    cgm_detail(ret_text, text_bytes, CGM_OK, "no NCCL");
}

int cgm_cuda_group_new(struct cgm_backend *backend, const uint32_t *devices, uint32_t size,
                       char *ret_text, size_t text_bytes, struct cgm_group **ret_group)
{
    (void)backend, (void)devices, (void)size, (void)ret_group;
    return cgm_detail(ret_text, text_bytes, CGM_NOT_SUPPORTED, "built without NCCL");
}

void cgm_cuda_group_free(struct cgm_group *group)
{
    (void)group;
}

int cgm_cuda_collective(struct cgm_queue *queue, struct cgm_group *group, uint32_t rank,
                        const struct cgm_collective *collective)
{
    (void)queue, (void)group, (void)rank, (void)collective;
    return CGM_NOT_SUPPORTED;
}

void cgm_groups_check(struct cgm_backend *backend)
{
    (void)backend;
}

bool cgm_groups_release(struct cgm_backend *backend, const struct cgm_run *run)
{
    (void)backend, (void)run;
    return false;
}

bool cgm_cuda_abort_waits(struct cgm_backend *backend)
{
    (void)backend;
    return false;
}
