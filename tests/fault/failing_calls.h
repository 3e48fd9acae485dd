/* Calls that fail on demand. libfailing_calls.so comes between a program and the C library
 * (LD_PRELOAD); $CGM_FAILING_CALLS names a file of one struct failing_page, shared by the test and
 * all processes of a run. It counts the calls of each family that broker, executor and client make,
 * and lets the one fail that the page names, once. */
#ifndef FAILING_CALLS_H
#define FAILING_CALLS_H

#include <stdatomic.h>
#include <stdint.h>

enum failing_who { FAILING_BROKER, FAILING_EXECUTOR, FAILING_CLIENT, FAILING_WHO_COUNT };

/* MEMORY: malloc and its relatives. SYSTEM: calls that make, receive or map something. */
enum failing_family { FAILING_MEMORY, FAILING_SYSTEM, FAILING_FAMILY_COUNT };

struct failing_page {
    /* The test's: set before at. */
    uint32_t who, family;
    _Atomic uint64_t at; /* 1: the next call fails; 0: none */

    /* Written by the processes; the test sets the counters to 0. */
    _Atomic uint64_t calls[FAILING_WHO_COUNT][FAILING_FAMILY_COUNT];
    _Atomic int64_t blocks[FAILING_WHO_COUNT]; /* allocated and not freed */
    _Atomic uint32_t fired;
    char call[32]; /* which one failed */
    uint32_t depth;
    char stack[16][96]; /* who made it */
};

#endif
