/* The whole matrices that go into a job: random numbers, or .npy files. */
#ifndef CGM_BENCH_INPUTS_H
#define CGM_BENCH_INPUTS_H

#include "client/bench/bench.h"
#include "client/common/npy.h"
#include "kernels/random.h"

/* Fills every input of the job, and what it accumulates into, with fresh numbers, rounded to their
 * types. */
void cgm_inputs_fill(const struct cgm_bench *bench, enum cgm_fill fill, uint64_t seed);

/* The .npy files of a run. */
struct cgm_input_files {
    struct cgm_npy npy[CGM_MATRIX_COUNT];
    bool open[CGM_MATRIX_COUNT];
};

/* Opens the files that the options name, takes m, n and k from them where the command line does not
 * give them, and checks them against each other. Nothing is open when it fails. */
int cgm_input_files_open(struct cgm_bench_options *options, char *ret_detail,
                         struct cgm_input_files *ret_files);
void cgm_input_files_close(struct cgm_input_files *files);

/* Reads the files into the job's whole matrices, rounded to their types. */
int cgm_input_files_load(const struct cgm_input_files *files, const struct cgm_bench *bench,
                         char *ret_detail);

/* Writes the assembled result, and the gathered lhs, where the options say. MISMATCH when ranks
 * that should have the same result have not. */
int cgm_results_save(const struct cgm_bench *bench, char *ret_detail);

#endif
