#include "tests/daemon/broker_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/proc_entries.h"
#include "tests/send_signal.h"

#define SETTINGS_MAX 16

/* ---- the daemon -------------------------------------------------------------------------------
 */

void daemon_init(struct daemon *daemon)
{
    memset(daemon, 0, sizeof(*daemon));
    strcpy(daemon->folder, "/tmp/cgm-broker-XXXXXX");
    assert_non_null(mkdtemp(daemon->folder));
    assert_int_equal(chmod(daemon->folder, 0711), 0); /* the socket's mode decides */
    snprintf(daemon->socket, sizeof(daemon->socket), "%s/run/daemon.sock", daemon->folder);
}

static void exec_daemon(const struct daemon *daemon, const char *const *settings)
{
    const char *arguments[2 * SETTINGS_MAX + 12] = {CGM_BIN_DIR "/commgemmd",
                                                    "--socket",
                                                    daemon->socket,
                                                    "--set",
                                                    "log_level=debug",
                                                    "--set",
                                                    "executor=" CGM_BIN_DIR "/fake_executor",
                                                    "--set",
                                                    "state_dir=none"};
    char log[128];
    size_t n = 9;
    for (; settings && *settings; settings++) {
        arguments[n++] = "--set";
        arguments[n++] = *settings;
    }
    snprintf(log, sizeof(log), "%s/log", daemon->folder);
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(fd, STDERR_FILENO);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("FAKE_EXECUTOR_DIR", daemon->folder, 1);
    unsetenv("JOURNAL_STREAM");
    if (daemon->bequeath)
        daemon->bequeath();
    execv(arguments[0], (char *const *)(uintptr_t)arguments);
    _exit(99);
}

static void write_to(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        _exit(98);
    close(fd);
}

static void enter_container(void)
{
    if (unshare(CLONE_NEWUSER) < 0)
        _exit(98);
    write_to("/proc/self/uid_map", "0 0 1");
    write_to("/proc/self/setgroups", "deny");
    write_to("/proc/self/gid_map", "0 0 1");
}

void daemon_launch(struct daemon *daemon, const char *const *settings)
{
    daemon->pid = fork();
    assert_true(daemon->pid >= 0);
    if (daemon->pid == 0 && daemon->own_session)
        setsid();
    if (daemon->pid == 0 && daemon->contained)
        enter_container();
    if (daemon->pid == 0)
        exec_daemon(daemon, settings);
}

void daemon_wait_for_socket(const struct daemon *daemon)
{
    struct timespec begin;
    int fd;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    while (cgm_socket_connect(daemon->socket, &fd) != CGM_OK) {
        assert_false(is_over(&begin));
        assert_int_equal(waitpid(daemon->pid, NULL, WNOHANG), 0);
        nap();
    }
    close(fd);
}

void daemon_start(struct daemon *daemon, ...)
{
    const char *settings[SETTINGS_MAX + 1];
    size_t n = 0;
    va_list arguments;
    va_start(arguments, daemon);
    while (n < SETTINGS_MAX && (settings[n] = va_arg(arguments, const char *)))
        n++;
    va_end(arguments);
    settings[n] = NULL;
    daemon_launch(daemon, settings);
    daemon_wait_for_socket(daemon);
}

int daemon_wait(struct daemon *daemon)
{
    struct timespec begin;
    int status;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    while (waitpid(daemon->pid, &status, WNOHANG) == 0) {
        if (is_over(&begin))
            send_signal(daemon->pid, SIGKILL);
        nap();
    }
    daemon->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void show_log(const struct daemon *daemon)
{
    char path[128], text[4096];
    snprintf(path, sizeof(path), "%s/log", daemon->folder);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;
    while (fd >= 0 && (n = read(fd, text, sizeof(text))) > 0)
        fprintf(stderr, "%.*s", (int)n, text);
    if (fd >= 0)
        close(fd);
}

static void remove_folder(const char *folder)
{
    char path[512];
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (entry->d_type == DT_DIR)
            remove_folder(path);
        else
            unlink(path);
    }
    if (entries)
        closedir(entries);
    rmdir(folder);
}

void daemon_stop(struct daemon *daemon)
{
    int status = 0;
    if (daemon->pid > 0) {
        send_signal(daemon->pid, SIGTERM);
        status = daemon_wait(daemon);
    }
    if (status != 0)
        show_log(daemon);
    bool left = access(daemon->socket, F_OK) == 0;
    remove_folder(daemon->folder);
    assert_int_equal(status, 0);
    assert_false(left);
}

void daemon_limit_fds(const struct daemon *daemon, unsigned most)
{
    const struct rlimit limit = {most, most};
    assert_int_equal(prlimit(daemon->pid, RLIMIT_NOFILE, &limit, NULL), 0);
}

static unsigned count_lines(const struct daemon *daemon, const char *level, const char *text,
                            unsigned most)
{
    char path[128], line[1024];
    unsigned count = 0;
    snprintf(path, sizeof(path), "%s/log", daemon->folder);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (count < most && fgets(line, sizeof(line), file))
        count += strstr(line, level) && strstr(line, text);
    fclose(file);
    return count;
}

bool daemon_log_has(const struct daemon *daemon, const char *level, const char *text)
{
    return count_lines(daemon, level, text, 1) > 0;
}

unsigned daemon_log_count(const struct daemon *daemon, const char *text)
{
    return count_lines(daemon, "", text, UINT_MAX);
}

void daemon_wait_for_at_most(const struct daemon *daemon, const char *folder, unsigned most)
{
    struct timespec begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    while (proc_entries(daemon->pid, folder) > most) {
        assert_false(is_over(&begin));
        nap();
    }
}

int daemon_set_up(void **state)
{
    struct daemon *daemon = malloc(sizeof(*daemon));
    daemon_init(daemon);
    daemon_start(daemon, NULL);
    *state = daemon;
    return 0;
}

int daemon_tear_down(void **state)
{
    daemon_stop(*state);
    free(*state);
    return 0;
}

/* ---- the fake executor ------------------------------------------------------------------------
 */

void fake_fault(const struct daemon *daemon, const char *kind, const char *message,
                const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s.%s", daemon->folder, kind, message);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

void fake_heal(const struct daemon *daemon, const char *kind, const char *message)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s.%s", daemon->folder, kind, message);
    unlink(path);
}

static bool find_line(const struct daemon *daemon, const char *begin, char *ret_line, size_t size)
{
    char path[256], line[512];
    bool found = false;
    snprintf(path, sizeof(path), "%s/messages", daemon->folder);
    FILE *file = fopen(path, "re");
    while (file && !found && fgets(line, sizeof(line), file))
        found = strncmp(line, begin, strlen(begin)) == 0;
    if (found)
        snprintf(ret_line, size, "%s", line);
    if (file)
        fclose(file);
    return found;
}

bool fake_has_line(const struct daemon *daemon, const char *begin)
{
    char line[512];
    return find_line(daemon, begin, line, sizeof(line));
}

unsigned fake_count_lines(const struct daemon *daemon, const char *begin)
{
    char path[256], line[512];
    unsigned count = 0;
    snprintf(path, sizeof(path), "%s/messages", daemon->folder);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file))
        count += strncmp(line, begin, strlen(begin)) == 0;
    if (file)
        fclose(file);
    return count;
}

void fake_wait_line(const struct daemon *daemon, const char *begin, char *ret_line, size_t size)
{
    struct timespec start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    while (!find_line(daemon, begin, ret_line, size)) {
        assert_false(is_over(&start));
        nap();
    }
}

void fake_forget_lines(const struct daemon *daemon)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/messages", daemon->folder);
    unlink(path);
}
