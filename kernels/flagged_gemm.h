/* A product in one kernel whose parts await and publish counters. sm_90a: TMA, mbarriers, wgmma;
 * the grid is persistent, one block a multiprocessor, and no block waits for another one. */
#ifndef CGM_FLAGGED_GEMM_KERNEL_H
#define CGM_FLAGGED_GEMM_KERNEL_H

#include "kernels/device_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CGM_KERNEL_PARTS_MAX 64
#define CGM_KERNEL_MEETINGS_MAX 256 /* at which blocks put together what they share */

/* out = op(a) * columns [col, col + out.cols) of op(b), and the same into each of `also`. A block
 * waits for *await >= await_value before it reads a or writes out; *publish becomes its value when
 * everything is written. NULL: none. All may be memory of another device. */
struct cgm_kernel_part {
    struct cgm_kernel_matrix a, out, also[CGM_KERNEL_ALSO_MAX];
    uint32_t n_also;
    uint64_t col;
    const uint64_t *await;
    uint64_t *publish;
    uint64_t await_value, publish_value;
};

struct cgm_kernel_flagged_gemm {
    struct cgm_kernel_matrix b, bias; /* bias: one row of b's columns, or absent */
    bool transa, transb, accumulate;
    bool woven;                          /* a tile of each part in turn; none may await */
    const struct cgm_kernel_part *parts; /* else worked on in this order */
    uint32_t n_parts;
    /* [CGM_KERNEL_PARTS_MAX] in device memory: finished tiles of each part, of every launch that
     * uses them; never reset, one launch at a time. expected: what they will be when everything
     * that was launched so far is through; moved on by a launch. */
    uint64_t *counters, *expected;
    /* Of the device, for tiles that several blocks multiply a slice of the depth of: room for their
     * sums, whatever is in it, and [CGM_KERNEL_MEETINGS_MAX] words that are 0 before and after. For
     * one launch at a time. NULL: no tile is shared. */
    void *partials;
    uint64_t partial_bytes;
    uint32_t *meetings;
    /* A word in memory of the device that the host may set bits of: bit i: part i's await will
     * never be over. Then nothing more is stored, the other parts are awaited, and everything is
     * published. */
    const uint64_t *give_up;
    uint32_t blocks;    /* at most so many */
    uint32_t tile_cols; /* 256 or, with few parts, 128; 0: as suits the shape */
};

/* Makes the current device ready for launches, if it can do them. */
cudaError_t cgm_kernel_flagged_gemm_load(bool *ret_can);

/* Whether the kernel can do it, by types and alignment; addresses are not looked behind. */
bool cgm_kernel_flagged_gemm_can(const struct cgm_kernel_flagged_gemm *gemm);

cudaError_t cgm_kernel_flagged_gemm_launch(const struct cgm_kernel_flagged_gemm *gemm,
                                           cudaStream_t stream);

/* What a launch hands to the kernel is one argument of so many bytes. */
size_t cgm_kernel_flagged_gemm_bytes(const struct cgm_kernel_flagged_gemm *gemm);

/* How the argument differs when a launch that was captured in a graph is made once more. */
struct cgm_kernel_flagged_repeat {
    uint64_t raise;    /* every value of a flag is higher by so much */
    uint64_t launches; /* with these counters, which were expected to be 0 before; with this one */
    const uint64_t *give_up;
};

/* Of so many bytes, as cgm_kernel_flagged_gemm_bytes says. */
void cgm_kernel_flagged_gemm_repeat(const void *captured, size_t bytes,
                                    const struct cgm_kernel_flagged_repeat *repeat,
                                    void *ret_argument);

#ifdef __cplusplus
}
#endif

#endif
