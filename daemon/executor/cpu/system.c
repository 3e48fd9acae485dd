#include "daemon/executor/cpu/system.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/status.h"

static bool find_kib(const char *text, const char *key, uint64_t *ret_bytes)
{
    const char *at = strstr(text, key);
    uint64_t kib;
    if (!at || sscanf(at + strlen(key), "%" SCNu64, &kib) != 1)
        return false;
    *ret_bytes = kib * 1024;
    return true;
}

int cgm_system_memory(uint64_t *ret_total_bytes, uint64_t *ret_available_bytes)
{
    char text[4096];
    uint64_t total, available;
    int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return CGM_IO;
    text[n] = '\0';
    if (!find_kib(text, "MemTotal:", &total) || !find_kib(text, "MemAvailable:", &available))
        return CGM_IO;
    *ret_total_bytes = total;
    *ret_available_bytes = available;
    return CGM_OK;
}
