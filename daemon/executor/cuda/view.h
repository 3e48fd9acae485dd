/* A view as a device sees it. */
#ifndef CGM_CUDA_VIEW_H
#define CGM_CUDA_VIEW_H

#include "daemon/executor/cuda/cuda.h"
#include "kernels/device_kernels.h"

/* OK; INVALID_ARGUMENT when the view is absent, empty, misaligned, outside its memory, of an
 * unknown type, or to be written and read-only; NOT_SUPPORTED when the device cannot reach the
 * memory. */
int cgm_view_resolve(const struct cgm_view *view, uint32_t device, bool writes,
                     struct cgm_kernel_matrix *ret_matrix);

/* The same, but an absent view gives an absent matrix. */
int cgm_view_resolve_optional(const struct cgm_view *view, uint32_t device,
                              struct cgm_kernel_matrix *ret_matrix);

/* Other places of one result: INVALID_ARGUMENT, too, when there are too many, or one differs in
 * shape or type. */
int cgm_views_resolve_also(const struct cgm_view *views, uint32_t count, uint32_t device,
                           const struct cgm_kernel_matrix *like,
                           struct cgm_kernel_matrix *ret_matrices);

/* A view without its memory, which may be gone: as far as its alignment goes, the address is right,
 * for memory begins at multiples of more than 16. */
struct cgm_kernel_matrix cgm_view_outline(const struct cgm_view *view);

/* A bias of a matrix: absent, or one row of its columns. */
bool cgm_bias_fits(const struct cgm_kernel_matrix *bias, const struct cgm_kernel_matrix *out);

/* Of an absent matrix: false. */
bool cgm_is_integer(const struct cgm_kernel_matrix *matrix);

#endif
