/* What is to be known about the GPUs of this machine, and measured in less than a second. */
#ifndef CGM_CUDA_DOCTOR_H
#define CGM_CUDA_DOCTOR_H

#include "daemon/executor/backend.h"

void cgm_cuda_doctor(struct cgm_backend *backend, cgm_doctor_add *add, void *context);

#endif
