/* Whether what the ranks computed is right: every element of every rank's outputs against the
 * float64 reference, and the job against the serial algorithm. */
#ifndef CGM_BENCH_VALIDATE_H
#define CGM_BENCH_VALIDATE_H

#include "client/bench/bench.h"
#include "client/bench/inputs.h"
#include "kernels/reference.h"

/* The worst element of one comparison. */
struct cgm_finding {
    bool made;
    double ratio;       /* distance / bound; infinite where there is no number */
    uint64_t no_number; /* elements that are NaN: wrong, or never written */
    uint32_t rank;
    enum cgm_matrix_name matrix;
    uint64_t row, col; /* in the whole matrix */
    double found, expected;
};

enum cgm_comparison {
    CGM_COMPARE_JOB,       /* the job's results with the reference */
    CGM_COMPARE_SERIAL,    /* no_overlap's results with the reference */
    CGM_COMPARE_BOTH,      /* the job's results with no_overlap's */
    CGM_COMPARE_ALGORITHM, /* from here on each algorithm's results with the reference */
    CGM_COMPARE_COUNT = CGM_COMPARE_ALGORITHM + CGM_VARIANT_COUNT - CGM_VARIANT_ALGORITHM,
};

/* Of a variant's results with the reference; the job, no_overlap or an algorithm. */
static inline enum cgm_comparison cgm_comparison_of(enum cgm_variant variant)
{
    return variant == CGM_VARIANT_JOB ? CGM_COMPARE_JOB
           : variant == CGM_VARIANT_SERIAL
               ? CGM_COMPARE_SERIAL
               : CGM_COMPARE_ALGORITHM + variant - CGM_VARIANT_ALGORITHM;
}

/* "job and float64 reference", ... ret_text is also returned. */
const char *cgm_comparison_text(enum cgm_comparison comparison, char *ret_text, size_t size);

struct cgm_validation {
    bool done, right;
    struct cgm_finding worst[CGM_COMPARE_COUNT]; /* over all input sets */
    const char *set[CGM_COMPARE_COUNT];          /* which one the worst element is of */
    uint64_t checked;
    uint64_t times_ns[CGM_VARIANT_COUNT]; /* of the last checked run */
};

/* Runs and checks the job, no_overlap where it is another algorithm, and the algorithms that are
 * wanted: with the files' inputs when there are any, else with N(0, 1) and with a wide range. OK
 * when the comparisons could be made, whatever they found. */
int cgm_validate(struct cgm_bench *bench, struct cgm_crew *crew,
                 const struct cgm_input_files *files, char *ret_detail,
                 struct cgm_validation *ret_validation);

bool cgm_finding_is_right(const struct cgm_finding *finding);

/* "rank 2's out[17, 4] is 0.5, expected 0.25": one line. */
void cgm_finding_text(const struct cgm_finding *finding, char *ret_text, size_t size);

#endif
