/* What a plan's user buffers hold: a job that reads them unnamed gets what the last copy_in was to
 * leave there, or an error that names rank and chunk. */
#include "executor_fixture.h"

#define WORLD 2u
#define M 8u
#define N 6u
#define K 4u
#define COMM 3u
#define BULK 5u   /* bulk_ag of CHUNK_ROWS * WORLD x K */
#define GATHER 6u /* ag_gemm */
#define RESULT 7u /* ag of the same shape */
#define CHUNK_ROWS (M / WORLD)
#define CHUNK_FLOATS (CHUNK_ROWS * K)

/* Of rank r's buffer 10 + r. */
#define LHS_AT 0u
#define RHS_AT 4096u
#define OUT_AT 8192u
#define SOURCE_AT 12288u /* two chunks, one for each way of a pair of copies */
#define GATHERED_AT 14336u
#define BUFFER_BYTES 16384u

struct scene {
    struct fixture f;
    struct fixture_session s[WORLD];
    struct host_view view[WORLD];
    float *base[WORLD];
    uint64_t number; /* of the last collective job */
};

static void grant_user_buffers(struct scene *scene, uint64_t plan)
{
    for (uint32_t r = 0; r < WORLD; r++) {
        Cgm__Grant grant = CGM__GRANT__INIT;
        grant.session = r + 1;
        grant.id = plan * 1000 + r;
        grant.writable = 1;
        fixture_ok(&scene->f, CGM_MSG_GRANT, &grant.base, NULL, 0);
    }
}

static void add_plan(struct scene *scene, uint64_t id, bool lost)
{
    Cgm__PlanCreate ask = CGM__PLAN_CREATE__INIT;
    uint64_t shape[2] = {M, K};
    ask.comm = COMM;
    ask.op = id == BULK ? CGM_OP_BULK_AG : CGM_OP_AG_GEMM;
    ask.method = CGM_METHOD_NONE;
    ask.comm_type = CGM_COMM_TYPE_AG;
    ask.m = M;
    ask.n = id == BULK ? N : N * WORLD;
    ask.k = K;
    ask.n_buffer_shape = id == BULK ? 2 : 0;
    ask.buffer_shape = shape;
    uint32_t serial = fixture_plan_send_again(&scene->f, id, &ask, WORLD, lost);
    assert_int_equal(fixture_reply(&scene->f, serial), CGM_OK);
    cgm_packet_close_fds(&scene->f.packet);
    grant_user_buffers(scene, id);
}

static void scene_open(struct scene *scene, bool lost)
{
    uint64_t sessions[WORLD] = {1, 2};
    memset(scene, 0, sizeof(*scene));
    fixture_open(&scene->f, 60000, 60000, 0);
    for (uint32_t r = 0; r < WORLD; r++)
        fixture_session_open(&scene->f, sessions[r], &scene->s[r]);
    fixture_comm_add(&scene->f, COMM, sessions, WORLD, 60000, 0);
    add_plan(scene, BULK, lost);
    add_plan(scene, GATHER, lost);
    for (uint32_t r = 0; r < WORLD; r++)
        scene->base[r] =
            fixture_buffer(&scene->f, 10 + r, BUFFER_BYTES, &scene->s[r], &scene->view[r]);
}

static void scene_close(struct scene *scene)
{
    for (uint32_t r = 0; r < WORLD; r++) {
        fixture_session_close(&scene->s[r]);
        host_view_close(&scene->view[r]);
    }
    fixture_close(&scene->f);
}

static struct cgm_operand at(uint32_t rank, uint64_t offset)
{
    return (struct cgm_operand){10 + rank, offset, 0, 1, 0};
}

static void push(struct scene *scene, const struct cgm_entry *e, int ready)
{
    fixture_push(&scene->s[e->rank], (uint32_t)(e->ticket % FIXTURE_ENTRIES), e, ready);
}

/* What a copy_in of this source leaves: every element of the chunk is `value`. */
static void set_source(struct scene *scene, uint32_t rank, uint32_t source, float value)
{
    uint32_t offset = SOURCE_AT + source * (CHUNK_FLOATS * (uint32_t)sizeof(float));
    for (uint32_t i = 0; i < CHUNK_FLOATS; i++)
        scene->base[rank][offset / sizeof(float) + i] = value;
    host_view_push(&scene->view[rank], offset, CHUNK_FLOATS * sizeof(float));
}

static struct cgm_entry copy_in(struct scene *scene, uint64_t plan, uint32_t rank, uint32_t source)
{
    struct cgm_entry e = {.ticket = ++scene->s[rank].ticket,
                          .plan = plan,
                          .opcode = CGM_OPCODE_COPY_IN,
                          .rank = rank,
                          .chunk = rank};
    e.operand[CGM_OPERAND_LHS] = at(rank, SOURCE_AT + source * CHUNK_FLOATS * sizeof(float));
    return e;
}

static int copy(struct scene *scene, uint64_t plan, uint32_t rank, float value)
{
    set_source(scene, rank, 0, value);
    struct cgm_entry e = copy_in(scene, plan, rank, 0);
    push(scene, &e, 1);
    return fixture_reap(&scene->s[rank]).status;
}

/* Without aux_in: what lies in the user buffers is gathered. */
static void push_bulk(struct scene *scene, uint32_t rank)
{
    struct cgm_entry e = {.ticket = ++scene->s[rank].ticket,
                          .plan = BULK,
                          .comm_number = scene->number + 1,
                          .opcode = CGM_OPCODE_RUN,
                          .rank = rank};
    e.operand[CGM_OPERAND_LHS] = at(rank, LHS_AT);
    e.operand[CGM_OPERAND_RHS] = at(rank, RHS_AT);
    e.operand[CGM_OPERAND_OUT] = at(rank, OUT_AT);
    e.operand[CGM_OPERAND_AUX_OUT] = at(rank, GATHERED_AT);
    push(scene, &e, 1);
}

static void check_gathered(struct scene *scene, uint32_t rank, float first, float second)
{
    const float *gathered = scene->base[rank] + GATHERED_AT / sizeof(float);
    host_view_pull(&scene->view[rank], GATHERED_AT, WORLD * CHUNK_FLOATS * sizeof(float));
    for (uint32_t i = 0; i < WORLD * CHUNK_FLOATS; i++)
        assert_true(gathered[i] == (i < CHUNK_FLOATS ? first : second));
}

static void run_right(struct scene *scene, float first, float second)
{
    for (uint32_t r = 0; r < WORLD; r++)
        push_bulk(scene, r);
    scene->number++;
    for (uint32_t r = 0; r < WORLD; r++) {
        assert_string_equal(fixture_reap(&scene->s[r]).detail, "");
        check_gathered(scene, r, first, second);
    }
}

static void run_refused(struct scene *scene, const char *words)
{
    for (uint32_t r = 0; r < WORLD; r++)
        push_bulk(scene, r);
    scene->number++;
    for (uint32_t r = 0; r < WORLD; r++) {
        struct cgm_cqe cqe = fixture_reap(&scene->s[r]);
        assert_int_equal(cqe.status, CGM_TAINTED);
        assert_non_null(strstr(cqe.detail, words));
    }
}

static void copy_both(struct scene *scene, float first, float second)
{
    assert_int_equal(copy(scene, BULK, 0, first), CGM_OK);
    assert_int_equal(copy(scene, BULK, 1, second), CGM_OK);
}

/* ---- copy_ins that fail -----------------------------------------------------------------------
 */

static void spoil_generation(struct cgm_entry *e)
{
    e->operand[CGM_OPERAND_LHS].generation = 9;
}

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

/* ---- the order of a rank -----------------------------------------------------------------------
 */

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
    grant_user_buffers(&scene, RESULT);
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

static void cancel_last(struct scene *scene, uint32_t rank)
{
    Cgm__CancelForward cancel = CGM__CANCEL_FORWARD__INIT;
    cancel.session = rank + 1;
    cancel.ticket = scene->s[rank].ticket;
    fixture_ok(&scene->f, CGM_MSG_CANCEL_FORWARD, &cancel.base, NULL, 0);
    struct cgm_cqe cqe = fixture_reap(&scene->s[rank]);
    assert_int_equal(cqe.status, CGM_CANCELLED);
    assert_int_equal(cqe.ticket, cancel.ticket);
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
    grant_user_buffers(&scene, RESULT);
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
    grant_user_buffers(&scene, RESULT);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failed_copies_are_named),
        cmocka_unit_test(test_cancelled_copy),
        cmocka_unit_test(test_strangers_spoil_nothing),
        cmocka_unit_test(test_jobs_see_the_copies_before_them),
        cmocka_unit_test(test_jobs_see_no_copy_behind_them),
        cmocka_unit_test(test_results_are_in_line),
        cmocka_unit_test(test_who_fails_spoils_nothing_before_it),
        cmocka_unit_test(test_who_comes_late_spoils_nothing_before_it),
        cmocka_unit_test(test_refused_results_are_marked),
        cmocka_unit_test(test_what_is_gathered_over_is_gone),
        cmocka_unit_test(test_buffers_of_a_plan_that_is_created_again),
        cmocka_unit_test(test_deadlines_count_in_line),
        cmocka_unit_test(test_the_last_copy_has_the_last_word),
        cmocka_unit_test(test_lost_buffers_are_named),
        cmocka_unit_test(test_clients_may_vouch),
        cmocka_unit_test(test_new_buffers_are_zero),
        cmocka_unit_test(test_rows_that_were_copied),
        cmocka_unit_test(test_no_buffer_is_made_of_what_was_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
