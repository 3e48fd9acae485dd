#include "daemon/broker/process_state.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The letter behind the name, which is in brackets and may have brackets. 0: the thread has gone.
 */
static char state_of(int tasks, const char *thread)
{
    char path[64], text[512];
    snprintf(path, sizeof(path), "%.32s/stat", thread);
    int fd = openat(tasks, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    const char *end = strrchr(text, ')');
    return end && end[1] == ' ' ? end[2] : 0;
}

bool cgm_process_is_held(pid_t pid)
{
    char path[32];
    bool held = false;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    if (!tasks)
        return false;
    for (const struct dirent *thread; (thread = readdir(tasks));)
        held |= thread->d_name[0] != '.' && state_of(dirfd(tasks), thread->d_name) == 'D';
    closedir(tasks);
    return held;
}
