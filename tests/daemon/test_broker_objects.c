/* Quotas, imports, plans: who may do what, and what goes when. */
#include "tests/daemon/broker_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

static void test_quotas_say_asked_used_allowed(void **state)
{
    Cgm__BufferCreate create = CGM__BUFFER_CREATE__INIT;
    Cgm__BufferClose close_request = CGM__BUFFER_CLOSE__INIT;
    struct daemon daemon;
    struct client client;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, "quota_bytes=21000", "quota_buffers=3", NULL);
    client_open(&client, &daemon);
    close_request.id = buffer_create(&client, NULL, 10000, 0, NULL); /* 12288 as rounded */
    create.bytes = 9000;
    client_error(&client, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0, CGM_QUOTA,
                 "asked for 9000, used 12288, allowed 21000");
    create.bytes = 8600; /* fits as asked, not as rounded */
    client_error(&client, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0, CGM_QUOTA, "allowed 21000");
    buffer_create(&client, NULL, 1, 0, NULL);
    buffer_create(&client, NULL, 1, 0, NULL);
    create.bytes = 1;
    client_error(&client, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0, CGM_QUOTA,
                 "asked for 1, used 3, allowed 3");
    client_ok(&client, CGM_MSG_BUFFER_CLOSE, &close_request.base);
    buffer_create(&client, NULL, 12000, 0, NULL);
    client_close(&client);
    daemon_stop(&daemon);
}

static void test_session_limits(void **state)
{
    struct daemon daemon;
    struct client one, two, three;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, "quota_sessions=2", NULL);
    client_open(&one, &daemon);
    wait_for_status(&one, "sessions", 1); /* the one that waited for the daemon is gone */
    client_open(&two, &daemon);
    client_connect(&three, &daemon);
    expect_error(client_event(&three, CGM_MSG_ERROR), CGM_QUOTA, "asked for 1, used 2, allowed 2");
    client_close(&three);
    client_close(&two);
    wait_for_status(&one, "sessions", 1);
    client_open(&two, &daemon);
    client_close(&two);
    client_close(&one);
    daemon_stop(&daemon);
}

/* ---- imports ----------------------------------------------------------------------------------
 */

static struct message *import(struct client *client, int fd, uint64_t offset, uint64_t length)
{
    Cgm__ImportCreate create = CGM__IMPORT_CREATE__INIT;
    uint32_t kind = 1;
    create.n_kind = create.n_offset = create.n_length = 1;
    create.kind = &kind;
    create.offset = &offset;
    create.length = &length;
    return client_reply(client, client_send(client, CGM_MSG_IMPORT_CREATE, &create.base, &fd, 1));
}

static void test_imports(void **state)
{
    Cgm__ImportRelease release = CGM__IMPORT_RELEASE__INIT;
    struct client client;
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, 8192), 0);
    client_open(&client, *state);
    expect_error(import(&client, fd, 0, 4096), CGM_INVALID_ARGUMENT, "sealed");
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    expect_error(import(&client, fd, 4096, 8192), CGM_INVALID_ARGUMENT, "has 8192 bytes");
    expect_error(import(&client, fd, UINT64_MAX - 4095, 8192), CGM_INVALID_ARGUMENT, "segment 0");
    expect_error(import(&client, fd, 1, 4096), CGM_INVALID_ARGUMENT, "multiples of 4096");
    expect_error(import(&client, fd, 0, 0), CGM_INVALID_ARGUMENT, "length");
    assert_int_equal(status_number(&client, "imports"), 0);
    struct message *reply = import(&client, fd, 4096, 4096);
    assert_int_equal(reply->type, CGM_MSG_IMPORT_REPLY);
    release.id = ((const Cgm__ImportReply *)reply->body)->id;
    message_free(reply);
    assert_int_equal(status_number(&client, "imports"), 1);
    client_ok(&client, CGM_MSG_IMPORT_RELEASE, &release.base);
    client_error(&client, CGM_MSG_IMPORT_RELEASE, &release.base, NULL, 0, CGM_NOT_FOUND, "import");
    message_free(import(&client, fd, 0, 8192));
    client_close(&client);
    client_open(&client, *state);
    wait_for_status(&client, "imports", 0);
    client_close(&client);
    close(fd);
}

static void executor_kill(struct client *client)
{
    assert_int_equal(kill((pid_t)status_number(client, "executor_pid"), SIGKILL), 0);
}

/* While the next executor opens it: it is answered when that has closed it, or is gone itself. */
static void test_release_in_the_replay(void **state)
{
    Cgm__ImportRelease release = CGM__IMPORT_RELEASE__INIT;
    struct client client;
    char line[64];
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    client_open(&client, *state);
    struct message *reply = import(&client, fd, 0, 4096);
    release.id = ((const Cgm__ImportReply *)reply->body)->id;
    message_free(reply);
    fake_fault(*state, "drop", "ImportAdd", "");
    fake_forget_lines(*state);
    executor_kill(&client);
    fake_wait_line(*state, "ImportAdd", line, sizeof(line));
    uint32_t serial = client_send(&client, CGM_MSG_IMPORT_RELEASE, &release.base, NULL, 0);
    usleep(100000);
    assert_false(fake_has_line(*state, "ImportRemove"));
    fake_heal(*state, "drop", "ImportAdd");
    executor_kill(&client);
    reply = client_reply(&client, serial);
    assert_int_equal(reply->type, CGM_MSG_OK);
    message_free(reply);
    wait_for_status(&client, "imports", 0);
    client_close(&client);
    close(fd);
}

/* ---- plans ------------------------------------------------------------------------------------
 */

static void test_equal_plans_are_one(void **state)
{
    Cgm__PlanDestroy destroy = CGM__PLAN_DESTROY__INIT;
    struct client one, two;
    client_open(&one, *state);
    client_open(&two, *state);
    uint32_t a = send_join(&one, "tp", 2, 0, 0), b = send_join(&two, "tp", 2, 1, 0);
    struct message *reply = client_reply(&one, a);
    uint64_t comm = ((const Cgm__CommReply *)reply->body)->id;
    message_free(reply);
    message_free(client_reply(&two, b));
    uint64_t plan = plan_create(&one, comm, 16);
    assert_int_equal(plan_create(&two, comm, 16), plan);
    assert_int_not_equal(plan_create(&two, comm, 32), plan);
    assert_int_equal(status_number(&one, "plans"), 2);
    assert_int_equal(status_number(&one, "buffers"), 4);
    destroy.id = plan;
    client_ok(&one, CGM_MSG_PLAN_DESTROY, &destroy.base);
    client_error(&one, CGM_MSG_PLAN_DESTROY, &destroy.base, NULL, 0, CGM_NOT_FOUND, "plan");
    assert_int_equal(status_number(&one, "plans"), 2);
    Cgm__PlanDestroyAll all = CGM__PLAN_DESTROY_ALL__INIT;
    reply = client_call(&two, CGM_MSG_PLAN_DESTROY_ALL, &all.base, NULL, 0,
                        CGM_MSG_PLAN_DESTROY_ALL_REPLY);
    assert_int_equal(((const Cgm__PlanDestroyAllReply *)reply->body)->count, 2);
    message_free(reply);
    assert_int_equal(status_number(&one, "plans"), 0);
    assert_int_equal(status_number(&one, "buffers"), 0);
    client_close(&one);
    client_close(&two);
}

/* However often a session asks for it: what it has once goes at once. */
static void test_a_session_has_it_once(void **state)
{
    Cgm__PlanDestroy destroy = CGM__PLAN_DESTROY__INIT;
    Cgm__BufferOpen open_request = CGM__BUFFER_OPEN__INIT;
    Cgm__BufferClose close_it = CGM__BUFFER_CLOSE__INIT;
    struct client client;
    client_open(&client, *state);
    uint64_t comm = comm_join_all(&client, "tp", 2);
    destroy.id = plan_create(&client, comm, 16);
    assert_int_equal(plan_create(&client, comm, 16), destroy.id);
    client_ok(&client, CGM_MSG_PLAN_DESTROY, &destroy.base);
    assert_int_equal(status_number(&client, "plans"), 0);
    close_it.id = open_request.id = buffer_create(&client, NULL, 4096, 0, NULL);
    open_request.has_id = 1;
    for (int i = 0; i < 2; i++)
        message_free(client_call(&client, CGM_MSG_BUFFER_OPEN, &open_request.base, NULL, 0,
                                 CGM_MSG_BUFFER_REPLY));
    close_it.has_once = close_it.once = 1;
    client_ok(&client, CGM_MSG_BUFFER_CLOSE, &close_it.base);
    assert_int_equal(status_number(&client, "buffers"), 1);
    close_it.once = 0;
    client_ok(&client, CGM_MSG_BUFFER_CLOSE, &close_it.base);
    assert_int_equal(status_number(&client, "buffers"), 0);
    client_close(&client);
}

static void test_plan_chunks(void **state)
{
    Cgm__PlanChunk chunk = CGM__PLAN_CHUNK__INIT;
    Cgm__BufferOpen open_request = CGM__BUFFER_OPEN__INIT;
    struct client client, stranger;
    client_open(&client, *state);
    client_open(&stranger, *state);
    chunk.plan = plan_create(&client, comm_join_all(&client, "single", 1), 16);
    chunk.rank = 1;
    client_error(&client, CGM_MSG_PLAN_CHUNK, &chunk.base, NULL, 0, CGM_INVALID_ARGUMENT,
                 "rank is 1");
    chunk.rank = 0;
    chunk.chunk = 1;
    client_error(&client, CGM_MSG_PLAN_CHUNK, &chunk.base, NULL, 0, CGM_INVALID_ARGUMENT,
                 "chunk is 1");
    chunk.chunk = UINT32_MAX;
    client_error(&stranger, CGM_MSG_PLAN_CHUNK, &chunk.base, NULL, 0, CGM_NOT_FOUND, "plan");
    struct message *reply =
        client_call(&client, CGM_MSG_PLAN_CHUNK, &chunk.base, NULL, 0, CGM_MSG_PLAN_CHUNK_REPLY);
    const Cgm__PlanChunkReply *place = (const Cgm__PlanChunkReply *)reply->body;
    assert_int_equal(place->rows, 16);
    assert_int_equal(place->cols, 8);
    open_request.has_id = 1;
    open_request.id = place->buffer;
    client_error(&stranger, CGM_MSG_BUFFER_OPEN, &open_request.base, NULL, 0, CGM_PERMISSION,
                 "plan");
    struct message *opened = client_call(&client, CGM_MSG_BUFFER_OPEN, &open_request.base, NULL, 0,
                                         CGM_MSG_BUFFER_REPLY);
    assert_int_equal(opened->n_fds, 1);
    message_free(opened);
    message_free(reply);
    client_close(&client);
    client_close(&stranger);
}

static void test_drain(void **state)
{
    Cgm__Drain drain = CGM__DRAIN__INIT;
    Cgm__BufferCreate create = CGM__BUFFER_CREATE__INIT;
    struct client before, after;
    client_open(&before, *state);
    client_ok(&before, CGM_MSG_DRAIN, &drain.base);
    client_open(&after, *state);
    create.bytes = 1;
    for (int again = 0; again < 2; again++) {
        client_error(&after, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0, CGM_DRAINING,
                     "no new work");
        client_ok(&after, CGM_MSG_DRAIN, &drain.base); /* it has been asked to already */
    }
    plan_create(&before, comm_join_all(&before, "mesh", 2), 8);
    buffer_create(&before, NULL, 1, 0, NULL);
    drain.has_undo = drain.undo = 1;
    client_ok(&before, CGM_MSG_DRAIN, &drain.base);
    buffer_create(&after, NULL, 1, 0, NULL);
    client_close(&after);
    client_close(&before);
}

int main(void)
{
#define WITH_DAEMON(test) cmocka_unit_test_setup_teardown(test, daemon_set_up, daemon_tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quotas_say_asked_used_allowed),
        cmocka_unit_test(test_session_limits),
        WITH_DAEMON(test_imports),
        WITH_DAEMON(test_release_in_the_replay),
        WITH_DAEMON(test_equal_plans_are_one),
        WITH_DAEMON(test_a_session_has_it_once),
        WITH_DAEMON(test_plan_chunks),
        WITH_DAEMON(test_drain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
