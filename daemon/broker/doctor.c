/* What the broker can tell about the machine and itself: one function a check. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/mps.h"
#include "daemon/broker/notify.h"
#include "daemon/broker/query.h"
#include "proto/room.h"

#define FDS_WANTED 4096u
#define MEMORY_WANTED (256ull << 20)
#define SHMEM_ENABLED "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

enum result { OK, WARNING, FAILURE };

struct finding {
    enum result result;
    char text[384];
    const char *fix;
};

static void find(struct finding *finding, enum result result, const char *fix, const char *format,
                 ...) __attribute__((format(printf, 4, 5)));

static void find(struct finding *finding, enum result result, const char *fix, const char *format,
                 ...)
{
    va_list arguments;
    finding->result = result;
    finding->fix = fix;
    va_start(arguments, format);
    vsnprintf(finding->text, sizeof(finding->text), format, arguments);
    va_end(arguments);
}

static void check_executor(const struct cgm_broker *broker, struct finding *finding)
{
    const struct cgm_executor *executor = &broker->executor;
    if (cgm_executor_is_ready(executor))
        find(finding, OK, "", "process %d, number %ju since the start of the daemon", executor->pid,
             (uintmax_t)executor->life);
    else
        find(finding, FAILURE,
             "install commgemm-executor-cpu or -cuda beside commgemmd, or set the key executor; if "
             "it is there, the daemon's log says why it ends",
             "none serves: %s", cgm_executor_why_not(executor));
}

static void check_backend(const struct cgm_broker *broker, struct finding *finding)
{
    static const char *const wanted[] = {"auto", "cpu", "cuda"};
    const struct cgm_executor *executor = &broker->executor;
    bool serves = executor->backend[0] != '\0';
    if (serves && executor->candidates.passed_over[0])
        find(finding, WARNING, "do what it says and restart the daemon, or set backend = cpu",
             "%s with %u devices (backend = %s), not cuda: %s", executor->backend,
             executor->n_devices, wanted[broker->config.backend], executor->candidates.passed_over);
    else
        find(finding, serves ? OK : WARNING, serves ? "" : "see executor",
             "%s with %u devices (backend = %s)", serves ? executor->backend : "none yet",
             executor->n_devices, wanted[broker->config.backend]);
}

static void check_mps(const struct cgm_broker *broker, struct finding *finding)
{
    struct cgm_mps mps;
    bool matters = cgm_executor_is_cuda(&broker->executor);
    cgm_mps_look(&mps);
    if (!matters)
        find(finding, OK, "", "%s; only the CUDA backend is concerned", mps.on ? "on" : "off");
    else if (!mps.on)
        find(finding, WARNING, CGM_MPS_FIX_START,
             "off: each change from one process's context to another's costs about 140 us");
    else if (cgm_mps_excludes(&mps, geteuid()))
        find(finding, FAILURE, CGM_MPS_FIX_MULTI_USER,
             "on, but it serves uid %u alone and the daemon runs as uid %u: the executor would "
             "hang",
             (unsigned)mps.uid, (unsigned)geteuid());
    else
        find(finding, WARNING,
             "end sessions with commgemmctl kill SESSION before their processes are killed; to do "
             "without MPS, echo quit | nvidia-cuda-mps-control",
             "on, %s: one faulting process, or one killed with a running kernel, takes down all "
             "CUDA work on its GPU",
             !mps.mode_known ? "in another container"
             : mps.is_multi  ? "for all users"
                             : "for one user at a time: CUDA calls of others would hang");
}

static void check_cuda(const struct cgm_broker *broker, struct finding *finding)
{
    (void)broker;
#ifdef COMMGEMM_WITH_CUDA
    find(finding, OK, "", "CUDA parts are in this build");
#else
    find(finding, WARNING, "install the CUDA toolkit, then build again: ./run build",
         "CUDA parts left out: no toolkit at build time");
#endif
}

static void check_fd_limit(const struct cgm_broker *broker, struct finding *finding)
{
    struct rlimit limit;
    (void)broker;
    getrlimit(RLIMIT_NOFILE, &limit);
    find(finding, limit.rlim_cur >= FDS_WANTED ? OK : WARNING,
         limit.rlim_cur >= FDS_WANTED ? "" : "LimitNOFILE=65536 in the unit, or ulimit -n",
         "%ju file descriptors; every session, buffer and import takes some",
         (uintmax_t)limit.rlim_cur);
}

static void check_memlock(const struct cgm_broker *broker, struct finding *finding)
{
    struct rlimit limit;
    bool matters = strcmp(broker->executor.backend, "cuda") == 0;
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur == RLIM_INFINITY)
        find(finding, OK, "", "memory may be locked without limit");
    else
        find(finding, matters ? WARNING : OK, matters ? "LimitMEMLOCK=infinity in the unit" : "",
             "%ju bytes may be locked%s", (uintmax_t)limit.rlim_cur,
             matters ? "" : "; the CPU backend locks none");
}

static void check_socket(const struct cgm_broker *broker, struct finding *finding)
{
    struct stat st;
    const char *path = broker->listener.path;
    if (stat(path, &st) < 0)
        find(finding, FAILURE, "restart the daemon: its socket file was removed", "%s: %s", path,
             strerror(errno));
    else if (!cgm_listener_is_there(&broker->listener))
        find(finding, FAILURE,
             "end this daemon or the other one, and let each have a path of its own (--socket)",
             "%s is not this daemon's socket any more: it was replaced", path);
    else
        find(finding, OK, "", "%s, mode %04o, uid %u, gid %u%s", path,
             (unsigned)st.st_mode & 07777u, (unsigned)st.st_uid, (unsigned)st.st_gid,
             broker->listener.inherited ? ", from systemd" : "");
}

static void check_memfd(const struct cgm_broker *broker, struct finding *finding)
{
    (void)broker;
    int fd = memfd_create("commgemm-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    bool sealed = fd >= 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0;
    find(finding, sealed ? OK : FAILURE,
         sealed ? "" : "use a kernel and a sandbox that allow memfd", "sealed memfds %s",
         sealed ? "work" : strerror(errno));
    if (fd >= 0)
        close(fd);
}

/* Who collapses the pages of a ring (MADV_COLLAPSE) holds their locks, and on a processor that
 * others keep busy the poller waits for that. Nothing but this setting keeps a client from it. */
static void check_collapse(const struct cgm_broker *broker, struct finding *finding)
{
    struct stat st;
    char setting[128] = "";
    FILE *file = fopen(SHMEM_ENABLED, "re");
    if (file && !fgets(setting, sizeof(setting), file))
        setting[0] = '\0';
    if (file)
        fclose(file);
    if (!setting[0] || strstr(setting, "[deny]"))
        find(finding, OK, "", "clients cannot collapse the pages of their rings");
    else if (stat(broker->listener.path, &st) == 0 && !(st.st_mode & 022))
        find(finding, OK, "", "pages of rings can be collapsed, by the daemon's own uid alone");
    else
        find(finding, WARNING, "where users are not trusted that far, echo deny >" SHMEM_ENABLED,
             "a client can collapse the pages of its ring, and so hold up all jobs for seconds");
}

/* Buffers on GPUs take little of it. */
static void check_memory(const struct cgm_broker *broker, struct finding *finding)
{
    struct cgm_room room;
    char words[CGM_ROOM_WORDS];
    (void)broker;
    if (cgm_room_find(CGM_ROOM_OF_DAEMON, &room) != CGM_OK) {
        find(finding, OK, "", "not known here");
        return;
    }
    bool is_low = cgm_room_left(&room) < MEMORY_WANTED;
    const char *fix = room.file
                          ? "raise the limit, MemoryMax and MemoryHigh of the unit, or destroy "
                            "unused buffers: commgemmctl buffers"
                          : "destroy unused buffers: commgemmctl buffers";
    cgm_room_words(&room, words, sizeof(words));
    find(finding, is_low ? WARNING : OK, is_low ? fix : "", "%s", words);
}

static void check_systemd(const struct cgm_broker *broker, struct finding *finding)
{
    (void)broker;
    uint64_t watchdog_ms = cgm_notify_watchdog_ms();
    if (!cgm_notify_is_active())
        find(finding, OK, "", "not started by systemd, nothing restarts the daemon");
    else
        find(finding, OK, "", "systemd is told of the state, watchdog %s",
             watchdog_ms ? "on" : "off");
}

static const struct {
    const char *name;
    void (*run)(const struct cgm_broker *broker, struct finding *finding);
} checks[] = {
    {"executor", check_executor}, {"backend", check_backend},   {"cuda", check_cuda},
    {"mps", check_mps},           {"fd limit", check_fd_limit}, {"memlock", check_memlock},
    {"socket", check_socket},     {"memfd", check_memfd},       {"collapse", check_collapse},
    {"memory", check_memory},     {"systemd", check_systemd},
};
#define CHECK_COUNT (sizeof(checks) / sizeof(checks[0]))

void cgm_doctor_rows(const struct cgm_broker *broker, struct cgm_rows *rows)
{
    static const char *const names[] = {"ok", "warning", "failure"};
    struct finding finding;
    for (size_t i = 0; i < CHECK_COUNT; i++) {
        checks[i].run(broker, &finding);
        cgm_rows_begin(rows);
        cgm_rows_text(rows, "check", checks[i].name);
        cgm_rows_text(rows, "result", names[finding.result]);
        cgm_rows_text(rows, "text", finding.text);
        cgm_rows_text(rows, "fix", finding.fix);
    }
}

char *cgm_doctor_warnings(const struct cgm_broker *broker)
{
    json_t *list = json_array();
    struct finding finding;
    for (size_t i = 0; i < CHECK_COUNT; i++) {
        checks[i].run(broker, &finding);
        if (finding.result != OK)
            json_array_append_new(list, json_sprintf("%s: %s", checks[i].name, finding.text));
    }
    char *text = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    return text;
}
