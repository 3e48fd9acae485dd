/* What a rank's jobs do with its user buffer takes effect in the order in which it submitted them,
 * also where some of them fail, come late or are refused. */
#include "contents_scene.h"

#include <math.h>

#define PRODUCT 8u /* of one rank, M x K by K x K */

/* Two copies into one chunk and the job that reads it, submitted together: the last copy counts. */
static void test_jobs_see_the_copies_before_them(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, false);
    for (uint32_t step = 1; step <= 100; step++) {
        for (uint32_t r = 0; r < WORLD; r++) {
            set_source(&scene, r, 0, -1);
            set_source(&scene, r, 1, (float)(step + r * 1000));
        }
        for (uint32_t r = 0; r < WORLD; r++) {
            for (uint32_t source = 0; source < 2; source++) {
                struct cgm_entry e = copy_in(&scene, BULK, r, source);
                push(&scene, &e, 1);
            }
            push_bulk(&scene, r);
        }
        scene.number++;
        for (uint32_t r = 0; r < WORLD; r++) {
            for (int i = 0; i < 3; i++)
                assert_string_equal(fixture_reap(&scene.s[r]).detail, "");
            check_gathered(&scene, r, (float)step, (float)(step + 1000));
        }
    }
    scene_close(&scene);
}

/* A copy for the next job waits until this one, for which the other rank is late, has begun. */
static void test_jobs_see_no_copy_behind_them(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, false);
    copy_both(&scene, 3, 4);
    push_bulk(&scene, 0);
    set_source(&scene, 0, 0, 7);
    struct cgm_entry e = copy_in(&scene, BULK, 0, 0);
    push(&scene, &e, 1);
    usleep(20000);
    assert_true(fixture_is_idle(&scene.s[0]));
    push_bulk(&scene, 1);
    scene.number++;
    assert_int_equal(fixture_reap(&scene.s[1]).status, CGM_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(fixture_reap(&scene.s[0]).status, CGM_OK);
    check_gathered(&scene, 1, 3, 4);
    run_right(&scene, 7, 4);
    scene_close(&scene);
}

/* Neither waits for ever. */
static void push_gathering(struct scene *scene, uint32_t rank, uint64_t number,
                           struct cgm_operand lhs, struct cgm_operand out)
{
    struct cgm_entry e = {.ticket = ++scene->s[rank].ticket,
                          .plan = RESULT,
                          .comm_number = number,
                          .opcode = CGM_OPCODE_RUN,
                          .rank = rank};
    e.operand[CGM_OPERAND_LHS] = lhs;
    e.operand[CGM_OPERAND_OUT] = out;
    push(scene, &e, 1);
}

/* A result that is named stands in line like one that is not: a copy behind it is not launched
 * before, and a job behind both reads the copy. */
static void test_results_are_in_line(void **state)
{
    (void)state;
    struct scene scene;
    const struct cgm_operand user = {RESULT * 1000, 0, 0, 1, 0};
    const uint32_t other = SOURCE_AT + CHUNK_FLOATS * (uint32_t)sizeof(float);
    scene_open(&scene, false);
    fixture_plan(&scene.f, RESULT, COMM, CGM_OP_AG, CGM_ALGO_NO_OVERLAP, M, K, 0, WORLD);
    fixture_grant_user_buffers(&scene.f, RESULT, WORLD);
    set_source(&scene, 0, 0, 1);
    set_source(&scene, 0, 1, 7);
    set_source(&scene, 1, 0, 3);
    push_gathering(&scene, 0, 1, at(0, SOURCE_AT), user);
    struct cgm_entry copy = copy_in(&scene, RESULT, 0, 1);
    push(&scene, &copy, 1);
    push_gathering(&scene, 0, 2, user, at(0, GATHERED_AT));
    usleep(100000);
    assert_true(fixture_is_idle(&scene.s[0]));
    push_gathering(&scene, 1, 1, at(1, SOURCE_AT), at(1, other));
    push_gathering(&scene, 1, 2, at(1, SOURCE_AT), at(1, GATHERED_AT));
    for (int i = 0; i < 5; i++)
        assert_int_equal(fixture_reap(&scene.s[i < 3 ? 0 : 1]).status, CGM_OK);
    for (uint32_t r = 0; r < WORLD; r++)
        check_gathered(&scene, r, 7, 3);
    scene_close(&scene);
}

static void cancel(struct scene *scene, uint32_t rank, uint64_t ticket)
{
    Cgm__CancelForward message = CGM__CANCEL_FORWARD__INIT;
    message.session = rank + 1;
    message.ticket = ticket;
    fixture_ok(&scene->f, CGM_MSG_CANCEL_FORWARD, &message.base, NULL, 0);
    struct cgm_cqe cqe = fixture_reap(&scene->s[rank]);
    assert_int_equal(cqe.status, CGM_CANCELLED);
    assert_int_equal(cqe.ticket, ticket);
}

static void cancel_last(struct scene *scene, uint32_t rank)
{
    cancel(scene, rank, scene->s[rank].ticket);
}

/* The second one is cancelled while the first one, which reads what it was to write, waits for the
 * other rank. user: it lies in the user buffer. */
static void cancel_behind_a_reader(bool user)
{
    struct scene scene;
    const struct cgm_operand shared =
        user ? (struct cgm_operand){RESULT * 1000, 0, 0, 1, 0} : at(0, SOURCE_AT);
    scene_open(&scene, false);
    fixture_plan(&scene.f, RESULT, COMM, CGM_OP_AG, CGM_ALGO_NO_OVERLAP, M, K, 0, WORLD);
    fixture_grant_user_buffers(&scene.f, RESULT, WORLD);
    assert_int_equal(copy(&scene, RESULT, 0, 7), CGM_OK);
    set_source(&scene, 1, 0, 3);
    push_gathering(&scene, 0, 1, shared, at(0, GATHERED_AT));
    push_gathering(&scene, 0, 2, at(0, LHS_AT), shared);
    cancel_last(&scene, 0);
    push_gathering(&scene, 1, 1, at(1, SOURCE_AT), at(1, GATHERED_AT));
    for (uint32_t r = 0; r < WORLD; r++) {
        assert_int_equal(fixture_reap(&scene.s[r]).status, CGM_OK);
        check_gathered(&scene, r, 7, 3);
    }
    push_gathering(&scene, 1, 2, at(1, SOURCE_AT), at(1, RHS_AT));
    assert_int_equal(fixture_reap(&scene.s[1]).status, CGM_CANCELLED);
    push_gathering(&scene, 0, 3, shared, at(0, GATHERED_AT));
    push_gathering(&scene, 1, 3, at(1, SOURCE_AT), at(1, GATHERED_AT));
    for (uint32_t r = 0; r < WORLD; r++) /* it was to leave its result there, and has not */
        assert_int_equal(fixture_reap(&scene.s[r]).status, user ? CGM_TAINTED : CGM_OK);
    scene_close(&scene);
}

static void test_who_fails_spoils_nothing_before_it(void **state)
{
    (void)state;
    cancel_behind_a_reader(true);
    cancel_behind_a_reader(false);
}

/* The second run is cancelled while the copy, which reads what it was to write, waits for the first
 * one to begin. */
static void test_who_fails_spoils_no_copy_before_it(void **state)
{
    (void)state;
    struct scene scene;
    const struct cgm_operand user = {RESULT * 1000, 0, 0, 1, 0};
    scene_open(&scene, false);
    fixture_plan(&scene.f, RESULT, COMM, CGM_OP_AG, CGM_ALGO_NO_OVERLAP, M, K, 0, WORLD);
    fixture_grant_user_buffers(&scene.f, RESULT, WORLD);
    assert_int_equal(copy(&scene, RESULT, 0, 5), CGM_OK);
    set_source(&scene, 0, 1, 7);
    set_source(&scene, 1, 0, 3);
    push_gathering(&scene, 0, 1, user, at(0, GATHERED_AT));
    struct cgm_entry waiting = copy_in(&scene, RESULT, 0, 1);
    push(&scene, &waiting, 1);
    push_gathering(&scene, 0, 2, user, waiting.operand[CGM_OPERAND_LHS]);
    cancel_last(&scene, 0);
    push_gathering(&scene, 1, 1, at(1, SOURCE_AT), at(1, GATHERED_AT));
    push_gathering(&scene, 1, 2, at(1, SOURCE_AT), at(1, RHS_AT));
    for (int i = 0; i < 2; i++)
        assert_int_equal(fixture_reap(&scene.s[0]).status, CGM_OK);
    check_gathered(&scene, 0, 5, 3);
    for (int i = 0; i < 2; i++) { /* in whatever order */
        struct cgm_cqe cqe = fixture_reap(&scene.s[1]);
        assert_int_equal(cqe.status, cqe.comm_number == 1 ? CGM_OK : CGM_CANCELLED);
    }
    push_gathering(&scene, 0, 3, user, at(0, GATHERED_AT));
    push_gathering(&scene, 1, 3, at(1, SOURCE_AT), at(1, GATHERED_AT));
    for (uint32_t r = 0; r < WORLD; r++) {
        assert_int_equal(fixture_reap(&scene.s[r]).status, CGM_OK);
        check_gathered(&scene, r, 7, 3);
    }
    scene_close(&scene);
}

/* What the product of one rank's that fails was to write, and where others read: a run before it,
 * a late copy before it, for which it waits, and one behind it. */
static const struct {
    uint32_t run, copy, behind;
    bool spared;
} readers[] = {
    {SOURCE_AT, LHS_AT, LHS_AT, true},
    {LHS_AT, SOURCE_AT, LHS_AT, true},
    {LHS_AT, LHS_AT, SOURCE_AT, false},
};

static struct cgm_entry push_late_copy(struct scene *scene, uint64_t plan, uint32_t from)
{
    struct cgm_entry e = copy_in(scene, plan, 0, 0);
    e.operand[CGM_OPERAND_LHS] = at(0, from);
    push(scene, &e, 0);
    return e;
}

static void come(struct scene *scene, const struct cgm_entry *e)
{
    atomic_store(&scene->s[e->rank].ring.ready[e->ticket % FIXTURE_ENTRIES], e->ticket);
}

static void fail_alone_among(struct scene *scene, uint32_t run, uint32_t copy, uint32_t behind,
                             bool spared)
{
    struct cgm_entry product = {.plan = PRODUCT, .opcode = CGM_OPCODE_RUN};
    product.operand[CGM_OPERAND_LHS] = (struct cgm_operand){PRODUCT * 1000, 0, 0, 1, 0};
    product.operand[CGM_OPERAND_RHS] = at(0, RHS_AT);
    product.operand[CGM_OPERAND_OUT] = at(0, SOURCE_AT);
    set_source(scene, 0, 0, 7);
    push_gathering(scene, 0, ++scene->number, at(0, run), at(0, GATHERED_AT));
    struct cgm_entry before = push_late_copy(scene, PRODUCT, copy);
    product.ticket = ++scene->s[0].ticket;
    push(scene, &product, 1);
    struct cgm_entry after = push_late_copy(scene, RESULT, behind);
    cancel(scene, 0, product.ticket);
    host_view_pull(&scene->view[0], SOURCE_AT, sizeof(float));
    float left = scene->base[0][SOURCE_AT / sizeof(float)];
    assert_true(spared ? left == 7 : isnan(left));
    come(scene, &before);
    come(scene, &after);
    push_gathering(scene, 1, scene->number, at(1, SOURCE_AT), at(1, GATHERED_AT));
    for (int i = 0; i < 3; i++)
        assert_int_equal(fixture_reap(&scene->s[0]).status, CGM_OK);
    assert_int_equal(fixture_reap(&scene->s[1]).status, CGM_OK);
}

static void test_who_fails_alone_spoils_nothing_before_it(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, false);
    fixture_plan(&scene.f, RESULT, COMM, CGM_OP_AG, CGM_ALGO_NO_OVERLAP, M, K, 0, WORLD);
    fixture_plan(&scene.f, PRODUCT, COMM, CGM_OP_GEMM, CGM_ALGO_NO_OVERLAP, M, K, K, WORLD);
    fixture_grant_user_buffers(&scene.f, PRODUCT, WORLD);
    for (size_t i = 0; i < sizeof(readers) / sizeof(readers[0]); i++)
        fail_alone_among(&scene, readers[i].run, readers[i].copy, readers[i].behind,
                         readers[i].spared);
    scene_close(&scene);
}

/* The second number has failed before the other rank comes for it, which has the first one still to
 * run. */
static void test_who_comes_late_spoils_nothing_before_it(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, false);
    fixture_plan(&scene.f, RESULT, COMM, CGM_OP_AG, CGM_ALGO_NO_OVERLAP, M, K, 0, WORLD);
    set_source(&scene, 0, 0, 7);
    set_source(&scene, 1, 0, 3);
    struct cgm_entry late = {
        .ticket = ++scene.s[0].ticket, .plan = RESULT, .comm_number = 1, .opcode = CGM_OPCODE_RUN};
    late.operand[CGM_OPERAND_LHS] = at(0, SOURCE_AT);
    late.operand[CGM_OPERAND_OUT] = at(0, GATHERED_AT);
    push(&scene, &late, 0);
    push_gathering(&scene, 0, 2, at(0, LHS_AT), at(0, RHS_AT));
    cancel_last(&scene, 0);
    push_gathering(&scene, 1, 1, at(1, SOURCE_AT), at(1, GATHERED_AT));
    push_gathering(&scene, 1, 2, at(1, LHS_AT), at(1, SOURCE_AT));
    assert_int_equal(fixture_reap(&scene.s[1]).status, CGM_CANCELLED);
    atomic_store(&scene.s[0].ring.ready[late.ticket % FIXTURE_ENTRIES], late.ticket);
    for (uint32_t r = 0; r < WORLD; r++) {
        assert_int_equal(fixture_reap(&scene.s[r]).status, CGM_OK);
        check_gathered(&scene, r, 7, 3);
    }
    scene_close(&scene);
}

/* Its result was to lie in the user buffer, and where in it is not known. */
static void test_refused_results_are_marked(void **state)
{
    (void)state;
    struct scene scene;
    const struct cgm_operand user = {RESULT * 1000, 0, 0, 1, 0};
    struct cgm_operand bad = at(0, LHS_AT);
    bad.generation = 6;
    scene_open(&scene, false);
    fixture_plan(&scene.f, RESULT, COMM, CGM_OP_AG, CGM_ALGO_NO_OVERLAP, M, K, 0, WORLD);
    fixture_grant_user_buffers(&scene.f, RESULT, WORLD);
    assert_int_equal(copy(&scene, RESULT, 0, 7), CGM_OK);
    push_gathering(&scene, 0, 1, bad, user);
    assert_int_equal(fixture_reap(&scene.s[0]).status, CGM_STALE);
    push_gathering(&scene, 1, 1, at(1, SOURCE_AT), at(1, GATHERED_AT));
    assert_int_equal(fixture_reap(&scene.s[1]).status, CGM_STALE);
    push_gathering(&scene, 0, 2, user, at(0, GATHERED_AT));
    push_gathering(&scene, 1, 2, at(1, SOURCE_AT), at(1, GATHERED_AT));
    for (uint32_t r = 0; r < WORLD; r++)
        assert_int_equal(fixture_reap(&scene.s[r]).status, CGM_TAINTED);
    scene_close(&scene);
}

static void push_product(struct scene *scene, uint32_t rank, struct cgm_operand lhs)
{
    struct cgm_entry e = {.ticket = ++scene->s[rank].ticket,
                          .plan = GATHER,
                          .comm_number = scene->number + 1,
                          .opcode = CGM_OPCODE_RUN,
                          .rank = rank};
    e.operand[CGM_OPERAND_LHS] = lhs;
    e.operand[CGM_OPERAND_RHS] = at(rank, RHS_AT);
    e.operand[CGM_OPERAND_OUT] = at(rank, OUT_AT);
    push(scene, &e, 1);
}

static void run_product(struct scene *scene, bool in_place, int status)
{
    for (uint32_t r = 0; r < WORLD; r++)
        push_product(scene, r,
                     in_place ? (struct cgm_operand){GATHER * 1000 + r,
                                                     r * CHUNK_FLOATS * sizeof(float), 0, 1, 0}
                              : at(r, LHS_AT));
    scene->number++;
    for (uint32_t r = 0; r < WORLD; r++)
        assert_int_equal(fixture_reap(&scene->s[r]).status, status);
}

/* Some algorithms gather there, and some do not. */
static void test_what_is_gathered_over_is_gone(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, false);
    for (uint32_t r = 0; r < WORLD; r++)
        assert_int_equal(copy(&scene, GATHER, r, 7), CGM_OK);
    run_product(&scene, true, CGM_OK);
    run_product(&scene, true, CGM_OK);
    run_product(&scene, false, CGM_OK);
    run_product(&scene, true, CGM_TAINTED);
    run_product(&scene, false, CGM_OK);
    for (uint32_t r = 0; r < WORLD; r++)
        assert_int_equal(copy(&scene, GATHER, r, 7), CGM_OK);
    run_product(&scene, true, CGM_OK);
    scene_close(&scene);
}

/* Of a plan that is destroyed and created again the user buffers are others, too. */
static void test_buffers_of_a_plan_that_is_created_again(void **state)
{
    (void)state;
    struct scene scene;
    Cgm__PlanRemove remove = CGM__PLAN_REMOVE__INIT;
    scene_open(&scene, false);
    push_bulk(&scene, 0);
    assert_int_equal(copy(&scene, GATHER, 0, 1), CGM_OK); /* it has been read by then */
    remove.id = BULK;
    fixture_send(&scene.f, CGM_MSG_PLAN_REMOVE, &remove.base, NULL, 0);
    add_plan(&scene, BULK, false);
    push_bulk(&scene, 1);
    for (uint32_t r = 0; r < WORLD; r++) {
        struct cgm_cqe cqe = fixture_reap(&scene.s[r]);
        assert_int_equal(cqe.status, CGM_MISMATCH);
        assert_non_null(strstr(cqe.detail, "created again"));
    }
    scene_close(&scene);
}

static void test_deadlines_count_in_line(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, false);
    copy_both(&scene, 3, 4);
    push_bulk(&scene, 0);
    struct cgm_entry e = copy_in(&scene, BULK, 0, 0);
    e.deadline_ms = 20;
    push(&scene, &e, 1);
    struct cgm_cqe cqe = fixture_reap(&scene.s[0]);
    assert_int_equal(cqe.ticket, e.ticket);
    assert_int_equal(cqe.status, CGM_READY_TIMEOUT);
    push_bulk(&scene, 1);
    scene.number++;
    for (uint32_t r = 0; r < WORLD; r++) { /* it came before the copy, whose end came first */
        assert_int_equal(fixture_reap(&scene.s[r]).status, CGM_OK);
        check_gathered(&scene, r, 3, 4);
    }
    for (uint32_t r = 0; r < WORLD; r++)
        push_bulk(&scene, r);
    scene.number++;
    for (uint32_t r = 0; r < WORLD; r++)
        assert_int_equal(fixture_reap(&scene.s[r]).status, CGM_TAINTED);
    copy_both(&scene, 5, 6);
    run_right(&scene, 5, 6);
    scene_close(&scene);
}

/* The copy that was refused came last, though the one before it ends later. */
static void test_the_last_copy_has_the_last_word(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, false);
    copy_both(&scene, 3, 4);
    struct cgm_entry slow = copy_in(&scene, BULK, 0, 0), bad = copy_in(&scene, BULK, 0, 0);
    spoil_generation(&bad);
    push(&scene, &slow, 0);
    push(&scene, &bad, 1);
    assert_int_equal(fixture_reap(&scene.s[0]).status, CGM_STALE);
    atomic_store(&scene.s[0].ring.ready[slow.ticket % FIXTURE_ENTRIES], slow.ticket);
    assert_int_equal(fixture_reap(&scene.s[0]).status, CGM_OK);
    run_refused(&scene, "ended with STALE");
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jobs_see_the_copies_before_them),
        cmocka_unit_test(test_jobs_see_no_copy_behind_them),
        cmocka_unit_test(test_results_are_in_line),
        cmocka_unit_test(test_who_fails_spoils_nothing_before_it),
        cmocka_unit_test(test_who_fails_spoils_no_copy_before_it),
        cmocka_unit_test(test_who_fails_alone_spoils_nothing_before_it),
        cmocka_unit_test(test_who_comes_late_spoils_nothing_before_it),
        cmocka_unit_test(test_refused_results_are_marked),
        cmocka_unit_test(test_what_is_gathered_over_is_gone),
        cmocka_unit_test(test_buffers_of_a_plan_that_is_created_again),
        cmocka_unit_test(test_deadlines_count_in_line),
        cmocka_unit_test(test_the_last_copy_has_the_last_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
