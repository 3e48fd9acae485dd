/* Waking clients whose sockets take long to write to, in numbers, and of rings that wait for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/executor/endpoint.h"
#include "daemon/executor/poller.h"

#define US 1000ull
#define MS (1000 * US)
#define S (1000 * MS)
#define NOW (5000 * S)
#define LONG_AFTER (UINT64_MAX / 2)

/* Two rings of a user. */
struct scene {
    struct cgm_notices user;
    struct cgm_notice a, b;
};

static void set_up(struct scene *scene)
{
    *scene = (struct scene){.a.user = &scene->user, .b.user = &scene->user};
}

static void test_usual_sends_cost_nothing(void **state)
{
    struct scene scene;
    (void)state;
    set_up(&scene);
    for (int i = 0; i < 100000; i++)
        cgm_notice_sent(&scene.a, 40 * US, 40 * US, NOW);
    assert_int_equal(cgm_notice_ask(&scene.a, NOW), 0);
    assert_false(scene.a.slow);
    assert_int_equal(scene.user.measured_until_ns, 0);
}

/* Nor does a clock of processor time that jumps by more than has passed. */
static void test_a_stolen_processor_costs_nothing(void **state)
{
    struct scene scene;
    (void)state;
    set_up(&scene);
    for (int i = 0; i < 1000; i++) {
        cgm_notice_sent(&scene.a, 10 * MS, 5 * US, NOW);
        cgm_notice_sent(&scene.a, 20 * US, 10 * MS, NOW);
    }
    assert_int_equal(cgm_notice_ask(&scene.a, NOW), 0);
    assert_false(scene.a.slow);
    assert_true(scene.user.measured_until_ns > NOW);
}

/* 5 ms of a processor are saved up. */
static void test_long_sends_rest_for_20_times_as_long(void **state)
{
    struct scene scene;
    (void)state;
    set_up(&scene);
    cgm_notice_sent(&scene.a, 5 * MS, 5 * MS, NOW);
    assert_int_equal(cgm_notice_ask(&scene.a, NOW), 0);
    cgm_notice_sent(&scene.a, 2 * MS, 2 * MS, NOW);
    assert_int_equal(cgm_notice_ask(&scene.a, NOW), NOW + 40 * MS);
    assert_int_equal(cgm_notice_ask(&scene.a, NOW + 40 * MS), 0);
}

static void test_none_rests_for_ever(void **state)
{
    struct scene scene;
    (void)state;
    set_up(&scene);
    for (int i = 0; i < 100; i++)
        cgm_notice_sent(&scene.a, 10 * S, 10 * S, NOW);
    assert_in_range(cgm_notice_ask(&scene.a, NOW), NOW + 1, NOW + 10 * S);
}

/* Another client of the user rests when its own sends are long too; a short one does not clear it
 * before all is made up for. */
static void test_only_slow_ones_rest(void **state)
{
    struct scene scene;
    (void)state;
    set_up(&scene);
    cgm_notice_sent(&scene.a, 25 * MS, 25 * MS, NOW);
    assert_true(cgm_notice_ask(&scene.a, NOW) > NOW);
    assert_int_equal(cgm_notice_ask(&scene.b, NOW), 0);
    cgm_notice_sent(&scene.b, MS, MS, NOW);
    assert_true(cgm_notice_ask(&scene.b, NOW) > NOW);
    cgm_notice_sent(&scene.a, US, US, NOW);
    assert_true(scene.a.slow);
    cgm_notice_sent(&scene.a, US, US, NOW + 2 * S);
    assert_false(scene.a.slow);
}

static void test_who_has_waited_longest_is_first(void **state)
{
    struct scene scene;
    uint64_t later_ns = NOW + 20 * MS;
    (void)state;
    set_up(&scene);
    cgm_notice_sent(&scene.a, 3 * MS, 3 * MS, NOW);
    cgm_notice_sent(&scene.b, 3 * MS, 3 * MS, NOW);
    assert_int_equal(cgm_notice_ask(&scene.b, NOW), later_ns);
    assert_int_equal(cgm_notice_ask(&scene.a, NOW), later_ns);
    assert_int_equal(cgm_notice_ask(&scene.a, later_ns), later_ns);
    assert_int_equal(cgm_notice_ask(&scene.b, later_ns), 0);
    cgm_notice_pass(&scene.b);
    assert_int_equal(cgm_notice_ask(&scene.a, later_ns), 0);
}

static void test_rings_of_a_user_share(void **state)
{
    struct cgm_map users = {0};
    struct cgm_notice a, b, other, none = {0};
    (void)state;
    assert_int_equal(cgm_notice_init(&a, &users, 0), 0);
    assert_int_equal(cgm_notice_init(&b, &users, 0), 0);
    assert_int_equal(cgm_notice_init(&other, &users, UINT32_MAX), 0);
    assert_ptr_equal(a.user, b.user);
    assert_ptr_not_equal(a.user, other.user);
    cgm_notice_fini(&other, &users, UINT32_MAX);
    a.user->turn = &a;
    cgm_notice_fini(&a, &users, 0);
    assert_int_equal(users.count, 1);
    assert_null(b.user->turn);
    cgm_notice_fini(&b, &users, 0);
    cgm_notice_fini(&none, &users, 0);
    assert_int_equal(users.count, 0);
    cgm_map_fini(&users);
}

/* A client that waits for its notice sleeps on, and has it when the rest is over. */
static void test_a_notice_is_kept(void **state)
{
    static struct cgm_poller poller;
    struct cgm_ring_header header = {0};
    struct cgm_notices user = {.allowance.whole_ns = LONG_AFTER};
    struct cgm_endpoint endpoint = {
        .poller = &poller, .notice = {&user, true}, .notify = true, .ring.header = &header};
    int pair[2];
    char byte;
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    endpoint.notify_fd = pair[0];
    atomic_store(&header.cq_need_wakeup, 1);
    assert_true(cgm_completions_notify(&endpoint) > 0);
    assert_int_equal(recv(pair[1], &byte, 1, MSG_DONTWAIT), -1);
    assert_true(endpoint.notify);
    assert_int_equal(atomic_load(&header.cq_need_wakeup), 1);
    user.allowance.whole_ns = 0;
    assert_int_equal(cgm_completions_notify(&endpoint), 0);
    assert_int_equal(recv(pair[1], &byte, 1, MSG_DONTWAIT), 1);
    assert_false(endpoint.notify);
    assert_null(user.turn);
    close(pair[0]);
    close(pair[1]);
}

/* Who is awake needs none, and keeps nobody waiting. */
static void test_who_is_awake_passes(void **state)
{
    struct cgm_ring_header header = {0};
    struct cgm_notices user = {.allowance.whole_ns = LONG_AFTER};
    struct cgm_endpoint endpoint = {
        .notice = {&user, true}, .notify_fd = -1, .notify = true, .ring.header = &header};
    (void)state;
    atomic_store(&header.cq_need_wakeup, 1);
    assert_true(cgm_completions_notify(&endpoint) > 0);
    assert_ptr_equal(user.turn, &endpoint.notice);
    atomic_store(&header.cq_need_wakeup, 0);
    assert_int_equal(cgm_completions_notify(&endpoint), 0);
    assert_false(endpoint.notify);
    assert_null(user.turn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_usual_sends_cost_nothing),
        cmocka_unit_test(test_a_stolen_processor_costs_nothing),
        cmocka_unit_test(test_long_sends_rest_for_20_times_as_long),
        cmocka_unit_test(test_none_rests_for_ever),
        cmocka_unit_test(test_only_slow_ones_rest),
        cmocka_unit_test(test_who_has_waited_longest_is_first),
        cmocka_unit_test(test_rings_of_a_user_share),
        cmocka_unit_test(test_a_notice_is_kept),
        cmocka_unit_test(test_who_is_awake_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
