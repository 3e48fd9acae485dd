/* Questions that users of overlapped GEMMs ask first, with the statuses that answer them: the
 * manual takes cause and cure of each from the table of statuses. */
#ifndef CGM_MAN_CASES_H
#define CGM_MAN_CASES_H

#include "proto/status.h"

#define CGM_CASE_STATUSES_MAX 3

struct cgm_case_row {
    const char *question, *advice;
    int statuses[CGM_CASE_STATUSES_MAX]; /* OK: none */
};

static const struct cgm_case_row cgm_cases[] = {
    {"\\(lqBuffer size is incorrect\\(rq",
     "A plan's m, n and k are those of the whole product, its buffer_shape that of one rank's user "
     "buffer, and tp_size is the comm's size. What an operation divides over the ranks must be a "
     "multiple of their number, and so must the rows of a job. An operand that collapses several "
     "axes into rows and columns must do so at one axis. The detail names what was given and what "
     "would fit; commgemm-bench(1) with the same sizes says the same. After an executor died a "
     "buffer may have another generation, or be tainted",
     {CGM_INVALID_ARGUMENT, CGM_STALE, CGM_TAINTED}},
    {"\\(lqInvalid collective type\\(rq",
     "The operation decides it: ag_gemm gathers, gemm_rs scatters, gemm alone has none, and a "
     "method goes with some operations only; pipeline, for one, not with ag_gemm. The refusal "
     "lists "
     "what would work, and so does commgemmctl algorithms. Every rank must create the plan with "
     "the same "
     "parameters and submit it in the same order",
     {CGM_INVALID_ARGUMENT, CGM_NOT_SUPPORTED, CGM_MISMATCH}},
    {"\\(lqMissing inverse scaling factor\\(rq",
     "No type here has a scaling factor: products are of fp32, fp16, bf16, and of int8 with exact "
     "results in int32; there is no FP8. Operands named lhs_scale, rhs_scale and out_scale are "
     "refused by name. Nothing is scaled silently",
     {CGM_INVALID_ARGUMENT, CGM_NOT_SUPPORTED, CGM_OK}},
    {"Poor performance, or much memory",
     "A completion says how long its job was queued (for the other ranks), waiting (for streams) "
     "and "
     "running, and which algorithm ran and why. Queued: a rank is late. Running: try another "
     "method, "
     "atomic_gemm, num_splits, or leave the choice to the daemon with method auto; "
     "commgemm-bench(1) "
     "compares them, and its --timeline shows where the time goes. Operands in buffers of the "
     "daemon, or imported once and used again, cost least; offsets and row strides that are "
     "multiples "
     "of 16 bytes let the fastest code be chosen. commgemmctl doctor names what slows this "
     "machine, such as "
     "MPS "
     "that is off. commgemmctl buffers and plans list who holds how much memory",
     {CGM_NO_MEMORY, CGM_QUOTA, CGM_WATCHDOG}},
};
#define CGM_CASE_COUNT (sizeof(cgm_cases) / sizeof(cgm_cases[0]))

#endif
