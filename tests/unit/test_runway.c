/* Which flight is the first in the queues of its ranks, and since when: job_timeout counts from
 * there. Flights are seen to have ended in any order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "daemon/executor/comm.h"
#include "daemon/executor/flight.h"
#include "daemon/executor/gang_list.h"
#include "daemon/executor/plan.h"
#include "daemon/executor/poller.h"
#include "daemon/executor/runway.h"

#define RANKS 2u

/* ---- what the runway needs, and no more ---- */

bool cgm_quiet_holds(const struct cgm_poller *poller)
{
    (void)poller;
    return false;
}

void cgm_gang_list_move(struct cgm_gang *gang, bool moving)
{
    (void)gang, (void)moving;
}

uint32_t cgm_copy_in_copies(const struct cgm_spec *spec, uint32_t chunk)
{
    (void)spec, (void)chunk;
    return 1;
}

void cgm_flight_take_off(struct cgm_flight *flight, uint64_t now_ns)
{
    (void)now_ns;
    for (uint32_t rank = 0; rank < RANKS; rank++)
        if (flight->ranks_mask >> rank & 1)
            *cgm_flight_part(flight, rank) =
                (struct cgm_flight_rank){.flight = flight, .rank = rank};
}

/* ---- flights of two ranks ---- */

static struct cgm_poller poller;
static struct cgm_comm comm;
static struct cgm_plan plan;

static int set_up(void **state)
{
    (void)state;
    poller = (struct cgm_poller){.stood_ns = 0};
    comm = (struct cgm_comm){.poller = &poller};
    plan = (struct cgm_plan){.comm = &comm};
    return 0;
}

static void enter(struct cgm_flight *flight, uint64_t ranks_mask, uint64_t now_ns)
{
    *flight = (struct cgm_flight){.plan = &plan, .kind = CGM_FLIGHT_COPY_IN};
    flight->ranks = calloc(RANKS, sizeof(*flight->ranks));
    cgm_flight_set_ranks(flight, ranks_mask);
    cgm_runway_enter(flight, now_ns);
    assert_false(flight->held);
}

static void leave(struct cgm_flight *flight, uint64_t now_ns)
{
    poller.round_ns = now_ns;
    cgm_runway_leave(flight);
    free(flight->ranks);
    flight->first_ns = UINT64_MAX; /* nobody looks at it again */
}

static void test_one_after_the_other(void **state)
{
    static struct cgm_flight first, second, third;
    (void)state;
    enter(&first, 3, 10);
    enter(&second, 3, 11);
    enter(&third, 3, 12);
    assert_int_equal(first.first_ns, 10);
    assert_int_equal(second.first_ns, 0);
    leave(&first, 20);
    assert_int_equal(second.first_ns, 20);
    assert_int_equal(third.first_ns, 0);
    leave(&second, 30);
    assert_int_equal(third.first_ns, 30);
    leave(&third, 40);
}

/* It waits for both, and they for nobody. */
static void test_all_of_its_ranks(void **state)
{
    static struct cgm_flight left, right, both, behind;
    (void)state;
    enter(&left, 1, 10);
    enter(&right, 2, 11);
    enter(&both, 3, 12);
    assert_int_equal(left.first_ns, 10);
    assert_int_equal(right.first_ns, 11);
    leave(&right, 20);
    assert_int_equal(both.first_ns, 0);
    leave(&left, 30);
    assert_int_equal(both.first_ns, 30);
    enter(&behind, 2, 31); /* what comes and goes behind it changes nothing */
    assert_int_equal(behind.first_ns, 0);
    assert_int_equal(both.first_ns, 30);
    leave(&both, 40);
    assert_int_equal(behind.first_ns, 40);
    leave(&behind, 50);
}

static void test_ends_are_seen_in_any_order(void **state)
{
    static struct cgm_flight flights[4];
    (void)state;
    for (int i = 0; i < 4; i++)
        enter(&flights[i], 1, 10);
    leave(&flights[1], 20);
    assert_int_equal(flights[2].first_ns, 0);
    leave(&flights[0], 21);
    assert_int_equal(flights[2].first_ns, 21);
    leave(&flights[3], 22);
    leave(&flights[2], 23);
    enter(&flights[0], 1, 24);
    assert_int_equal(flights[0].first_ns, 24);
    leave(&flights[0], 25);
}

/* Time in which the process stood still is no time. */
static void test_standstill(void **state)
{
    static struct cgm_flight first, second;
    (void)state;
    enter(&first, 1, 10);
    enter(&second, 1, 10);
    poller.stood_ns = 1000;
    leave(&first, 1020);
    assert_int_equal(second.first_ns, 20);
    leave(&second, 1030);
}

static int tear_down(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++)
        if (comm.runway.last[rank] || comm.runway.queued[rank])
            return -1;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_after_the_other, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_all_of_its_ranks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_ends_are_seen_in_any_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_standstill, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
