/* What the daemon keeps of auto's times: found by key, replaced, bounded, and written whole or not
 * at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/broker/log.h"
#include "daemon/broker/timings.h"
#include "proto/status.h"
#include "proto/types.h"

struct folder {
    char path[64], file[80];
};

static int folder_make(void **state)
{
    struct folder *folder = malloc(sizeof(*folder));
    strcpy(folder->path, "/tmp/cgm-timings-XXXXXX");
    assert_non_null(mkdtemp(folder->path));
    snprintf(folder->file, sizeof(folder->file), "%s/timings", folder->path);
    cgm_log_set_level(CGM_LOG_ERROR);
    *state = folder;
    return 0;
}

static int folder_remove(void **state)
{
    struct folder *folder = *state;
    unlink(folder->file);
    assert_int_equal(rmdir(folder->path), 0); /* nothing else was left in it */
    free(folder);
    return 0;
}

static struct cgm_timing timing_of(uint64_t m, uint64_t at_s, uint64_t ns)
{
    static const uint32_t devices[] = {0, 1};
    struct cgm_timing timing;
    Cgm__PlanCreate plan = CGM__PLAN_CREATE__INIT;
    plan.op = CGM_OP_GEMM_RS;
    plan.m = m;
    plan.n = plan.k = 64;
    assert_true(cgm_timing_of_plan(&plan, "1.0", "test", devices, 2, &timing));
    timing.times = (struct cgm_times){.n = 2, .algorithm = {0, 4}, .ns = {ns, 2}, .at_s = at_s};
    return timing;
}

static void add_of(struct cgm_timings *timings, uint32_t uid, uint64_t m, uint64_t at_s,
                   uint64_t ns)
{
    struct cgm_timing timing = timing_of(m, at_s, ns);
    assert_int_equal(cgm_timings_add(timings, &timing, uid), CGM_OK);
}

static void add(struct cgm_timings *timings, uint64_t m, uint64_t at_s, uint64_t ns)
{
    add_of(timings, 0, m, at_s, ns);
}

/* 0: there is none. */
static uint64_t find(const struct cgm_timings *timings, uint64_t m)
{
    struct cgm_timing timing = timing_of(m, 1, 1);
    struct cgm_times times;
    return cgm_timings_find(timings, &timing, &times) ? times.ns[0] : 0;
}

static void test_kept(void **state)
{
    const struct folder *folder = *state;
    struct cgm_timings timings;
    cgm_timings_open(&timings, folder->path);
    assert_int_equal(find(&timings, 2), 0);
    add(&timings, 2, 10, 200);
    add(&timings, 4, 11, 400);
    add(&timings, 2, 12, 201);
    assert_int_equal(timings.count, 2);
    cgm_timings_close(&timings);
    cgm_timings_open(&timings, folder->path);
    assert_int_equal(find(&timings, 2), 201);
    assert_int_equal(find(&timings, 4), 400);
    assert_int_equal(find(&timings, 6), 0);
    assert_int_equal(cgm_timings_clear(&timings), 2);
    cgm_timings_save(&timings);
    cgm_timings_close(&timings);
    cgm_timings_open(&timings, folder->path);
    assert_int_equal(timings.count, 0);
    cgm_timings_close(&timings);
}

static void test_bounds(void **state)
{
    const struct folder *folder = *state;
    struct cgm_timings timings;
    struct stat info;
    cgm_timings_open(&timings, folder->path);
    for (uint64_t i = 1; i <= CGM_TIMINGS_MAX; i++)
        add(&timings, i, i == 77 ? 1 : 1000 + i, i);
    add(&timings, 5, 3000000, 55); /* in its own place */
    assert_int_equal(find(&timings, 77), 77);
    add(&timings, 1000000, 2000000, 9);
    assert_int_equal(find(&timings, 77), 0); /* the oldest */
    assert_int_equal(find(&timings, 1000000), 9);
    assert_int_equal(timings.count, CGM_TIMINGS_MAX);
    cgm_timings_close(&timings);
    assert_int_equal(stat(folder->file, &info), 0);
    assert_true(info.st_size <= (off_t)CGM_TIMINGS_MAX * CGM_TIMING_LINE_BYTES);
    cgm_timings_open(&timings, folder->path);
    assert_int_equal(timings.count, CGM_TIMINGS_MAX);
    assert_int_equal(find(&timings, 5), 55);
    cgm_timings_close(&timings);
}

/* The disk is full, in the middle of the file: the one before stays. */
/* Who has ever more plans measured takes at most half of the room from the others. */
static void test_greed(void **state)
{
    const struct folder *folder = *state;
    const uint64_t half = CGM_TIMINGS_MAX / 2;
    struct cgm_timings timings;
    cgm_timings_open(&timings, folder->path);
    for (uint64_t i = 1; i <= half - 1; i++)
        add_of(&timings, 1001, i, i, i);
    cgm_timings_close(&timings);
    cgm_timings_open(&timings, folder->path); /* it makes no difference, nor does another one's */
    add_of(&timings, 1002, 1000000, 1, 7);
    for (uint64_t i = 1; i <= CGM_TIMINGS_MAX; i++)
        add_of(&timings, 1003, 2000000 + i, 2000000 + i, i);
    assert_int_equal(timings.count, CGM_TIMINGS_MAX);
    for (uint64_t i = 1; i <= half - 1; i++)
        assert_int_equal(find(&timings, i), i);
    assert_int_equal(find(&timings, 1000000), 7);
    assert_int_equal(find(&timings, 2000000 + half), 0);
    assert_int_equal(find(&timings, 2000000 + half + 1), half + 1);
    cgm_timings_close(&timings);
}

static void test_full_disk(void **state)
{
    const struct folder *folder = *state;
    struct cgm_timings timings;
    struct rlimit was, tight;
    cgm_timings_open(&timings, folder->path);
    add(&timings, 2, 10, 200);
    cgm_timings_save(&timings);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &was);
    tight = (struct rlimit){10000, was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    for (uint64_t i = 1; i < 1000; i++)
        add(&timings, i, 11, 300);
    cgm_timings_save(&timings);
    setrlimit(RLIMIT_FSIZE, &was);
    assert_true(timings.failed);
    assert_int_equal(find(&timings, 2), 300); /* known, and not on disk */
    struct cgm_timings other;
    cgm_timings_open(&other, folder->path);
    assert_int_equal(other.count, 1);
    assert_int_equal(find(&other, 2), 200);
    cgm_timings_close(&other);
    add(&timings, 2, 12, 400); /* there is room again */
    cgm_timings_close(&timings);
    cgm_timings_open(&other, folder->path);
    assert_int_equal(other.count, 999);
    cgm_timings_close(&other);
}

static void test_nowhere(void **state)
{
    (void)state;
    struct cgm_timings timings;
    cgm_timings_open(&timings, "none");
    add(&timings, 2, 10, 200);
    assert_int_equal(find(&timings, 2), 200);
    cgm_timings_close(&timings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_kept, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(test_bounds, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(test_greed, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(test_full_disk, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(test_nowhere, folder_make, folder_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
