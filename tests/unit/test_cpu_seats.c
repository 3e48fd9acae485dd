/* Who computes at a time: a user has a share, all together have the seats that there are, whose
 * work is aborted does not wait, and who has a seat keeps it as long as that is fair. */
#include "tests/unit/cpu_fixture.h"

#include <pthread.h>
#include <unistd.h>

#include "daemon/executor/cpu/queue.h"

#define SHARE 2u

enum { BUSY_UID = 7, OTHER_UID = BUSY_UID + CGM_SEATS_LISTS, THIRD_UID }; /* two in one list */

static struct cgm_seats seats;

/* Somebody who comes for a seat in another thread. */
struct guest {
    pthread_t thread;
    struct cgm_seat seat;
    bool seated;
};

static void *take_run(void *argument)
{
    struct guest *guest = argument;
    guest->seated = cgm_seat_take(&guest->seat);
    return NULL;
}

static unsigned count_waiting(void)
{
    return atomic_load(&seats.n_waiting);
}

static unsigned count_taken(struct cgm_seats *of)
{
    pthread_mutex_lock(&of->lock);
    unsigned count = of->n_taken;
    pthread_mutex_unlock(&of->lock);
    return count;
}

/* Returns when it waits. */
static void come(struct guest *guest, uint32_t uid)
{
    unsigned before = count_waiting();
    guest->seat = (struct cgm_seat){.seats = &seats, .uid = uid};
    assert_int_equal(pthread_create(&guest->thread, NULL, take_run, guest), 0);
    while (count_waiting() == before)
        usleep(100);
}

static void expect_seated(struct guest *guest)
{
    pthread_join(guest->thread, NULL);
    assert_true(guest->seated);
    cgm_seat_give(&guest->seat);
}

static void take(struct cgm_seat *seat, uint32_t uid, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        seat[i] = (struct cgm_seat){.seats = &seats, .uid = uid};
        assert_true(cgm_seat_take(&seat[i]));
    }
}

static void give(struct cgm_seat *seat, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        cgm_seat_give(&seat[i]);
}

static void end(void)
{
    assert_int_equal(seats.n_taken, 0);
    assert_int_equal(count_waiting(), 0);
    cgm_seats_fini(&seats);
}

/* ---- one seat after the other -----------------------------------------------------------------
 */

static void test_a_user_has_a_share(void **state)
{
    struct cgm_seat busy[SHARE], other[SHARE], third[SHARE];
    struct guest guest;
    (void)state;
    cgm_seats_init(&seats, CGM_SEATS, SHARE);
    take(busy, BUSY_UID, SHARE);
    come(&guest, BUSY_UID);
    take(other, OTHER_UID, SHARE);
    take(third, THIRD_UID, SHARE);
    give(other, SHARE);
    assert_int_equal(count_waiting(), 1);
    give(busy, 1);
    expect_seated(&guest);
    give(third, SHARE);
    give(busy, SHARE);
    end();
}

/* The first one to wait is not the first one to sit: users take turns. */
static void expect_turns(unsigned most)
{
    struct cgm_seat all[CGM_SEATS];
    struct guest busy, other;
    cgm_seats_init(&seats, most, most);
    take(all, BUSY_UID, most);
    come(&busy, BUSY_UID);
    come(&other, THIRD_UID);
    give(all, 1);
    pthread_join(other.thread, NULL);
    assert_int_equal(count_waiting(), 1);
    cgm_seat_give(&other.seat);
    expect_seated(&busy);
    give(all, most);
    end();
}

static void test_all_seats_are_taken(void **state)
{
    (void)state;
    expect_turns(CGM_SEATS);
}

static void test_there_may_be_fewer_seats(void **state)
{
    (void)state;
    expect_turns(1);
    expect_turns(3);
}

static void test_a_share_is_not_all(void **state)
{
    (void)state;
    assert_int_equal(cgm_seats_share(1), 1);
    for (unsigned most = 2; most <= CGM_SEATS; most++)
        assert_in_range(cgm_seats_share(most), 1, most - 1);
}

static void test_who_is_aborted_does_not_wait(void **state)
{
    _Atomic int abort = 1;
    struct cgm_seat busy[SHARE], seat = {.seats = &seats, .uid = BUSY_UID, .abort = &abort};
    (void)state;
    cgm_seats_init(&seats, CGM_SEATS, SHARE);
    take(busy, BUSY_UID, SHARE);
    assert_false(cgm_seat_take(&seat));
    assert_int_equal(count_waiting(), 0);
    give(busy, SHARE);
    assert_true(cgm_seat_take(&seat));
    cgm_seat_give(&seat);
    end();
}

/* ---- a seat that is kept ----------------------------------------------------------------------
 */

static void test_a_turn_begins_when_it_is_taken(void **state)
{
    struct cgm_seat seat;
    (void)state;
    cgm_seats_init(&seats, CGM_SEATS, 1);
    uint64_t before_ns = cgm_cpu_now_ns();
    take(&seat, BUSY_UID, 1);
    assert_in_range(seat.until_ns, before_ns + CGM_SEATS_TURN_NS,
                    cgm_cpu_now_ns() + CGM_SEATS_TURN_NS);
    cgm_seat_give(&seat);
    end();
}

static void test_it_is_kept_while_nobody_waits(void **state)
{
    struct cgm_seat seat;
    (void)state;
    cgm_seats_init(&seats, CGM_SEATS, 1);
    take(&seat, BUSY_UID, 1);
    seat.until_ns = 0;
    for (unsigned i = 0; i < 3; i++)
        assert_true(cgm_seat_take(&seat));
    assert_int_equal(seats.n_taken, 1);
    assert_true(seat.until_ns == 0);
    cgm_seat_give(&seat);
    cgm_seat_give(&seat);
    end();
}

static void test_it_is_kept_for_a_turn_while_others_wait(void **state)
{
    struct cgm_seat seat;
    struct guest guest;
    (void)state;
    cgm_seats_init(&seats, CGM_SEATS, 1);
    take(&seat, BUSY_UID, 1);
    come(&guest, BUSY_UID);
    seat.until_ns = UINT64_MAX; /* whatever else runs on the machine meanwhile */
    assert_true(cgm_seat_take(&seat));
    assert_int_equal(count_waiting(), 1);
    cgm_seat_give(&seat);
    expect_seated(&guest);
    end();
}

static void *expect_seated_run(void *argument)
{
    expect_seated(argument);
    return NULL;
}

static void test_it_changes_hands_after_a_turn(void **state)
{
    struct cgm_seat seat;
    struct guest guest;
    pthread_t thread;
    (void)state;
    cgm_seats_init(&seats, CGM_SEATS, 1);
    take(&seat, BUSY_UID, 1);
    come(&guest, BUSY_UID);
    seat.until_ns = 0;
    assert_int_equal(pthread_create(&thread, NULL, expect_seated_run, &guest), 0);
    assert_true(cgm_seat_take(&seat));
    pthread_join(thread, NULL);
    assert_true(guest.seated && seat.until_ns > 0);
    cgm_seat_give(&seat);
    end();
}

/* Who waits has used up a share of its own. */
static void test_whom_it_would_not_help_does_not_get_it(void **state)
{
    struct cgm_seat seat, busy;
    struct guest guest;
    (void)state;
    cgm_seats_init(&seats, CGM_SEATS, 1);
    take(&seat, OTHER_UID, 1);
    take(&busy, BUSY_UID, 1);
    come(&guest, BUSY_UID);
    seat.until_ns = 0;
    assert_true(cgm_seat_take(&seat));
    assert_int_equal(count_waiting(), 1);
    assert_int_equal(count_taken(&seats), 2);
    cgm_seat_give(&busy);
    expect_seated(&guest);
    cgm_seat_give(&seat);
    end();
}

static void test_who_is_aborted_does_not_wait_for_another_turn(void **state)
{
    _Atomic int abort = 1;
    struct cgm_seat seat;
    struct guest guest;
    (void)state;
    cgm_seats_init(&seats, CGM_SEATS, 1);
    take(&seat, BUSY_UID, 1);
    come(&guest, BUSY_UID);
    seat.until_ns = 0;
    cgm_seat_serve(&seat, BUSY_UID, &abort);
    assert_false(cgm_seat_take(&seat));
    assert_false(seat.taken);
    expect_seated(&guest);
    end();
}

static void test_it_is_of_the_user_whose_work_is_done(void **state)
{
    struct cgm_seat seat;
    (void)state;
    cgm_seats_init(&seats, CGM_SEATS, 1);
    take(&seat, BUSY_UID, 1);
    cgm_seat_serve(&seat, BUSY_UID, NULL);
    assert_int_equal(seats.n_taken, 1);
    cgm_seat_serve(&seat, OTHER_UID, NULL);
    assert_int_equal(seats.n_taken, 0);
    assert_true(cgm_seat_take(&seat));
    assert_int_equal(seats.taken_by[0], OTHER_UID);
    cgm_seat_give(&seat);
    end();
}

/* ---- a queue's --------------------------------------------------------------------------------
 */

#define SIGNALS_MAX 4u

/* A queue's thread itself says that a host flag is signalled: then it is between two records. */
struct scene {
    struct cgm_backend *backend;
    struct cgm_queue *queue, *other;
    struct cgm_flag *gate, *done;
    struct cgm_mem *mem;
    struct cgm_run run;
    unsigned taken[SIGNALS_MAX]; /* at each signal of `done` */
    uint64_t n_signals;
};

static void on_wake(void *context)
{
    struct scene *scene = context;
    scene->taken[ops->flag_read(scene->done) - 1] = count_taken(&scene->backend->seats);
}

static void scene_open(struct scene *scene, uint32_t delay_us)
{
    struct cgm_backend_options options = {
        .wake = on_wake, .wake_context = scene, .test_delay_us = delay_us};
    char detail[200];
    memset(scene, 0, sizeof(*scene));
    scene->run.uid = BUSY_UID;
    assert_int_equal(ops->open(&options, detail, sizeof(detail), &scene->backend), CGM_OK);
    assert_int_equal(ops->mem_alloc(scene->backend, 0, 4096, 0, &scene->mem), CGM_OK);
    scene->queue = fixture_queue(scene->backend, 0);
    scene->other = fixture_queue(scene->backend, 1);
    scene->gate = fixture_flag(scene->backend, CGM_FLAG_DEVICE);
    scene->done = fixture_flag(scene->backend, CGM_FLAG_HOST);
    ops->set_run(scene->queue, &scene->run);
}

static void scene_close(struct scene *scene)
{
    ops->queue_free(scene->queue);
    ops->queue_free(scene->other);
    assert_int_equal(count_taken(&scene->backend->seats), 0);
    ops->flag_free(scene->gate);
    ops->flag_free(scene->done);
    ops->mem_free(scene->mem);
    ops->close(scene->backend);
}

static void compute(struct scene *scene)
{
    const struct cgm_view cell = {scene->mem, 0, 1, 1, 1, CGM_DTYPE_FP32};
    assert_int_equal(ops->poison(scene->queue, &cell), CGM_OK);
}

static void await_gate(struct scene *scene, uint64_t value)
{
    static const struct cgm_label no_label;
    assert_int_equal(ops->wait(scene->queue, scene->gate, value, &no_label), CGM_OK);
}

static void open_gate(struct scene *scene, uint64_t value)
{
    assert_int_equal(ops->signal(scene->other, scene->gate, value), CGM_OK);
}

static void signal_done(struct scene *scene)
{
    assert_int_equal(ops->signal(scene->queue, scene->done, ++scene->n_signals), CGM_OK);
}

static void await_none_taken(struct scene *scene)
{
    while (count_taken(&scene->backend->seats) > 0)
        usleep(100);
}

static void test_a_queue_keeps_it_across_records(void **state)
{
    struct scene scene;
    (void)state;
    scene_open(&scene, 0);
    await_gate(&scene, 1);
    signal_done(&scene); /* it has waited */
    compute(&scene);
    signal_done(&scene);
    await_gate(&scene, 1); /* it is open */
    signal_done(&scene);
    compute(&scene);
    signal_done(&scene);
    open_gate(&scene, 1);
    fixture_await(scene.done, 4);
    await_none_taken(&scene); /* it has no work left */
    scene_close(&scene);
    static const unsigned expected[] = {0, 1, 1, 1};
    for (unsigned i = 0; i < SIGNALS_MAX; i++)
        assert_int_equal(scene.taken[i], expected[i]);
}

static void test_a_queue_has_none_at_a_shut_gate(void **state)
{
    struct scene scene;
    (void)state;
    scene_open(&scene, 0);
    await_gate(&scene, 1);
    compute(&scene);
    signal_done(&scene);
    await_gate(&scene, 2);
    signal_done(&scene);
    open_gate(&scene, 1);
    fixture_await(scene.done, 1);
    await_none_taken(&scene);
    open_gate(&scene, 2);
    fixture_await(scene.done, 2);
    scene_close(&scene);
    assert_int_equal(scene.taken[0], 1);
    assert_int_equal(scene.taken[1], 0);
}

static void test_a_queue_that_is_delayed_has_none(void **state)
{
    struct scene scene;
    (void)state;
    scene_open(&scene, 100);
    await_gate(&scene, 1);
    compute(&scene);
    signal_done(&scene);
    open_gate(&scene, 1);
    fixture_await(scene.done, 1);
    scene_close(&scene);
    assert_int_equal(scene.taken[0], 0);
}

/* Its thread has one until it looks for work again. */
static void test_a_queue_that_ends_has_none(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 100; i++) {
        struct scene scene;
        scene_open(&scene, 0);
        compute(&scene);
        scene_close(&scene);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_user_has_a_share),
        cmocka_unit_test(test_all_seats_are_taken),
        cmocka_unit_test(test_there_may_be_fewer_seats),
        cmocka_unit_test(test_a_share_is_not_all),
        cmocka_unit_test(test_who_is_aborted_does_not_wait),
        cmocka_unit_test(test_a_turn_begins_when_it_is_taken),
        cmocka_unit_test(test_it_is_kept_while_nobody_waits),
        cmocka_unit_test(test_it_is_kept_for_a_turn_while_others_wait),
        cmocka_unit_test(test_it_changes_hands_after_a_turn),
        cmocka_unit_test(test_whom_it_would_not_help_does_not_get_it),
        cmocka_unit_test(test_who_is_aborted_does_not_wait_for_another_turn),
        cmocka_unit_test(test_it_is_of_the_user_whose_work_is_done),
        cmocka_unit_test(test_a_queue_keeps_it_across_records),
        cmocka_unit_test(test_a_queue_has_none_at_a_shut_gate),
        cmocka_unit_test(test_a_queue_that_is_delayed_has_none),
        cmocka_unit_test(test_a_queue_that_ends_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
