/* A user's share of the daemon's time, in numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "proto/allowance.h"

#define MS 1000000ull
#define SHARE 10
#define NOW (5000 * MS)

static void test_what_is_saved_up_is_taken_at_once(void **state)
{
    struct cgm_allowance allowance = {0};
    (void)state;
    assert_true(cgm_allowance_is_whole(&allowance, 0));
    cgm_allowance_take(&allowance, 10 * MS, SHARE, NOW);
    assert_false(cgm_allowance_is_whole(&allowance, NOW));
    assert_int_equal(cgm_allowance_rest_ns(&allowance, NOW), 0);
    assert_true(cgm_allowance_is_whole(&allowance, NOW + 100 * MS));
}

static void test_more_than_that_is_made_up_for(void **state)
{
    struct cgm_allowance allowance = {0};
    (void)state;
    cgm_allowance_take(&allowance, 13 * MS, SHARE, NOW);
    assert_int_equal(cgm_allowance_rest_ns(&allowance, NOW), 30 * MS);
    assert_int_equal(cgm_allowance_rest_ns(&allowance, NOW + 20 * MS), 10 * MS);
    assert_int_equal(cgm_allowance_rest_ns(&allowance, NOW + 30 * MS), 0);
    cgm_allowance_take(&allowance, 1 * MS, SHARE, NOW + 30 * MS);
    assert_int_equal(cgm_allowance_rest_ns(&allowance, NOW + 30 * MS), 10 * MS);
}

/* Who always takes as soon as he may gets his share and what he had saved up. */
static void test_in_the_long_run_it_is_the_share(void **state)
{
    struct cgm_allowance allowance = {0};
    uint64_t now_ns = NOW, taken_ns = 0;
    (void)state;
    while (now_ns < NOW + 10000 * MS) {
        cgm_allowance_take(&allowance, MS / 20, SHARE, now_ns);
        taken_ns += MS / 20;
        now_ns += MS / 20 + cgm_allowance_rest_ns(&allowance, now_ns);
    }
    assert_in_range(taken_ns, 1000 * MS, 1011 * MS);
}

static void test_a_debt_has_a_limit(void **state)
{
    struct cgm_allowance allowance = {0};
    (void)state;
    cgm_allowance_take(&allowance, UINT64_MAX, 1, NOW);
    assert_int_equal(cgm_allowance_rest_ns(&allowance, NOW), CGM_ALLOWANCE_OWED_NS);
    cgm_allowance_take(&allowance, UINT64_MAX, 1, NOW);
    assert_int_equal(cgm_allowance_rest_ns(&allowance, NOW), CGM_ALLOWANCE_OWED_NS);
    cgm_allowance_take_all(&allowance, UINT64_MAX, 1, NOW);
    assert_int_equal(cgm_allowance_rest_ns(&allowance, NOW), CGM_ALLOWANCE_OWED_ALL_NS);
}

static void test_more_cannot_be_saved_up(void **state)
{
    struct cgm_allowance allowance = {0};
    (void)state;
    cgm_allowance_take(&allowance, 1 * MS, SHARE, NOW);
    cgm_allowance_take(&allowance, 20 * MS, SHARE, NOW + 3600000 * MS);
    assert_int_equal(cgm_allowance_rest_ns(&allowance, NOW + 3600000 * MS), 100 * MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_saved_up_is_taken_at_once),
        cmocka_unit_test(test_more_than_that_is_made_up_for),
        cmocka_unit_test(test_in_the_long_run_it_is_the_share),
        cmocka_unit_test(test_a_debt_has_a_limit),
        cmocka_unit_test(test_more_cannot_be_saved_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
