/* A configuration file: it is taken, or refused with a sentence that says where. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/broker/config.h"
#include "proto/status.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64], detail[512] = "";
    struct cgm_config config;
    int fd = memfd_create("commgemmd.conf", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    cgm_config_init(&config);
    int status = cgm_config_load(&config, path, detail, sizeof(detail));
    FUZZ_CHECK(status == CGM_OK || strncmp(detail, path, strlen(path)) == 0);
    FUZZ_CHECK(strlen(config.socket) <= 107 && config.devices >= 1 && config.devices <= 64);
    close(fd);
    return 0;
}
