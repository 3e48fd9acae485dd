/* Which of the algorithms that were timed auto takes, and what it says about it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/executor/tuning.h"

static struct cgm_tuned times(int first, uint64_t first_us, int second, uint64_t second_us,
                              int third, uint64_t third_us)
{
    return (struct cgm_tuned){.n = 3,
                              .tried = {{cgm_algorithm_find(first), first_us * 1000},
                                        {cgm_algorithm_find(second), second_us * 1000},
                                        {cgm_algorithm_find(third), third_us * 1000}}};
}

static void assert_text(struct cgm_tuned tuned, uint64_t at_s, const char *expected)
{
    char text[160];
    tuned.at_s = at_s;
    cgm_tuned_sort(&tuned);
    cgm_tuned_write(&tuned, text, sizeof(text));
    assert_string_equal(text, expected);
}

static void test_fastest(void **state)
{
    (void)state;
    assert_text(times(CGM_ALGO_NO_OVERLAP, 751, CGM_ALGO_FUSED_AG, 560,
                      CGM_ALGO_SPLIT_PIPELINED_AG_P2P, 487),
                0, "auto: split_pipelined_ag_p2p measured 487 us; no_overlap 751, fused_ag 560");
    assert_text(times(CGM_ALGO_FUSED_AG, 560, CGM_ALGO_SPLIT_PIPELINED_AG_P2P, 487,
                      CGM_ALGO_ATOMIC_GEMM_AG_P2P, 500),
                1795132800,
                "auto: split_pipelined_ag_p2p measured 487 us; atomic_gemm_ag_p2p 500, fused_ag "
                "560; kept since 2026-11-20");
}

/* What is faster by noise alone is not taken. */
static void test_ties(void **state)
{
    (void)state;
    assert_text(times(CGM_ALGO_NO_OVERLAP, 1000, CGM_ALGO_FUSED_AG, 985, CGM_ALGO_SPLIT_AS, 980), 0,
                "auto: no_overlap measured 1000 us; split_as 980, fused_ag 985");
    assert_text(times(CGM_ALGO_NO_OVERLAP, 1000, CGM_ALGO_FUSED_AG, 985, CGM_ALGO_SPLIT_AS, 979), 0,
                "auto: split_as measured 979 us; no_overlap 1000, fused_ag 985");
}

static void test_without_a_time(void **state)
{
    (void)state;
    assert_text(times(CGM_ALGO_NO_OVERLAP, 10, CGM_ALGO_FUSED_AG, 0, CGM_ALGO_SPLIT_AS, 2000000), 0,
                "auto: no_overlap measured 10 us; split_as 2000000, fused_ag -");
    assert_text(times(CGM_ALGO_NO_OVERLAP, 0, CGM_ALGO_FUSED_AG, 7, CGM_ALGO_SPLIT_AS, 0), 0,
                "auto: fused_ag measured 7 us; no_overlap -, split_as -");
}

/* There is room for what a plan's reason says besides. */
static void test_many(void **state)
{
    (void)state;
    struct cgm_tuned tuned = {.n = 16, .at_s = UINT64_MAX / 4};
    char text[160];
    for (uint32_t i = 0; i < tuned.n; i++)
        tuned.tried[i] = (struct cgm_tried){cgm_algorithms[i], UINT64_MAX - i};
    cgm_tuned_sort(&tuned);
    cgm_tuned_write(&tuned, text, sizeof(text));
    assert_in_range(strlen(text), 100, 159);
    assert_non_null(strstr(text, " more"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fastest),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_without_a_time),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
