#include "proto/system.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
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

void cgm_system_processor(char *ret_model, size_t size)
{
    char line[256];
    struct utsname system;
    FILE *file = fopen("/proc/cpuinfo", "re");
    ret_model[0] = '\0';
    while (file && ret_model[0] == '\0' && fgets(line, sizeof(line), file)) {
        const char *colon = strncmp(line, "model name", 10) == 0 ? strchr(line, ':') : NULL;
        if (colon)
            snprintf(ret_model, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
    }
    if (file)
        fclose(file);
    if (ret_model[0] == '\0')
        snprintf(ret_model, size, "%s", uname(&system) == 0 ? system.machine : "processor");
}

int cgm_system_memory(uint64_t *ret_total_bytes, uint64_t *ret_available_bytes)
{
    char text[4096];
    uint64_t total, available;
    int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return cgm_status_of_errno(errno);
    ssize_t n = read(fd, text, sizeof(text) - 1);
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
