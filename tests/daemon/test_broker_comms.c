/* Comms: who joins, who is missing, who leaves. */
#include "tests/daemon/broker_fixture.h"

#include <stdio.h>

/* ---- comms ------------------------------------------------------------------------------------
 */

static void test_several_ranks_in_one_session(void **state)
{
    struct client client;
    char ranks[128];
    client_open(&client, *state);
    uint64_t comm = comm_join_all(&client, "tp", 4);
    query_value(&client, CGM_QUERY_SESSIONS, NULL, NULL, "ranks", ranks, sizeof(ranks));
    char expected[128];
    snprintf(expected, sizeof(expected), "[\"%ju:0\",\"%ju:1\",\"%ju:2\",\"%ju:3\"]",
             (uintmax_t)comm, (uintmax_t)comm, (uintmax_t)comm, (uintmax_t)comm);
    assert_string_equal(ranks, expected);
    client_close(&client);
}

static void test_join_waits_for_all_and_gives_devices(void **state)
{
    struct client clients[3];
    uint32_t serials[3];
    for (uint32_t rank = 0; rank < 3; rank++) {
        client_open(&clients[rank], *state);
        serials[rank] = send_join(&clients[rank], "tp", 3, rank, 0);
    }
    for (uint32_t rank = 0; rank < 3; rank++) {
        struct message *reply = client_reply(&clients[rank], serials[rank]);
        assert_int_equal(reply->type, CGM_MSG_COMM_REPLY);
        const Cgm__CommReply *comm = (const Cgm__CommReply *)reply->body;
        assert_int_equal(comm->size, 3);
        assert_int_equal(comm->n_devices, 3);
        for (uint32_t i = 0; i < 3; i++)
            assert_int_equal(comm->devices[i], i);
        message_free(reply);
        client_close(&clients[rank]);
    }
}

static void test_missing_ranks_are_named(void **state)
{
    struct client one, two;
    client_open(&one, *state);
    client_open(&two, *state);
    uint32_t first = send_join(&one, "tp", 4, 2, 300);
    uint32_t second = send_join(&two, "tp", 4, 0, 600000);
    expect_error(client_reply(&one, first), CGM_JOIN_TIMEOUT, "ranks 1, 3 of comm");
    /* Its rank is free again, and the one that is still waiting is unaffected. */
    Cgm__CommJoin join = CGM__COMM_JOIN__INIT;
    uint32_t ranks[] = {1, 2, 3};
    join.name = (char *)(uintptr_t) "tp";
    join.n_ranks = 3;
    join.ranks = ranks;
    message_free(client_call(&one, CGM_MSG_COMM_JOIN, &join.base, NULL, 0, CGM_MSG_COMM_REPLY));
    struct message *reply = client_reply(&two, second);
    assert_int_equal(reply->type, CGM_MSG_COMM_REPLY);
    message_free(reply);
    client_close(&one);
    client_close(&two);
}

/* Not those that wait no longer: whoever gives up last says the same as the first. */
static void test_only_who_never_came_is_named(void **state)
{
    struct client clients[3];
    uint32_t serials[3];
    for (uint32_t i = 0; i < 3; i++) {
        client_open(&clients[i], *state);
        serials[i] = send_join(&clients[i], "tp", 4, i, 200 + 100 * i);
    }
    for (uint32_t i = 0; i < 3; i++)
        expect_error(client_reply(&clients[i], serials[i]), CGM_JOIN_TIMEOUT, "rank 3 of comm");
    /* Each has come, but not at the same time. */
    serials[0] = send_join(&clients[0], "turns", 3, 0, 100);
    serials[1] = send_join(&clients[1], "turns", 3, 1, 500);
    expect_error(client_reply(&clients[0], serials[0]), CGM_JOIN_TIMEOUT, "rank 2 of comm");
    serials[2] = send_join(&clients[2], "turns", 3, 2, 600);
    expect_error(client_reply(&clients[1], serials[1]), CGM_JOIN_TIMEOUT, "did not stay");
    expect_error(client_reply(&clients[2], serials[2]), CGM_JOIN_TIMEOUT, "rank 0 of comm");
    for (uint32_t i = 0; i < 3; i++)
        client_close(&clients[i]);
}

static void test_last_missing_rank_is_named_and_the_comm_goes(void **state)
{
    struct client client;
    client_open(&client, *state);
    uint32_t serial = send_join(&client, "alone", 2, 0, 100);
    expect_error(client_reply(&client, serial), CGM_JOIN_TIMEOUT, "rank 1 of comm");
    assert_int_equal(status_number(&client, "comms"), 0);
    client_close(&client);
}

static void test_join_arguments(void **state)
{
    static const struct {
        uint32_t ranks[2];
        size_t n_ranks;
        int32_t devices[2];
        size_t n_devices;
        int status;
        const char *text;
    } rows[] = {
        {{4, 0}, 1, {0}, 0, CGM_INVALID_ARGUMENT, "rank is 4; it must be from 0 to 3"},
        {{UINT32_MAX, 0}, 1, {0}, 0, CGM_INVALID_ARGUMENT, "rank is"},
        {{1, 1}, 2, {0}, 0, CGM_INVALID_ARGUMENT, "twice"},
        {{0, 0}, 0, {0}, 0, CGM_INVALID_ARGUMENT, "ranks is empty"},
        {{0, 1}, 2, {0}, 1, CGM_INVALID_ARGUMENT, "1 devices for 2 ranks"},
        {{0, 1}, 2, {0, 4}, 2, CGM_INVALID_ARGUMENT, "device is 4; it must be from 0 to 3"},
        {{0, 1}, 2, {0, -2}, 2, CGM_INVALID_ARGUMENT, "device is -2"},
    };
    struct client client;
    client_open(&client, *state);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        Cgm__CommJoin join = CGM__COMM_JOIN__INIT;
        join.name = (char *)(uintptr_t) "args";
        join.has_create = join.create = join.has_size = 1;
        join.size = 4;
        join.n_ranks = rows[i].n_ranks;
        join.ranks = (uint32_t *)(uintptr_t)rows[i].ranks;
        join.n_devices = rows[i].n_devices;
        join.devices = (int32_t *)(uintptr_t)rows[i].devices;
        client_error(&client, CGM_MSG_COMM_JOIN, &join.base, NULL, 0, rows[i].status, rows[i].text);
        assert_int_equal(status_number(&client, "comms"), 0);
    }
    client_close(&client);
}

static void test_taken_ranks_sizes_and_unknown_comms(void **state)
{
    struct client one, two;
    Cgm__CommJoin join = CGM__COMM_JOIN__INIT;
    uint32_t rank = 0;
    client_open(&one, *state);
    client_open(&two, *state);
    comm_join_all(&one, "tp", 2);
    expect_error(client_reply(&two, send_join(&two, "tp", 2, 1, 0)), CGM_EXISTS, "rank 1");
    expect_error(client_reply(&two, send_join(&two, "tp", 3, 1, 0)), CGM_INVALID_ARGUMENT,
                 "has size 2");
    join.n_ranks = 1;
    join.ranks = &rank;
    client_error(&two, CGM_MSG_COMM_JOIN, &join.base, NULL, 0, CGM_INVALID_ARGUMENT, "name");
    join.name = (char *)(uintptr_t) "nobody";
    client_error(&two, CGM_MSG_COMM_JOIN, &join.base, NULL, 0, CGM_NOT_FOUND, "nobody");
    join.has_id = 1;
    join.id = 4711;
    client_error(&two, CGM_MSG_COMM_JOIN, &join.base, NULL, 0, CGM_NOT_FOUND, "4711");
    Cgm__CommLeave leave = CGM__COMM_LEAVE__INIT;
    leave.id = 1;
    client_error(&two, CGM_MSG_COMM_LEAVE, &leave.base, NULL, 0, CGM_NOT_FOUND, "not in a comm");
    client_close(&one);
    client_close(&two);
}

static void test_comm_names_and_sizes(void **state)
{
    static const uint32_t sizes[] = {0, 65, UINT32_MAX};
    Cgm__CommCreate create = CGM__COMM_CREATE__INIT;
    struct client client;
    client_open(&client, *state);
    create.size = 2;
    for (size_t i = 0; i < bad_names_count; i++) {
        create.name = (char *)(uintptr_t)bad_names[i];
        client_error(&client, CGM_MSG_COMM_CREATE, &create.base, NULL, 0, CGM_INVALID_ARGUMENT,
                     "name");
    }
    create.name = NULL;
    for (size_t i = 0; i < 3; i++) {
        create.size = sizes[i];
        client_error(&client, CGM_MSG_COMM_CREATE, &create.base, NULL, 0, CGM_INVALID_ARGUMENT,
                     "from 1 to 64");
    }
    create.name = (char *)(uintptr_t) "A.b_c:d-9";
    create.size = 64;
    create.has_mode = 1;
    create.mode = 01000;
    client_error(&client, CGM_MSG_COMM_CREATE, &create.base, NULL, 0, CGM_INVALID_ARGUMENT, "mode");
    create.mode = 0660;
    message_free(
        client_call(&client, CGM_MSG_COMM_CREATE, &create.base, NULL, 0, CGM_MSG_COMM_REPLY));
    client_error(&client, CGM_MSG_COMM_CREATE, &create.base, NULL, 0, CGM_EXISTS, "A.b_c:d-9");
    client_close(&client);
}

/* A rank that dies makes a complete comm useless and frees its name; an incomplete one waits. */
static void test_death_of_members(void **state)
{
    struct client one, two, three;
    client_open(&one, *state);
    client_open(&two, *state);
    client_open(&three, *state);
    uint32_t a = send_join(&one, "tp", 2, 0, 0);
    send_join(&two, "tp", 2, 0, 0); /* refused: taken */
    client_close(&two);
    uint32_t b = send_join(&three, "tp", 2, 1, 0);
    message_free(client_reply(&one, a));
    message_free(client_reply(&three, b));
    client_close(&three);
    wait_for_status(&one, "sessions", 1);
    char missing[64];
    query_value(&one, CGM_QUERY_COMMS, "name", "\"tp\"", "missing", missing, sizeof(missing));
    assert_string_equal(missing, "[1]");
    Cgm__PlanCreate plan = CGM__PLAN_CREATE__INIT;
    plan.comm = 1;
    plan.m = plan.n = plan.k = 2;
    client_error(&one, CGM_MSG_PLAN_CREATE, &plan.base, NULL, 0, CGM_PEER_LOST, "rank 1");
    assert_int_equal(comm_join_all(&one, "tp", 1), 2);
    client_close(&one);
}

static void test_death_while_joining_frees_the_rank(void **state)
{
    struct client one, two;
    client_open(&one, *state);
    client_open(&two, *state);
    uint32_t a = send_join(&one, "tp", 2, 0, 0);
    send_join(&two, "tp", 2, 1, 0);
    message_free(client_reply(&one, a));
    client_close(&two);
    client_close(&one);
    client_open(&one, *state);
    client_open(&two, *state);
    wait_for_status(&one, "comms", 0);
    send_join(&two, "tp", 2, 1, 0);
    wait_for_status(&one, "comms", 1);
    client_close(&two);
    wait_for_status(&one, "comms", 0);
    comm_join_all(&one, "tp", 2);
    client_close(&one);
}

static void test_leave(void **state)
{
    Cgm__CommLeave leave = CGM__COMM_LEAVE__INIT;
    struct client client;
    client_open(&client, *state);
    leave.id = comm_join_all(&client, "tp", 2);
    plan_create(&client, leave.id, 16);
    assert_int_equal(status_number(&client, "plans"), 1);
    client_ok(&client, CGM_MSG_COMM_LEAVE, &leave.base);
    assert_int_equal(status_number(&client, "plans"), 0);
    assert_int_equal(status_number(&client, "comms"), 0);
    assert_int_equal(status_number(&client, "buffers"), 0);
    assert_true(fake_has_line(*state, "CommRankLeft"));
    comm_join_all(&client, "tp", 2);
    client_close(&client);
}

/* ---- the executor that makes them --------------------------------------------------------------
 */

/* A complete comm that the executor had not taken yet is given to the next one: nobody notices. */
static void test_death_while_a_comm_is_added(void **state)
{
    struct client client;
    client_open(&client, *state);
    fake_fault(*state, "die", "CommAdd", "");
    comm_join_all(&client, "tp", 3);
    assert_int_equal(status_number(&client, "executor_life"), 2);
    client_close(&client);
}

/* The one after it does not start either: the time for the join holds all the same. */
static void expect_no_executor_makes(struct daemon *daemon, struct client *client)
{
    fake_fault(daemon, "die", "CommAdd", "");
    fake_fault(daemon, "die", "ExecutorSetup", "");
    struct message *reply = client_reply(client, send_join(client, "tp", 1, 0, 30));
    expect_error(reply, CGM_JOIN_TIMEOUT, "have joined, but there is no executor");
}

static void test_a_comm_that_no_executor_makes(void **state)
{
    struct client client;
    client_open(&client, *state);
    expect_no_executor_makes(*state, &client);
    assert_int_equal(status_number(&client, "comms"), 0);
    wait_for_executor(&client);
    comm_join_all(&client, "tp", 1);
    client_close(&client);
}

/* Both ranks have joined, no executor has made their comm, and the first one's time is over before
 * there is one. Returns the other one's request. */
static uint32_t join_for_a_while(struct daemon *daemon, struct client *hasty,
                                 struct client *patient, uint32_t patient_ms)
{
    fake_fault(daemon, "die", "CommAdd", "");
    fake_fault(daemon, "die", "ExecutorSetup", "");
    uint32_t serial = send_join(patient, "tp", 2, 1, patient_ms);
    expect_error(client_reply(hasty, send_join(hasty, "tp", 2, 0, 30)), CGM_JOIN_TIMEOUT,
                 "have joined, but there is no executor");
    wait_for_executor(hasty);
    return serial;
}

/* Who gives up may come again. */
static void test_a_join_ends_no_other(void **state)
{
    struct client one, two;
    client_open(&one, *state);
    client_open(&two, *state);
    uint32_t patient = join_for_a_while(*state, &one, &two, 60000);
    uint32_t again = send_join(&one, "tp", 2, 0, 60000);
    for (int i = 0; i < 2; i++) {
        struct message *reply = client_reply(i ? &two : &one, i ? patient : again);
        assert_int_equal(reply->type, CGM_MSG_COMM_REPLY);
        message_free(reply);
    }
    client_close(&one);
    client_close(&two);
}

/* Who waits on misses the executor no more once there is one. */
static void test_who_left_before_the_executor_came(void **state)
{
    struct client one, two;
    client_open(&one, *state);
    client_open(&two, *state);
    uint32_t patient = join_for_a_while(*state, &one, &two, 2000);
    expect_error(client_reply(&two, patient), CGM_JOIN_TIMEOUT,
                 "tp did not stay until all were there");
    client_close(&one);
    client_close(&two);
}

/* Of one that the executor refuses: it was never made, and nobody has left it. */
static void test_a_created_comm_that_is_refused(void **state)
{
    Cgm__CommCreate create = CGM__COMM_CREATE__INIT;
    Cgm__CommJoin join = CGM__COMM_JOIN__INIT;
    uint32_t ranks[] = {0, 1};
    struct client client;
    char number[16];
    client_open(&client, *state);
    create.size = 2;
    struct message *reply =
        client_call(&client, CGM_MSG_COMM_CREATE, &create.base, NULL, 0, CGM_MSG_COMM_REPLY);
    join.has_id = 1;
    join.id = ((const Cgm__CommReply *)reply->body)->id;
    join.n_ranks = 2;
    join.ranks = ranks;
    message_free(reply);
    snprintf(number, sizeof(number), "%d", CGM_NOT_SUPPORTED);
    fake_fault(*state, "error", "CommAdd", number);
    client_error(&client, CGM_MSG_COMM_JOIN, &join.base, NULL, 0, CGM_NOT_SUPPORTED, "wants");
    fake_heal(*state, "error", "CommAdd");
    client_error(&client, CGM_MSG_COMM_JOIN, &join.base, NULL, 0, CGM_PEER_LOST, "was given up");
    client_close(&client);
}

/* It is its creator's until he leaves it, but nobody has joined. */
static void test_a_created_comm_that_no_executor_makes(void **state)
{
    Cgm__CommCreate create = CGM__COMM_CREATE__INIT;
    struct client client;
    char joined[16];
    client_open(&client, *state);
    create.size = 1;
    create.name = (char *)(uintptr_t) "tp";
    message_free(
        client_call(&client, CGM_MSG_COMM_CREATE, &create.base, NULL, 0, CGM_MSG_COMM_REPLY));
    expect_no_executor_makes(*state, &client);
    query_value(&client, CGM_QUERY_COMMS, NULL, NULL, "joined", joined, sizeof(joined));
    assert_string_equal(joined, "0");
    wait_for_executor(&client);
    comm_join_all(&client, "tp", 1);
    client_close(&client);
}

/* Who else has joined is not in it: he has no id to leave it by. */
static void test_who_leaves_while_a_comm_is_made(void **state)
{
    Cgm__CommLeave leave = CGM__COMM_LEAVE__INIT;
    struct client one, two;
    client_open(&one, *state);
    client_open(&two, *state);
    fake_fault(*state, "slow", "CommAdd", "");
    uint32_t first = send_join(&one, "tp", 2, 0, 0);
    wait_for_status(&two, "comms", 1);
    send_join(&two, "tp", 2, 1, 0);
    leave.id = 1;
    client_ok(&two, CGM_MSG_COMM_LEAVE, &leave.base);
    expect_error(client_reply(&one, first), CGM_PEER_LOST, "left before the join was complete");
    assert_int_equal(status_number(&one, "comms"), 0);
    client_error(&one, CGM_MSG_COMM_LEAVE, &leave.base, NULL, 0, CGM_NOT_FOUND, "not in a comm");
    fake_heal(*state, "slow", "CommAdd");
    comm_join_all(&one, "tp", 1);
    client_close(&one);
    client_close(&two);
}

static void test_who_leaves_while_a_plan_is_made(void **state)
{
    Cgm__CommLeave leave = CGM__COMM_LEAVE__INIT;
    struct client client;
    client_open(&client, *state);
    wait_for_executor(&client);
    leave.id = comm_join_all(&client, "tp", 1);
    fake_fault(*state, "slow", "PlanAdd", "");
    uint32_t plan = plan_create_send(&client, leave.id, 16);
    client_ok(&client, CGM_MSG_COMM_LEAVE, &leave.base);
    expect_error(client_reply(&client, plan), CGM_CANCELLED, "while it was being made");
    fake_heal(*state, "slow", "PlanAdd");
    plan_create(&client, comm_join_all(&client, "tp", 1), 16);
    client_close(&client);
}

static void test_a_comm_that_the_executor_refuses(void **state)
{
    struct client client;
    char number[16];
    client_open(&client, *state);
    snprintf(number, sizeof(number), "%d", CGM_NO_MEMORY);
    fake_fault(*state, "error", "CommAdd", number);
    struct message *reply = client_reply(&client, send_join(&client, "tp", 1, 0, 0));
    expect_error(reply, CGM_NO_MEMORY, "the test wants it");
    assert_int_equal(status_number(&client, "comms"), 0);
    fake_heal(*state, "error", "CommAdd");
    comm_join_all(&client, "tp", 1);
    client_close(&client);
}

int main(void)
{
#define WITH_DAEMON(test) cmocka_unit_test_setup_teardown(test, daemon_set_up, daemon_tear_down)
    const struct CMUnitTest tests[] = {
        WITH_DAEMON(test_several_ranks_in_one_session),
        WITH_DAEMON(test_join_waits_for_all_and_gives_devices),
        WITH_DAEMON(test_missing_ranks_are_named),
        WITH_DAEMON(test_only_who_never_came_is_named),
        WITH_DAEMON(test_last_missing_rank_is_named_and_the_comm_goes),
        WITH_DAEMON(test_join_arguments),
        WITH_DAEMON(test_taken_ranks_sizes_and_unknown_comms),
        WITH_DAEMON(test_comm_names_and_sizes),
        WITH_DAEMON(test_death_of_members),
        WITH_DAEMON(test_death_while_joining_frees_the_rank),
        WITH_DAEMON(test_leave),
        WITH_DAEMON(test_death_while_a_comm_is_added),
        WITH_DAEMON(test_a_comm_that_no_executor_makes),
        WITH_DAEMON(test_a_join_ends_no_other),
        WITH_DAEMON(test_who_left_before_the_executor_came),
        WITH_DAEMON(test_a_created_comm_that_is_refused),
        WITH_DAEMON(test_a_created_comm_that_no_executor_makes),
        WITH_DAEMON(test_who_leaves_while_a_comm_is_made),
        WITH_DAEMON(test_who_leaves_while_a_plan_is_made),
        WITH_DAEMON(test_a_comm_that_the_executor_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
