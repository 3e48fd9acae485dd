/* What the tests of commgemm-bench's parts share: options from a command line. */
#ifndef BENCH_FIXTURE_H
#define BENCH_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/bench/bench.h"
#include "proto/status.h"
#include "proto/types.h"

static inline int parse(const char *line, char *ret_detail, struct cgm_bench_options *ret_options)
{
    static char words[512];
    char *argv[64] = {(char *)"commgemm-bench"}, *rest = NULL;
    int argc = 1;
    snprintf(words, sizeof(words), "%s", line);
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        argv[argc++] = word;
    ret_detail[0] = '\0';
    return cgm_bench_options_parse(argc, argv, ret_detail, ret_options);
}

#endif
