#include "tests/daemon/broker_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/send_signal.h"

#define SETTINGS_MAX 16

static void nap(void)
{
    struct timespec ms = {.tv_nsec = 5000000};
    nanosleep(&ms, NULL);
}

static bool is_over(const struct timespec *begin)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec - begin->tv_sec > WAIT_S;
}

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

static void wait_until_it_listens(const struct daemon *daemon)
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
    wait_until_it_listens(daemon);
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

bool daemon_log_has(const struct daemon *daemon, const char *level, const char *text)
{
    char path[128], line[1024];
    bool found = false;
    snprintf(path, sizeof(path), "%s/log", daemon->folder);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (!found && fgets(line, sizeof(line), file))
        found = strstr(line, level) && strstr(line, text);
    fclose(file);
    return found;
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

/* ---- clients ----------------------------------------------------------------------------------
 */

void client_connect(struct client *client, const struct daemon *daemon)
{
    memset(client, 0, sizeof(*client));
    assert_int_equal(cgm_socket_connect(daemon->socket, &client->fd), CGM_OK);
}

void client_open(struct client *client, const struct daemon *daemon)
{
    Cgm__Hello hello = CGM__HELLO__INIT;
    hello.min_version = CGM_PROTOCOL_MIN;
    hello.max_version = CGM_PROTOCOL_MAX;
    hello.name = (char *)(uintptr_t) "test";
    client_connect(client, daemon);
    struct message *reply =
        client_call(client, CGM_MSG_HELLO, &hello.base, NULL, 0, CGM_MSG_HELLO_REPLY);
    client->session = ((Cgm__HelloReply *)reply->body)->session;
    message_free(reply);
}

void message_free(struct message *message)
{
    for (unsigned i = 0; i < message->n_fds; i++)
        if (message->fds[i] >= 0)
            close(message->fds[i]);
    cgm_message_free(message->body);
    free(message);
}

void skip_unless_root(void)
{
    if (geteuid() == 0)
        return;
    print_message("needs root to become other users\n");
    skip();
}

/* The daemon sees who connected, whoever speaks later. */
static void as_user(uid_t uid, void (*begin)(struct client *client, const struct daemon *daemon),
                    struct client *client, const struct daemon *daemon)
{
    assert_int_equal(seteuid(uid), 0);
    begin(client, daemon);
    assert_int_equal(seteuid(0), 0);
}

void client_connect_as(uid_t uid, struct client *client, const struct daemon *daemon)
{
    as_user(uid, client_connect, client, daemon);
}

void client_open_as(uid_t uid, struct client *client, const struct daemon *daemon)
{
    as_user(uid, client_open, client, daemon);
}

void client_close(struct client *client)
{
    close(client->fd);
    while (client->events) {
        struct message *message = client->events;
        client->events = message->next;
        message_free(message);
    }
}

uint32_t client_send(struct client *client, int type, const ProtobufCMessage *body, const int *fds,
                     unsigned n_fds)
{
    client->serial++;
    assert_int_equal(cgm_packet_send(client->fd, (uint16_t)type, client->serial, body, fds, n_fds),
                     CGM_OK);
    return client->serial;
}

/* NULL at end of file. */
static struct message *receive(struct client *client)
{
    static struct cgm_packet packet;
    struct pollfd poll_fd = {.fd = client->fd, .events = POLLIN};
    assert_int_equal(poll(&poll_fd, 1, WAIT_S * 1000), 1);
    int status = cgm_packet_recv(client->fd, 0, &packet);
    if (status == CGM_DAEMON_LOST)
        return NULL;
    assert_int_equal(status, CGM_OK);
    struct message *message = calloc(1, sizeof(*message));
    assert_non_null(message);
    message->type = packet.header.type;
    message->serial = packet.header.serial;
    message->body = cgm_packet_unpack(&packet);
    assert_non_null(message->body);
    message->n_fds = packet.n_fds;
    memcpy(message->fds, packet.fds, sizeof(packet.fds));
    return message;
}

static void keep(struct client *client, struct message *message)
{
    struct message **at = &client->events;
    while (*at)
        at = &(*at)->next;
    *at = message;
}

/* The first kept message with this serial, and type unless that is 0. */
static struct message *take_kept(struct client *client, uint32_t serial, int type)
{
    for (struct message **at = &client->events; *at; at = &(*at)->next) {
        struct message *message = *at;
        if (message->serial != serial || (type && message->type != type))
            continue;
        *at = message->next;
        message->next = NULL;
        return message;
    }
    return NULL;
}

static struct message *wait_for(struct client *client, uint32_t serial, int type)
{
    struct message *message;
    while (!(message = take_kept(client, serial, type))) {
        message = receive(client);
        assert_non_null(message);
        keep(client, message);
    }
    return message;
}

struct message *client_reply(struct client *client, uint32_t serial)
{
    return wait_for(client, serial, 0);
}

struct message *client_event(struct client *client, int type)
{
    return wait_for(client, 0, type);
}

bool client_is_closed(struct client *client)
{
    struct message *message;
    while ((message = receive(client)))
        message_free(message);
    return true;
}

struct message *client_call(struct client *client, int type, const ProtobufCMessage *body,
                            const int *fds, unsigned n_fds, int reply_type)
{
    struct message *reply = client_reply(client, client_send(client, type, body, fds, n_fds));
    if (reply->type == CGM_MSG_ERROR && reply_type != CGM_MSG_ERROR)
        print_message("%s\n", ((Cgm__Error *)reply->body)->detail);
    assert_int_equal(reply->type, reply_type);
    return reply;
}

void client_ok(struct client *client, int type, const ProtobufCMessage *body)
{
    message_free(client_call(client, type, body, NULL, 0, CGM_MSG_OK));
}

void expect_error(struct message *message, int status, const char *text)
{
    assert_int_equal(message->type, CGM_MSG_ERROR);
    const Cgm__Error *error = (const Cgm__Error *)message->body;
    if (error->status != status || !strstr(error->detail, text))
        print_message("detail: %s\n", error->detail);
    assert_int_equal(error->status, status);
    assert_non_null(strstr(error->detail, text));
    message_free(message);
}

void client_error(struct client *client, int type, const ProtobufCMessage *body, const int *fds,
                  unsigned n_fds, int status, const char *text)
{
    expect_error(client_call(client, type, body, fds, n_fds, CGM_MSG_ERROR), status, text);
}

const char *const bad_names[] = {"",
                                 "with space",
                                 "slash/name",
                                 ".hidden",
                                 "-dash",
                                 ":colon",
                                 "new\nline",
                                 "quote\"",
                                 "caf\xc3\xa9",
                                 ("0123456789012345678901234567890123456789012345678901234567"
                                  "890123")};
const size_t bad_names_count = sizeof(bad_names) / sizeof(bad_names[0]);

/* ---- requests ---------------------------------------------------------------------------------
 */

uint64_t comm_join_all(struct client *client, const char *name, uint32_t size)
{
    Cgm__CommJoin join = CGM__COMM_JOIN__INIT;
    uint32_t ranks[CGM_COMM_SIZE_MAX];
    for (uint32_t rank = 0; rank < size; rank++)
        ranks[rank] = rank;
    join.name = (char *)(uintptr_t)name;
    join.has_create = join.create = join.has_size = 1;
    join.size = size;
    join.n_ranks = size;
    join.ranks = ranks;
    struct message *reply =
        client_call(client, CGM_MSG_COMM_JOIN, &join.base, NULL, 0, CGM_MSG_COMM_REPLY);
    uint64_t id = ((Cgm__CommReply *)reply->body)->id;
    message_free(reply);
    return id;
}

uint32_t send_join(struct client *client, const char *name, uint32_t size, uint32_t rank,
                   uint32_t timeout_ms)
{
    Cgm__CommJoin join = CGM__COMM_JOIN__INIT;
    join.name = (char *)(uintptr_t)name;
    join.has_create = join.create = join.has_size = join.has_timeout_ms = 1;
    join.size = size;
    join.timeout_ms = timeout_ms;
    join.n_ranks = 1;
    join.ranks = &rank;
    return client_send(client, CGM_MSG_COMM_JOIN, &join.base, NULL, 0);
}

uint64_t buffer_create(struct client *client, const char *name, uint64_t bytes, uint32_t mode,
                       int *ret_fd)
{
    Cgm__BufferCreate create = CGM__BUFFER_CREATE__INIT;
    create.name = (char *)(uintptr_t)name;
    create.bytes = bytes;
    create.has_mode = mode != 0;
    create.mode = mode;
    struct message *reply =
        client_call(client, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0, CGM_MSG_BUFFER_REPLY);
    uint64_t id = ((Cgm__BufferReply *)reply->body)->id;
    assert_int_equal(reply->n_fds, 1);
    if (ret_fd) {
        *ret_fd = reply->fds[0];
        reply->fds[0] = -1;
    }
    message_free(reply);
    return id;
}

uint64_t plan_create(struct client *client, uint64_t comm, uint64_t m)
{
    Cgm__PlanCreate create = CGM__PLAN_CREATE__INIT;
    create.comm = comm;
    create.op = 2;
    create.method = 4;
    create.m = m;
    create.n = create.k = 8;
    struct message *reply =
        client_call(client, CGM_MSG_PLAN_CREATE, &create.base, NULL, 0, CGM_MSG_PLAN_REPLY);
    uint64_t id = ((Cgm__PlanReply *)reply->body)->id;
    message_free(reply);
    return id;
}

static const char *row_value(const Cgm__Row *row, const char *key)
{
    for (size_t i = 0; i < row->n_key; i++)
        if (strcmp(row->key[i], key) == 0)
            return row->value[i];
    return NULL;
}

void query_value(struct client *client, uint32_t what, const char *match_key, const char *match,
                 const char *key, char *ret_value, size_t size)
{
    Cgm__Query query = CGM__QUERY__INIT;
    query.what = what;
    struct message *reply =
        client_call(client, CGM_MSG_QUERY, &query.base, NULL, 0, CGM_MSG_QUERY_REPLY);
    const Cgm__QueryReply *page = (const Cgm__QueryReply *)reply->body;
    ret_value[0] = '\0';
    for (size_t i = 0; i < page->n_row; i++) {
        const char *value = row_value(page->row[i], key);
        const char *found = match_key ? row_value(page->row[i], match_key) : NULL;
        if (value && (!match_key || (found && strcmp(found, match) == 0)))
            snprintf(ret_value, size, "%s", value);
    }
    message_free(reply);
}

uint64_t status_number(struct client *client, const char *key)
{
    char value[64];
    query_value(client, CGM_QUERY_STATUS, NULL, NULL, key, value, sizeof(value));
    return strtoull(value, NULL, 10);
}

uint64_t daemon_status(const struct daemon *daemon, const char *key)
{
    struct client client;
    client_open(&client, daemon);
    uint64_t number = status_number(&client, key);
    client_close(&client);
    return number;
}

void wait_for_status(struct client *client, const char *key, uint64_t number)
{
    struct timespec begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    while (status_number(client, key) != number) {
        assert_false(is_over(&begin));
        nap();
    }
}

void wait_for_more(struct client *client, const char *key, uint64_t number)
{
    struct timespec begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    while (status_number(client, key) <= number) {
        assert_false(is_over(&begin));
        nap();
    }
}

void wait_for_executor(struct client *client)
{
    struct timespec begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    while (status_number(client, "executor_life") == 0) {
        assert_false(is_over(&begin));
        nap();
    }
}
