/* Users take turns at the mapper, however much one of them has it do. It is held by a first request
 * until all others lie there, and what it does then is seen in the order of the answers; times do
 * not count. */
#include "executor_fixture.h"

#include <sys/stat.h>

#include "held_executor.h"

#define MIB (1ull << 20)
#define MANY 40u /* of one user, more than another one's need turns */
#define LARGE (64 * MIB)
#define ROUNDS 8
#define RANKS_MAX 32u

enum { BUSY_UID = 1, OTHER_UID = 2, THIRD_UID = 3 };
enum { HELD_ID = 1, FIRST_ID = 10, OTHER_ID = 100, THIRD_ID = 200 };

struct scene {
    struct fixture f;
    struct fixture_session s;
    struct gate gate;
    uint32_t held; /* its serial */
};

static uint32_t send_comm_of(struct fixture *f, uint64_t id, uint32_t ranks, uint32_t device,
                             uint32_t uid)
{
    uint64_t sessions[RANKS_MAX];
    uint32_t devices[RANKS_MAX];
    Cgm__CommAdd m = CGM__COMM_ADD__INIT;
    for (uint32_t i = 0; i < ranks; i++) {
        sessions[i] = 1;
        devices[i] = device;
    }
    m.comm = id;
    m.journal = (uint32_t)id;
    m.n_sessions = m.n_devices = ranks;
    m.sessions = sessions;
    m.devices = devices;
    m.join_timeout_ns = 60000000000;
    m.has_uid = 1;
    m.uid = uid;
    fixture_send(f, CGM_MSG_COMM_ADD, &m.base, NULL, 0);
    return f->serial;
}

static uint32_t send_comm(struct fixture *f, uint64_t id, uint32_t device, uint32_t uid)
{
    return send_comm_of(f, id, 1, device, uid);
}

static uint32_t send_comm_remove(struct fixture *f, uint64_t id)
{
    Cgm__CommRemove m = CGM__COMM_REMOVE__INIT;
    m.comm = id;
    m.status = CGM_PEER_LOST;
    fixture_send(f, CGM_MSG_COMM_REMOVE, &m.base, NULL, 0);
    return f->serial;
}

static uint32_t send_plan(struct fixture *f, uint64_t id, uint64_t comm, uint32_t uid, uint64_t k)
{
    uint8_t packed[256];
    Cgm__PlanCreate ask = CGM__PLAN_CREATE__INIT;
    Cgm__PlanAdd m = CGM__PLAN_ADD__INIT;
    uint64_t buffer = id;
    uint32_t journal = (uint32_t)id;
    ask.comm = comm;
    ask.op = CGM_OP_AG_GEMM;
    ask.method = CGM_METHOD_NONE;
    ask.comm_type = CGM_COMM_TYPE_AG;
    ask.m = 16;
    ask.n = ask.k = k;
    m.id = id;
    m.request.len = cgm__plan_create__pack(&ask, packed);
    m.request.data = packed;
    m.n_buffer_ids = m.n_journals = 1;
    m.buffer_ids = &buffer;
    m.journals = &journal;
    m.has_uid = 1;
    m.uid = uid;
    fixture_send(f, CGM_MSG_PLAN_ADD, &m.base, NULL, 0);
    return f->serial;
}

/* The serial of the next answer, which is none of an error. */
static uint32_t next_answer(struct fixture *f)
{
    fixture_receive(f);
    assert_int_not_equal(f->packet.header.type, CGM_MSG_ERROR);
    cgm_packet_close_fds(&f->packet);
    return f->packet.header.serial;
}

/* How many answers to requests from first to last come before the one to `serial`. */
static uint32_t count_before(struct fixture *f, uint32_t serial, uint32_t first, uint32_t last)
{
    uint32_t count = 0, answer;
    while ((answer = next_answer(f)) != serial)
        count += answer >= first && answer <= last;
    return count;
}

/* Its own answer may come at any time. */
static void hold(struct scene *scene)
{
    scene->held = send_comm(&scene->f, HELD_ID, HELD_DEVICE, BUSY_UID);
}

/* Everything sent before lies at the mapper by now: the poller, who answers this, has passed it on.
 */
static void let_go(struct scene *scene)
{
    Cgm__Ping ping = CGM__PING__INIT;
    fixture_ok(&scene->f, CGM_MSG_PING, &ping.base, NULL, 0);
    gate_open(&scene->gate);
}

static int set_up(void **state)
{
    static struct scene scene;
    assert_int_equal(gate_shut(&scene.gate), 0);
    fixture_open(&scene.f, 60000, 60000, 0);
    assert_true(scene.f.devices > HELD_DEVICE);
    fixture_session_open(&scene.f, 1, &scene.s);
    *state = &scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;
    fixture_session_close(&scene->s);
    fixture_close(&scene->f);
    gate_remove(&scene->gate);
    return 0;
}

/* How many of one user's comms are made before another one's buffer. */
static uint32_t comms_before_a_buffer(struct scene *scene, uint64_t bytes)
{
    struct fixture *f = &scene->f;
    hold(scene);
    uint32_t first = f->serial + 1, last = 0;
    for (uint32_t i = 0; i < MANY; i++)
        last = send_comm(f, FIRST_ID + i, 0, BUSY_UID);
    uint32_t buffer = fixture_buffer_send(f, OTHER_ID, bytes, OTHER_UID);
    let_go(scene);
    return count_before(f, buffer, first, last);
}

/* The one that is next when they begin to take turns, and no more. */
static void test_a_buffer_waits_for_one_of_many_comms(void **state)
{
    assert_true(comms_before_a_buffer(*state, 4096) <= 1);
}

/* Each of its eight slices and the step before them wait for one. */
static void test_a_large_buffer_waits_for_a_few_of_many_comms(void **state)
{
    assert_true(comms_before_a_buffer(*state, LARGE) < MANY / 2);
}

/* A rank of the comm takes more than a turn may: one of the buffers, at the least, is made between
 * two of them. */
static void test_a_large_comm_is_made_in_short_turns(void **state)
{
    struct scene *scene = *state;
    struct fixture *f = &scene->f;
    hold(scene);
    uint32_t comm = send_comm_of(f, FIRST_ID, RANKS_MAX, SLOW_DEVICE, BUSY_UID);
    uint32_t first = f->serial + 1, last = 0;
    for (uint32_t i = 0; i < RANKS_MAX - 2; i++)
        last = fixture_buffer_send(f, OTHER_ID + i, 4096, OTHER_UID);
    let_go(scene);
    uint32_t between = count_before(f, comm, first, last);
    print_message("%u buffers are made during a comm of %u ranks\n", between, RANKS_MAX);
    assert_true(between >= RANKS_MAX / 2);
}

static void test_each_users_order_stays(void **state)
{
    struct scene *scene = *state;
    struct fixture *f = &scene->f;
    uint32_t serials[2][MANY / 2], at[2] = {0, 0};
    hold(scene);
    for (uint32_t i = 0; i < MANY / 2; i++) {
        serials[0][i] = fixture_buffer_send(f, FIRST_ID + i, 4096, OTHER_UID);
        serials[1][i] = fixture_buffer_send(f, OTHER_ID + i, 4096, THIRD_UID);
    }
    let_go(scene);
    while (at[0] < MANY / 2 || at[1] < MANY / 2) {
        uint32_t answer = next_answer(f);
        if (answer == scene->held)
            continue;
        uint32_t user = at[0] == MANY / 2 || (at[1] < MANY / 2 && answer == serials[1][at[1]]);
        assert_int_equal(answer, serials[user][at[user]++]);
    }
}

/* A comm of one user has a plan of another one, who has much before it. It keeps what the plan
 * needs of it until that is freed; which of them is answered first is nobody's business. */
static void test_a_comm_goes_with_the_plan_of_another_user(void **state)
{
    struct scene *scene = *state;
    struct fixture *f = &scene->f;
    Cgm__PlanRemove remove = CGM__PLAN_REMOVE__INIT;
    assert_int_equal(fixture_reply(f, send_comm(f, THIRD_ID, 0, THIRD_UID)), CGM_OK);
    remove.id = OTHER_ID;
    assert_int_equal(fixture_reply(f, send_plan(f, remove.id, THIRD_ID, OTHER_UID, 16)), CGM_OK);
    cgm_packet_close_fds(&f->packet);
    hold(scene);
    for (uint32_t i = 0; i < MANY; i++)
        fixture_buffer_send(f, FIRST_ID + i, 2 * MIB, OTHER_UID);
    fixture_send(f, CGM_MSG_PLAN_REMOVE, &remove.base, NULL, 0);
    uint32_t plan = f->serial, comm = send_comm_remove(f, THIRD_ID);
    let_go(scene);
    for (unsigned left = 2; left > 0;) {
        uint32_t answer = next_answer(f);
        left -= answer == plan || answer == comm;
    }
    assert_int_equal(fixture_reply(f, send_comm(f, THIRD_ID, 0, THIRD_UID)), CGM_OK);
}

static void make_and_remove_at_once(struct fixture *f, uint64_t id)
{
    Cgm__PlanRemove remove = CGM__PLAN_REMOVE__INIT;
    bool made = false, gone = false;
    uint32_t plan = send_plan(f, id, THIRD_ID, OTHER_UID, 3072);
    remove.id = id;
    while (!gone) {
        fixture_send(f, CGM_MSG_PLAN_REMOVE, &remove.base, NULL, 0);
        while (fixture_receive(f)->header.serial == plan) {
            assert_int_equal(f->packet.header.type, CGM_MSG_PLAN_ADDED);
            cgm_packet_close_fds(&f->packet);
            made = true;
        }
        gone = f->packet.header.type == CGM_MSG_OK;
        assert_true(gone <= made);
    }
}

/* A plan goes that is being answered, as where a session ends while an executor is told what there
 * is: what the answer is made of goes behind it. */
static void test_a_plan_that_goes_is_answered_first(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(fixture_reply(&scene->f, send_comm(&scene->f, THIRD_ID, 0, THIRD_UID)),
                     CGM_OK);
    for (uint64_t i = 0; i < ROUNDS; i++)
        make_and_remove_at_once(&scene->f, OTHER_ID + i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_buffer_waits_for_one_of_many_comms, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_large_buffer_waits_for_a_few_of_many_comms, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_large_comm_is_made_in_short_turns, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_each_users_order_stays, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_comm_goes_with_the_plan_of_another_user, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_a_plan_that_goes_is_answered_first, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
