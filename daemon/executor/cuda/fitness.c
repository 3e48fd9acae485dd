#include "daemon/executor/cuda/fitness.h"

#include <string.h>

#include "proto/messages.h"
#include "proto/status.h"

/* The oldest that the kernels are built for. */
#define CAPABILITY_MAJOR_MIN 8

static const char *const needs[] = {
#define X(attribute, what) [CGM_NEED_##attribute] = what,
    CGM_DEVICE_NEEDS(X)
#undef X
};

int cgm_device_judge(int device, const struct cgm_device_facts *facts, char *ret_detail,
                     size_t detail_bytes)
{
    if (strstr(facts->name, " MIG "))
        return cgm_detail(ret_detail, detail_bytes, CGM_NOT_SUPPORTED,
                          "device %d (%s) is a MIG instance, which has neither peer access nor "
                          "cudaIpc; switch MIG off",
                          device, facts->name);
    if (facts->major < CAPABILITY_MAJOR_MIN)
        return cgm_detail(ret_detail, detail_bytes, CGM_NOT_SUPPORTED,
                          "device %d (%s) has compute capability %d.%d; %d.0 or newer is needed",
                          device, facts->name, facts->major, facts->minor, CAPABILITY_MAJOR_MIN);
    for (int i = 0; i < CGM_NEED_COUNT; i++)
        if (!facts->has[i])
            return cgm_detail(ret_detail, detail_bytes, CGM_NOT_SUPPORTED,
                              "device %d (%s) does not have %s", device, facts->name, needs[i]);
    return CGM_OK;
}
