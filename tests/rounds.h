/* What programs are told that run random rounds: the first member of their settings. */
#ifndef TEST_ROUNDS_H
#define TEST_ROUNDS_H

#include "client/common/args.h"

struct rounds {
    uint64_t n, first, seed, seconds; /* seconds 0: there is no end */
    bool verbose, help;
};

static const struct cgm_option rounds_options[] = {
    {.name = "rounds",
     .letter = 'n',
     .kind = CGM_ARG_UINT,
     .value = "N",
     CGM_FIELD(struct rounds, n),
     .min = 1,
     .max = 100000000,
     .summary = "how many rounds (200)"},
    {.name = "seed",
     .kind = CGM_ARG_UINT,
     .value = "N",
     CGM_FIELD(struct rounds, seed),
     .summary = "what everything random comes from; printed, new for each run by default"},
    {.name = "first",
     .kind = CGM_ARG_UINT,
     .value = "N",
     CGM_FIELD(struct rounds, first),
     .summary = "number of the first round: with a seed, this round again (0)"},
    {.name = "seconds",
     .kind = CGM_ARG_UINT,
     .value = "S",
     CGM_FIELD(struct rounds, seconds),
     .min = 1,
     .max = 1000000,
     .summary = "no round begins after this time (there is no end)"},
    {.name = "verbose",
     .letter = 'v',
     .kind = CGM_ARG_FLAG,
     CGM_FIELD(struct rounds, verbose),
     .summary = "says more about each round, or about one that went wrong"},
    {.name = "help",
     .letter = 'h',
     .kind = CGM_ARG_FLAG,
     CGM_FIELD(struct rounds, help),
     .ends = true,
     .summary = "this text"},
};

#endif
