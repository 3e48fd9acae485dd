/* Who frees what users have, with threads and without: a user who keeps a thread keeps it from
 * nobody else, and nothing is freed on the thread that adds it. pthread_create is this file's
 * (--wrap). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/executor/sweeps.h"
#include "proto/status.h"
#include "tests/unit/wrapped_threads.h"

#define ATTACKER 4711u
#define ACCOMPLICE 4712u
#define HONEST 4721u
#define WAIT_S 20u
#define MANY 10u

static struct cgm_sweeps sweeps; /* its threads stay */
static _Atomic bool kept;
static _Atomic unsigned here;
static pthread_t adder;

enum how { QUICKLY, IN_ONE_GO, IN_SLICES };

/* What is to be freed: quickly, or as long as anything is kept. */
struct item {
    struct cgm_turn turn;
    enum how how;
    unsigned slices;
    _Atomic bool begun, freed;
};

static bool item_slice(struct cgm_turn *turn)
{
    struct item *item = (struct item *)turn;
    here += pthread_equal(pthread_self(), adder) != 0;
    item->begun = true;
    while (item->how == IN_ONE_GO && kept)
        usleep(1000);
    return item->how == IN_SLICES ? kept : ++item->slices < 3;
}

static void item_done(struct cgm_turn *turn)
{
    struct item *item = (struct item *)turn;
    here += pthread_equal(pthread_self(), adder) != 0;
    item->freed = true;
}

static void add(struct item *item, uint32_t uid, uint32_t guest, enum how how)
{
    *item = (struct item){.turn = {.slice = item_slice, .done = item_done}, .how = how};
    cgm_sweeps_add(&sweeps, uid, guest, &item->turn);
}

static void await_it(const _Atomic bool *what)
{
    for (unsigned naps = 0; !*what; naps++) {
        assert_true(naps < WAIT_S * 1000);
        usleep(1000);
    }
}

/* Long enough for a thread that has nothing else to do. */
static void expect_not(const _Atomic bool *what)
{
    usleep(50000);
    assert_false(*what);
}

static int set_up(void **state)
{
    (void)state;
    adder = pthread_self();
    cgm_sweeps_init(&sweeps);
    return cgm_sweeps_start(&sweeps) == CGM_OK ? 0 : -1;
}

static int begin(void **state)
{
    (void)state;
    kept = true;
    threads = 0;
    return 0;
}

/* Nothing is left, and the reserve is all there. */
static int let_go(void **state)
{
    (void)state;
    kept = no_threads = false;
    for (bool busy = true; busy; usleep(1000)) {
        pthread_mutex_lock(&sweeps.lock);
        busy = sweeps.first || sweeps.own.n_coming > 0 || sweeps.lent.n_coming > 0 || sweeps.lacks;
        pthread_mutex_unlock(&sweeps.lock);
    }
    return here == 0 ? 0 : -1;
}

static void test_each_has_a_thread(void **state)
{
    static struct item held, own, lent;
    (void)state;
    add(&held, ATTACKER, CGM_NOBODY, IN_ONE_GO);
    add(&own, HONEST, CGM_NOBODY, QUICKLY);
    add(&lent, HONEST, ATTACKER, QUICKLY);
    await_it(&own.freed);
    await_it(&lent.freed);
    assert_int_equal(threads, 3); /* and none of the reserve's */
    assert_false(held.freed);
    let_go(state);
}

static void test_the_reserve_serves_the_others(void **state)
{
    static struct item held[MANY], honest[MANY];
    (void)state;
    no_threads = true;
    for (unsigned i = 0; i < MANY; i++)
        add(&held[i], ATTACKER, CGM_NOBODY, IN_ONE_GO);
    await_it(&held[0].begun);
    for (unsigned i = 0; i < MANY; i++)
        add(&honest[i], HONEST + i, CGM_NOBODY, QUICKLY);
    for (unsigned i = 0; i < MANY; i++)
        await_it(&honest[i].freed);
    assert_int_equal(threads, 0);
    let_go(state);
}

/* However many guests he has, and those of others have theirs. */
static void test_a_user_keeps_one_of_the_reserve(void **state)
{
    static struct item held[MANY], lent, own;
    (void)state;
    no_threads = true;
    for (unsigned i = 0; i < MANY; i++)
        add(&held[i], ATTACKER, ACCOMPLICE + i, IN_ONE_GO);
    add(&lent, HONEST, ATTACKER, QUICKLY);
    add(&own, ATTACKER, CGM_NOBODY, QUICKLY);
    await_it(&lent.freed);
    await_it(&own.freed);
    for (unsigned i = 1; i < MANY; i++)
        expect_not(&held[i].begun);
    no_threads = false;
    for (unsigned i = 0; i < MANY; i++)
        await_it(&held[i].begun);
    assert_int_equal(threads, MANY - 1);
    let_go(state);
}

/* Nobody adds anything, or ends, when there is room again. */
static void test_who_gets_none_of_the_reserve_waits(void **state)
{
    static struct item held[CGM_SWEEPS_RESERVE], honest, lent;
    (void)state;
    no_threads = true;
    for (unsigned i = 0; i < CGM_SWEEPS_RESERVE; i++) {
        add(&held[i], ATTACKER + i, CGM_NOBODY, IN_ONE_GO);
        await_it(&held[i].begun);
    }
    add(&honest, HONEST, CGM_NOBODY, QUICKLY);
    add(&lent, HONEST, ATTACKER, QUICKLY);
    await_it(&lent.freed);
    expect_not(&honest.begun);
    no_threads = false;
    await_it(&honest.freed);
    let_go(state);
}

/* A thread that is through goes on with who waits. */
static void test_threads_that_are_there_serve_who_waits(void **state)
{
    static struct item held[CGM_SWEEPS_RESERVE], first, honest;
    (void)state;
    add(&first, HONEST + 1, CGM_NOBODY, IN_SLICES);
    no_threads = true;
    for (unsigned i = 0; i < CGM_SWEEPS_RESERVE; i++) {
        add(&held[i], ATTACKER + i, CGM_NOBODY, IN_ONE_GO);
        await_it(&held[i].begun);
    }
    add(&honest, HONEST, CGM_NOBODY, QUICKLY);
    await_it(&honest.freed);
    assert_false(first.freed);
    let_go(state);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, begin, let_go)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_each_has_a_thread),
        CASE(test_the_reserve_serves_the_others),
        CASE(test_a_user_keeps_one_of_the_reserve),
        CASE(test_who_gets_none_of_the_reserve_waits),
        CASE(test_threads_that_are_there_serve_who_waits),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
