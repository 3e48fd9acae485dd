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
    "last client has its result, on the clients' clocks. --compare adds the other algorithms, "    \
    "--shapes runs a list of jobs.\n"                                                              \
    "\n"                                                                                           \
    "With --validate every element of every rank's result is compared with a float64 reference "   \
    "computed from the same rounded inputs, on outputs that held NaN before, for inputs from "     \
    "N(0,1) and for inputs with a wide range; and the job with no_overlap."

/* Options of Iris' benchmark that are not taken, for the manual and for who gives one all the same.
 * X(name, label of the manual's line, what to do instead or why there is nothing) */
#define CGM_BENCH_FOREIGN_OPTIONS(X)                                                               \
    X("BLK_M", "--BLK_M                     ", "no counterpart: the backend chooses the tiles")    \
    X("BLK_N", "--BLK_N                     ", "no counterpart: the backend chooses the tiles")    \
    X("BLK_K", "--BLK_K                     ", "no counterpart: the backend chooses the tiles")    \
    X("COMMUNICATION_TILE_M", "--COMMUNICATION_TILE_M      ",                                      \
      "use --num-splits, a number of pieces")                                                      \
    X("COMMUNICATION_TILE_N", "--COMMUNICATION_TILE_N      ",                                      \
      "use --num-splits, a number of pieces")                                                      \
    X("gsize_m", "--gsize_m                   ", "no counterpart: the order of tiles is fixed")    \
    X("two_tiles", "--two_tiles                 ",                                                 \
      "no counterpart: the backend chooses the tiles")                                             \
    X("num_stages", "--num_stages                ", "no counterpart: a parameter of its compiler") \
    X("num_warps", "--num_warps                 ", "no counterpart: a parameter of its compiler")  \
    X("waves_per_eu", "--waves_per_eu              ",                                              \
      "no counterpart: a parameter of its compiler")                                               \
    X("mfmaInstrSize", "--mfmaInstrSize             ",                                             \
      "no counterpart: a parameter of its compiler")                                               \
    X("kpack", "--kpack                     ", "no counterpart: a parameter of its compiler")      \
    X("heap_size", "--heap_size                 ",                                                 \
      "no counterpart: buffers are allocated as they are needed")                                  \
    X("gemm_sms", "--gemm_sms                  ",                                                  \
      "use --num-comm-sm with what is left for communication, and --set-sm-margin")                \
    X("total_sms", "--total_sms                 ", "no counterpart: the device says it")           \
    X("communication_block_size", "--communication_block_size  ",                                  \
      "no counterpart: the backend chooses the blocks")

#define CGM_BENCH_SECTIONS 8
extern const struct cgm_section cgm_bench_sections[CGM_BENCH_SECTIONS];

#endif
