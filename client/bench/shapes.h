/* Files of shapes: one job on each line, for sweeps.
 *
 *     # op    m     n     k   [type] [layout] [name=NAME]
 *     ag_gemm 8192 10240 8192 bf16 NT name=qkv    # Llama-70B qkv
 *
 * Sizes are the whole product's; k is 0 or more where the operation has no product. The layout is
 * that of lhs and rhs, T for one that is stored transposed. # begins a comment. */
#ifndef CGM_BENCH_SHAPES_H
#define CGM_BENCH_SHAPES_H

#include <stddef.h>
#include <stdio.h>

#include "client/bench/options.h"

#define CGM_SHAPE_NAME_BYTES 64u
#define CGM_SHAPES_MAX 4096u

struct cgm_shape {
    char name[CGM_SHAPE_NAME_BYTES]; /* without name=: op-m-n-k */
    int op;
    uint64_t m, n, k;
    int dtype;  /* -1: not said */
    int layout; /* bit 0: rhs is transposed, bit 1: lhs is; -1: not said */
};

struct cgm_shapes {
    struct cgm_shape *all;
    size_t count;
};

/* OK, or a status and a detail (CGM_BENCH_DETAIL_BYTES) with file, line, field and limits. Free
 * with cgm_shapes_fini. */
int cgm_shapes_read(const char *path, char *ret_detail, struct cgm_shapes *ret_shapes);
/* The same from what is open already; `path` is for messages. */
int cgm_shapes_parse(FILE *file, const char *path, char *ret_detail, struct cgm_shapes *ret_shapes);
void cgm_shapes_fini(struct cgm_shapes *shapes);

/* The one shape that the options describe. */
struct cgm_shape cgm_shape_of(const struct cgm_bench_options *options);

/* The options of one shape's run: what the shape says instead of what the options say. */
struct cgm_bench_options cgm_shape_options(const struct cgm_shape *shape,
                                           const struct cgm_bench_options *options);

/* "NN", "NT", "TN", "TT". Static. */
const char *cgm_layout_name(bool transa, bool transb);

#endif
