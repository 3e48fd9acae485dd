/* Parameters that steer how a plan is carried out, never its result. */
#ifndef CGM_PARAMETER_H
#define CGM_PARAMETER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An algorithm says which of them have an effect on it; a plan that asks for another is refused.
 * X(SYMBOL, name, what it does) */
#define CGM_PARAMETERS(X)                                                                          \
    X(NUM_SPLITS, num_splits, "pieces that the job is cut into")                                   \
    X(NUM_MAX_STREAMS, num_max_streams, "queues for the GEMMs of pieces")                          \
    X(COMM_CGA_SIZE, comm_cga_size, "thread block cluster of communication kernels")               \
    X(NUM_COMM_SM, num_comm_sm, "SMs for communication kernels, with use_ce 0 or set_sm_margin 1") \
    X(GEMM_PRIORITY, gemm_priority, "urgency of the queue of the GEMMs")                           \
    X(COMM_PRIORITY, comm_priority, "urgency of the queue of the communication")                   \
    X(SET_SM_MARGIN, set_sm_margin, "the GEMM, where there is one, leaves num_comm_sm SMs free")   \
    X(USE_CE, use_ce, "copies, where there are any, by copy engines, not by SMs")                  \
    X(RS_OVERLAP_FIRST_GEMM, rs_overlap_first_gemm,                                                \
      "a piece is reduced behind the next piece's GEMM, not behind the last one's")                \
    X(AGGREGATE_AG, aggregate_ag, "chunks are multiplied in pairs")

enum cgm_parameter {
#define X(SYMBOL, name, text) CGM_PARAMETER_##SYMBOL,
    CGM_PARAMETERS(X)
#undef X
        CGM_PARAMETER_COUNT,
};

/* NULL for a number that is none. */
const char *cgm_parameter_name(int parameter);

/* A variant of a plan: one parameter has another value than by default. As one number, which goes
 * through messages; 0: everything is as by default. */
typedef uint32_t cgm_variant;

#define CGM_VARIANT_VALUE_MAX 0xffffu
#define CGM_VARIANT_TEXT 48u /* more than any takes, with its end */

cgm_variant cgm_variant_of(enum cgm_parameter parameter, uint32_t value);
/* False for 0 and for what is no variant. */
bool cgm_variant_get(cgm_variant variant, enum cgm_parameter *ret_parameter, uint32_t *ret_value);

/* "num_splits=8"; "" for what cgm_variant_get refuses. */
void cgm_variant_write(cgm_variant variant, char ret_text[CGM_VARIANT_TEXT]);
/* False for another text than those that are written, but it takes more spellings of a number. */
bool cgm_variant_read(const char *text, cgm_variant *ret_variant);

#endif
