/* The daemon's table of file descriptors is full: whoever asks for more is refused, nothing that is
 * there is lost, and nobody gets a wrong result. */
#include "tests/daemon/broker_fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/fault/slow_file.h"
#include "tests/proc_entries.h"

#define PAGE 4096u
#define FDS 900u
#define THREADS_OF_USER 16u /* that close for him */

/* Of what the process has open; what it opens next gets this number. */
static unsigned lowest_free(pid_t pid)
{
    char path[64], target[8];
    for (unsigned fd = 0;; fd++) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%u", (int)pid, fd);
        if (readlink(path, target, sizeof(target)) < 0)
            return fd;
    }
}

static struct rlimit limit_fds(const struct daemon *daemon, rlim_t most)
{
    struct rlimit before, limit;
    assert_int_equal(prlimit(daemon->pid, RLIMIT_NOFILE, NULL, &before), 0);
    limit = (struct rlimit){most, before.rlim_max};
    assert_int_equal(prlimit(daemon->pid, RLIMIT_NOFILE, &limit, NULL), 0);
    return before;
}

static void let_go(const struct daemon *daemon, const struct rlimit *limit)
{
    assert_int_equal(prlimit(daemon->pid, RLIMIT_NOFILE, limit, NULL), 0);
}

static void replace_executor(struct client *client)
{
    uint64_t life = client_kill_executor(client);
    wait_for_status(client, "executor_life", life + 1);
    wait_for_executor(client);
}

static int sealed_memfd(void)
{
    int fd = memfd_create("full", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, PAGE), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    return fd;
}

/* As many fds as the user, and then all users, may have. */
static int fill(struct client *client, int memfd)
{
    Cgm__ImportCreate create = CGM__IMPORT_CREATE__INIT;
    uint32_t kind = 1;
    uint64_t offset = 0, length = PAGE;
    int status = CGM_OK;
    create.n_kind = create.n_offset = create.n_length = 1;
    create.kind = &kind, create.offset = &offset, create.length = &length;
    while (status == CGM_OK) {
        struct message *reply = client_reply(
            client, client_send(client, CGM_MSG_IMPORT_CREATE, &create.base, &memfd, 1));
        if (reply->type == CGM_MSG_ERROR)
            status = ((const Cgm__Error *)reply->body)->status;
        message_free(reply);
    }
    return status;
}

/* ---- who asks for more -------------------------------------------------------------------------
 */

/* Everything that costs fds is refused before the packets and processes of everybody lack them. */
static void test_all_users_together_leave_some(void **state)
{
    enum { USERS = 5 };
    struct daemon daemon;
    struct client users[USERS], ringed[USERS];
    Cgm__RingSetup setup = CGM__RING_SETUP__INIT;
    int status = CGM_OK, memfd = sealed_memfd();
    (void)state;
    skip_unless_root();
    daemon_init(&daemon);
    daemon_start(&daemon, "socket_mode=0666", NULL);
    limit_fds(&daemon, FDS);
    for (unsigned i = 0; i < USERS; i++) {
        client_open_as(STRANGER + i, &users[i], &daemon);
        client_open_as(STRANGER + i, &ringed[i], &daemon);
    }
    for (unsigned i = 0; i < USERS; i++)
        status = fill(&users[i], memfd);
    assert_int_equal(status, CGM_NO_MEMORY);
    setup.entries = 8;
    for (unsigned i = 0; i < USERS; i++) {
        struct message *reply = client_reply(
            &ringed[i], client_send(&ringed[i], CGM_MSG_RING_SETUP, &setup.base, NULL, 0));
        assert_int_equal(reply->type, CGM_MSG_ERROR);
        message_free(reply);
    }
    assert_in_range(proc_entries(daemon.pid, "fd"), 1, FDS - 384);
    for (unsigned i = 0; i < USERS; i++) {
        client_close(&users[i]);
        client_close(&ringed[i]);
    }
    close(memfd);
    daemon_stop(&daemon);
}

/* Many packets of few: each session sends one, and the user is not heard after some of them. */
static void test_few_slow_ones_of_a_user(void **state)
{
    enum { SESSIONS = 60, EACH = 64, SLOW = 2 * CGM_PACKET_FDS_ROOM + EACH };
    struct daemon daemon;
    struct client flood[SESSIONS];
    struct slow_file file;
    char path[96];
    int fds[EACH];
    (void)state;
    skip_unless_root();
    daemon_init(&daemon);
    daemon_start(&daemon, "socket_mode=0666", NULL);
    snprintf(path, sizeof(path), "%s/slow", daemon.folder);
    if (slow_file_start(&file, path)) {
        for (unsigned i = 0; i < EACH; i++)
            fds[i] = i ? dup(fds[0]) : slow_file_open(&file);
        for (int i = 0; i < SESSIONS; i++)
            client_open_as(STRANGER, &flood[i], &daemon);
        unsigned before = proc_entries(daemon.pid, "fd");
        unsigned tasks = proc_entries(daemon.pid, "task");
        for (int i = 0; i < SESSIONS; i++)
            client_send_fds(&flood[i], fds, EACH);
        for (int i = 0; i < SESSIONS; i++)
            assert_true(client_is_closed(&flood[i]));
        assert_in_range(proc_entries(daemon.pid, "fd"), 1, before + SLOW);
        daemon_wait_for_at_most(&daemon, "task", tasks + THREADS_OF_USER);
        slow_file_stop(&file);
        for (unsigned i = 0; i < EACH; i++)
            close(fds[i]);
        for (int i = 0; i < SESSIONS; i++)
            client_close(&flood[i]);
    }
    daemon_stop(&daemon);
}

/* Each of them only what he may. */
static void test_slow_ones_of_many_users(void **state)
{
    enum { USERS = 16, MANY_FDS = 4000 };
    struct daemon daemon;
    struct client users[USERS], honest;
    struct slow_file file;
    char path[96];
    int fds[CGM_PACKET_FDS_ROOM];
    (void)state;
    skip_unless_root();
    daemon_init(&daemon);
    daemon_start(&daemon, "socket_mode=0666", NULL);
    snprintf(path, sizeof(path), "%s/slow", daemon.folder);
    limit_fds(&daemon, MANY_FDS);
    if (slow_file_start(&file, path)) {
        for (unsigned i = 0; i < CGM_PACKET_FDS_ROOM; i++)
            fds[i] = i ? dup(fds[0]) : slow_file_open(&file);
        client_open_as(STRANGER + USERS, &honest, &daemon);
        for (unsigned i = 0; i < USERS; i++)
            client_open_as(STRANGER + i, &users[i], &daemon);
        for (unsigned i = 0; i < USERS; i++)
            client_send_fds(&users[i], fds, CGM_PACKET_FDS_ROOM);
        for (int i = 0; i < 20; i++, usleep(20000)) /* who has sent no fds is heard */
            assert_true(status_number(&honest, "sessions") > 0);
        assert_in_range(proc_entries(daemon.pid, "fd"), MANY_FDS / 2, MANY_FDS - 384);
        slow_file_stop(&file);
        for (unsigned i = 0; i < CGM_PACKET_FDS_ROOM; i++)
            close(fds[i]);
        for (unsigned i = 0; i < USERS; i++) {
            assert_true(client_is_closed(&users[i]));
            client_close(&users[i]);
        }
        client_close(&honest);
    }
    daemon_stop(&daemon);
}

/* ---- what the executor has made ----------------------------------------------------------------
 */

/* The answer comes without its fd. */
static void test_a_buffer_without_room(void **state)
{
    struct daemon daemon;
    struct client client;
    Cgm__BufferCreate create = CGM__BUFFER_CREATE__INIT;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, REAL_EXECUTOR, NULL);
    client_open(&client, &daemon);
    wait_for_executor(&client);
    uint64_t executor = status_number(&client, "executor_pid");
    struct rlimit before = limit_fds(&daemon, lowest_free(daemon.pid));
    create.bytes = PAGE;
    client_error(&client, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0, CGM_NO_MEMORY,
                 "no file descriptors left");
    let_go(&daemon, &before);
    assert_int_equal(status_number(&client, "executor_pid"), executor);
    wait_for_status(&client, "buffers", 0);
    buffer_create(&client, NULL, PAGE, 0, NULL);
    client_close(&client);
    daemon_stop(&daemon);
}

static struct message *ask_for_chunk(struct client *client, uint64_t plan)
{
    Cgm__PlanChunk chunk = CGM__PLAN_CHUNK__INIT;
    chunk.plan = plan;
    chunk.rank = 1;
    chunk.chunk = UINT32_MAX;
    return client_reply(client, client_send(client, CGM_MSG_PLAN_CHUNK, &chunk.base, NULL, 0));
}

/* The plan of the next executor has other memory, which the daemon cannot hold: nobody may take the
 * old one for it. It is made when somebody creates it again, and by the executor after that. */
static void test_a_plan_without_room(void **state)
{
    struct daemon daemon;
    struct client client;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, REAL_EXECUTOR, NULL);
    client_open(&client, &daemon);
    uint64_t comm = comm_join_all(&client, "two", 2);
    uint64_t plan = ag_gemm_plan_create(&client, comm, 64);
    struct message *reply = ask_for_chunk(&client, plan);
    assert_int_equal(reply->type, CGM_MSG_PLAN_CHUNK_REPLY);
    Cgm__BufferOpen open_it = CGM__BUFFER_OPEN__INIT;
    open_it.has_id = 1;
    open_it.id = ((const Cgm__PlanChunkReply *)reply->body)->buffer;
    message_free(reply);
    struct rlimit before = limit_fds(&daemon, 2 * lowest_free(daemon.pid)); /* half is reserved */
    replace_executor(&client);
    let_go(&daemon, &before);
    assert_true(daemon_log_has(&daemon, "error", "does not make it: the daemon has no file"));
    client_error(&client, CGM_MSG_BUFFER_OPEN, &open_it.base, NULL, 0, CGM_NOT_FOUND, "no buffer");
    reply = ask_for_chunk(&client, plan);
    assert_int_equal(reply->type, CGM_MSG_ERROR);
    message_free(reply);
    for (int how = 0; how < 2; how++) {
        if (how == 0)
            assert_int_equal(ag_gemm_plan_create(&client, comm, 64), plan);
        else
            replace_executor(&client);
        reply = ask_for_chunk(&client, plan);
        assert_int_equal(reply->type, CGM_MSG_PLAN_CHUNK_REPLY);
        assert_int_equal(((const Cgm__PlanChunkReply *)reply->body)->generation,
                         status_number(&client, "executor_life"));
        message_free(reply);
    }
    message_free(
        client_call(&client, CGM_MSG_BUFFER_OPEN, &open_it.base, NULL, 0, CGM_MSG_BUFFER_REPLY));
    client_close(&client);
    daemon_stop(&daemon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_users_together_leave_some),
        cmocka_unit_test(test_few_slow_ones_of_a_user),
        cmocka_unit_test(test_slow_ones_of_many_users),
        cmocka_unit_test(test_a_buffer_without_room),
        cmocka_unit_test(test_a_plan_without_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
