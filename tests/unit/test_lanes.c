/* Lanes: each user's in order, nobody's behind another's, and in turns where there is no thread.
 * pthread_create is this file's (--wrap). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/broker/lanes.h"
#include "proto/status.h"
#include "tests/unit/wrapped_threads.h"

#define PARTS 3u
#define ITEMS 3u
#define SLOW 4711u
#define OTHERS 4721u
#define WAIT_MS 20000u

static struct cgm_lanes lanes;
static _Atomic bool held; /* what is slow takes as long as this */
static _Atomic unsigned ends;

struct thing {
    struct cgm_lane_item item;
    _Atomic unsigned parts, end; /* end: how many had ended with it; 0: it has not */
};

static bool thing_part(struct cgm_lane_item *item)
{
    struct thing *thing = (struct thing *)item;
    unsigned parts = ++thing->parts;
    while (item->uid == SLOW && held)
        usleep(1000);
    return parts < PARTS;
}

static void thing_done(struct cgm_lane_item *item)
{
    ((struct thing *)item)->end = ++ends;
}

static int set_up(void **state)
{
    (void)state;
    lanes = (struct cgm_lanes){.part = thing_part, .done = thing_done};
    ends = threads = 0;
    no_threads = false;
    held = true;
    assert_int_equal(cgm_lanes_start(&lanes), CGM_OK);
    return 0;
}

static void add(struct thing *thing, uid_t uid)
{
    *thing = (struct thing){.item.uid = uid};
    assert_true(cgm_lanes_add(&lanes, &thing->item));
}

static void await_it(const _Atomic unsigned *what)
{
    for (unsigned ms = 0; *what == 0; ms++) {
        assert_true(ms < WAIT_MS);
        usleep(1000);
    }
}

/* Also of those that have threads of their own. */
static void await_end(void)
{
    for (bool busy = true; busy; usleep(1000)) {
        pthread_mutex_lock(&lanes.lock);
        busy = lanes.first != NULL;
        pthread_mutex_unlock(&lanes.lock);
    }
}

static int tear_down(void **state)
{
    (void)state;
    held = false;
    cgm_lanes_stop(&lanes);
    await_end();
    return 0;
}

static void test_who_comes_alone_costs_no_thread(void **state)
{
    static struct thing things[ITEMS];
    (void)state;
    for (unsigned i = 0; i < ITEMS; i++)
        add(&things[i], OTHERS);
    await_end();
    assert_int_equal(threads, 1); /* the first */
    for (unsigned i = 0; i < ITEMS; i++) {
        assert_int_equal(things[i].end, i + 1);
        assert_int_equal(things[i].parts, PARTS);
    }
}

static void test_nobody_waits_for_others(void **state)
{
    static struct thing slow[2], others[2][ITEMS];
    (void)state;
    add(&slow[0], SLOW);
    add(&slow[1], SLOW);
    for (unsigned i = 0; i < ITEMS; i++) {
        add(&others[0][i], OTHERS);
        add(&others[1][i], OTHERS + 1);
    }
    await_it(&others[0][ITEMS - 1].end);
    await_it(&others[1][ITEMS - 1].end);
    assert_in_range(threads, 3, 1 + 2 * ITEMS);
    assert_int_equal(slow[0].end, 0);
    assert_int_equal(slow[1].parts, 0);
    held = false;
    await_it(&slow[1].end);
    assert_true(slow[0].end < slow[1].end);
}

/* A part of one, and then one of the next. */
static void test_without_threads_they_take_turns(void **state)
{
    static struct thing slow, others[2][2];
    (void)state;
    no_threads = true;
    add(&slow, SLOW);
    await_it(&slow.parts);
    for (unsigned i = 0; i < 2; i++) {
        add(&others[0][i], OTHERS);
        add(&others[1][i], OTHERS + 1);
    }
    held = false;
    await_end();
    assert_int_equal(threads, 1);
    assert_int_equal(slow.end, 1);
    assert_int_equal(others[0][0].end, 2);
    assert_int_equal(others[1][0].end, 3);
    assert_int_equal(others[0][1].end, 4);
    assert_int_equal(others[1][1].end, 5);
}

/* Who comes when there is room again has a thread, with all that waits for him. */
static void test_a_thread_for_who_waits(void **state)
{
    static struct thing slow, others[2];
    (void)state;
    no_threads = true;
    add(&slow, SLOW);
    await_it(&slow.parts);
    add(&others[0], OTHERS);
    no_threads = false;
    add(&others[1], OTHERS);
    await_it(&others[1].end);
    assert_true(others[0].end < others[1].end);
    assert_int_equal(slow.end, 0);
}

/* What is left goes to done all the same. */
static void test_the_end_comes_before_them(void **state)
{
    static struct thing slow[2], others[2];
    (void)state;
    add(&slow[0], SLOW);
    await_it(&slow[0].parts);
    no_threads = true;
    add(&slow[1], SLOW);
    add(&others[0], OTHERS);
    add(&others[1], OTHERS);
    pthread_mutex_lock(&lanes.lock);
    lanes.over = true; /* before the slow one goes on */
    pthread_mutex_unlock(&lanes.lock);
    held = false;
    cgm_lanes_stop(&lanes);
    assert_int_equal(ends, 4);
    assert_int_equal(slow[0].parts, 1);
    assert_int_equal(others[0].parts + others[1].parts + slow[1].parts, 0);
    assert_null(lanes.first);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_who_comes_alone_costs_no_thread),
        CASE(test_nobody_waits_for_others),
        CASE(test_without_threads_they_take_turns),
        CASE(test_a_thread_for_who_waits),
        cmocka_unit_test_setup(test_the_end_comes_before_them, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
