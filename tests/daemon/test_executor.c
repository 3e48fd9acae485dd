/* Matching, order, deadlines, removals and death, at the executor's own seam. */
#include "executor_scene.h"

#include <fcntl.h>

#define IMPORT_BYTES 65536u
#define IMPORTS 30u

static void test_jobs_run_in_order(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, 60000, 60000);
    for (uint64_t n = 1; n <= 200; n++)
        run_right(&scene, n);
    assert_int_equal(atomic_load(&scene.f.journal->comm_high[COMM]), 200);
    for (uint32_t r = 0; r < WORLD; r++)
        assert_int_equal(atomic_load(&scene.f.journal->writers[10 + r]), 0);
    scene_close(&scene);
}

#define SQUARE_PLAN 7u
#define CHAIN 3u /* jobs; each multiplies what the one before it wrote by 1 */
#define LINK_AT(i) ((i)*1024u)
#define UNIT_AT 12288u

static void push_link(struct scene *scene, uint32_t i)
{
    struct cgm_entry e = job_of(scene, 0, 0);
    e.plan = SQUARE_PLAN;
    e.operand[CGM_OPERAND_LHS].offset_bytes = LINK_AT(i);
    e.operand[CGM_OPERAND_RHS].offset_bytes = UNIT_AT;
    e.operand[CGM_OPERAND_OUT].offset_bytes = LINK_AT(i + 1);
    fixture_push(&scene->s[0], (uint32_t)(e.ticket % FIXTURE_ENTRIES), &e, 1);
}

/* Jobs of one rank alone, submitted together: each sees what those before it wrote. */
static void test_local_jobs_keep_their_order(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, 60000, 60000);
    fixture_plan(&scene.f, SQUARE_PLAN, COMM, CGM_OP_GEMM, CGM_ALGO_NO_OVERLAP, M, K, K, WORLD);
    float *base = scene.base[0];
    for (uint32_t round = 1; round <= 100; round++) {
        for (uint32_t i = 0; i < K * K; i++)
            base[UNIT_AT / sizeof(float) + i] = i % (K + 1) == 0;
        for (uint32_t i = 0; i < M * K; i++)
            base[i] = (float)(round + i);
        host_view_push(&scene.view[0], 0, BUFFER_BYTES);
        for (uint32_t i = 0; i < CHAIN; i++)
            push_link(&scene, i);
        for (uint32_t i = 0; i < CHAIN; i++)
            assert_string_equal(fixture_reap(&scene.s[0]).detail, "");
        host_view_pull(&scene.view[0], 0, BUFFER_BYTES);
        for (uint32_t i = 0; i < M * K; i++)
            assert_true(base[LINK_AT(CHAIN) / sizeof(float) + i] == (float)(round + i));
    }
    scene_close(&scene);
}

static void push_copy_in(struct scene *scene, uint32_t rank)
{
    struct cgm_entry copy = job_of(scene, rank, 0);
    copy.opcode = CGM_OPCODE_COPY_IN;
    copy.chunk = rank;
    copy.operand[CGM_OPERAND_RHS] = copy.operand[CGM_OPERAND_OUT] = (struct cgm_operand){0};
    fixture_push(&scene->s[rank], (uint32_t)(copy.ticket % FIXTURE_ENTRIES), &copy, 1);
}

static void push_run_in_place(struct scene *scene, uint32_t rank, uint64_t number)
{
    struct cgm_entry e = job_of(scene, rank, number);
    e.operand[CGM_OPERAND_LHS] =
        (struct cgm_operand){PLAN * 1000 + rank, rank * (M / WORLD * K * sizeof(float)), 0, 1, 0};
    fixture_push(&scene->s[rank], (uint32_t)(e.ticket % FIXTURE_ENTRIES), &e, 1);
}

/* lhs where the algorithm would copy it: each rank's own chunk of the plan's buffer. 0 stands for
 * the stride of contiguous rows there as everywhere. */
static void test_own_chunk_needs_no_stride(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, 60000, 60000);
    fixture_grant_user_buffers(&scene.f, PLAN, WORLD);
    for (uint32_t r = 0; r < WORLD; r++) {
        push_copy_in(&scene, r);
        assert_int_equal(fixture_reap(&scene.s[r]).status, CGM_OK);
    }
    for (uint32_t r = 0; r < WORLD; r++)
        push_run_in_place(&scene, r, 1);
    for (uint32_t r = 0; r < WORLD; r++) {
        assert_string_equal(fixture_reap(&scene.s[r]).detail, "");
        check_product(&scene, r);
    }
    scene_close(&scene);
}

/* The queues of a rank take its jobs in the order of their launches, whoever submitted each. */
static void test_ranks_of_two_users_keep_their_order(void **state)
{
    static const uint32_t copies[WORLD] = {1, 16};
    (void)state;
    struct scene scene;
    scene_open_of(&scene, 60000, 60000, 1000);
    fixture_grant_user_buffers(&scene.f, PLAN, WORLD);
    for (uint64_t number = 1; number <= 300; number++) {
        for (uint32_t r = 0; r < WORLD; r++) {
            for (uint32_t i = 0; i < copies[r]; i++)
                push_copy_in(&scene, r);
            submit(&scene, r, number);
        }
        for (uint32_t r = 0; r < WORLD; r++)
            for (uint32_t i = 0; i <= copies[r]; i++)
                assert_string_equal(fixture_reap(&scene.s[r]).detail, "");
        for (uint32_t r = 0; r < WORLD; r++)
            check_product(&scene, r);
    }
    scene_close(&scene);
}

static void test_rank_that_never_comes_is_named(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, 300, 60000);
    submit(&scene, 0, 1);
    struct cgm_cqe cqe = fixture_reap(&scene.s[0]);
    assert_int_equal(cqe.status, CGM_JOIN_TIMEOUT);
    assert_non_null(strstr(cqe.detail, "rank 1 of comm 3 did not submit job 1"));
    check_poisoned(&scene, 0);
    /* The number is burnt for the late rank, and the comm stays usable. */
    submit(&scene, 1, 1);
    cqe = fixture_reap(&scene.s[1]);
    assert_int_equal(cqe.status, CGM_JOIN_TIMEOUT);
    check_poisoned(&scene, 1);
    run_right(&scene, 2);
    scene_close(&scene);
}

static void test_stream_that_never_comes_is_named(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, 60000, 300);
    struct cgm_entry e = job_of(&scene, 1, 1);
    scene.base[1][OUT_AT / sizeof(float)] = 42;
    host_view_push(&scene.view[1], OUT_AT, sizeof(float));
    submit(&scene, 0, 1);
    fixture_push(&scene.s[1], 1, &e, 0);
    for (uint32_t r = 0; r < WORLD; r++) {
        struct cgm_cqe cqe = fixture_reap(&scene.s[r]);
        assert_int_equal(cqe.status, CGM_READY_TIMEOUT);
        assert_non_null(strstr(cqe.detail, "stream of rank 1"));
    }
    check_poisoned(&scene, 0);
    /* Its stream may still be using the memory: it is left alone. */
    host_view_pull(&scene.view[1], OUT_AT, sizeof(float));
    assert_true(scene.base[1][OUT_AT / sizeof(float)] == 42);
    run_right(&scene, 2);
    scene_close(&scene);
}

static void test_a_deadline_holds_behind_an_earlier_number(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, 60000, 60000);
    struct cgm_entry first = job_of(&scene, 0, 1);
    fixture_push(&scene.s[0], (uint32_t)(first.ticket % FIXTURE_ENTRIES), &first, 0);
    submit(&scene, 1, 1);
    submit(&scene, 1, 2);
    struct cgm_entry e =
        job_of(&scene, 0, 2); /* when all have come, however slow this process is */
    e.deadline_ms = 100;
    fixture_push(&scene.s[0], (uint32_t)(e.ticket % FIXTURE_ENTRIES), &e, 1);
    for (uint32_t r = 0; r < WORLD; r++) {
        struct cgm_cqe cqe = fixture_reap(&scene.s[r]);
        assert_int_equal(cqe.status, CGM_READY_TIMEOUT);
        assert_int_equal(cqe.comm_number, 2);
    }
    atomic_store(&scene.s[0].ring.ready[first.ticket % FIXTURE_ENTRIES], first.ticket);
    for (uint32_t r = 0; r < WORLD; r++)
        assert_int_equal(fixture_reap(&scene.s[r]).status, CGM_OK);
    run_right(&scene, 3);
    scene_close(&scene);
}

/* That of one job neither begins with another rank's, nor takes a limit from it. */
static void test_each_job_has_its_own_deadline(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, 60000, 800);
    submit(&scene, 0, 1);
    usleep(800000);
    struct cgm_entry e = job_of(&scene, 1, 1);
    e.deadline_ms = 700; /* the other one came longer ago */
    fixture_push(&scene.s[1], 1, &e, 0);
    usleep(20000);
    atomic_store(&scene.s[1].ring.ready[1], e.ticket);
    for (uint32_t r = 0; r < WORLD; r++)
        assert_string_equal(fixture_reap(&scene.s[r]).detail, "");
    e = job_of(&scene, 0, 2);
    e.deadline_ms = UINT64_MAX;
    fixture_push(&scene.s[0], 2, &e, 1);
    e = job_of(&scene, 1, 2);
    fixture_push(&scene.s[1], 2, &e, 0);
    for (uint32_t r = 0; r < WORLD; r++)
        assert_int_equal(fixture_reap(&scene.s[r]).status, CGM_READY_TIMEOUT);
    run_right(&scene, 3);
    scene_close(&scene);
}

/* Also of noops, which are no jobs of a comm. */
static void test_a_noop_s_stream_that_never_comes(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, 60000, 400);
    for (uint32_t limit_ms = 400; limit_ms >= 200; limit_ms -= 200) {
        char words[64];
        struct cgm_entry e = job_of(&scene, 0, 0);
        e.opcode = CGM_OPCODE_NOOP;
        e.deadline_ms = limit_ms == 400 ? 0 : limit_ms;
        fixture_push(&scene.s[0], (uint32_t)(e.ticket % FIXTURE_ENTRIES), &e, 0);
        struct cgm_cqe cqe = fixture_reap(&scene.s[0]);
        assert_int_equal(cqe.status, CGM_READY_TIMEOUT);
        assert_int_equal(cqe.ticket, e.ticket);
        snprintf(words, sizeof(words), "noop within %u ms", limit_ms);
        assert_non_null(strstr(cqe.detail, words));
    }
    struct cgm_entry e = job_of(&scene, 0, 0);
    uint32_t slot = (uint32_t)(e.ticket % FIXTURE_ENTRIES);
    e.opcode = CGM_OPCODE_NOOP;
    e.deadline_ms = UINT64_MAX;
    fixture_push(&scene.s[0], slot, &e, 0);
    usleep(500000);
    atomic_store(&scene.s[0].ring.ready[slot], e.ticket);
    assert_int_equal(fixture_reap(&scene.s[0]).status, CGM_OK);
    scene_close(&scene);
}

static void test_late_stream_launches(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, 60000, 60000);
    struct cgm_entry e = job_of(&scene, 1, 1);
    submit(&scene, 0, 1);
    fixture_push(&scene.s[1], 1, &e, 0);
    usleep(50000);
    assert_true(fixture_is_idle(&scene.s[0]) && fixture_is_idle(&scene.s[1]));
    atomic_store(&scene.s[1].ring.ready[1], e.ticket);
    for (uint32_t r = 0; r < WORLD; r++) {
        assert_int_equal(fixture_reap(&scene.s[r]).status, CGM_OK);
        check_product(&scene, r);
    }
    scene_close(&scene);
}

static void test_mismatch_names_rank_and_field(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, 60000, 60000);
    struct cgm_entry e = job_of(&scene, 1, 1);
    e.rows = M / 2;
    submit(&scene, 0, 1);
    fixture_push(&scene.s[1], 1, &e, 1);
    for (uint32_t r = 0; r < WORLD; r++) {
        struct cgm_cqe cqe = fixture_reap(&scene.s[r]);
        assert_int_equal(cqe.status, CGM_MISMATCH);
        assert_non_null(strstr(cqe.detail, "rows"));
        assert_non_null(strstr(cqe.detail, "rank 1"));
    }
    run_right(&scene, 2);
    scene_close(&scene);
}

/* Done as soon as it is read, and what was pushed before it has been read then. */
static void await_reading(struct scene *scene, uint32_t rank)
{
    struct cgm_entry noop = {.ticket = ++scene->s[rank].ticket, .opcode = CGM_OPCODE_NOOP};
    fixture_push(&scene->s[rank], (uint32_t)(noop.ticket % FIXTURE_ENTRIES), &noop, 1);
    assert_int_equal(fixture_reap(&scene->s[rank]).ticket, noop.ticket);
}

/* Its memory goes with the last job. */
static uint32_t send_removal(struct scene *scene, uint64_t plan)
{
    Cgm__PlanRemove remove = CGM__PLAN_REMOVE__INIT;
    remove.id = plan;
    fixture_send(&scene->f, CGM_MSG_PLAN_REMOVE, &remove.base, NULL, 0);
    return scene->f.serial;
}

static void add_plan(struct scene *scene, uint64_t plan)
{
    fixture_plan(&scene->f, plan, COMM, CGM_OP_AG_GEMM, CGM_ALGO_SPLIT_PIPELINED_AG_P2P, M,
                 N * WORLD, K, WORLD);
}

/* The last job of the first plan ends with the mismatch, since its stream has not come; outputs of
 * the other one are poisoned after that. */
static void test_a_plan_goes_with_a_mismatch(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, 60000, 60000);
    add_plan(&scene, PLAN + 1);
    struct cgm_entry first = job_of(&scene, 0, 1), second = job_of(&scene, 1, 1);
    second.plan = PLAN + 1;
    fixture_push(&scene.s[0], 0, &first, 0);
    await_reading(&scene, 0);
    uint32_t removal = send_removal(&scene, PLAN);
    fixture_push(&scene.s[1], 0, &second, 1);
    for (uint32_t r = 0; r < WORLD; r++)
        assert_int_equal(fixture_reap(&scene.s[r]).status, CGM_MISMATCH);
    check_poisoned(&scene, 1);
    assert_int_equal(fixture_reply(&scene.f, removal), CGM_OK);
    add_plan(&scene, PLAN);
    run_right(&scene, 2);
    scene_close(&scene);
}

static void test_jobs_of_a_plan_that_is_created_again(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, 60000, 60000);
    submit(&scene, 0, 1);
    await_reading(&scene, 0);
    send_removal(&scene, PLAN);
    add_plan(&scene, PLAN);
    submit(&scene, 1, 1);
    for (uint32_t r = 0; r < WORLD; r++) {
        struct cgm_cqe cqe = fixture_reap(&scene.s[r]);
        assert_string_equal(cqe.detail, "");
        assert_int_equal(cqe.status, CGM_OK);
        check_product(&scene, r);
    }
    run_right(&scene, 2);
    scene_close(&scene);
}

static void push_barrier(struct scene *scene, uint32_t rank, uint64_t number, int ready)
{
    struct cgm_entry e = job_of(scene, rank, number);
    e.opcode = CGM_OPCODE_BARRIER;
    memset(e.operand, 0, sizeof(e.operand));
    fixture_push(&scene->s[rank], (uint32_t)(e.ticket % FIXTURE_ENTRIES), &e, ready);
}

/* Its memory, 64 KiB of this process; the fd is closed. */
static void add_import(struct scene *scene, uint64_t id, int fd)
{
    Cgm__ImportAdd m = CGM__IMPORT_ADD__INIT;
    uint32_t kind = 1;
    uint64_t offset = 0, length = IMPORT_BYTES;
    m.id = id;
    m.generation = 1;
    m.session = scene->s[0].id;
    m.n_kind = m.n_offset = m.n_length = 1;
    m.kind = &kind;
    m.offset = &offset;
    m.length = &length;
    fixture_ok(&scene->f, CGM_MSG_IMPORT_ADD, &m.base, &fd, 1);
}

/* A backend may wait for all queues when memory is given back, and keep launches away until then:
 * one that is half-way would never get on. */
static void test_imports_go_while_jobs_come(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, 60000, 60000);
    int fd = memfd_create("import", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(fallocate(fd, 0, 0, IMPORT_BYTES), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    for (uint64_t number = 1; number <= IMPORTS; number++) {
        Cgm__ImportRemove remove = CGM__IMPORT_REMOVE__INIT;
        remove.id = 100 + number;
        add_import(&scene, remove.id, fd);
        for (uint32_t r = 0; r < WORLD; r++)
            submit(&scene, r, number);
        fixture_ok(&scene.f, CGM_MSG_IMPORT_REMOVE, &remove.base, NULL, 0);
        for (uint32_t r = 0; r < WORLD; r++)
            assert_int_equal(fixture_reap(&scene.s[r]).status, CGM_OK);
    }
    run_right(&scene, IMPORTS + 1);
    close(fd);
    scene_close(&scene);
}

static void test_barrier_waits_for_every_rank(void **state)
{
    (void)state;
    struct scene scene;
    struct cgm_cqe cqe;
    scene_open(&scene, 60000, 60000);
    run_right(&scene, 1);
    push_barrier(&scene, 0, 2, 1);
    usleep(20000);
    assert_int_equal(atomic_load(&scene.s[0].ring.header->cq_tail), 1);
    push_barrier(&scene, 1, 2, 1);
    for (uint32_t r = 0; r < WORLD; r++) {
        cqe = fixture_reap(&scene.s[r]);
        assert_string_equal(cqe.detail, "");
        assert_int_equal(cqe.status, CGM_OK);
        assert_int_equal(cqe.comm_number, 2);
    }
    run_right(&scene, 3);
    push_barrier(&scene, 0, 4, 1);
    submit(&scene, 1, 4);
    for (uint32_t r = 0; r < WORLD; r++) {
        cqe = fixture_reap(&scene.s[r]);
        assert_int_equal(cqe.status, CGM_MISMATCH);
        assert_non_null(strstr(cqe.detail, "barrier"));
    }
    run_right(&scene, 5);
    scene_close(&scene);
}

static void test_dead_session_is_named(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, 60000, 60000);
    submit(&scene, 0, 1);
    fixture_session_remove(&scene.f, &scene.s[1]);
    for (uint64_t n = 1; n <= 2; n++) { /* the one that waited, and a later one */
        struct cgm_cqe cqe = fixture_reap(&scene.s[0]);
        assert_int_equal(cqe.status, CGM_PEER_LOST);
        assert_non_null(strstr(cqe.detail, "rank 1 of comm 3"));
        if (n == 1)
            submit(&scene, 0, 2);
    }
    scene_close(&scene);
}

/* It lives on, and may still submit: what it does alone, too, fails. That of the other rank runs.
 */
static void test_who_left_submits_in_vain(void **state)
{
    (void)state;
    struct scene scene;
    Cgm__CommRankLeft left = CGM__COMM_RANK_LEFT__INIT;
    scene_open(&scene, 60000, 60000);
    fixture_plan(&scene.f, SQUARE_PLAN, COMM, CGM_OP_GEMM, CGM_ALGO_NO_OVERLAP, M, K, K, WORLD);
    left.comm = COMM;
    left.session = scene.s[0].id;
    fixture_ok(&scene.f, CGM_MSG_COMM_RANK_LEFT, &left.base, NULL, 0);
    for (uint32_t r = 0; r < WORLD; r++) {
        struct cgm_entry e = job_of(&scene, r, 0);
        e.plan = SQUARE_PLAN;
        fixture_push(&scene.s[r], (uint32_t)(e.ticket % FIXTURE_ENTRIES), &e, 1);
    }
    struct cgm_cqe cqe = fixture_reap(&scene.s[0]);
    assert_int_equal(cqe.status, CGM_PEER_LOST);
    assert_non_null(strstr(cqe.detail, "rank 0 of comm 3 is gone: its session 1 left the comm"));
    assert_int_equal(fixture_reap(&scene.s[1]).status, CGM_OK);
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jobs_run_in_order),
        cmocka_unit_test(test_local_jobs_keep_their_order),
        cmocka_unit_test(test_own_chunk_needs_no_stride),
        cmocka_unit_test(test_ranks_of_two_users_keep_their_order),
        cmocka_unit_test(test_rank_that_never_comes_is_named),
        cmocka_unit_test(test_stream_that_never_comes_is_named),
        cmocka_unit_test(test_a_deadline_holds_behind_an_earlier_number),
        cmocka_unit_test(test_each_job_has_its_own_deadline),
        cmocka_unit_test(test_a_noop_s_stream_that_never_comes),
        cmocka_unit_test(test_late_stream_launches),
        cmocka_unit_test(test_mismatch_names_rank_and_field),
        cmocka_unit_test(test_a_plan_goes_with_a_mismatch),
        cmocka_unit_test(test_jobs_of_a_plan_that_is_created_again),
        cmocka_unit_test(test_imports_go_while_jobs_come),
        cmocka_unit_test(test_barrier_waits_for_every_rank),
        cmocka_unit_test(test_dead_session_is_named),
        cmocka_unit_test(test_who_left_submits_in_vain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
