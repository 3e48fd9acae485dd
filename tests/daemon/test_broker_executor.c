/* What happens to everybody when the executor ends, at any moment: requests, and what the next one
 * is told. */
#include "tests/daemon/steps_fixture.h"

#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/send_signal.h"

static void submit(struct client *client, uint32_t opcode, uint64_t ticket, uint64_t out,
                   uint64_t number)
{
    struct cgm_entry entry = {.ticket = ticket, .opcode = opcode, .comm_number = number};
    entry.operand[CGM_OPERAND_OUT].id = out;
    client_submit(client, &entry);
}

static void expect_buffer(struct client *client, const char *id, const char *generation,
                          const char *tainted)
{
    char value[32];
    query_value(client, CGM_QUERY_BUFFERS, "id", id, "generation", value, sizeof(value));
    assert_string_equal(value, generation);
    query_value(client, CGM_QUERY_BUFFERS, "id", id, "tainted", value, sizeof(value));
    assert_string_equal(value, tainted);
}

static void check_lives(struct client *client, uint64_t user_buffer)
{
    Cgm__BufferOpen open_request = CGM__BUFFER_OPEN__INIT;
    Cgm__BufferCheck check = CGM__BUFFER_CHECK__INIT;
    open_request.has_id = 1;
    open_request.id = check.id = user_buffer;
    struct message *reply =
        client_call(client, CGM_MSG_BUFFER_OPEN, &open_request.base, NULL, 0, CGM_MSG_BUFFER_REPLY);
    assert_int_equal(((const Cgm__BufferReply *)reply->body)->executor_life, 2);
    message_free(reply);
    client_ok(client, CGM_MSG_BUFFER_CHECK, &check.base);
    check.has_executor_life = check.executor_life = 1;
    client_error(client, CGM_MSG_BUFFER_CHECK, &check.base, NULL, 0, CGM_STALE,
                 "its memory went with executor 1; open it again");
    check.executor_life = 2;
    client_ok(client, CGM_MSG_BUFFER_CHECK, &check.base);
    Cgm__MemoryCopy copy = CGM__MEMORY_COPY__INIT;
    copy.dst = copy.src = user_buffer;
    copy.has_src_generation = copy.src_generation = 1;
    client_error(client, CGM_MSG_MEMORY_COPY, &copy.base, NULL, 0, CGM_STALE,
                 "src: generation is 1, and the memory went with its executor");
}

/* The journal says what was being written, and to which numbers comms have come. */
static void test_everything_is_handed_to_the_next_executor(void **state)
{
    Cgm__BufferRewritten rewritten = CGM__BUFFER_REWRITTEN__INIT;
    struct client client;
    char line[128], value[64];
    int fd;
    client_open(&client, *state);
    uint64_t comm = comm_join_all(&client, "tp", 2);
    uint64_t written = buffer_create(&client, "written", 5000, 0, NULL);
    uint64_t idle = buffer_create(&client, "idle", 5000, 0, &fd);
    uint64_t plan = plan_create(&client, comm, 16);
    assert_int_equal(pwrite(fd, "kept", 4, 0), 4);
    assert_int_equal(written, 1);
    assert_int_equal(idle, 2);
    submit(&client, CGM_OPCODE_RUN, 1, written, 5);
    submit(&client, CGM_OPCODE_RUN, 2, written, 6);
    fake_wait_line(*state, "SubmitForward", line, sizeof(line));
    assert_int_equal(status_number(&client, "jobs_done"), 7); /* the submits are through */
    fake_forget_lines(*state);
    client_kill_executor(&client);
    message_free(client_event(&client, CGM_MSG_RING));
    expect_buffer(&client, "1", "2", "true");
    expect_buffer(&client, "2", "1", "false");
    fake_wait_line(*state, "adopt 1 ", line, sizeof(line));
    assert_string_equal(line, "adopt 1 generation 2 tainted 1 fds 1\n");
    fake_wait_line(*state, "adopt 2 ", line, sizeof(line));
    assert_string_equal(line, "adopt 2 generation 1 tainted 0 fds 1\n");
    fake_wait_line(*state, "comm ", line, sizeof(line));
    assert_string_equal(line, "comm 1 high 6 ended 0\n");
    fake_wait_line(*state, "plan ", line, sizeof(line));
    snprintf(value, sizeof(value), "plan %016jx ranks 2\n", (uintmax_t)plan);
    assert_string_equal(line, value);
    assert_true(fake_has_line(*state, "Grant"));
    rewritten.id = written;
    rewritten.has_generation = rewritten.generation = 1;
    client_error(&client, CGM_MSG_BUFFER_REWRITTEN, &rewritten.base, NULL, 0, CGM_STALE,
                 "generation is 1; buffer 1 is at 2: open it again");
    expect_buffer(&client, "1", "2", "true");
    rewritten.generation = 2;
    client_ok(&client, CGM_MSG_BUFFER_REWRITTEN, &rewritten.base);
    expect_buffer(&client, "1", "2", "false");
    /* The user buffers of plans are new memory in each life. */
    expect_buffer(&client, "3", "2", "false");
    check_lives(&client, 3);
    Cgm__BufferOpen open_request = CGM__BUFFER_OPEN__INIT;
    open_request.name = (char *)(uintptr_t) "idle";
    struct message *reply = client_call(&client, CGM_MSG_BUFFER_OPEN, &open_request.base, NULL, 0,
                                        CGM_MSG_BUFFER_REPLY);
    char bytes[5] = "";
    assert_int_equal(pread(reply->fds[0], bytes, 4, 0), 4);
    assert_string_equal(bytes, "kept");
    message_free(reply);
    close(fd);
    client_close(&client);
}

/* A comm that comes while an executor ends takes over nothing from one that had its place. */
static void test_numbers_of_another_comm_are_forgotten(void **state)
{
    struct client client;
    char line[128];
    client_open(&client, *state);
    uint64_t buffer = buffer_create(&client, "b", 5000, 0, NULL);
    Cgm__CommLeave leave = CGM__COMM_LEAVE__INIT;
    leave.id = comm_join_all(&client, "tp", 2);
    submit(&client, CGM_OPCODE_RUN, 1, buffer, 200);
    client_ok(&client, CGM_MSG_COMM_LEAVE, &leave.base);
    fake_fault(*state, "drop", "CommAdd", "");
    uint32_t serial = send_join(&client, "other", 1, 0, 0);
    usleep(100000); /* until it is dropped */
    fake_heal(*state, "drop", "CommAdd");
    fake_forget_lines(*state);
    client_kill_executor(&client);
    message_free(client_reply(&client, serial));
    fake_wait_line(*state, "comm ", line, sizeof(line));
    assert_string_equal(line, "comm 2 high 0 ended 0\n");
    client_close(&client);
}

/* A rank's session ends while the next executor makes the comm: it is told when it knows the comm.
 */
static void test_a_rank_that_goes_in_the_replay(void **state)
{
    struct client client, other;
    char line[64];
    client_open(&client, *state);
    client_open(&other, *state);
    uint32_t first = send_join(&client, "tp", 2, 0, 0), second = send_join(&other, "tp", 2, 1, 0);
    message_free(client_reply(&client, first));
    message_free(client_reply(&other, second));
    fake_fault(*state, "slow", "CommAdd", "");
    fake_forget_lines(*state);
    client_kill_executor(&client);
    fake_wait_line(*state, "CommAdd", line, sizeof(line));
    client_close(&other);
    message_free(client_event(&client, CGM_MSG_RING));
    fake_wait_line(*state, "CommRankLeft", line, sizeof(line));
    fake_heal(*state, "slow", "CommAdd");
    client_close(&client);
}

/* An executor that ends at a message of the replay; in the end everything is there. */
static void check_death_at(const char *fault, const char *message)
{
    struct daemon daemon;
    struct client client;
    daemon_init(&daemon);
    daemon_start(&daemon, NULL);
    client_open(&client, &daemon);
    message_free(client_ring_set_up(&client, 16));
    uint64_t comm = comm_join_all(&client, "tp", 2);
    buffer_create(&client, "a", 1, 0, NULL);
    uint64_t plan = plan_create(&client, comm, 16);
    fake_fault(&daemon, fault, message, "");
    uint64_t life = client_kill_executor(&client);
    struct message *event = client_event(&client, CGM_MSG_RING);
    assert_int_equal(((const Cgm__Ring *)event->body)->executor_life, life + 2);
    assert_int_equal(event->n_fds, 3);
    message_free(event);
    assert_int_equal(plan_create(&client, comm, 16), plan);
    assert_int_equal(status_number(&client, "plans"), 1);
    client_close(&client);
    daemon_stop(&daemon);
}

static void test_death_in_the_middle_of_the_replay(void **state)
{
    static const char *const messages[] = {"ExecutorSetup", "BufferAdopt", "SessionAdd",
                                           "Grant",         "CommAdd",     "PlanAdd"};
    (void)state;
    for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {
        check_death_at("die", messages[i]);
        check_death_at("garbage", messages[i]);
    }
}

static void test_pending_requests_fail(void **state)
{
    Cgm__BufferCreate create = CGM__BUFFER_CREATE__INIT;
    struct client client;
    client_open(&client, *state);
    create.bytes = 1;
    create.name = (char *)(uintptr_t) "pending";
    fake_fault(*state, "die", "BufferAlloc", "");
    client_error(&client, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0, CGM_EXECUTOR_LOST, "");
    client_error(&client, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0, CGM_NO_EXECUTOR, "");
    wait_for_executor(&client);
    fake_fault(*state, "die", "Grant", "");
    client_error(&client, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0, CGM_EXECUTOR_LOST, "");
    wait_for_executor(&client);
    assert_int_equal(status_number(&client, "buffers"), 0);
    uint64_t comm = comm_join_all(&client, "tp", 1);
    fake_fault(*state, "die", "PlanAdd", "");
    Cgm__PlanCreate plan = CGM__PLAN_CREATE__INIT;
    plan.comm = comm;
    plan.m = plan.n = plan.k = 2;
    client_error(&client, CGM_MSG_PLAN_CREATE, &plan.base, NULL, 0, CGM_EXECUTOR_LOST, "");
    wait_for_executor(&client);
    assert_int_equal(status_number(&client, "plans"), 0);
    assert_int_equal(status_number(&client, "buffers"), 0);
    buffer_create(&client, "pending", 1, 0, NULL);
    client_close(&client);
}

/* Who had joined it is in it until he leaves, with his plans. */
static void test_a_comm_that_the_next_executor_refuses(void **state)
{
    Cgm__CommLeave leave = CGM__COMM_LEAVE__INIT;
    struct client client;
    char number[16];
    client_open(&client, *state);
    leave.id = comm_join_all(&client, "tp", 1);
    plan_create(&client, leave.id, 2);
    snprintf(number, sizeof(number), "%d", CGM_NO_MEMORY);
    fake_fault(*state, "error", "CommAdd", number);
    client_kill_executor(&client);
    wait_for_executor(&client);
    assert_int_equal(status_number(&client, "comms"), 1);
    assert_int_equal(status_number(&client, "plans"), 1);
    plan_create_error(&client, leave.id, 2, CGM_PEER_LOST, "did not take it over");
    plan_create_error(&client, leave.id, 3, CGM_PEER_LOST, "did not take it over");
    client_ok(&client, CGM_MSG_COMM_LEAVE, &leave.base);
    assert_int_equal(status_number(&client, "plans"), 0);
    fake_heal(*state, "error", "CommAdd");
    comm_join_all(&client, "tp", 1);
    client_close(&client);
}

static void test_death_while_algorithms_are_asked_for(void **state)
{
    Cgm__Query query = CGM__QUERY__INIT;
    struct client client;
    client_open(&client, *state);
    fake_fault(*state, "die", "Query", "");
    query.what = CGM_QUERY_ALGORITHMS;
    client_error(&client, CGM_MSG_QUERY, &query.base, NULL, 0, CGM_EXECUTOR_LOST, "");
    client_close(&client);
}

static void test_refusals_reach_the_client(void **state)
{
    Cgm__BufferCreate create = CGM__BUFFER_CREATE__INIT;
    Cgm__PlanCreate plan = CGM__PLAN_CREATE__INIT;
    struct client client;
    char number[16];
    client_open(&client, *state);
    snprintf(number, sizeof(number), "%d", CGM_NO_MEMORY);
    fake_fault(*state, "error", "BufferAlloc", number);
    create.bytes = 1;
    create.name = (char *)(uintptr_t) "refused";
    client_error(&client, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0, CGM_NO_MEMORY,
                 "the test wants it");
    assert_int_equal(status_number(&client, "buffers"), 0);
    plan.comm = comm_join_all(&client, "tp", 1);
    plan.m = plan.n = plan.k = 2;
    snprintf(number, sizeof(number), "%d", CGM_NOT_SUPPORTED);
    fake_fault(*state, "error", "PlanAdd", number);
    client_error(&client, CGM_MSG_PLAN_CREATE, &plan.base, NULL, 0, CGM_NOT_SUPPORTED,
                 "the test wants it");
    fake_heal(*state, "error", "PlanAdd");
    message_free(
        client_call(&client, CGM_MSG_PLAN_CREATE, &plan.base, NULL, 0, CGM_MSG_PLAN_REPLY));
    client_close(&client);
}

/* Clients that die while the executor works for them leave nothing. */
static void test_clients_die_with_requests_pending(void **state)
{
    static const char *const messages[] = {"BufferAlloc", "Grant", "PlanAdd", "CommAdd",
                                           "SessionAdd"};
    struct client observer;
    client_open(&observer, *state);
    for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {
        Cgm__BufferCreate create = CGM__BUFFER_CREATE__INIT;
        Cgm__RingSetup setup = CGM__RING_SETUP__INIT;
        struct client client;
        char line[128];
        client_open(&client, *state);
        if (i == 2) {
            uint64_t comm = comm_join_all(&client, "tp", 2);
            Cgm__PlanCreate plan = CGM__PLAN_CREATE__INIT;
            plan.comm = comm;
            plan.m = plan.n = plan.k = 2;
            fake_fault(*state, "drop", messages[i], "");
            client_send(&client, CGM_MSG_PLAN_CREATE, &plan.base, NULL, 0);
        } else if (i == 3) {
            fake_fault(*state, "drop", messages[i], "");
            send_join(&client, "late", 1, 0, 0);
        } else if (i == 4) {
            fake_fault(*state, "drop", messages[i], "");
            setup.entries = 4;
            client_send(&client, CGM_MSG_RING_SETUP, &setup.base, NULL, 0);
        } else {
            fake_fault(*state, "drop", messages[i], "");
            create.bytes = 1;
            client_send(&client, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0);
        }
        fake_wait_line(*state, messages[i], line, sizeof(line));
        client_close(&client);
        wait_for_status(&observer, "sessions", 1);
        fake_heal(*state, "drop", messages[i]);
        fake_forget_lines(*state);
        /* The answers that never came are failed by the executor's death. */
        client_kill_executor(&observer);
        message_free(client_event(&observer, CGM_MSG_RING));
        assert_int_equal(status_number(&observer, "buffers"), 0);
        assert_int_equal(status_number(&observer, "comms"), 0);
        assert_int_equal(status_number(&observer, "plans"), 0);
    }
    client_close(&observer);
}

static void test_without_an_executor(void **state)
{
    Cgm__BufferCreate create = CGM__BUFFER_CREATE__INIT;
    Cgm__RingSetup setup = CGM__RING_SETUP__INIT;
    struct daemon daemon;
    struct client client;
    char text[512];
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, "executor=/nonexistent/executor", NULL);
    client_open(&client, &daemon);
    assert_int_equal(status_number(&client, "executor_life"), 0);
    query_value(&client, CGM_QUERY_DOCTOR, "check", "\"executor\"", "text", text, sizeof(text));
    assert_non_null(strstr(text, "/nonexistent/executor"));
    create.bytes = 1;
    client_error(&client, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0, CGM_NO_EXECUTOR,
                 "/nonexistent/executor");
    setup.entries = 4;
    client_error(&client, CGM_MSG_RING_SETUP, &setup.base, NULL, 0, CGM_NO_EXECUTOR, "");
    setup.entries = 4096; /* it is promised one of 4, and has no more in its quota */
    client_error(&client, CGM_MSG_RING_SETUP, &setup.base, NULL, 0, CGM_EXISTS, "4 entries");
    client_close(&client);
    daemon_stop(&daemon);
}

/* An executable that ends at once is tried again, less and less often, and the reason is told. */
static void test_executor_that_ends_at_once(void **state)
{
    struct daemon daemon;
    struct client client;
    char text[512];
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, "executor=/bin/false", NULL);
    client_open(&client, &daemon);
    query_value(&client, CGM_QUERY_DOCTOR, "check", "\"executor\"", "text", text, sizeof(text));
    assert_non_null(strstr(text, "process"));
    client_close(&client);
    daemon_stop(&daemon);
}

/* It is there and says nothing: while it starts, and while it serves. */
static void test_executor_that_does_not_answer(void **state)
{
    struct daemon daemon;
    struct client client;
    (void)state;
    daemon_init(&daemon);
    fake_fault(&daemon, "drop", "ExecutorSetup", "");
    daemon_start(&daemon, "executor_timeout=1", "executor_start_timeout=1", NULL);
    client_open(&client, &daemon);
    fake_heal(&daemon, "drop", "ExecutorSetup");
    wait_for_executor(&client);
    fake_fault(&daemon, "drop", "Ping", "");
    message_free(client_event(&client, CGM_MSG_EXECUTOR_LOST));
    fake_heal(&daemon, "drop", "Ping");
    message_free(client_event(&client, CGM_MSG_RING));
    client_close(&client);
    daemon_stop(&daemon);
}

static bool was_adopted(const struct daemon *daemon, uint64_t id)
{
    char line[64];
    snprintf(line, sizeof(line), "adopt %ju ", (uintmax_t)id);
    return fake_has_line(daemon, line);
}

/* What one user has holds up an executor that takes over everything: the next one gets the others'.
 */
static void test_memory_that_holds_up_an_executor(void **state)
{
    struct daemon daemon;
    struct client stranger, honest;
    char held[32];
    uint64_t theirs[2], ours[2];
    (void)state;
    skip_unless_root();
    daemon_init(&daemon);
    daemon_start(&daemon, "socket_mode=0666", "executor_start_timeout=1", NULL);
    client_open(&honest, &daemon);
    client_open_as(STRANGER, &stranger, &daemon);
    for (int i = 0; i < 2; i++) {
        ours[i] = buffer_create(&honest, NULL, 4096, 0, NULL);
        theirs[i] = buffer_create(&stranger, NULL, 4096, 0, NULL);
    }
    snprintf(held, sizeof(held), "%ju", (uintmax_t)theirs[1]);
    fake_fault(&daemon, "hold", "BufferAdopt", held);
    uint64_t life = client_kill_executor(&honest);
    wait_for_more(&honest, "executor_life", life + 1);
    wait_for_executor(&honest);
    fake_forget_lines(&daemon);
    life = client_kill_executor(&honest);
    wait_for_more(&honest, "executor_life", life);
    wait_for_executor(&honest);
    for (int i = 0; i < 2; i++) {
        assert_true(was_adopted(&daemon, ours[i]));
        assert_false(was_adopted(&daemon, theirs[i]));
        Cgm__BufferClose close_it = CGM__BUFFER_CLOSE__INIT;
        close_it.id = theirs[i];
        client_ok(&stranger, CGM_MSG_BUFFER_CLOSE, &close_it.base);
    }
    uint64_t another = buffer_create(&stranger, NULL, 4096, 0, NULL);
    life = client_kill_executor(&honest);
    wait_for_more(&honest, "executor_life", life);
    wait_for_executor(&honest);
    assert_true(was_adopted(&daemon, another));
    client_close(&stranger);
    client_close(&honest);
    daemon_stop(&daemon);
}

/* One that waits for a lock of the system cannot be reaped, as one that somebody traces. */
static void test_an_end_while_a_dead_executor_is_not_reaped(void **state)
{
    struct daemon daemon;
    struct client client;
    (void)state;
    skip_unless_root();
    daemon_init(&daemon);
    daemon_start(&daemon, NULL);
    client_open(&client, &daemon);
    wait_for_executor(&client);
    pid_t executor = (pid_t)status_number(&client, "executor_pid");
    bool traced = ptrace(PTRACE_SEIZE, executor, NULL, NULL) == 0;
    if (traced) {
        assert_int_equal(send_signal(executor, SIGKILL), 0);
        wait_for_status(&client, "executor_deaths", 1);
        message_free(client_event(&client, CGM_MSG_EXECUTOR_LOST));
    }
    client_close(&client);
    daemon_stop(&daemon);
    if (!traced)
        skip();
    assert_int_equal(waitpid(executor, NULL, __WALL), executor);
}

int main(void)
{
#define WITH_DAEMON(test) cmocka_unit_test_setup_teardown(test, daemon_set_up, daemon_tear_down)
    const struct CMUnitTest tests[] = {
        WITH_DAEMON(test_everything_is_handed_to_the_next_executor),
        WITH_DAEMON(test_numbers_of_another_comm_are_forgotten),
        WITH_DAEMON(test_a_rank_that_goes_in_the_replay),
        WITH_DAEMON(test_pending_requests_fail),
        WITH_DAEMON(test_a_comm_that_the_next_executor_refuses),
        WITH_DAEMON(test_death_while_algorithms_are_asked_for),
        WITH_DAEMON(test_refusals_reach_the_client),
        WITH_DAEMON(test_clients_die_with_requests_pending),
        cmocka_unit_test(test_death_in_the_middle_of_the_replay),
        cmocka_unit_test(test_without_an_executor),
        cmocka_unit_test(test_executor_that_ends_at_once),
        cmocka_unit_test(test_executor_that_does_not_answer),
        cmocka_unit_test(test_memory_that_holds_up_an_executor),
        cmocka_unit_test(test_an_end_while_a_dead_executor_is_not_reaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
