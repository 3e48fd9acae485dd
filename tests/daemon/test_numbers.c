/* Numbers of jobs: burnt ones, those that were cancelled, and what the journal says of them to the
 * next executor. */
#include "executor_scene.h"

static int submit_refused(struct scene *scene, uint32_t rank, uint64_t number)
{
    struct cgm_entry e = job_of(scene, rank, number);
    e.operand[CGM_OPERAND_LHS].generation = 9;
    fixture_push(&scene->s[rank], (uint32_t)(e.ticket % FIXTURE_ENTRIES), &e, 1);
    return fixture_reap(&scene->s[rank]).status;
}

/* More than are kept with their words. */
static void test_many_burnt_numbers(void **state)
{
    enum { MANY = 500 };
    (void)state;
    struct scene scene;
    struct cgm_cqe cqe;
    scene_open(&scene, 60000, 60000);
    for (uint64_t n = 1; n <= MANY; n++)
        assert_int_equal(submit_refused(&scene, 0, n), CGM_STALE);
    for (uint64_t n = 1; n < MANY; n++) {
        submit(&scene, 1, n);
        cqe = fixture_reap(&scene.s[1]);
        assert_int_equal(cqe.status, CGM_STALE);
        assert_non_null(strstr(cqe.detail, n < 60 ? "rank 0: lhs" : ""));
    }
    assert_non_null(strstr(cqe.detail, "had ended with STALE before rank 1 came for it"));
    assert_int_equal(submit_refused(&scene, 1, MANY), CGM_STALE);
    run_right(&scene, MANY + 1);
    scene_close(&scene);
}

static void test_a_rank_that_is_left_behind(void **state)
{
    (void)state;
    struct scene scene;
    uint64_t n = 0;
    int status;
    scene_open(&scene, 60000, 60000);
    do
        status = submit_refused(&scene, 0, ++n);
    while (status == CGM_STALE && n < 10000);
    submit(&scene, 0, n + 1);
    submit(&scene, 1, 1);
    for (uint32_t r = 0; r < WORLD; r++) {
        struct cgm_cqe cqe = fixture_reap(&scene.s[r]);
        assert_int_equal(cqe.status, CGM_PEER_LOST);
        assert_non_null(strstr(cqe.detail, "rank 1 of comm 3 is 8192 jobs behind rank 0"));
        assert_non_null(strstr(cqe.detail, "leave it, then create it again"));
    }
    scene_close(&scene);
}

/* The other job of its rank is on its way, and it is not. */
static void test_a_deadline_holds_behind_a_full_queue(void **state)
{
    (void)state;
    struct scene scene;
    uint32_t late = 0, n = FIXTURE_ENTRIES - 1;
    scene_open(&scene, 60000, 60000);
    for (uint32_t i = 1; i <= n; i++)
        for (uint32_t r = 0; r < WORLD; r++) {
            struct cgm_entry e = job_of(&scene, r, i);
            e.deadline_ms = i > 8 ? 1 : 0;
            fixture_push(&scene.s[r], (uint32_t)(e.ticket % FIXTURE_ENTRIES), &e, 1);
        }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t r = 0; r < WORLD; r++) {
            int status = fixture_reap(&scene.s[r]).status;
            assert_true(status == CGM_OK || status == CGM_READY_TIMEOUT ||
                        status == CGM_JOIN_TIMEOUT);
            late += status != CGM_OK;
        }
    print_message("%u of %u came too late\n", late, n * WORLD);
    run_right(&scene, n + 1);
    scene_close(&scene);
}

/* Its rank has come for the number, with or without the plan. */
static void test_a_plan_that_is_gone_burns_the_number(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, 60000, 60000);
    submit(&scene, 1, 1);
    struct cgm_entry e = job_of(&scene, 0, 1);
    e.plan = PLAN + 1;
    e.comm = COMM;
    fixture_push(&scene.s[0], 1, &e, 1);
    for (uint32_t r = 0; r < WORLD; r++) {
        struct cgm_cqe cqe = fixture_reap(&scene.s[r]);
        assert_int_equal(cqe.status, CGM_NOT_FOUND);
        assert_non_null(strstr(cqe.detail, "plan: 0000000000000006 does not exist"));
    }
    run_right(&scene, 2);
    scene_close(&scene);
}

static void cancel_first_rank(struct scene *scene, uint64_t ticket)
{
    Cgm__CancelForward cancel = CGM__CANCEL_FORWARD__INIT;
    cancel.session = 1;
    cancel.ticket = ticket;
    fixture_ok(&scene->f, CGM_MSG_CANCEL_FORWARD, &cancel.base, NULL, 0);
    assert_int_equal(fixture_reap(&scene->s[0]).status, CGM_CANCELLED);
}

static void test_cancel_burns_the_number(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, 60000, 60000);
    submit(&scene, 0, 1);
    cancel_first_rank(&scene, 1);
    submit(&scene, 0, 2); /* ahead of the other rank */
    submit(&scene, 1, 1);
    assert_int_equal(fixture_reap(&scene.s[1]).status, CGM_CANCELLED);
    submit(&scene, 1, 2);
    for (uint32_t r = 0; r < WORLD; r++)
        assert_int_equal(fixture_reap(&scene.s[r]).status, CGM_OK);
    scene_close(&scene);
}

static void remove_comm(struct scene *scene)
{
    Cgm__PlanRemove plan = CGM__PLAN_REMOVE__INIT;
    Cgm__CommRemove comm = CGM__COMM_REMOVE__INIT;
    plan.id = PLAN;
    comm.comm = COMM;
    comm.status = CGM_PEER_LOST;
    fixture_ok(&scene->f, CGM_MSG_PLAN_REMOVE, &plan.base, NULL, 0);
    fixture_ok(&scene->f, CGM_MSG_COMM_REMOVE, &comm.base, NULL, 0);
}

/* As to an executor that follows another one. */
static void add_comm_again(struct scene *scene, uint64_t retired)
{
    static const uint64_t sessions[WORLD] = {1, 2};
    fixture_comm_add(&scene->f, COMM, sessions, WORLD, 60000, retired);
    fixture_plan(&scene->f, PLAN, COMM, CGM_OP_AG_GEMM, CGM_ALGO_SPLIT_PIPELINED_AG_P2P, M,
                 N * WORLD, K, WORLD);
}

static void note_end(const struct scene *scene, uint64_t number, int status)
{
    atomic_store(&scene->f.journal->comm_ended[COMM][number % CGM_COMM_WINDOW],
                 cgm_journal_end(number, status));
}

static void expect_status(struct scene *scene, uint32_t rank, uint64_t number, int status)
{
    submit(scene, rank, number);
    assert_int_equal(fixture_reap(&scene->s[rank]).status, status);
}

/* Noted just behind the completions. */
static void expect_retired(const struct scene *scene, uint64_t number)
{
    const _Atomic uint64_t *retired = &scene->f.journal->comm_retired[COMM];
    for (int i = 0; i < FIXTURE_WAIT_MS && atomic_load(retired) != number; i++)
        usleep(1000);
    assert_int_equal(atomic_load(retired), number);
}

/* An executor has ended: rank 0 had come for numbers up to 8, of which 7 was lost, and rank 1 for
 * those up to 5. What had failed fails for who comes for it now, and what was lost is done. */
static void test_numbers_go_on_after_a_restart(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, 60000, 60000);
    remove_comm(&scene);
    atomic_store(&scene.f.journal->comm_high[COMM], 8);
    note_end(&scene, 4, CGM_MISMATCH); /* for which rank 1 had come, and was not told */
    note_end(&scene, 6, CGM_CANCELLED);
    note_end(&scene, 7 + CGM_COMM_WINDOW, CGM_CANCELLED); /* of another number */
    note_end(&scene, 8, CGM_MISMATCH);
    add_comm_again(&scene, 5);
    expect_status(&scene, 0, 5, CGM_INVALID_ARGUMENT); /* it has ended on all ranks */
    submit(&scene, 0, 7);
    expect_status(&scene, 1, 4, CGM_MISMATCH);
    expect_status(&scene, 1, 6, CGM_CANCELLED);
    submit(&scene, 1, 7);
    for (uint32_t r = 0; r < WORLD; r++)
        assert_int_equal(fixture_reap(&scene.s[r]).status, CGM_OK);
    expect_status(&scene, 0, 10, CGM_INVALID_ARGUMENT);
    submit(&scene, 0, 9);
    expect_status(&scene, 1, 8, CGM_MISMATCH);
    submit(&scene, 1, 9);
    for (uint32_t r = 0; r < WORLD; r++)
        assert_int_equal(fixture_reap(&scene.s[r]).status, CGM_OK);
    run_right(&scene, 10);
    expect_retired(&scene, 10);
    scene_close(&scene);
}

/* All ranks go on behind numbers that were lost, and one that failed in between. */
static void test_numbers_that_all_leave_out(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, 60000, 60000);
    remove_comm(&scene);
    atomic_store(&scene.f.journal->comm_high[COMM], 8);
    note_end(&scene, 7, CGM_CANCELLED);
    add_comm_again(&scene, 5);
    run_right(&scene, 9);
    run_right(&scene, 10);
    expect_retired(&scene, 10);
    scene_close(&scene);
}

/* The journal says what failed before anybody is told, and of what went well when all have been. */
static void test_ends_are_in_the_journal(void **state)
{
    (void)state;
    struct scene scene;
    int status;
    scene_open(&scene, 60000, 60000);
    const struct cgm_journal *journal = scene.f.journal;
    run_right(&scene, 1);
    expect_retired(&scene, 1);
    submit(&scene, 0, 2);
    assert_false(cgm_journal_has_ended(atomic_load(&journal->comm_ended[COMM][2]), 2, &status));
    cancel_first_rank(&scene, 2);
    assert_true(cgm_journal_has_ended(atomic_load(&journal->comm_ended[COMM][2]), 2, &status));
    assert_int_equal(status, CGM_CANCELLED);
    expect_retired(&scene, 1);
    expect_status(&scene, 1, 2, CGM_CANCELLED);
    run_right(&scene, 3);
    expect_retired(&scene, 3);
    scene_close(&scene);
}

/* With a rank every number is lost, and the next executor hears of those that somebody came for. */
static void test_what_fails_in_a_dead_comm_is_in_the_journal(void **state)
{
    (void)state;
    struct scene scene;
    int status = CGM_OK;
    scene_open(&scene, 60000, 60000);
    const struct cgm_journal *journal = scene.f.journal;
    run_right(&scene, 1);
    fixture_session_remove(&scene.f, &scene.s[1]);
    expect_status(&scene, 0, 2, CGM_PEER_LOST);
    assert_true(cgm_journal_has_ended(atomic_load(&journal->comm_ended[COMM][2]), 2, &status));
    assert_int_equal(status, CGM_PEER_LOST);
    scene_close(&scene);
}

static void expect_no_plan(struct scene *scene, uint32_t rank, uint64_t number, int status)
{
    struct cgm_entry e = job_of(scene, rank, number);
    e.plan = PLAN + 1;
    e.comm = COMM;
    fixture_push(&scene->s[rank], (uint32_t)(e.ticket % FIXTURE_ENTRIES), &e, 1);
    assert_int_equal(fixture_reap(&scene->s[rank]).status, status);
}

/* Whatever else is wrong with what it submits: all hear the same. */
static void test_a_rank_that_comes_when_the_comm_is_dead(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, 60000, 60000);
    fixture_session_remove(&scene.f, &scene.s[0]);
    expect_status(&scene, 1, 1, CGM_PEER_LOST);
    expect_no_plan(&scene, 1, 2, CGM_PEER_LOST);
    assert_int_equal(submit_refused(&scene, 1, 3), CGM_PEER_LOST);
    scene_close(&scene);
}

/* Failed for the other one, in this executor or the one before. */
static void test_a_plan_that_is_gone_of_a_burnt_number(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, 60000, 60000);
    submit(&scene, 0, 1);
    cancel_first_rank(&scene, 1);
    expect_no_plan(&scene, 1, 1, CGM_CANCELLED);
    remove_comm(&scene);
    atomic_store(&scene.f.journal->comm_high[COMM], 8);
    note_end(&scene, 4, CGM_JOIN_TIMEOUT); /* for which rank 1 had come, and was not told */
    note_end(&scene, 6, CGM_CANCELLED);
    add_comm_again(&scene, 5);
    expect_no_plan(&scene, 1, 4, CGM_JOIN_TIMEOUT);
    expect_no_plan(&scene, 1, 6, CGM_CANCELLED);
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_burnt_numbers),
        cmocka_unit_test(test_a_rank_that_is_left_behind),
        cmocka_unit_test(test_a_deadline_holds_behind_a_full_queue),
        cmocka_unit_test(test_a_plan_that_is_gone_burns_the_number),
        cmocka_unit_test(test_cancel_burns_the_number),
        cmocka_unit_test(test_numbers_go_on_after_a_restart),
        cmocka_unit_test(test_numbers_that_all_leave_out),
        cmocka_unit_test(test_ends_are_in_the_journal),
        cmocka_unit_test(test_what_fails_in_a_dead_comm_is_in_the_journal),
        cmocka_unit_test(test_a_rank_that_comes_when_the_comm_is_dead),
        cmocka_unit_test(test_a_plan_that_is_gone_of_a_burnt_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
