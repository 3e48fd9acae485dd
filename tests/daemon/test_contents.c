/* What a plan's user buffers hold: a job that reads them unnamed gets what the last copy_in was to
 * leave there, or an error that names rank and chunk. */
#include "contents_scene.h"

/* ---- copy_ins that fail -----------------------------------------------------------------------
 */

static void spoil_chunk(struct cgm_entry *e)
{
    e->chunk = WORLD;
}

static void spoil_number(struct cgm_entry *e)
{
    e->comm_number = 1;
}

static void spoil_stream(struct cgm_entry *e)
{
    e->deadline_ms = 20;
}

static const struct {
    void (*spoil)(struct cgm_entry *e);
    int ready, status;
    const char *words;
} failures[] = {
    {spoil_generation, 1, CGM_STALE, "rank 1: chunk 1 of its user buffer is stale"},
    {spoil_chunk, 1, CGM_INVALID_ARGUMENT, "ended with INVALID_ARGUMENT; copy it in again"},
    {spoil_number, 1, CGM_INVALID_ARGUMENT, "rank 1: chunk 1"},
    {spoil_stream, 0, CGM_READY_TIMEOUT, "ended with READY_TIMEOUT"},
};

/* What the last step left there is nobody's result, on no rank. */
static void test_failed_copies_are_named(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, false);
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        copy_both(&scene, 3, 4);
        run_right(&scene, 3, 4);
        struct cgm_entry e = copy_in(&scene, BULK, 1, 0);
        failures[i].spoil(&e);
        push(&scene, &e, failures[i].ready);
        assert_int_equal(fixture_reap(&scene.s[1]).status, failures[i].status);
        run_refused(&scene, failures[i].words);
        assert_int_equal(copy(&scene, BULK, 0, 5), CGM_OK);
        run_refused(&scene, failures[i].words);
        assert_int_equal(copy(&scene, BULK, 1, 6), CGM_OK);
        run_right(&scene, 5, 6);
    }
    scene_close(&scene);
}

static void test_cancelled_copy(void **state)
{
    (void)state;
    struct scene scene;
    Cgm__CancelForward cancel = CGM__CANCEL_FORWARD__INIT;
    scene_open(&scene, false);
    copy_both(&scene, 3, 4);
    struct cgm_entry e = copy_in(&scene, BULK, 0, 0);
    push(&scene, &e, 0);
    cancel.session = 1;
    cancel.ticket = e.ticket;
    fixture_ok(&scene.f, CGM_MSG_CANCEL_FORWARD, &cancel.base, NULL, 0);
    assert_int_equal(fixture_reap(&scene.s[0]).status, CGM_CANCELLED);
    run_refused(&scene, "rank 0: chunk 0 of its user buffer is stale");
    copy_both(&scene, 5, 6);
    run_right(&scene, 5, 6);
    scene_close(&scene);
}

/* Another rank's copy into the chunk of one whose rank he does not have changes nothing. */
static void test_strangers_spoil_nothing(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, false);
    copy_both(&scene, 3, 4);
    struct cgm_entry e = copy_in(&scene, BULK, 0, 0);
    e.rank = 1;
    fixture_push(&scene.s[0], (uint32_t)(e.ticket % FIXTURE_ENTRIES), &e, 1);
    assert_int_equal(fixture_reap(&scene.s[0]).status, CGM_PERMISSION);
    run_right(&scene, 3, 4);
    scene_close(&scene);
}

/* ---- a new executor -----------------------------------------------------------------------------
 */

static void test_lost_buffers_are_named(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, true);
    for (int i = 0; i < 2; i++)
        run_refused(&scene, "rank 0: chunk 0 of its user buffer was lost with an executor");
    assert_int_equal(copy(&scene, BULK, 0, 3), CGM_OK);
    run_refused(&scene, "rank 1: chunk 1 of its user buffer was lost with an executor");
    assert_int_equal(copy(&scene, BULK, 1, 4), CGM_OK);
    run_right(&scene, 3, 4);
    scene_close(&scene);
}

/* Who writes them himself, by his own mapping, says so. */
static void test_clients_may_vouch(void **state)
{
    (void)state;
    struct scene scene;
    Cgm__BufferRewritten rewritten = CGM__BUFFER_REWRITTEN__INIT;
    scene_open(&scene, true);
    for (uint32_t r = 0; r < WORLD; r++) {
        run_refused(&scene, "lost");
        rewritten.id = BULK * 1000 + r;
        fixture_ok(&scene.f, CGM_MSG_BUFFER_REWRITTEN, &rewritten.base, NULL, 0);
    }
    run_right(&scene, 0, 0);
    scene_close(&scene);
}

/* One that was never lost holds zeroes until something is copied in. */
static void test_new_buffers_are_zero(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, false);
    run_right(&scene, 0, 0);
    scene_close(&scene);
}

/* lhs in the own chunk, with as many rows as were copied and no more. */
static struct cgm_cqe multiply_in_place(struct scene *scene, uint64_t rows)
{
    struct cgm_cqe cqe[WORLD];
    scene->number++;
    for (uint32_t r = 0; r < WORLD; r++) {
        struct cgm_entry e = {.ticket = ++scene->s[r].ticket,
                              .plan = GATHER,
                              .comm_number = scene->number,
                              .opcode = CGM_OPCODE_RUN,
                              .rank = r,
                              .rows = rows};
        e.operand[CGM_OPERAND_LHS] =
            (struct cgm_operand){GATHER * 1000 + r, r * CHUNK_FLOATS * sizeof(float), 0, 1, 0};
        e.operand[CGM_OPERAND_RHS] = at(r, RHS_AT);
        e.operand[CGM_OPERAND_OUT] = at(r, OUT_AT);
        push(scene, &e, 1);
    }
    for (uint32_t r = 0; r < WORLD; r++)
        cqe[r] = fixture_reap(&scene->s[r]);
    assert_int_equal(cqe[0].status, cqe[1].status);
    return cqe[1];
}

static void copy_rows(struct scene *scene, uint64_t rows)
{
    for (uint32_t r = 0; r < WORLD; r++) {
        struct cgm_entry e = copy_in(scene, GATHER, r, 0);
        e.rows = rows;
        push(scene, &e, 1);
        assert_string_equal(fixture_reap(&scene->s[r]).detail, "");
    }
}

static void test_rows_that_were_copied(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, true);
    assert_int_equal(multiply_in_place(&scene, M / 2).status, CGM_TAINTED);
    copy_rows(&scene, M / 2);
    assert_int_equal(multiply_in_place(&scene, M / 2).status, CGM_OK);
    assert_int_equal(multiply_in_place(&scene, M).status, CGM_TAINTED);
    copy_rows(&scene, M);
    assert_int_equal(multiply_in_place(&scene, M).status, CGM_OK);
    scene_close(&scene);
}

/* As many rows as were copied, but where they lie there are others between them. */
static void test_rows_that_lie_otherwise(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, true);
    fixture_plan(&scene.f, RESULT, COMM, CGM_OP_RS, CGM_ALGO_NO_OVERLAP, M, K, 0, WORLD);
    fixture_grant_user_buffers(&scene.f, RESULT, WORLD);
    for (uint32_t r = 0; r < WORLD; r++) {
        struct cgm_entry e = copy_in(&scene, RESULT, r, 0);
        spoil_generation(&e);
        push(&scene, &e, 1);
        assert_int_equal(fixture_reap(&scene.s[r]).status, CGM_STALE);
        e = copy_in(&scene, RESULT, r, 0);
        e.chunk = UINT32_MAX;
        e.rows = M / 2;
        push(&scene, &e, 1);
        assert_string_equal(fixture_reap(&scene.s[r]).detail, "");
    }
    for (uint32_t r = 0; r < WORLD; r++) {
        struct cgm_entry e = {.ticket = ++scene.s[r].ticket,
                              .plan = RESULT,
                              .comm_number = 1,
                              .opcode = CGM_OPCODE_RUN,
                              .rank = r,
                              .rows = M / 2};
        e.operand[CGM_OPERAND_LHS] = (struct cgm_operand){RESULT * 1000 + r, 0, 0, 1, 0};
        e.operand[CGM_OPERAND_OUT] = at(r, OUT_AT);
        push(&scene, &e, 1);
    }
    for (uint32_t r = 0; r < WORLD; r++)
        assert_int_equal(fixture_reap(&scene.s[r]).status, CGM_TAINTED);
    scene_close(&scene);
}

/* ---- copies outside of jobs
 * ---------------------------------------------------------------------- */

static void test_no_buffer_is_made_of_what_was_lost(void **state)
{
    (void)state;
    struct scene scene;
    Cgm__CopyForward copy_bytes = CGM__COPY_FORWARD__INIT;
    int status;
    scene_open(&scene, true);
    copy_bytes.session = 1;
    copy_bytes.dst = 10;
    copy_bytes.src = BULK * 1000;
    copy_bytes.bytes = CHUNK_FLOATS * sizeof(float);
    fixture_call(&scene.f, CGM_MSG_COPY_FORWARD, &copy_bytes.base, NULL, 0, &status);
    assert_int_equal(status, CGM_TAINTED);
    assert_int_equal(copy(&scene, BULK, 0, 3), CGM_OK);
    fixture_ok(&scene.f, CGM_MSG_COPY_FORWARD, &copy_bytes.base, NULL, 0);
    copy_bytes.src_offset = copy_bytes.bytes;
    fixture_call(&scene.f, CGM_MSG_COPY_FORWARD, &copy_bytes.base, NULL, 0, &status);
    assert_int_equal(status, CGM_TAINTED);
    scene_close(&scene);
}

/* An executor before this one has run it: what a run would take does not hold up everybody. */
static void test_what_was_made_before_is_not_run(void **state)
{
    (void)state;
    struct scene scene;
    Cgm__PlanCreate ask = CGM__PLAN_CREATE__INIT;
    if (strstr(CGM_TEST_EXECUTOR, "cuda")) /* where a first run loads kernels */
        skip();
    scene_open(&scene, false);
    ask.comm = COMM;
    ask.op = CGM_OP_GEMM;
    ask.m = WORLD;
    ask.n = ask.k = 1 << 20; /* rhs has 4 TiB */
    assert_int_equal(fixture_plan_try(&scene.f, 90, &ask, WORLD), CGM_NO_MEMORY);
    assert_int_equal(
        fixture_reply(&scene.f, fixture_plan_send_again(&scene.f, 90, &ask, WORLD, true)), CGM_OK);
    cgm_packet_close_fds(&scene.f.packet);
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failed_copies_are_named),
        cmocka_unit_test(test_cancelled_copy),
        cmocka_unit_test(test_strangers_spoil_nothing),
        cmocka_unit_test(test_lost_buffers_are_named),
        cmocka_unit_test(test_clients_may_vouch),
        cmocka_unit_test(test_new_buffers_are_zero),
        cmocka_unit_test(test_rows_that_were_copied),
        cmocka_unit_test(test_rows_that_lie_otherwise),
        cmocka_unit_test(test_no_buffer_is_made_of_what_was_lost),
        cmocka_unit_test(test_what_was_made_before_is_not_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
