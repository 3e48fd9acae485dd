/* An errand: one client that holds both ranks of a comm and does one of everything. What it does
 * again, and when, is as in life.h. */
#ifndef ERRAND_H
#define ERRAND_H

#include <stdint.h>

struct errand_result {
    int32_t status; /* of the first call that failed; OK: all went well and the result is right */
    char call[48];  /* which one that was */
    char detail[128];
};

/* Exit status when a call of the errand itself has failed, not one of the library. */
#define ERRAND_OWN_FAILURE 3

/* Runs in this process, and leaves nothing of it behind: else the call is "leftovers". */
void errand_run(const char *socket, uint64_t seed, struct errand_result *ret_result);

#endif
