#include "client/bench/private_daemon.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/bench/options.h"
#include "client/bench/stop.h"
#include "proto/packet.h"
#include "proto/status.h"

#define START_MS 60000
#define STOP_MS 5000
#define STEP_MS 10
#define ARGUMENTS_MAX 64
#define LOG_BYTES 900

static bool find_program(char *ret_path, size_t size, char *ret_detail)
{
    static const char *const places[] = {"", "../sbin/"};
    char self[PATH_MAX];
    const char *given = getenv("COMMGEMM_DAEMON");
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[length > 0 ? length : 0] = '\0';
    const char *folder = dirname(self);
    for (size_t i = 0; !given && i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(ret_path, size, "%s/%scommgemmd", folder, places[i]);
        if (access(ret_path, X_OK) == 0)
            return true;
    }
    if (given && snprintf(ret_path, size, "%s", given) && access(given, X_OK) == 0)
        return true;
    snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES,
             "--private: no commgemmd in %s or beside it; $COMMGEMM_DAEMON may name it",
             given ? given : folder);
    return false;
}

/* "key=value,key=value" as --set arguments; cuts `set`. The number of arguments, or -1. */
static int split_settings(char *set, char **arguments, int n, int max)
{
    char *rest = NULL;
    for (char *item = set ? strtok_r(set, ",", &rest) : NULL; item;
         item = strtok_r(NULL, ",", &rest)) {
        if (n + 2 >= max)
            return -1;
        arguments[n++] = "--set";
        arguments[n++] = item;
    }
    return n;
}

static void become_daemon(const char *program, char **arguments, const char *log, pid_t parent)
{
    int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    cgm_stop_forget();
    if (getppid() != parent || fd < 0 || null < 0 || dup2(null, 0) < 0 || dup2(fd, 1) < 0 ||
        dup2(fd, 2) < 0)
        _exit(1);
    setpgid(0, 0); /* a Ctrl-C is for the program, which then ends its daemon */
    unsetenv("NOTIFY_SOCKET");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_PID");
    execv(program, arguments);
    dprintf(2, "%s: %s\n", program, strerror(errno));
    _exit(127);
}

static void sleep_ms(long ms)
{
    struct timespec wait = {ms / 1000, ms % 1000 * 1000000l};
    nanosleep(&wait, NULL);
}

static bool ended(struct cgm_private_daemon *daemon, int *ret_status)
{
    if (daemon->pid && waitpid(daemon->pid, ret_status, WNOHANG) == daemon->pid)
        daemon->pid = 0;
    return daemon->pid == 0;
}

/* It says in its log what it does not take: a setting is the user's. */
static int tell_end(const char *program, int end, char *ret_detail)
{
    snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "--private: %.500s ended at once", program);
    return WIFEXITED(end) && WEXITSTATUS(end) == CGM_EXIT_USAGE ? CGM_INVALID_ARGUMENT
                                                                : CGM_NOT_RUNNING;
}

static int await_answer(struct cgm_private_daemon *daemon, const char *program, char *ret_detail)
{
    int end = 0;
    for (int waited = 0; waited < START_MS; waited += STEP_MS) {
        int fd;
        if (cgm_socket_connect(daemon->socket, &fd) == CGM_OK) {
            close(fd);
            return CGM_OK;
        }
        if (cgm_stop_signal()) {
            snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "ended by signal %d", cgm_stop_signal());
            return CGM_CANCELLED;
        }
        if (ended(daemon, &end))
            return tell_end(program, end, ret_detail);
        sleep_ms(STEP_MS);
    }
    snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "--private: %.500s does not answer within %d s",
             program, START_MS / 1000);
    return CGM_NOT_RUNNING;
}

static int make_folder(struct cgm_private_daemon *daemon, char *ret_detail)
{
    const char *base = getenv("TMPDIR");
    int length = snprintf(daemon->folder, sizeof(daemon->folder), "%s/commgemm-bench.XXXXXX",
                          base && base[0] == '/' ? base : "/tmp");
    if (length >= (int)sizeof(daemon->folder))
        strcpy(daemon->folder, "/tmp/commgemm-bench.XXXXXX");
    if (!mkdtemp(daemon->folder)) {
        snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "--private: %s: %s", daemon->folder,
                 strerror(errno));
        daemon->folder[0] = '\0';
        return CGM_IO;
    }
    snprintf(daemon->socket, sizeof(daemon->socket), "%s/commgemmd.sock", daemon->folder);
    snprintf(daemon->log, sizeof(daemon->log), "%s/log", daemon->folder);
    return CGM_OK;
}

int cgm_private_daemon_start(const char *backend, uint32_t devices, const char *set,
                             char *ret_detail, struct cgm_private_daemon *ret_daemon)
{
    struct cgm_private_daemon *daemon = ret_daemon;
    char program[PATH_MAX + 32], backend_set[32], devices_set[32], settings[1024];
    memset(daemon, 0, sizeof(*daemon));
    if (!find_program(program, sizeof(program), ret_detail))
        return CGM_NOT_FOUND;
    snprintf(backend_set, sizeof(backend_set), "backend=%s", backend);
    snprintf(devices_set, sizeof(devices_set), "devices=%u", devices);
    char *arguments[ARGUMENTS_MAX] = {program, "--config", "/dev/null", "--socket", NULL, "--set",
                                      backend_set, "--set", devices_set,
                                      /* What an earlier one measured would be no figure of now. */
                                      "--set", "state_dir=none"};
    bool fits = snprintf(settings, sizeof(settings), "%s", set ? set : "") < (int)sizeof(settings);
    if (!fits || split_settings(settings, arguments, 11, ARGUMENTS_MAX) < 0) {
        snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "--set %.200s...: too many settings", set);
        return CGM_INVALID_ARGUMENT;
    }
    int status = make_folder(daemon, ret_detail);
    if (status)
        return status;
    arguments[4] = daemon->socket;
    pid_t parent = getpid();
    fflush(NULL);
    daemon->pid = fork();
    if (daemon->pid == 0)
        become_daemon(program, arguments, daemon->log, parent);
    if (daemon->pid < 0) {
        daemon->pid = 0;
        snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "--private: %s", strerror(errno));
        status = CGM_NO_MEMORY;
    } else
        status = await_answer(daemon, program, ret_detail);
    if (status) {
        cgm_private_daemon_quote_log(daemon, ret_detail);
        cgm_private_daemon_stop(daemon);
    }
    return status;
}

void cgm_private_daemon_quote_log(const struct cgm_private_daemon *daemon, char *detail)
{
    char tail[LOG_BYTES + 1];
    int fd = daemon->log[0] ? open(daemon->log, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    off_t size = lseek(fd, 0, SEEK_END);
    ssize_t got = pread(fd, tail, LOG_BYTES, size > LOG_BYTES ? size - LOG_BYTES : 0);
    close(fd);
    if (got <= 0)
        return;
    while (got > 0 && tail[got - 1] == '\n')
        got--;
    tail[got] = '\0';
    const char *cut = size > LOG_BYTES ? strchr(tail, '\n') : NULL; /* the rest of a line */
    size_t used = strlen(detail);
    if (used < CGM_BENCH_DETAIL_BYTES)
        snprintf(detail + used, CGM_BENCH_DETAIL_BYTES - used, "; its log ends with:\n%s",
                 cut ? cut + 1 : tail);
}

static void remove_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    while (dir && (entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        closedir(dir);
    rmdir(folder);
}

void cgm_private_daemon_stop(struct cgm_private_daemon *daemon)
{
    int end;
    if (daemon->pid)
        kill(daemon->pid, SIGTERM);
    for (int waited = 0; waited < STOP_MS && !ended(daemon, &end); waited += STEP_MS)
        sleep_ms(STEP_MS);
    if (!ended(daemon, &end)) {
        kill(daemon->pid, SIGKILL);
        while (waitpid(daemon->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    if (daemon->folder[0])
        remove_folder(daemon->folder);
    memset(daemon, 0, sizeof(*daemon));
}
