#include "tests/fault/node.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/backend.h"
#include "tests/fault/life.h"
#include "tests/proc_child.h"
#include "tests/proc_entries.h"
#include "tests/send_signal.h"

#define START_S 60
#define END_S test_backend_wait(30)

/* ---- processes ---------------------------------------------------------------------------------
 */

static size_t read_proc(pid_t pid, const char *name, char *ret_text, size_t size)
{
    char path[128];
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    ssize_t n;
    while (fd >= 0 && used + 1 < size && (n = read(fd, ret_text + used, size - 1 - used)) > 0)
        used += (size_t)n;
    if (fd >= 0)
        close(fd);
    ret_text[used] = '\0';
    return used;
}

static char state_of(pid_t pid)
{
    char text[512];
    read_proc(pid, "stat", text, sizeof(text));
    const char *end = strrchr(text, ')');
    return end ? end[2] : '\0';
}

bool process_is_stopped(pid_t pid)
{
    return state_of(pid) == 'T';
}

bool process_is_gone(pid_t pid)
{
    char state = state_of(pid);
    return state == '\0' || state == 'Z' || state == 'X';
}

static long count_maps(pid_t pid)
{
    static char text[1 << 20];
    long count = 0;
    read_proc(pid, "maps", text, sizeof(text));
    for (const char *c = text; (c = strchr(c, '\n')); c++)
        count++;
    return count;
}

struct node_load process_load(pid_t pid)
{
    char text[4096];
    struct node_load load = {(long)proc_entries(pid, "fd"), (long)proc_entries(pid, "task"),
                             count_maps(pid), 0};
    read_proc(pid, "status", text, sizeof(text));
    const char *line = strstr(text, "\nVmRSS:");
    if (line)
        load.resident_kib = strtol(line + 7, NULL, 10);
    return load;
}

void process_show_fds(pid_t pid)
{
    char path[64], link[320], target[256];
    struct stat st;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *entries = opendir(path);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        snprintf(link, sizeof(link), "%s/%s", path, entry->d_name);
        ssize_t n = readlink(link, target, sizeof(target) - 1);
        if (n < 0 || stat(link, &st) < 0)
            continue;
        fprintf(stderr, "  fd %s: %.*s, %ld bytes\n", entry->d_name, (int)n, target,
                (long)st.st_size);
    }
    if (entries)
        closedir(entries);
}

pid_t node_executor(const struct node *node)
{
    pid_t pid = proc_child(node->broker);
    return pid > 0 && !process_is_gone(pid) ? pid : 0;
}

bool node_await_executor(const struct node *node, pid_t not_this_one)
{
    pid_t pid;
    return NODE_AWAIT(END_S, (pid = node_executor(node)) != 0 && pid != not_this_one);
}

/* ---- a client for a moment ---------------------------------------------------------------------
 */

/* The library has threads, and this process forks: so it is used in a child. Returns what `ask`
 * did, or -1. */
static long ask(const struct node *node,
                long (*question)(commgemm_client *client, const char *what), const char *what)
{
    int pipes[2];
    long answer = -1;
    if (pipe2(pipes, O_CLOEXEC) < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        struct commgemm_connect_options options;
        commgemm_client *client;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(START_S);
        commgemm_connect_options_init(&options);
        options.socket = node->socket;
        if (commgemm_connect(&options, &client) == COMMGEMM_OK &&
            commgemm_wait_executor(client, START_S * 1000) == COMMGEMM_OK)
            answer = question(client, what);
        _exit(write(pipes[1], &answer, sizeof(answer)) != sizeof(answer));
    }
    close(pipes[1]);
    if (read(pipes[0], &answer, sizeof(answer)) != sizeof(answer))
        answer = -1;
    close(pipes[0]);
    if (pid > 0)
        waitpid(pid, NULL, 0);
    return answer;
}

static unsigned char kept_byte(unsigned buffer, size_t at)
{
    return (unsigned char)((at * 2654435761u >> 7) + buffer * 101);
}

/* The process ends soon, and takes the views with it. */
static long kept_make(commgemm_client *client, const char *what)
{
    (void)what;
    for (unsigned i = 0; i < NODE_KEPT; i++) {
        struct commgemm_buffer buffer;
        struct buffer_view view;
        char name[16];
        snprintf(name, sizeof(name), "kept.%u", i);
        if (commgemm_buffer_create(client, name, NODE_KEPT_BYTES, -1, 0, 0, &buffer) ||
            buffer_view_open(client, &buffer, &view))
            return -1;
        for (size_t at = 0; at < NODE_KEPT_BYTES; at++)
            ((unsigned char *)view.memory)[at] = kept_byte(i, at);
        if (buffer_view_push(client, &buffer, &view))
            return -1;
    }
    return 0;
}

/* The number of wrong bytes. */
static long kept_check(commgemm_client *client, const char *what)
{
    long wrong = 0;
    (void)what;
    for (unsigned i = 0; i < NODE_KEPT; i++) {
        struct commgemm_buffer buffer;
        struct buffer_view view;
        char name[16];
        snprintf(name, sizeof(name), "kept.%u", i);
        if (commgemm_buffer_open(client, name, 0, 0, &buffer) || buffer.tainted ||
            buffer.generation != 1 || buffer_view_open(client, &buffer, &view) ||
            buffer_view_pull(client, &buffer, &view))
            return -1;
        for (size_t at = 0; at < NODE_KEPT_BYTES; at++)
            wrong += ((unsigned char *)view.memory)[at] != kept_byte(i, at);
    }
    return wrong;
}

static const struct {
    const char *what;
    long expected;
} listings[] = {
    {"sessions", 1}, {"comms", 0},   {"buffers", NODE_KEPT},
    {"plans", 0},    {"imports", 0}, {"jobs", 0},
};
#define LISTINGS (sizeof(listings) / sizeof(listings[0]))

static long count(commgemm_client *client, const char *what)
{
    char *json = NULL;
    long rows = 0;
    if (commgemm_query(client, what, &json) != COMMGEMM_OK)
        return 99;
    for (const char *c = strchr(json, '['); c && (c = strchr(c, '{')); c++)
        rows++;
    free(json);
    return rows;
}

/* A digit of base 100 for each listing, and one for the kept buffers: how far each is from what it
 * should be. */
static long look(commgemm_client *client, const char *tag)
{
    long digits = 0, scale = 1;
    char name[64];
    for (uint32_t i = 0; i < 4; i++) {
        life_buffer_name(tag, i / 2, i % 2, name, sizeof(name));
        commgemm_buffer_destroy(client, name);
    }
    for (size_t i = 0; i < LISTINGS; i++, scale *= 100)
        digits += scale * (labs(count(client, listings[i].what) - listings[i].expected) % 100);
    return digits + (kept_check(client, NULL) != 0 ? scale : 0);
}

bool node_is_clean(const struct node *node, const char *tag, char *ret_why, size_t size)
{
    long digits = ask(node, look, tag);
    size_t used = (size_t)snprintf(ret_why, size, digits < 0 ? "no answer" : "");
    for (size_t i = 0; digits > 0 && i < LISTINGS; i++, digits /= 100)
        if (digits % 100 && used < size)
            used += (size_t)snprintf(ret_why + used, size - used, "%ld too many or few %s; ",
                                     digits % 100, listings[i].what);
    if (digits > 0 && used < size)
        snprintf(ret_why + used, size - used, "kept buffers are not as they were");
    return ret_why[0] == '\0';
}

/* ---- the daemon --------------------------------------------------------------------------------
 */

bool node_init(struct node *node)
{
    *node = (struct node){.folder = "/tmp/cgm-fault-XXXXXX"};
    if (!mkdtemp(node->folder))
        return false;
    snprintf(node->socket, sizeof(node->socket), "%s/socket", node->folder);
    snprintf(node->steps_path, sizeof(node->steps_path), "%s/steps", node->folder);
    int fd = open(node->steps_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(*node->steps)) < 0)
        return false;
    void *base = mmap(NULL, sizeof(*node->steps), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    node->steps = base;
    return base != MAP_FAILED;
}

void node_fini(struct node *node)
{
    static const char *const names[] = {"socket", "socket.lock", "steps", "log"};
    char path[160];
    if (node->broker) {
        send_signal(node->broker, SIGKILL);
        waitpid(node->broker, NULL, 0);
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", node->folder, names[i]);
        unlink(path);
    }
    rmdir(node->folder);
    munmap(node->steps, sizeof(*node->steps));
}

static void exec_daemon(const struct node *node)
{
    char path[160], steps[128], timeout[48], start_timeout[48];
    const char *arguments[] = {CGM_BIN_DIR "/commgemmd",
                               "--socket",
                               node->socket,
                               "--set",
                               test_backend_setting(),
                               "--set",
                               test_executor_setting(),
                               "--set",
                               test_devices_setting(),
                               "--set",
                               "spin_us=0",
                               "--set",
                               "log_level=debug",
                               "--set",
                               "state_dir=none",
                               "--set",
                               "tune_ms=50",
                               "--set",
                               "join_timeout=60",
                               "--set",
                               timeout,
                               "--set",
                               start_timeout,
                               "--set",
                               steps,
                               NULL};
    snprintf(timeout, sizeof(timeout), "executor_timeout=%d", test_backend_wait(1));
    snprintf(start_timeout, sizeof(start_timeout), "executor_start_timeout=%d",
             test_backend_wait(4));
    snprintf(steps, sizeof(steps), "test_steps=%s", node->steps_path);
    snprintf(path, sizeof(path), "%s/log", node->folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(fd, STDERR_FILENO);
    close(fd);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    unsetenv("JOURNAL_STREAM");
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    execv(arguments[0], (char *const *)(uintptr_t)arguments);
    _exit(99);
}

bool node_start(struct node *node)
{
    struct commgemm_connect_options options;
    commgemm_connect_options_init(&options);
    memset((void *)node->steps, 0, sizeof(*node->steps));
    node->broker = fork();
    if (node->broker == 0)
        exec_daemon(node);
    return node->broker > 0 &&
           NODE_AWAIT(START_S, access(node->socket, F_OK) == 0 || process_is_gone(node->broker)) &&
           NODE_AWAIT(START_S, ask(node, kept_make, NULL) == 0 || process_is_gone(node->broker)) &&
           !process_is_gone(node->broker);
}

bool node_stop(struct node *node)
{
    int status = -1;
    send_signal(node->broker, SIGTERM);
    bool ended = NODE_AWAIT(END_S, waitpid(node->broker, &status, WNOHANG) != 0);
    if (ended)
        node->broker = 0;
    return ended && status == 0 && access(node->socket, F_OK) < 0;
}

bool node_reap(struct node *node, pid_t executor)
{
    waitpid(node->broker, NULL, 0);
    node->broker = 0;
    return executor == 0 || NODE_AWAIT(END_S, process_is_gone(executor));
}

void node_show_log(struct node *node, bool print)
{
    char path[160], text[4096];
    snprintf(path, sizeof(path), "%s/log", node->folder);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;
    if (fd < 0)
        return;
    lseek(fd, node->log_end, SEEK_SET);
    while ((n = read(fd, text, sizeof(text))) > 0) {
        node->log_end += (unsigned)n;
        if (print)
            fprintf(stderr, "%.*s", (int)n, text);
    }
    close(fd);
}
