/* NVIDIA's Multi-Process Service, as far as files and processes show it. Looking touches no GPU. */
#ifndef CGM_MPS_H
#define CGM_MPS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* How a machine comes to an MPS that serves every uid. */
#define CGM_MPS_FIX_START "systemctl enable --now commgemm-mps, then restart commgemmd"
#define CGM_MPS_FIX_MULTI_USER                                                                     \
    "end that MPS (echo quit | nvidia-cuda-mps-control) and start one for all users: "             \
    "nvidia-cuda-mps-control -d -M, which is what commgemm-mps.service does"

struct cgm_mps {
    char directory[200];       /* of its sockets */
    bool on;                   /* a control daemon listens there */
    pid_t control;             /* 0: in another namespace of processes */
    bool mode_known, is_multi; /* is_multi: it serves all uids side by side */
    bool is_bound;             /* else: the first that comes decides whom it serves */
    uid_t uid;                 /* whom it serves, if it is bound and not multi */
};

void cgm_mps_look(struct cgm_mps *ret_mps);

/* True when CUDA calls of this uid would hang, because the service belongs to another one. */
bool cgm_mps_excludes(const struct cgm_mps *mps, uid_t uid);

/* nvidia-cuda-mps-control as configured. */
struct cgm_config;
const char *cgm_mps_tool(const struct cgm_config *config);

#endif
