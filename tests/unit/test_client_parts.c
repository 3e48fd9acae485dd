/* Parts of the library that need no daemon: the plan table, the session's end, JSON. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/lib/jobs.h"
#include "client/lib/json.h"
#include "client/lib/plans.h"
#include "proto/status.h"

#define IDS 64

/* Against a plain array: additions and removals in random order, ids that collide. */
static void test_plan_table(void **state)
{
    struct cgm_plans plans = {0};
    bool present[IDS] = {false};
    (void)state;
    for (int step = 0; step < 20000; step++) {
        uint64_t i = (uint64_t)rand() % IDS, id = i % 8 * 1024 + i / 8;
        Cgm__PlanReply reply = CGM__PLAN_REPLY__INIT;
        reply.id = id;
        reply.reason = (char *)"r";
        present[i] = rand() % 3 > 0;
        if (present[i])
            assert_int_equal(cgm_plans_add(&plans, 1 + i % 3, &reply), 0);
        else
            cgm_plans_remove(&plans, id);
        for (uint64_t j = 0; j < IDS; j++) {
            const struct cgm_plan *plan = cgm_plans_find(&plans, j % 8 * 1024 + j / 8);
            assert_int_equal(plan != NULL, present[j]);
            if (plan)
                assert_int_equal(plan->comm->id, 1 + j % 3);
        }
    }
    cgm_comms_remove(&plans, 2);
    for (uint64_t j = 0; j < IDS; j++)
        if (j % 3 == 1)
            assert_null(cgm_plans_find(&plans, j % 8 * 1024 + j / 8));
    assert_true(plans.count > 0);
    cgm_plans_remove_all(&plans);
    assert_int_equal(plans.count, 0);
    cgm_plans_fini(&plans);
}

static void test_json_values(void **state)
{
    static const char *const good[] = {
        "0",
        "-0",
        "1.5",
        "-12e+3",
        "1E5",
        "18446744073709551615",
        "true",
        "false",
        "null",
        "\"\"",
        "\"a\\n\\u00e9\\\\\"",
        "[]",
        "[1, [2], {}]",
        "{\"a\": 1, \"b\": [null]}",
        " 1 ",
        "\"\xc3\xa9\"",
    };
    static const char *const bad[] = {
        "",
        " ",
        "01",
        "1.",
        "-",
        ".5",
        "1e",
        "tru",
        "nulls",
        "\"",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\n\"",
        "[",
        "[1,]",
        "[1 2]",
        "{",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "{\"a\":1,}",
        "1 2",
        "[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]",
        "\"\\",
        "\"\\u12",
        "}",
        "\"a\"b",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        if (!cgm_json_is_value(good[i]))
            fail_msg("refused: %s", good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (cgm_json_is_value(bad[i]))
            fail_msg("accepted: %s", bad[i]);
}

static void test_json_strings(void **state)
{
    struct cgm_text text = {0};
    char bytes[256];
    (void)state;
    for (int i = 0; i < 255; i++)
        bytes[i] = (char)(i + 1);
    bytes[255] = '\0';
    for (int i = 0; i < 100; i++) {
        cgm_text_add(&text, i ? "," : "[");
        cgm_text_add_string(&text, bytes + i);
    }
    cgm_text_add(&text, "]");
    assert_false(text.failed);
    assert_int_equal(text.size, strlen(text.bytes));
    assert_true(cgm_json_is_value(text.bytes));
    free(text.bytes);
}

/* The ring may die between the look for what has ended and the question whether all is over. Who is
 * told so reaps no more, and would never learn how the jobs in flight ended. */
static void test_a_session_is_over_when_its_jobs_are(void **state)
{
    struct cgm_ring_header header = {0};
    struct cgm_lane lane = {.ring.header = &header};
    struct cgm_jobs jobs = {.lane = &lane};
    (void)state;
    atomic_store(&header.dead, CGM_DAEMON_LOST);
    assert_false(cgm_jobs_are_lost(&jobs));
    lane.buried = true;
    assert_true(cgm_jobs_are_lost(&jobs));
    atomic_store(&header.dead, CGM_EXECUTOR_LOST);
    assert_false(cgm_jobs_are_lost(&jobs));
    jobs.lost = true;
    assert_true(cgm_jobs_are_lost(&jobs));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_table),
        cmocka_unit_test(test_a_session_is_over_when_its_jobs_are),
        cmocka_unit_test(test_json_values),
        cmocka_unit_test(test_json_strings),
    };
    unsigned seed = (unsigned)time(NULL);
    print_message("TEST_SEED=%u\n", seed);
    srand(seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
