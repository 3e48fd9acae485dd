/* The child of a process that has one, whichever of its threads has started it. */
#ifndef TEST_PROC_CHILD_H
#define TEST_PROC_CHILD_H

#include <dirent.h>
#include <stdio.h>
#include <sys/types.h>

/* 0: there is none. */
static inline pid_t proc_child_of_thread(pid_t pid, const char *thread)
{
    char path[96];
    int child = 0;
    snprintf(path, sizeof(path), "/proc/%d/task/%.16s/children", (int)pid, thread);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%d", &child) != 1)
        child = 0;
    if (file)
        fclose(file);
    return child;
}

static inline pid_t proc_child(pid_t pid)
{
    char path[64];
    pid_t child = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *threads = opendir(path);
    const struct dirent *thread;
    while (threads && child == 0 && (thread = readdir(threads)))
        if (thread->d_name[0] != '.')
            child = proc_child_of_thread(pid, thread->d_name);
    if (threads)
        closedir(threads);
    return child;
}

#endif
