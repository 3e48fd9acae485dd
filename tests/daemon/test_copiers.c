/* Copies of one user that take long are in nobody else's way. */
#include "executor_fixture.h"

#include "held_executor.h"

#define BYTES 8192u
#define COPIES 20u /* of who waits for nobody */

enum { SLOW_ID = 1, OTHER_ID = 2 };

struct scene {
    struct fixture f;
    struct fixture_session slow, other;
    struct gate gate;
};

/* A session with a buffer of the same number. */
static void come(struct fixture *f, struct fixture_session *session, uint64_t id)
{
    fixture_session_open_as(f, id, (uint32_t)id, session);
    assert_int_equal(fixture_reply(f, fixture_buffer_send(f, id, BYTES, (uint32_t)id)), CGM_OK);
    cgm_packet_close_fds(&f->packet);
    fixture_grant(f, id, id, true);
}

static int set_up(void **state)
{
    static struct scene scene;
    assert_int_equal(gate_shut(&scene.gate), 0);
    fixture_open(&scene.f, 60000, 60000, 0);
    come(&scene.f, &scene.slow, SLOW_ID);
    come(&scene.f, &scene.other, OTHER_ID);
    *state = &scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;
    fixture_session_close(&scene->slow);
    fixture_session_close(&scene->other);
    fixture_close(&scene->f);
    gate_remove(&scene->gate);
    return 0;
}

/* One half of the session's buffer to the other one; the serial. */
static uint32_t send_copy(struct fixture *f, uint64_t id)
{
    Cgm__CopyForward m = CGM__COPY_FORWARD__INIT;
    m.session = m.dst = m.src = id;
    m.src_offset = m.bytes = BYTES / 2;
    fixture_send(f, CGM_MSG_COPY_FORWARD, &m.base, NULL, 0);
    return f->serial;
}

/* The first copy waits for the gate: answers to others come before its own. */
static void test_nobody_waits_for_anothers_copy(void **state)
{
    struct scene *scene = *state;
    struct fixture *f = &scene->f;
    uint32_t slow = send_copy(f, SLOW_ID), behind = send_copy(f, SLOW_ID);
    for (unsigned i = 0; i < COPIES; i++) {
        uint32_t serial = send_copy(f, OTHER_ID);
        assert_int_equal(fixture_receive(f)->header.serial, serial);
        assert_int_equal(f->packet.header.type, CGM_MSG_OK);
    }
    gate_open(&scene->gate);
    assert_int_equal(fixture_receive(f)->header.serial, slow);
    assert_int_equal(fixture_receive(f)->header.serial, behind);
}

/* What has not begun when its session goes is not made. */
static void test_who_leaves_has_no_copies_left(void **state)
{
    struct scene *scene = *state;
    struct fixture *f = &scene->f;
    uint32_t slow = send_copy(f, SLOW_ID), behind = send_copy(f, SLOW_ID);
    Cgm__SessionRemove leave = CGM__SESSION_REMOVE__INIT;
    leave.session = SLOW_ID;
    fixture_send(f, CGM_MSG_SESSION_REMOVE, &leave.base, NULL, 0);
    uint32_t other = send_copy(f, OTHER_ID);
    assert_int_equal(fixture_reply(f, other), CGM_OK);
    gate_open(&scene->gate);
    assert_int_equal(fixture_reply(f, slow), CGM_OK);
    assert_int_equal(fixture_reply(f, behind), CGM_CANCELLED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nobody_waits_for_anothers_copy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_who_leaves_has_no_copies_left, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
