/* The text header of a .npy file: "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }". */
#ifndef CGM_NPY_HEADER_H
#define CGM_NPY_HEADER_H

#include <stddef.h>

#include "client/common/npy.h"

#define CGM_NPY_HEADER_BYTES_MAX 65536u
#define CGM_NPY_REASON_BYTES 256u

/* Parses the header's text (no terminator needed) and fills dimensions, rows, cols, bytes and
 * fortran_order. OK, or INVALID_ARGUMENT and ret_reason of CGM_NPY_REASON_BYTES, without the path.
 */
int cgm_npy_header_parse(const char *text, size_t size, struct cgm_npy *npy, char *ret_reason);

/* Sets rows and cols for another axis, which is inside the dimensions. */
void cgm_npy_header_collapse(struct cgm_npy *npy, unsigned axis);

/* Writes magic, version 1 and the padded header of a C-order file; returns its length, which is a
 * multiple of 64 and at most 128. */
size_t cgm_npy_header_format(const struct cgm_npy *npy, char *ret_bytes, size_t size);

#endif
