/* Which of the algorithms that were timed auto takes, by scripted times, and what it says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/executor/contest.h"

#define US 1000ull

/* What a launch of one candidate takes. */
struct script {
    int algorithm;
    cgm_variant variant;
    uint64_t us;          /* 0: it fails */
    uint64_t warming_us;  /* the first time; 0: as the others */
    uint64_t noise;       /* percent, up or down, evenly */
    uint32_t fails_after; /* so many launches; 0: never */
};

static uint64_t noise_state = 88172645463325252ull;

static uint64_t next_random(void)
{
    noise_state ^= noise_state << 13;
    noise_state ^= noise_state >> 7;
    noise_state ^= noise_state << 17;
    return noise_state;
}

static uint64_t time_of(const struct script *script, uint32_t launches)
{
    uint64_t us = launches == 0 && script->warming_us ? script->warming_us : script->us;
    if (script->fails_after && launches >= script->fails_after)
        return 0;
    uint64_t ns = us * US;
    if (script->noise)
        ns += ns / 100 * (next_random() % (2 * script->noise + 1)) - ns / 100 * script->noise;
    return ns;
}

static const struct script *script_of(const struct script *scripts, uint32_t n,
                                      const struct cgm_candidate *candidate)
{
    for (uint32_t i = 0; i < n; i++)
        if (cgm_algorithm_find(scripts[i].algorithm) == candidate->algorithm &&
            scripts[i].variant == candidate->variant)
            return &scripts[i];
    fail_msg("%s is launched, and has no script", candidate->algorithm->name);
    return NULL;
}

struct play {
    const struct script *scripts;
    uint32_t n, launches[CGM_TUNED_MAX];
    uint64_t left_ns; /* of the time that there is */
};

/* One heat; false: time is up. */
static bool play_heat(struct play *play, struct cgm_contest *contest)
{
    while (contest->goes_on) {
        uint32_t turn = contest->turn;
        const struct script *script =
            script_of(play->scripts, play->n, &contest->entrants[turn].candidate);
        uint64_t ns = time_of(script, play->launches[turn]++);
        assert_false(contest->entrants[turn].out);
        if (ns > play->left_ns)
            return false;
        play->left_ns -= ns;
        if (ns)
            cgm_contest_note(contest, ns);
        else
            cgm_contest_fail(contest);
    }
    return true;
}

/* As tuning.c goes on, with launches that take what the scripts say: algorithms and the variants of
 * serial first, then the variants of the one that leads. */
static void run_contest(struct play *play, struct cgm_contest *contest)
{
    *contest = (struct cgm_contest){0};
    for (uint32_t i = 0; i < play->n; i++)
        if (!play->scripts[i].variant || play->scripts[i].algorithm == CGM_ALGO_NO_OVERLAP)
            cgm_contest_enter(
                contest, &(struct cgm_candidate){cgm_algorithm_find(play->scripts[i].algorithm),
                                                 play->scripts[i].variant});
    uint32_t first = contest->n;
    cgm_contest_begin(contest);
    bool in_time = play_heat(play, contest);
    const struct cgm_algorithm *leader = cgm_contest_leader(contest);
    for (uint32_t i = 0; leader && i < play->n; i++)
        if (play->scripts[i].variant && cgm_algorithm_find(play->scripts[i].algorithm) == leader)
            cgm_contest_enter(contest, &(struct cgm_candidate){leader, play->scripts[i].variant});
    if (!in_time || contest->n == first)
        return;
    cgm_contest_begin_second(contest, first);
    play_heat(play, contest);
}

static void assert_plays(const struct script *scripts, uint32_t n, uint64_t time_us,
                         const char *expected)
{
    char text[160];
    struct play play = {.scripts = scripts, .n = n, .left_ns = time_us * US};
    struct cgm_contest contest;
    struct cgm_tuned tuned;
    run_contest(&play, &contest);
    if (!expected) {
        assert_false(cgm_contest_is_decided(&contest));
        return;
    }
    assert_true(cgm_contest_is_decided(&contest));
    cgm_contest_result(&contest, &tuned);
    cgm_tuned_write(&tuned, text, sizeof(text));
    assert_string_equal(text, expected);
}

#define PLAYS(scripts, time_us, expected)                                                          \
    assert_plays(scripts, sizeof(scripts) / sizeof((scripts)[0]), time_us, expected)
#define LONG 1000000u

static void test_fastest(void **state)
{
    (void)state;
    const struct script scripts[] = {{.algorithm = CGM_ALGO_NO_OVERLAP, .us = 751},
                                     {.algorithm = CGM_ALGO_FUSED_AG, .us = 560},
                                     {.algorithm = CGM_ALGO_SPLIT_PIPELINED_AG_P2P, .us = 487}};
    PLAYS(scripts, LONG,
          "auto: split_pipelined_ag_p2p measured 487 us; no_overlap 751, fused_ag 560");
    /* atomic_gemm leaves serial out. */
    const struct script atomic[] = {{.algorithm = CGM_ALGO_ATOMIC_GEMM_RS, .us = 751},
                                    {.algorithm = CGM_ALGO_ATOMIC_GEMM_RS_P2P, .us = 560}};
    PLAYS(atomic, LONG, "auto: atomic_gemm_rs_p2p measured 560 us; atomic_gemm_rs 751");
}

/* A flagged product has to beat the library's by more than noise. */
static void test_flagged(void **state)
{
    (void)state;
    const struct script level[] = {{.algorithm = CGM_ALGO_NO_OVERLAP, .us = 3800},
                                   {.algorithm = CGM_ALGO_ATOMIC_GEMM_AG_P2P, .us = 2693},
                                   {.algorithm = CGM_ALGO_SPLIT_PIPELINED_AG_P2P, .us = 2710}};
    PLAYS(level, LONG,
          "auto: split_pipelined_ag_p2p measured 2710 us; no_overlap 3800, "
          "atomic_gemm_ag_p2p 2693");
    const struct script ahead[] = {{.algorithm = CGM_ALGO_NO_OVERLAP, .us = 3800},
                                   {.algorithm = CGM_ALGO_ATOMIC_GEMM_AG_P2P, .us = 2600},
                                   {.algorithm = CGM_ALGO_SPLIT_PIPELINED_AG_P2P, .us = 2710}};
    PLAYS(ahead, LONG,
          "auto: atomic_gemm_ag_p2p measured 2600 us; no_overlap 3800, "
          "split_pipelined_ag_p2p 2710");
    /* Nor is one taken that serial is not beaten by, because another one is level with it. */
    const struct script serial[] = {{.algorithm = CGM_ALGO_NO_OVERLAP, .us = 2700},
                                    {.algorithm = CGM_ALGO_ATOMIC_GEMM_AG_P2P, .us = 2640},
                                    {.algorithm = CGM_ALGO_SPLIT_PIPELINED_AG_P2P, .us = 2660}};
    PLAYS(serial, LONG,
          "auto: atomic_gemm_ag_p2p measured 2640 us; no_overlap 2700, "
          "split_pipelined_ag_p2p 2660");
}

/* What is faster by noise alone is not taken: by a fiftieth, and in three of four rounds. */
static void test_ties(void **state)
{
    (void)state;
    struct script scripts[] = {{.algorithm = CGM_ALGO_NO_OVERLAP, .us = 1000},
                               {.algorithm = CGM_ALGO_FUSED_AS, .us = 985},
                               {.algorithm = CGM_ALGO_SPLIT_AS, .us = 980}};
    PLAYS(scripts, LONG, "auto: no_overlap measured 1000 us; split_as 980, fused_as 985");
    scripts[2].us = 979;
    PLAYS(scripts, LONG, "auto: split_as measured 979 us; no_overlap 1000, fused_as 985");
    scripts[1].us = scripts[2].us = 1000;
    PLAYS(scripts, LONG, "auto: no_overlap measured 1000 us; fused_as 1000, split_as 1000");
}

static void test_variants(void **state)
{
    (void)state;
    const cgm_variant two = cgm_variant_of(CGM_PARAMETER_NUM_SPLITS, 2);
    const cgm_variant first_gemm = cgm_variant_of(CGM_PARAMETER_RS_OVERLAP_FIRST_GEMM, 1);
    struct script scripts[] = {
        {.algorithm = CGM_ALGO_NO_OVERLAP, .us = 1000},
        {.algorithm = CGM_ALGO_FUSED_RS, .us = 900},
        {.algorithm = CGM_ALGO_FUSED_RS, .variant = two, .us = 100}, /* of another than the best */
        {.algorithm = CGM_ALGO_SPLIT_PIPELINED_RS, .us = 800},
        {.algorithm = CGM_ALGO_SPLIT_PIPELINED_RS, .variant = two, .us = 700},
        {.algorithm = CGM_ALGO_SPLIT_PIPELINED_RS, .variant = first_gemm, .us = 790}};
    PLAYS(scripts, LONG,
          "auto: split_pipelined_rs num_splits=2 measured 700 us; no_overlap 1000, "
          "rs_overlap_first_gemm=1 790 and 2 more");
    /* A variant that is level with its algorithm is not taken. */
    scripts[4].us = 790;
    PLAYS(scripts, LONG,
          "auto: split_pipelined_rs measured 800 us; no_overlap 1000, num_splits=2 790, "
          "rs_overlap_first_gemm=1 790 and 1 more");
    /* Serial is ahead of the algorithm, and not of its variant. */
    scripts[0].us = 750;
    scripts[4].us = 700;
    PLAYS(scripts, LONG,
          "auto: split_pipelined_rs num_splits=2 measured 700 us; no_overlap 750, "
          "rs_overlap_first_gemm=1 790 and 2 more");
    scripts[4].us = 740;
    PLAYS(scripts, LONG,
          "auto: no_overlap measured 750 us; split_pipelined_rs num_splits=2 740 and 3 more");
}

/* Serial by a library, by copy engines, by multiprocessors. */
static void test_serial_variants(void **state)
{
    (void)state;
    const cgm_variant by_ce = cgm_variant_of(CGM_PARAMETER_USE_CE, 1);
    const cgm_variant by_sms = cgm_variant_of(CGM_PARAMETER_USE_CE, 0);
    struct script scripts[] = {{.algorithm = CGM_ALGO_NO_OVERLAP, .us = 400},
                               {.algorithm = CGM_ALGO_NO_OVERLAP, .variant = by_ce, .us = 300},
                               {.algorithm = CGM_ALGO_NO_OVERLAP, .variant = by_sms, .us = 350},
                               {.algorithm = CGM_ALGO_SPLIT_PIPELINED_AG_P2P, .us = 320},
                               {.algorithm = CGM_ALGO_SPLIT_PIPELINED_AG_P2P,
                                .variant = cgm_variant_of(CGM_PARAMETER_AGGREGATE_AG, 1),
                                .us = 310}};
    assert_plays(scripts, 3, LONG,
                 "auto: no_overlap use_ce=1 measured 300 us; no_overlap 400, use_ce=0 350");
    /* Whoever overlaps has to beat the best of them. */
    PLAYS(scripts, LONG,
          "auto: no_overlap use_ce=1 measured 300 us; no_overlap 400, use_ce=0 350 "
          "and 2 more");
    scripts[4].us = 280;
    PLAYS(scripts, LONG,
          "auto: split_pipelined_ag_p2p aggregate_ag=1 measured 280 us; no_overlap 400, "
          "no_overlap use_ce=1 300 and 2 more");
    /* And a variant the default. */
    scripts[1].us = 395;
    scripts[2].us = 396;
    assert_plays(scripts, 3, LONG, "auto: no_overlap measured 400 us; use_ce=1 395, use_ce=0 396");
}

/* Where a library does collectives, copies are a choice also as they would be made by default. */
static void test_means(void **state)
{
    (void)state;
    const struct cgm_algorithm *serial = cgm_algorithm_find(CGM_ALGO_NO_OVERLAP);
    const cgm_variant by_ce = cgm_variant_of(CGM_PARAMETER_USE_CE, 1);
    const cgm_variant by_sms = cgm_variant_of(CGM_PARAMETER_USE_CE, 0);
    struct cgm_spec spec = {.op = CGM_OP_AG, .world = 4, .use_ce = true};
    struct cgm_means means = {false, true};
    cgm_variant found[CGM_VARIANTS_MAX];
    assert_int_equal(cgm_algorithm_variants(serial, &spec, &means, found), 0);
    means = (struct cgm_means){true, false};
    assert_int_equal(cgm_algorithm_variants(serial, &spec, &means, found), 1);
    assert_int_equal(found[0], by_sms);
    means.library = true;
    assert_int_equal(cgm_algorithm_variants(serial, &spec, &means, found), 2);
    assert_int_equal(found[0], by_ce);
    assert_int_equal(found[1], by_sms);
    spec.op = CGM_OP_GEMM_AS; /* none of a library's */
    assert_int_equal(cgm_algorithm_variants(serial, &spec, &means, found), 1);
    spec.op = CGM_OP_AG;
    spec.given = 1u << CGM_PARAMETER_USE_CE;
    assert_int_equal(cgm_algorithm_variants(serial, &spec, &means, found), 0);
    assert_true(cgm_spec_wants_copies(&spec));
}

static void test_failures(void **state)
{
    (void)state;
    struct script scripts[] = {{.algorithm = CGM_ALGO_NO_OVERLAP, .us = 10},
                               {.algorithm = CGM_ALGO_FUSED_AG, .us = 0},
                               {.algorithm = CGM_ALGO_SPLIT_AS, .us = 2000000}};
    PLAYS(scripts, 10 * LONG, "auto: no_overlap measured 10 us; split_as 2000000, fused_ag -");
    /* Whoever fails once, however fast it was, is not taken. */
    scripts[1] = (struct script){.algorithm = CGM_ALGO_FUSED_AG, .us = 5, .fails_after = 3};
    PLAYS(scripts, 10 * LONG, "auto: no_overlap measured 10 us; split_as 2000000, fused_ag -");
    /* All the others fail: that is known of them, and serial is taken. */
    const struct script alone[] = {{.algorithm = CGM_ALGO_NO_OVERLAP, .us = 10},
                                   {.algorithm = CGM_ALGO_FUSED_AG, .us = 0}};
    PLAYS(alone, LONG, "auto: no_overlap measured 10 us; fused_ag -");
    /* Without serial nothing is compared. */
    scripts[0].us = 0;
    PLAYS(scripts, 10 * LONG, NULL);
    const struct script none[] = {{.algorithm = CGM_ALGO_NO_OVERLAP, .us = 0},
                                  {.algorithm = CGM_ALGO_FUSED_AG, .us = 0}};
    PLAYS(none, LONG, NULL);
    /* A variant that fails. */
    const struct script variant[] = {{.algorithm = CGM_ALGO_NO_OVERLAP, .us = 10},
                                     {.algorithm = CGM_ALGO_SPLIT_AS, .us = 8},
                                     {.algorithm = CGM_ALGO_SPLIT_AS,
                                      .variant = cgm_variant_of(CGM_PARAMETER_NUM_SPLITS, 8),
                                      .us = 5,
                                      .fails_after = 11}};
    PLAYS(variant, LONG, "auto: split_as measured 8 us; no_overlap 10, num_splits=8 -");
}

/* Time is up before everybody had a turn, or more than one. */
static void test_time_is_up(void **state)
{
    (void)state;
    struct script scripts[] = {{.algorithm = CGM_ALGO_NO_OVERLAP, .us = 1000},
                               {.algorithm = CGM_ALGO_FUSED_AG, .us = 500},
                               {.algorithm = CGM_ALGO_SPLIT_PIPELINED_AG_P2P, .us = 900},
                               {.algorithm = CGM_ALGO_SPLIT_PIPELINED_AG_P2P,
                                .variant = cgm_variant_of(CGM_PARAMETER_AGGREGATE_AG, 1),
                                .us = 100}};
    PLAYS(scripts, 900, NULL);
    PLAYS(scripts, 1400, NULL);
    PLAYS(scripts, 1500,
          "auto: fused_ag measured 500 us; no_overlap 1000, split_pipelined_ag_p2p -; no time for "
          "1");
    PLAYS(scripts, 5000,
          "auto: fused_ag measured 500 us; no_overlap 1000, split_pipelined_ag_p2p 900");
    /* Serial was first and cold: a warm-up alone must be faster by a fifth. */
    scripts[1].us = 810;
    scripts[2].us = 801;
    PLAYS(scripts, 2700,
          "auto: no_overlap measured 1000 us; split_pipelined_ag_p2p 801, fused_ag 810 "
          "and 1 more; no time for 1");
    scripts[2].us = 799;
    PLAYS(scripts, 2700,
          "auto: split_pipelined_ag_p2p measured 799 us; no_overlap 1000, fused_ag 810, "
          "aggregate_ag=1 -; no time for 1");
}

/* A cold start says nothing about the times after it. */
static void test_warming(void **state)
{
    (void)state;
    const struct script scripts[] = {
        {.algorithm = CGM_ALGO_NO_OVERLAP, .us = 100, .warming_us = 5000},
        {.algorithm = CGM_ALGO_FUSED_AG, .us = 90, .warming_us = 39000}};
    PLAYS(scripts, LONG, "auto: fused_ag measured 90 us; no_overlap 100");
    /* Hopeless, and out after its first launch. */
    const struct script slow[] = {{.algorithm = CGM_ALGO_NO_OVERLAP, .us = 100, .warming_us = 5000},
                                  {.algorithm = CGM_ALGO_FUSED_AG, .us = 90, .warming_us = 45000}};
    PLAYS(slow, LONG, "auto: no_overlap measured 100 us; fused_ag 45000");
}

/* Of equals, in noise of a tenth up and down, serial is left for another hardly ever, and never for
 * one that is slower by a twentieth. */
static void test_noise(void **state)
{
    (void)state;
    struct script scripts[] = {{.algorithm = CGM_ALGO_NO_OVERLAP, .us = 100000, .noise = 10},
                               {.algorithm = CGM_ALGO_FUSED_AG, .us = 100000, .noise = 10}};
    struct cgm_contest contest;
    struct cgm_tuned tuned;
    uint32_t left[2] = {0, 0};
    for (uint32_t i = 0; i < 2000; i++) {
        struct play play = {.scripts = scripts, .n = 2, .left_ns = UINT64_MAX / 2};
        scripts[1].us = 100000 + i % 2 * 5000;
        run_contest(&play, &contest);
        cgm_contest_result(&contest, &tuned);
        left[i % 2] += tuned.tried[0].candidate.algorithm->number != CGM_ALGO_NO_OVERLAP;
    }
    print_message("of 1000 each: %u for an equal, %u for a slower one\n", left[0], left[1]);
    assert_in_range(left[0], 0, 60);
    assert_in_range(left[1], 0, 2);
    /* And one that is faster by a fifth is found. */
    scripts[1].us = 80000;
    for (uint32_t i = 0; i < 1000; i++) {
        struct play play = {.scripts = scripts, .n = 2, .left_ns = UINT64_MAX / 2};
        run_contest(&play, &contest);
        cgm_contest_result(&contest, &tuned);
        assert_int_equal(tuned.tried[0].candidate.algorithm->number, CGM_ALGO_FUSED_AG);
    }
}

/* As it is remembered. */
static void test_kept(void **state)
{
    (void)state;
    char text[160];
    struct cgm_tuned tuned = {.n = 3,
                              .at_s = 1795132800,
                              .tried = {{{cgm_algorithm_find(CGM_ALGO_FUSED_AG),
                                          cgm_variant_of(CGM_PARAMETER_NUM_SPLITS, 4)},
                                         487000},
                                        {{cgm_algorithm_find(CGM_ALGO_NO_OVERLAP), 0}, 500400},
                                        {{cgm_algorithm_find(CGM_ALGO_FUSED_AG), 0}, 0}}};
    cgm_tuned_write(&tuned, text, sizeof(text));
    assert_string_equal(text, "auto: fused_ag num_splits=4 measured 487 us; no_overlap 500, "
                              "fused_ag -; kept since 2026-11-20");
}

/* There is room for what a plan's reason says besides. */
static void test_many(void **state)
{
    (void)state;
    struct cgm_tuned tuned = {.n = 16, .at_s = UINT64_MAX / 4};
    char text[160];
    for (uint32_t i = 0; i < tuned.n; i++)
        tuned.tried[i] = (struct cgm_tried){
            {cgm_algorithms[i], cgm_variant_of(CGM_PARAMETER_RS_OVERLAP_FIRST_GEMM, 65535)},
            UINT64_MAX - i};
    cgm_tuned_sort(&tuned);
    cgm_tuned_write(&tuned, text, sizeof(text));
    assert_in_range(strlen(text), 90, 159);
    assert_non_null(strstr(text, " more"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fastest),    cmocka_unit_test(test_ties),
        cmocka_unit_test(test_variants),   cmocka_unit_test(test_serial_variants),
        cmocka_unit_test(test_means),      cmocka_unit_test(test_failures),
        cmocka_unit_test(test_time_is_up), cmocka_unit_test(test_warming),
        cmocka_unit_test(test_noise),      cmocka_unit_test(test_kept),
        cmocka_unit_test(test_many),       cmocka_unit_test(test_flagged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
