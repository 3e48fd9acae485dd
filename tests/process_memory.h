/* How much memory a process has, as the system counts it. */
#ifndef TEST_PROCESS_MEMORY_H
#define TEST_PROCESS_MEMORY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <cmocka.h>

/* A sanitizer keeps what is freed, and has memory beside it. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CGM_MEMORY_IS_PLAIN 0
#else
#define CGM_MEMORY_IS_PLAIN 1
#endif

/* what: "VmRSS:", "RssAnon:" or another line of /proc/PID/status. */
static inline uint64_t process_kib(pid_t pid, const char *what)
{
    char path[64], line[128];
    unsigned long long kib = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file))
        if (strncmp(line, what, strlen(what)) == 0)
            sscanf(line + strlen(what), "%llu", &kib);
    fclose(file);
    return kib;
}

#endif
