#include "tests/daemon/raw_client.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/types.h"
#include "tests/daemon/broker_fixture.h"
#include "tests/send_signal.h"

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

bool client_send_fds(struct client *client, const int *fds, unsigned n_fds)
{
    uint8_t packet[512];
    size_t size;
    Cgm__Query query = CGM__QUERY__INIT;
    assert_int_equal(cgm_packet_pack(CGM_MSG_QUERY, 7, &query.base, 0, packet, &size), CGM_OK);
    return cgm_packet_send_bytes(client->fd, packet, size, fds, n_fds) == CGM_OK;
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

static uint64_t plan_made(struct client *client, const Cgm__PlanCreate *create)
{
    struct message *reply =
        client_call(client, CGM_MSG_PLAN_CREATE, &create->base, NULL, 0, CGM_MSG_PLAN_REPLY);
    uint64_t id = ((Cgm__PlanReply *)reply->body)->id;
    message_free(reply);
    return id;
}

static Cgm__PlanCreate plan_request(uint64_t comm, uint64_t m)
{
    Cgm__PlanCreate create = CGM__PLAN_CREATE__INIT;
    create.comm = comm;
    create.op = 2;
    create.method = 4;
    create.m = m;
    create.n = create.k = 8;
    return create;
}

uint64_t plan_create(struct client *client, uint64_t comm, uint64_t m)
{
    Cgm__PlanCreate create = plan_request(comm, m);
    return plan_made(client, &create);
}

uint32_t plan_create_send(struct client *client, uint64_t comm, uint64_t m)
{
    Cgm__PlanCreate create = plan_request(comm, m);
    return client_send(client, CGM_MSG_PLAN_CREATE, &create.base, NULL, 0);
}

void plan_create_error(struct client *client, uint64_t comm, uint64_t m, int status,
                       const char *detail)
{
    Cgm__PlanCreate create = plan_request(comm, m);
    client_error(client, CGM_MSG_PLAN_CREATE, &create.base, NULL, 0, status, detail);
}

static Cgm__PlanCreate ag_gemm_request(uint64_t comm, uint64_t size)
{
    Cgm__PlanCreate create = CGM__PLAN_CREATE__INIT;
    create.comm = comm;
    create.op = CGM_OP_AG_GEMM;
    create.comm_type = CGM_COMM_TYPE_AG;
    create.m = create.n = create.k = size;
    return create;
}

uint64_t ag_gemm_plan_create(struct client *client, uint64_t comm, uint64_t size)
{
    Cgm__PlanCreate create = ag_gemm_request(comm, size);
    return plan_made(client, &create);
}

static Cgm__PlanCreate pair_request(uint64_t comm, uint64_t size, int gemm_priority,
                                    int comm_priority)
{
    Cgm__PlanCreate create = ag_gemm_request(comm, size);
    create.method = CGM_METHOD_RING_EXCHANGE; /* which has queues of both kinds */
    create.has_gemm_priority = create.has_comm_priority = 1;
    create.gemm_priority = gemm_priority;
    create.comm_priority = comm_priority;
    return create;
}

uint64_t pair_plan_create(struct client *client, uint64_t comm, uint64_t size, int gemm_priority,
                          int comm_priority)
{
    Cgm__PlanCreate create = pair_request(comm, size, gemm_priority, comm_priority);
    return plan_made(client, &create);
}

void pair_plan_create_error(struct client *client, uint64_t comm, uint64_t size, int gemm_priority,
                            int comm_priority, int status, const char *detail)
{
    Cgm__PlanCreate create = pair_request(comm, size, gemm_priority, comm_priority);
    client_error(client, CGM_MSG_PLAN_CREATE, &create.base, NULL, 0, status, detail);
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

uint64_t quota_used(struct client *client, uid_t uid, const char *quota)
{
    Cgm__Query query = CGM__QUERY__INIT;
    char of_uid[16], name[64];
    uint64_t used = 0;
    query.what = CGM_QUERY_QUOTAS;
    snprintf(of_uid, sizeof(of_uid), "%u", (unsigned)uid);
    snprintf(name, sizeof(name), "\"%s\"", quota);
    struct message *reply =
        client_call(client, CGM_MSG_QUERY, &query.base, NULL, 0, CGM_MSG_QUERY_REPLY);
    const Cgm__QueryReply *page = (const Cgm__QueryReply *)reply->body;
    for (size_t i = 0; i < page->n_row; i++)
        if (strcmp(row_value(page->row[i], "uid"), of_uid) == 0 &&
            strcmp(row_value(page->row[i], "quota"), name) == 0)
            used = strtoull(row_value(page->row[i], "used"), NULL, 10);
    message_free(reply);
    return used;
}

struct message *client_ring_set_up(struct client *client, uint32_t entries)
{
    Cgm__RingSetup setup = CGM__RING_SETUP__INIT;
    setup.entries = entries;
    return client_call(client, CGM_MSG_RING_SETUP, &setup.base, NULL, 0, CGM_MSG_RING);
}

void client_submit(struct client *client, const struct cgm_entry *entry)
{
    Cgm__Submit submit = CGM__SUBMIT__INIT;
    submit.entry = (ProtobufCBinaryData){sizeof(*entry), (uint8_t *)(uintptr_t)entry};
    client_ok(client, CGM_MSG_SUBMIT, &submit.base);
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

uint64_t client_kill_executor(struct client *client)
{
    uint64_t life = status_number(client, "executor_life");
    pid_t pid = (pid_t)status_number(client, "executor_pid");
    assert_true(life > 0 && pid > 0);
    assert_int_equal(send_signal(pid, SIGKILL), 0);
    return life;
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
