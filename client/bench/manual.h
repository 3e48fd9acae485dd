/* What the manual says beside the options. */
#ifndef CGM_BENCH_MANUAL_H
#define CGM_BENCH_MANUAL_H

#include "client/common/args.h"

#define CGM_BENCH_DESCRIPTION                                                                      \
    "Submits GEMM and communication jobs to commgemmd, as any program would, with one client "     \
    "process for each rank, and times or checks them. Sizes are those of the whole product: with " \
    "W ranks, ag_gemm gives each rank M/W rows of lhs and N/W columns of rhs. bulk_ag and "        \
    "bulk_rs multiply M x K by K x N on every rank, and move a buffer of --buffer-shape beside "   \
    "that. With a2av every rank sends and receives M/W rows, to each rank another number.\n"       \
    "\n"                                                                                           \
    "With --benchmark, and when nothing else is asked for, it measures. In every iteration the "   \
    "job, the same by no_overlap, the GEMM of one rank alone and the collective alone are run in " \
    "turn, all clients released together; a time is from the last client's submission until the "  \
    "last client has its result, on the clients' clocks.\n"                                        \
    "\n"                                                                                           \
    "With --validate every element of every rank's result is compared with a float64 reference "   \
    "computed from the same rounded inputs, on outputs that held NaN before, for inputs from "     \
    "N(0,1) and for inputs with a wide range; and the job with no_overlap."

#define CGM_BENCH_SECTIONS 5
extern const struct cgm_section cgm_bench_sections[CGM_BENCH_SECTIONS];

#endif
