/* Between .npy files and memory, in pieces, so that a progress bar moves and Ctrl-C is heard. */
#ifndef CGM_CTL_TRANSFER_H
#define CGM_CTL_TRANSFER_H

#include "client/common/npy.h"

/* From now on SIGINT and SIGTERM end a transfer with CANCELLED instead of ending the process. */
void cgm_transfer_catch_signals(void);

/* All elements of the file, in C order. OK, or a status with ret_detail of CGM_NPY_DETAIL_BYTES. */
int cgm_transfer_read(const struct cgm_npy *npy, float *ret_values, char *ret_detail);
int cgm_transfer_write(const struct cgm_npy *npy, const float *values, char *ret_detail);

#endif
