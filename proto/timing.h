/* What auto measured of one plan, as it is kept: a line of text, `name=value` with a space between
 * two, in an order that is fixed. A line that is read is the one that would be written, or it is
 * refused; so equal keys are equal texts.
 *
 *   at=1795132800 times=fused_ag/num_splits=2:487123,no_overlap:751000 release=0.1.0
 * platform="cuda: 4 x ..." ranks=0,1,2,3 op=ag_gemm comm_type=ag m=8192 n=14336 k=8192 dtype=bf16
 * ...
 *
 * A file begins with "commgemm-timings 2" and ends with "end", the number of its lines, and a sum
 * over them, by which a file that was cut or changed is known. Files of version 1 had no variants,
 * and no versions of all libraries in the platform: nothing in them would be asked for again, and
 * they are refused as those of later versions are. */
#ifndef CGM_TIMING_H
#define CGM_TIMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "proto/messages.h"
#include "proto/parameter.h"

/* As many algorithms, and variants of one of them, as an operation may have to choose from. */
#define CGM_TIMES_MAX 16u
/* A line with its end. */
#define CGM_TIMING_LINE_BYTES 3072u
/* Of one file, and of what the daemon keeps. */
#define CGM_TIMINGS_MAX 4096u

/* The chosen one first. n 0: nothing was measured. */
struct cgm_times {
    uint32_t n;
    uint32_t algorithm[CGM_TIMES_MAX];
    cgm_variant variant[CGM_TIMES_MAX];
    uint64_t ns[CGM_TIMES_MAX]; /* 0: it failed, or there was no time for it */
    uint64_t at_s;              /* seconds of the epoch */
};

/* Fields of PlanCreate that times may depend on. X(name, KIND) */
#define CGM_TIMING_REQUIRED(X)                                                                     \
    X(op, OP)                                                                                      \
    X(comm_type, COMM_TYPE)                                                                        \
    X(m, NUMBER)                                                                                   \
    X(n, NUMBER)                                                                                   \
    X(k, NUMBER)                                                                                   \
    X(dtype, DTYPE)
#define CGM_TIMING_OPTIONAL(X)                                                                     \
    X(out_dtype, DTYPE)                                                                            \
    X(transa, FLAG)                                                                                \
    X(transb, FLAG)                                                                                \
    X(epilogue, NUMBER)                                                                            \
    X(buffer_dtype, DTYPE)                                                                         \
    X(tp_size, NUMBER)                                                                             \
    X(num_splits, NUMBER)                                                                          \
    X(num_max_streams, NUMBER)                                                                     \
    X(comm_cga_size, NUMBER)                                                                       \
    X(gemm_priority, SIGNED)                                                                       \
    X(comm_priority, SIGNED)                                                                       \
    X(num_comm_sm, NUMBER)                                                                         \
    X(set_sm_margin, FLAG)                                                                         \
    X(use_ce, FLAG)                                                                                \
    X(atomic_gemm, FLAG)                                                                           \
    X(rs_overlap_first_gemm, FLAG)                                                                 \
    X(aggregate_ag, FLAG)                                                                          \
    X(allow_tf32, FLAG)
#define CGM_TIMING_FIELDS(X)                                                                       \
    CGM_TIMING_REQUIRED(X)                                                                         \
    CGM_TIMING_OPTIONAL(X)                                                                         \
    X(buffer_rows, NUMBER)                                                                         \
    X(buffer_cols, NUMBER)

enum cgm_timing_field {
#define X(name, KIND) CGM_TIMING_##name,
    CGM_TIMING_FIELDS(X)
#undef X
        CGM_TIMING_FIELD_COUNT,
};

struct cgm_timing {
    struct cgm_times times;
    char release[32];   /* of the software */
    char platform[256]; /* devices, driver, libraries, links; printable, without '"' */
    uint32_t world;
    uint32_t devices[CGM_COMM_SIZE_MAX]; /* by rank */
    uint32_t has;                        /* bits of fields that are there */
    int64_t fields[CGM_TIMING_FIELD_COUNT];
};

/* Everything but the times, of a plan that is asked for. False for one that is not kept: it has
 * counts, or a platform of no name. */
bool cgm_timing_of_plan(const Cgm__PlanCreate *plan, const char *release, const char *platform,
                        const uint32_t *devices, uint32_t world, struct cgm_timing *ret_timing);

/* The line, without its end. ret_key: where in it the key begins, which is all but the times; may
 * be NULL. */
void cgm_timing_write(const struct cgm_timing *timing, char ret_line[CGM_TIMING_LINE_BYTES],
                      const char **ret_key);

/* OK, or INVALID_ARGUMENT and what is wrong. */
int cgm_timing_read(const char *line, char *ret_detail, size_t detail_bytes,
                    struct cgm_timing *ret_timing);

/* ---- files ------------------------------------------------------------------------------------
 */

/* A file that is being written. */
struct cgm_timings_out {
    FILE *file;
    uint32_t count;
    uint64_t sum;
};

void cgm_timings_begin(struct cgm_timings_out *out, FILE *file);
void cgm_timings_line(struct cgm_timings_out *out, const char *line);
void cgm_timings_end(struct cgm_timings_out *out);

/* Reads a file to its end; visit gets each line without its end. Nothing is to be believed before
 * this returns OK. Else INVALID_ARGUMENT, or IO, and a detail like "line 7: ...". */
int cgm_timings_read(FILE *file,
                     void (*visit)(void *context, const char *line,
                                   const struct cgm_timing *timing),
                     void *context, char *ret_detail, size_t detail_bytes);

#endif
