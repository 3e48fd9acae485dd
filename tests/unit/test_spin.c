/* Polling stops where yields come back late, and is tried again. Times are made up, but for the
 * last two tests. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/executor/slice.h"
#include "proto/spin.h"

#define LONG_NS CGM_SPIN_LATE_NS
#define MIN_NS CGM_SPIN_REST_MIN_NS
#define MAX_NS CGM_SPIN_REST_MAX_NS
#define BEGIN_NS 1000000000000u

static bool polls(const struct cgm_spin *spin, uint64_t now_ns)
{
    return cgm_spin_goes_on(spin, CGM_SPIN_ALONE_NS, now_ns);
}

/* A late yield at that moment; how long polling then rests. */
static uint64_t rest_after(struct cgm_spin *spin, uint64_t now_ns)
{
    uint64_t end_ns = now_ns + LONG_NS;
    cgm_spin_note(spin, now_ns, end_ns);
    uint64_t rest_ns = atomic_load(&spin->rest_until_ns) - end_ns;
    assert_false(polls(spin, end_ns + rest_ns - 1));
    assert_true(polls(spin, end_ns + rest_ns));
    return rest_ns;
}

static void test_quick_yields(void **state)
{
    struct cgm_spin spin = {0};
    (void)state;
    assert_true(polls(&spin, 0));
    for (uint64_t now_ns = BEGIN_NS; now_ns < BEGIN_NS + 1000; now_ns++) {
        cgm_spin_note(&spin, now_ns, now_ns + LONG_NS - 1);
        assert_true(polls(&spin, now_ns + LONG_NS));
    }
}

static void test_late_yield(void **state)
{
    struct cgm_spin spin = {0};
    (void)state;
    assert_int_equal(rest_after(&spin, BEGIN_NS), MIN_NS);
    /* The first looks need no yield. */
    assert_true(cgm_spin_goes_on(&spin, CGM_SPIN_ALONE_NS - 1, BEGIN_NS + LONG_NS));
}

static void test_rests_grow(void **state)
{
    struct cgm_spin spin = {0};
    uint64_t rest_ns = 0;
    (void)state;
    for (uint64_t expected_ns = MIN_NS; expected_ns < MAX_NS; expected_ns *= 2) {
        rest_ns = rest_after(&spin, rest_ns ? atomic_load(&spin.rest_until_ns) : BEGIN_NS);
        assert_int_equal(rest_ns, expected_ns);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(rest_after(&spin, atomic_load(&spin.rest_until_ns)), MAX_NS);
    /* Polling has gone well for as long as it had rested. */
    assert_int_equal(rest_after(&spin, atomic_load(&spin.rest_until_ns) + MAX_NS), MIN_NS);
}

/* Several threads find out at the same time. */
static void test_noted_once(void **state)
{
    struct cgm_spin spin = {0};
    (void)state;
    assert_int_equal(rest_after(&spin, BEGIN_NS), MIN_NS);
    uint64_t until_ns = atomic_load(&spin.rest_until_ns);
    cgm_spin_note(&spin, BEGIN_NS + 1, BEGIN_NS + 2 * LONG_NS);
    assert_int_equal(atomic_load(&spin.rest_until_ns), until_ns);
    assert_int_equal(rest_after(&spin, until_ns), 2 * MIN_NS);
}

static void *yield_often(void *argument)
{
    struct cgm_spin *spin = argument;
    for (int i = 0; i < 1000; i++) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
        assert_false(cgm_spin_yield(spin, CGM_SPIN_ALONE_NS - 1, now_ns));
        if (polls(spin, now_ns))
            assert_true(cgm_spin_yield(spin, CGM_SPIN_ALONE_NS, now_ns));
    }
    return NULL;
}

static void test_shared(void **state)
{
    struct cgm_spin spin = {0};
    pthread_t threads[4];
    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, yield_often, &spin), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_true(atomic_load(&spin.rest_ns) <= MAX_NS);
}

/* A kernel before 6.12 has no slices of threads: it must not mind. */
static void test_slice(void **state)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } attributes = {0};
    (void)state;
    assert_int_equal(setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 3), 0);
    cgm_slice_shorten();
    assert_int_equal(syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0), 0);
    assert_int_equal(attributes.policy, SCHED_OTHER);
    assert_int_equal(attributes.nice, 3);
    if (attributes.runtime_ns != 0)
        assert_int_equal(attributes.runtime_ns, 100000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quick_yields), cmocka_unit_test(test_late_yield),
        cmocka_unit_test(test_rests_grow),   cmocka_unit_test(test_noted_once),
        cmocka_unit_test(test_shared),       cmocka_unit_test(test_slice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
