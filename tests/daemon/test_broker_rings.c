/* Rings, and jobs by message: what their owners are told when the executor ends. */
#include "tests/daemon/steps_fixture.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tests/send_signal.h"

#define ENTRIES 16u

static struct message *ring_set_up(struct client *client, struct cgm_ring *ret_ring)
{
    struct message *reply = client_ring_set_up(client, ENTRIES);
    assert_int_equal(reply->n_fds, 3);
    assert_int_equal(cgm_ring_join(reply->fds[0], ENTRIES, ret_ring), CGM_OK);
    return reply;
}

static void test_ring_arguments(void **state)
{
    static const uint32_t entries[] = {0, 1, 3, 100, 8192, UINT32_MAX};
    Cgm__RingSetup setup = CGM__RING_SETUP__INIT;
    struct cgm_ring ring;
    struct client client;
    client_open(&client, *state);
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        setup.entries = entries[i];
        client_error(&client, CGM_MSG_RING_SETUP, &setup.base, NULL, 0, CGM_INVALID_ARGUMENT,
                     "power of two from 2 to 4096");
    }
    message_free(ring_set_up(&client, &ring));
    setup.entries = 2;
    client_error(&client, CGM_MSG_RING_SETUP, &setup.base, NULL, 0, CGM_EXISTS, "16 entries");
    cgm_ring_unmap(&ring);
    client_close(&client);
    client_open(&client, *state);
    buffer_create(&client, NULL, 1, 0, NULL);
    client_error(&client, CGM_MSG_RING_SETUP, &setup.base, NULL, 0, CGM_INVALID_ARGUMENT, "before");
    client_close(&client);
}

static void test_rings_are_killed_and_new_ones_come(void **state)
{
    struct cgm_ring old, fresh;
    struct client client, observer;
    int32_t status;
    client_open(&client, *state);
    client_open(&observer, *state);
    struct message *first = ring_set_up(&client, &old);
    assert_int_equal(((const Cgm__Ring *)first->body)->executor_life, 1);
    old.entry[3].ticket = 1; /* in flight */
    cgm_ring_set_done(&old, 4, 2, CGM_OK);
    old.entry[4].ticket = 2; /* has ended */
    uint64_t life = client_kill_executor(&observer);
    struct message *lost = client_event(&client, CGM_MSG_EXECUTOR_LOST);
    assert_int_equal(((const Cgm__ExecutorLost *)lost->body)->executor_life, life);
    assert_int_equal(((const Cgm__ExecutorLost *)lost->body)->status, CGM_EXECUTOR_LOST);
    message_free(lost);
    assert_int_equal(atomic_load(&old.header->dead), CGM_EXECUTOR_LOST);
    assert_true(cgm_ring_done(&old, 3, 1, &status));
    assert_int_equal(status, CGM_EXECUTOR_LOST);
    assert_true(cgm_ring_done(&old, 4, 2, &status));
    assert_int_equal(status, CGM_OK);
    struct message *second = client_event(&client, CGM_MSG_RING);
    assert_int_equal(((const Cgm__Ring *)second->body)->executor_life, life + 1);
    assert_int_equal(second->n_fds, 3);
    assert_int_equal(cgm_ring_join(second->fds[0], ENTRIES, &fresh), CGM_OK);
    assert_int_equal(fresh.header->executor_life, life + 1);
    assert_int_equal(atomic_load(&fresh.header->dead), 0);
    /* A session without a ring is told, too. */
    second->next = client_event(&observer, CGM_MSG_RING);
    assert_int_equal(second->next->n_fds, 0);
    message_free(second->next);
    message_free(second);
    message_free(first);
    cgm_ring_unmap(&old);
    cgm_ring_unmap(&fresh);
    client_close(&client);
    client_close(&observer);
}

static void test_submit_by_message(void **state)
{
    struct cgm_entry noop = {.opcode = CGM_OPCODE_NOOP};
    struct client client;
    client_open(&client, *state);
    for (noop.ticket = 1; noop.ticket <= 100; noop.ticket++)
        client_submit(&client, &noop);
    for (uint64_t ticket = 1; ticket <= 100; ticket++) {
        struct message *event = client_event(&client, CGM_MSG_COMPLETION);
        const Cgm__Completion *completion = (const Cgm__Completion *)event->body;
        struct cgm_cqe cqe;
        assert_int_equal(completion->cqe.len, sizeof(cqe));
        memcpy(&cqe, completion->cqe.data, sizeof(cqe));
        assert_int_equal(cqe.ticket, ticket);
        message_free(event);
    }
    client_close(&client);
}

/* A job that ended well, of which one rank was not told any more. */
static void test_what_ended_well_ends_for_all(void **state)
{
    struct cgm_entry entry = {.ticket = 1, .opcode = CGM_OPCODE_NOOP};
    struct cgm_ring ring;
    struct client client, other;
    char line[64];
    int32_t status;
    client_open(&client, *state);
    client_open(&other, *state);
    message_free(ring_set_up(&client, &ring));
    entry.comm = comm_join_all(&client, "tp", 2);
    for (uint32_t i = 0; i < 2; i++) {
        ring.entry[i].comm = entry.comm;
        ring.entry[i].comm_number = 6 + i;
        ring.entry[i].ticket = 1 + i;
    }
    fake_fault(*state, "ending", "SubmitForward", "6");
    client_submit(&other, &entry);
    client_kill_executor(&other);
    struct message *event = client_event(&client, CGM_MSG_EXECUTOR_LOST);
    const Cgm__ExecutorLost *lost = (const Cgm__ExecutorLost *)event->body;
    assert_true(lost->has_ended_comm && lost->ended_comm == entry.comm);
    assert_true(lost->has_ended_number && lost->ended_number == 6);
    message_free(event);
    event = client_event(&other, CGM_MSG_EXECUTOR_LOST); /* it is in no comm */
    assert_false(((const Cgm__ExecutorLost *)event->body)->has_ended_comm);
    message_free(event);
    assert_true(cgm_ring_done(&ring, 0, 1, &status));
    assert_int_equal(status, CGM_OK);
    assert_true(cgm_ring_done(&ring, 1, 2, &status));
    assert_int_equal(status, CGM_EXECUTOR_LOST);
    fake_wait_line(*state, "comm 1 high 0 ended 6", line, sizeof(line)); /* the next one knows */
    cgm_ring_unmap(&ring);
    client_close(&client);
    client_close(&other);
}

/* The daemon gives up an executor that goes on. It stops when everybody is told: whatever is done
 * to the rings from then on is too late. */
static void test_ranks_are_told_the_same(void **state)
{
    Cgm__BufferCreate create = CGM__BUFFER_CREATE__INIT;
    struct scene scene;
    struct client clients[2], other;
    struct cgm_ring rings[2];
    int32_t status;
    (void)state;
    scene_open(&scene, "join_timeout=600", "executor=" CGM_BIN_DIR "/fake_executor");
    client_open(&other, &scene.daemon);
    for (int i = 0; i < 2; i++) {
        client_open(&clients[i], &scene.daemon);
        message_free(ring_set_up(&clients[i], &rings[i]));
        rings[i].entry[0].ticket = 1;
    }
    fake_fault(&scene.daemon, "late", "BufferAlloc", "");
    arm(&scene, CGM_STEP_BROKER_ANSWERED, CGM_MSG_BUFFER_ALLOC);
    create.bytes = 1;
    client_send(&other, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0);
    assert_int_equal(await_stop(&scene), scene.daemon.pid);
    usleep(200000); /* for an executor that lives */
    assert_int_equal(send_signal(scene.daemon.pid, SIGCONT), 0);
    for (int i = 0; i < 2; i++) {
        message_free(client_event(&clients[i], CGM_MSG_EXECUTOR_LOST));
        assert_true(cgm_ring_done(&rings[i], 0, 1, &status));
        assert_int_equal(status, CGM_EXECUTOR_LOST);
        cgm_ring_unmap(&rings[i]);
        client_close(&clients[i]);
    }
    assert_false(fake_has_line(&scene.daemon, "late"));
    client_close(&other);
    scene_close(&scene);
}

/* What was meant for an executor that has ended is not the next one's, which counts anew. */
static void test_tickets_are_of_one_executor(void **state)
{
    struct cgm_entry entry = {.ticket = 1, .opcode = CGM_OPCODE_NOOP};
    Cgm__Submit late_job = CGM__SUBMIT__INIT;
    Cgm__Cancel cancel = CGM__CANCEL__INIT;
    struct client client;
    client_open(&client, *state);
    uint64_t life = client_kill_executor(&client);
    message_free(client_event(&client, CGM_MSG_RING));
    late_job.entry.data = (uint8_t *)&entry;
    late_job.entry.len = sizeof(entry);
    late_job.has_executor_life = cancel.has_executor_life = 1;
    late_job.executor_life = cancel.executor_life = life;
    cancel.ticket = 1;
    client_error(&client, CGM_MSG_SUBMIT, &late_job.base, NULL, 0, CGM_EXECUTOR_LOST, "has ended");
    client_ok(&client, CGM_MSG_CANCEL, &cancel.base);
    assert_false(fake_has_line(*state, "SubmitForward"));
    assert_false(fake_has_line(*state, "CancelForward"));
    late_job.executor_life = life + 1;
    client_ok(&client, CGM_MSG_SUBMIT, &late_job.base);
    message_free(client_event(&client, CGM_MSG_COMPLETION));
    client_close(&client);
}

/* A job that ends with its executor has ended, for who cancels it. */
static void test_a_cancel_without_an_executor(void **state)
{
    struct cgm_entry entry = {.ticket = 1, .opcode = CGM_OPCODE_NOOP};
    Cgm__Cancel cancel = CGM__CANCEL__INIT;
    struct client client;
    client_open(&client, *state);
    cancel.ticket = 1;
    client_ok(&client, CGM_MSG_CANCEL, &cancel.base); /* of who has submitted nothing */
    client_submit(&client, &entry);
    fake_fault(*state, "die", "CancelForward", "");
    fake_fault(*state, "die", "ExecutorSetup", "");
    client_ok(&client, CGM_MSG_CANCEL, &cancel.base);
    client_ok(&client, CGM_MSG_CANCEL, &cancel.base);
    client_close(&client);
}

/* RingSetup without an executor is a wish that is granted when there is one. */
static void test_ring_wish_is_remembered(void **state)
{
    Cgm__RingSetup setup = CGM__RING_SETUP__INIT;
    struct client client;
    client_open(&client, *state);
    fake_fault(*state, "die", "ExecutorSetup", "");
    client_kill_executor(&client);
    message_free(client_event(&client, CGM_MSG_EXECUTOR_LOST));
    setup.entries = 4;
    struct message *reply =
        client_reply(&client, client_send(&client, CGM_MSG_RING_SETUP, &setup.base, NULL, 0));
    expect_error(reply, CGM_NO_EXECUTOR, "");
    struct message *event = client_event(&client, CGM_MSG_RING);
    assert_int_equal(event->n_fds, 3);
    const Cgm__Ring *ring = (const Cgm__Ring *)event->body;
    assert_int_equal(ring->entries, 4);
    assert_int_equal(ring->devices, status_number(&client, "devices")); /* not told before */
    assert_true(ring->backend && ring->backend[0]);
    message_free(event);
    client_close(&client);
}

/* Who has a ring is served: not before the executor that has it serves. */
static void test_a_ring_waits_for_the_replay(void **state)
{
    struct client owner, newcomer;
    Cgm__RingSetup setup = CGM__RING_SETUP__INIT;
    client_open(&owner, *state);
    buffer_create(&owner, NULL, 4096, 0, NULL);
    fake_fault(*state, "slow", "BufferAdopt", "");
    client_kill_executor(&owner);
    while (!fake_has_line(*state, "BufferAdopt"))
        usleep(1000);
    client_open(&newcomer, *state);
    setup.entries = 4;
    struct message *reply =
        client_reply(&newcomer, client_send(&newcomer, CGM_MSG_RING_SETUP, &setup.base, NULL, 0));
    expect_error(reply, CGM_NO_EXECUTOR, "the next executor is being given");
    message_free(client_event(&newcomer, CGM_MSG_RING));
    buffer_create(&newcomer, NULL, 4096, 0, NULL);
    client_close(&newcomer);
    client_close(&owner);
}

int main(void)
{
#define WITH_DAEMON(test) cmocka_unit_test_setup_teardown(test, daemon_set_up, daemon_tear_down)
    const struct CMUnitTest tests[] = {
        WITH_DAEMON(test_ring_arguments),
        WITH_DAEMON(test_rings_are_killed_and_new_ones_come),
        WITH_DAEMON(test_submit_by_message),
        WITH_DAEMON(test_what_ended_well_ends_for_all),
        WITH_DAEMON(test_tickets_are_of_one_executor),
        WITH_DAEMON(test_a_cancel_without_an_executor),
        WITH_DAEMON(test_ring_wish_is_remembered),
        WITH_DAEMON(test_a_ring_waits_for_the_replay),
        cmocka_unit_test(test_ranks_are_told_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
