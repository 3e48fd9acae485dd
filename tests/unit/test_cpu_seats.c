/* Who computes at a time: a user has a share, all together have the seats that there are, and whose
 * work is aborted does not wait. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <unistd.h>

#include "daemon/executor/cpu/seats.h"

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
    pthread_mutex_lock(&seats.lock);
    unsigned count = seats.n_waiting;
    pthread_mutex_unlock(&seats.lock);
    return count;
}

/* Returns when it waits. */
static void come(struct guest *guest, uint32_t uid)
{
    unsigned before = count_waiting();
    guest->seat = (struct cgm_seat){&seats, uid, NULL};
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

static void take(uint32_t uid, unsigned count)
{
    const struct cgm_seat seat = {&seats, uid, NULL};
    while (count-- > 0)
        assert_true(cgm_seat_take(&seat));
}

static void give(uint32_t uid, unsigned count)
{
    const struct cgm_seat seat = {&seats, uid, NULL};
    while (count-- > 0)
        cgm_seat_give(&seat);
}

static void test_a_user_has_a_share(void **state)
{
    struct guest guest;
    (void)state;
    cgm_seats_init(&seats, SHARE);
    take(BUSY_UID, SHARE);
    come(&guest, BUSY_UID);
    take(OTHER_UID, SHARE);
    take(THIRD_UID, SHARE);
    give(OTHER_UID, SHARE);
    assert_int_equal(count_waiting(), 1);
    give(BUSY_UID, 1);
    expect_seated(&guest);
    give(THIRD_UID, SHARE);
    give(BUSY_UID, SHARE - 1);
    assert_int_equal(seats.n_taken, 0);
    cgm_seats_fini(&seats);
}

/* The first one to wait is not the first one to sit: users take turns. */
static void test_all_seats_are_taken(void **state)
{
    struct guest busy, other;
    (void)state;
    cgm_seats_init(&seats, CGM_SEATS);
    take(BUSY_UID, CGM_SEATS);
    come(&busy, BUSY_UID);
    come(&other, THIRD_UID);
    give(BUSY_UID, 1);
    pthread_join(other.thread, NULL);
    assert_int_equal(count_waiting(), 1);
    cgm_seat_give(&other.seat);
    expect_seated(&busy);
    give(BUSY_UID, CGM_SEATS - 1);
    assert_int_equal(seats.n_taken, 0);
    cgm_seats_fini(&seats);
}

static void test_who_is_aborted_does_not_wait(void **state)
{
    _Atomic int abort = 1;
    const struct cgm_seat seat = {&seats, BUSY_UID, &abort};
    (void)state;
    cgm_seats_init(&seats, SHARE);
    take(BUSY_UID, SHARE);
    assert_false(cgm_seat_take(&seat));
    assert_int_equal(seats.n_waiting, 0);
    give(BUSY_UID, SHARE);
    assert_true(cgm_seat_take(&seat));
    cgm_seats_fini(&seats);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_user_has_a_share),
        cmocka_unit_test(test_all_seats_are_taken),
        cmocka_unit_test(test_who_is_aborted_does_not_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
