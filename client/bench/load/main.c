#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/bench/load/load.h"
#include "proto/standard_fds.h"

static const struct {
    const char *name, *what;
    uint64_t count;
    bool (*run)(uint64_t count);
} parts[] = {
    {"crowd", "rounds that 64 sessions of 4 ranks submit at once", 300, cgm_load_crowd},
    {"sessions", "sessions opened and closed", 10000, cgm_load_sessions},
    {"buffers", "buffers created and destroyed", 10000, cgm_load_buffers},
    {"restart", "buffers that a killed executor's successor takes over", 1000, cgm_load_restart},
};
#define PARTS (sizeof(parts) / sizeof(parts[0]))

static int usage(void)
{
    printf("usage: commgemm-load [PART [COUNT]]\n\nAll parts, or one; each on a daemon of its own "
           "with the CPU backend.\n\n");
    for (size_t i = 0; i < PARTS; i++)
        printf("  %-10s %s (%llu)\n", parts[i].name, parts[i].what,
               (unsigned long long)parts[i].count);
    return 2;
}

static bool number_of(const char *text, uint64_t *ret_number)
{
    char *end;
    errno = 0;
    *ret_number = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0 && *ret_number > 0 &&
           *ret_number <= 100000000;
}

int main(int argc, char **argv)
{
    uint64_t count = 0;
    bool known = argc == 1, right = true;
    cgm_standard_fds_open();
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 3 || (argc == 3 && !number_of(argv[2], &count)))
        return usage();
    for (size_t i = 0; i < PARTS; i++) {
        if (argc > 1 && strcmp(argv[1], parts[i].name) != 0)
            continue;
        known = true;
        right = parts[i].run(count ? count : parts[i].count) && right;
    }
    if (!known)
        return usage();
    return cgm_standard_output_ends_well("commgemm-load") && right ? 0 : 1;
}
