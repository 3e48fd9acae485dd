#include "proto/ranks.h"

#include <stdio.h>

/* How many follow one another from the lowest on; two are as short one by one. */
static unsigned run_of(uint64_t mask)
{
    uint64_t others = ~(mask >> __builtin_ctzll(mask));
    unsigned run = others ? (unsigned)__builtin_ctzll(others) : 64;
    return run == 2 ? 1 : run;
}

unsigned cgm_ranks_text(uint64_t mask, char *ret_text, size_t size)
{
    static const char more[] = " and 64 more";
    unsigned count = (unsigned)__builtin_popcountll(mask);
    size_t used = 0;
    ret_text[0] = '\0';
    while (mask) {
        char part[16];
        unsigned first = (unsigned)__builtin_ctzll(mask), run = run_of(mask);
        const char *comma = used ? ", " : "";
        int length = run > 1
                         ? snprintf(part, sizeof(part), "%s%u to %u", comma, first, first + run - 1)
                         : snprintf(part, sizeof(part), "%s%u", comma, first);
        if (used + (size_t)length + sizeof(more) > size) {
            snprintf(ret_text + used, size - used, " and %d more", __builtin_popcountll(mask));
            break;
        }
        used += (size_t)snprintf(ret_text + used, size - used, "%s", part);
        mask &= ~(UINT64_MAX >> (64 - run) << first);
    }
    return count;
}
