/* Processor time of another process. Include after cmocka.h. */
#ifndef CGM_SPENT_H
#define CGM_SPENT_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <time.h>

/* Of all its threads, those that have ended included. */
static inline uint64_t spent_ns(pid_t pid)
{
    clockid_t clock;
    struct timespec used;
    assert_int_equal(clock_getcpuclockid(pid, &clock), 0);
    assert_int_equal(clock_gettime(clock, &used), 0);
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

/* Of its first thread; skips the test where the kernel does not count. */
static inline uint64_t spent_by_first_thread_ns(pid_t pid)
{
    char path[64];
    unsigned long long ns;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", (int)pid, (int)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        skip();
    assert_int_equal(fscanf(file, "%llu", &ns), 1);
    fclose(file);
    return ns;
}

/* How long its threads waited for a processor, all of them together; 0 where that is not counted.
 */
static inline uint64_t waited_ns(pid_t pid)
{
    char path[64];
    uint64_t sum = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    assert_non_null(tasks);
    for (const struct dirent *task; (task = readdir(tasks));) {
        unsigned long long waited = 0;
        snprintf(path, sizeof(path), "/proc/%d/task/%.10s/schedstat", (int)pid, task->d_name);
        FILE *file = fopen(path, "re");
        if (file && fscanf(file, "%*u %llu", &waited) == 1)
            sum += waited;
        if (file)
            fclose(file);
    }
    closedir(tasks);
    return sum;
}

#endif
