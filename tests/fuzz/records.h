/* Inputs that are lists of records of 32 bytes: what happens, to whom, and the bytes that message.h
 * makes messages of. */
#ifndef CGM_TESTS_FUZZ_RECORDS_H
#define CGM_TESTS_FUZZ_RECORDS_H

#include <stddef.h>
#include <stdint.h>

#include "tests/fuzz/message.h"

struct fuzz_record {
    uint8_t what, whom, type, extra;
    uint8_t values[FUZZ_VALUES];
};

/* Calls `perform` for one after the other, the first FUZZ_RECORDS_MAX of them. */
#define FUZZ_RECORDS_MAX 64u
void fuzz_records_each(const uint8_t *data, size_t size,
                       void (*perform)(const struct fuzz_record *record));

/* The target's mutator: records are added, repeated, removed and exchanged, and one is changed as
 * libFuzzer changes bytes. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

/* How many of the first numbers are open fds. */
unsigned fuzz_count_fds(void);

#endif
