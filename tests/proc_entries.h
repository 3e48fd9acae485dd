/* What a process has: the entries of one of its folders in /proc, "fd" or "task". */
#ifndef TEST_PROC_ENTRIES_H
#define TEST_PROC_ENTRIES_H

#include <dirent.h>
#include <stdio.h>
#include <sys/types.h>

/* 0: they cannot be read, or there is no such process. */
static inline unsigned proc_entries(pid_t pid, const char *folder)
{
    char path[64];
    unsigned count = 0;
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, folder);
    DIR *entries = opendir(path);
    const struct dirent *entry;
    while (entries && (entry = readdir(entries)))
        count += entry->d_name[0] != '.';
    if (entries)
        closedir(entries);
    return count;
}

#endif
