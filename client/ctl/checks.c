/* What can be checked without a daemon. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/common/text_table.h"
#include "client/ctl/doctor.h"
#include "proto/packet.h"
#include "proto/status.h"

#define FILES_MIN 1024u

void cgm_finding_set(struct cgm_finding *finding, enum cgm_finding_result result, const char *fix,
                     const char *format, ...)
{
    va_list arguments;

    finding->result = result;
    va_start(arguments, format);
    vsnprintf(finding->text, sizeof(finding->text), format, arguments);
    va_end(arguments);
    snprintf(finding->fix, sizeof(finding->fix), "%s", fix);
}

static void check_socket(const struct cgm_ctl *ctl, struct cgm_finding *ret)
{
    char path[PATH_MAX];
    struct stat info;

    int status = cgm_socket_path(ctl->socket, 0, path, sizeof(path));
    if (status != CGM_OK)
        cgm_finding_set(ret, CGM_FINDING_FAILURE, "choose a shorter --socket or $COMMGEMM_SOCKET",
                        "%s: the path is too long for a Unix socket", path);
    else if (stat(path, &info) != 0)
        cgm_finding_set(ret, CGM_FINDING_WARNING,
                        "start the daemon, or name its socket with --socket or $COMMGEMM_SOCKET",
                        "%s: %s", path, strerror(errno));
    else if (!S_ISSOCK(info.st_mode))
        cgm_finding_set(ret, CGM_FINDING_FAILURE, "remove it or choose another --socket",
                        "%s is no socket", path);
    else if (access(path, W_OK) != 0)
        cgm_finding_set(ret, CGM_FINDING_FAILURE,
                        "join the socket's group, or set socket_mode or socket_group in "
                        "commgemmd.conf",
                        "%s: mode %04o of uid %u, gid %u does not let uid %u in", path,
                        info.st_mode & 07777u, info.st_uid, info.st_gid, geteuid());
    else
        cgm_finding_set(ret, CGM_FINDING_OK, "", "%s exists and may be used", path);
}

/* The program beside this one, in ../libexec/commgemm, ../sbin or $COMMGEMM_LIBEXEC. */
static bool find_program(const char *name, char *ret_path, size_t size)
{
    static const char *const folders[] = {"", "../libexec/commgemm/", "../sbin/"};
    const char *libexec = getenv("COMMGEMM_LIBEXEC");
    char self[PATH_MAX];

    if (libexec != NULL) {
        snprintf(ret_path, size, "%s/%s", libexec, name);
        if (access(ret_path, X_OK) == 0)
            return true;
    }
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (length <= 0)
        return false;
    self[length] = '\0';
    *strrchr(self, '/') = '\0';
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        snprintf(ret_path, size, "%s/%s%s", self, folders[i], name);
        if (access(ret_path, X_OK) == 0)
            return true;
    }
    return false;
}

static void check_program(const char *name, struct cgm_finding *ret)
{
    char path[PATH_MAX + 64];

    if (find_program(name, path, sizeof(path)))
        cgm_finding_set(ret, CGM_FINDING_OK, "", "%.200s", path);
    else
        cgm_finding_set(ret, CGM_FINDING_FAILURE,
                        "install it, or set $COMMGEMM_LIBEXEC to its folder",
                        "%s is not installed beside commgemmctl", name);
}

static void check_daemon_program(const struct cgm_ctl *ctl, struct cgm_finding *ret)
{
    (void)ctl;
    check_program("commgemmd", ret);
}

static void check_cpu_executor(const struct cgm_ctl *ctl, struct cgm_finding *ret)
{
    (void)ctl;
    check_program("commgemm-executor-cpu", ret);
}

static void check_cuda_executor(const struct cgm_ctl *ctl, struct cgm_finding *ret)
{
    bool has_gpu = access("/dev/nvidiactl", F_OK) == 0;

    (void)ctl;
    check_program("commgemm-executor-cuda", ret);
    if (ret->result == CGM_FINDING_OK)
        return;
    if (has_gpu)
        cgm_finding_set(ret, CGM_FINDING_WARNING,
                        "install a CUDA toolkit and build again with -DCOMMGEMM_CUDA=ON",
                        "not installed, and this machine has an NVIDIA GPU: jobs run on "
                        "the CPU");
    else
        cgm_finding_set(ret, CGM_FINDING_OK, "", "not installed; no NVIDIA GPU here needs it");
}

static void check_memfd(const struct cgm_ctl *ctl, struct cgm_finding *ret)
{
    static const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;

    (void)ctl;
    int fd = memfd_create("commgemm-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        cgm_finding_set(ret, CGM_FINDING_FAILURE, "allow memfd_create in the container's profile",
                        "memfd_create: %s", strerror(errno));
        return;
    }
    if (ftruncate(fd, 4096) != 0 || fcntl(fd, F_ADD_SEALS, seals) != 0)
        cgm_finding_set(ret, CGM_FINDING_FAILURE,
                        "use a kernel with all memfd seals (5.1 or later)",
                        "a memfd cannot be sealed: %s", strerror(errno));
    else
        cgm_finding_set(ret, CGM_FINDING_OK, "", "memory files can be created and sealed");
    close(fd);
}

static void check_open_files(const struct cgm_ctl *ctl, struct cgm_finding *ret)
{
    struct rlimit limit;

    (void)ctl;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < FILES_MIN)
        cgm_finding_set(ret, CGM_FINDING_WARNING, "raise it: ulimit -n 65536",
                        "%" PRIu64 " open files are allowed; sessions take 4 each, buffers 1",
                        (uint64_t)limit.rlim_cur);
    else
        cgm_finding_set(ret, CGM_FINDING_OK, "", "%" PRIu64 " open files are allowed",
                        (uint64_t)limit.rlim_cur);
}

/* It limits memory files too. */
static void check_file_size(const struct cgm_ctl *ctl, struct cgm_finding *ret)
{
    struct rlimit limit;
    char text[CGM_HUMAN_BYTES];

    (void)ctl;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        cgm_finding_set(ret, CGM_FINDING_WARNING, "lift it: ulimit -f unlimited",
                        "files, and so buffers, may be at most %s large",
                        cgm_human_bytes(limit.rlim_cur, text));
    else
        cgm_finding_set(ret, CGM_FINDING_OK, "", "no limit");
}

static void check_processors(const struct cgm_ctl *ctl, struct cgm_finding *ret)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;

    (void)ctl;
    if (count < 2)
        cgm_finding_set(ret, CGM_FINDING_WARNING, "set spin_us = 0, or allow more processors",
                        "one processor: the daemon's poller and its clients take turns");
    else
        cgm_finding_set(ret, CGM_FINDING_OK, "", "%d may be used", count);
}

static bool read_number(const char *path, const char *format, uint64_t *ret_number)
{
    char line[128];
    FILE *file = fopen(path, "re");
    bool found = false;

    if (file == NULL)
        return false;
    while (!found && fgets(line, sizeof(line), file) != NULL)
        found = sscanf(line, format, ret_number) == 1;
    fclose(file);
    return found;
}

static void check_socket_buffer(const struct cgm_ctl *ctl, struct cgm_finding *ret)
{
    uint64_t bytes;

    (void)ctl;
    if (!read_number("/proc/sys/net/core/wmem_default", "%" SCNu64, &bytes))
        cgm_finding_set(ret, CGM_FINDING_OK, "", "not known here");
    else if (bytes < 2 * CGM_PACKET_BYTES_MAX)
        cgm_finding_set(ret, CGM_FINDING_WARNING, "sysctl net.core.wmem_default=212992",
                        "sockets hold %" PRIu64 " bytes; a message takes up to %u", bytes,
                        CGM_PACKET_BYTES_MAX);
    else
        cgm_finding_set(ret, CGM_FINDING_OK, "", "sockets hold %" PRIu64 " bytes", bytes);
}

static void check_memory(const struct cgm_ctl *ctl, struct cgm_finding *ret)
{
    uint64_t kib;
    char text[CGM_HUMAN_BYTES];

    (void)ctl;
    if (!read_number("/proc/meminfo", "MemAvailable: %" SCNu64, &kib))
        cgm_finding_set(ret, CGM_FINDING_OK, "", "not known here");
    else if (kib < 256u << 10)
        cgm_finding_set(ret, CGM_FINDING_WARNING, "destroy unused buffers: commgemmctl buffers",
                        "%s are available", cgm_human_bytes(kib << 10, text));
    else
        cgm_finding_set(ret, CGM_FINDING_OK, "", "%s are available",
                        cgm_human_bytes(kib << 10, text));
}

const struct cgm_check cgm_checks[] = {
    {"socket", check_socket},
    {"commgemmd", check_daemon_program},
    {"executor-cpu", check_cpu_executor},
    {"executor-cuda", check_cuda_executor},
    {"memfd", check_memfd},
    {"open files", check_open_files},
    {"file size", check_file_size},
    {"socket buffer", check_socket_buffer},
    {"processors", check_processors},
    {"memory", check_memory},
};
const unsigned cgm_n_checks = sizeof(cgm_checks) / sizeof(cgm_checks[0]);
