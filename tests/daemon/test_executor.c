/* Matching, burnt numbers, deadlines, cancel, death and bad entries, at the executor's own seam. */
#include "executor_fixture.h"

#include <fcntl.h>
#include <math.h>

#define WORLD 2u
#define M 8u
#define N 6u
#define K 4u
#define PLAN 5u
#define COMM 3u

/* Two sessions, one rank each, an AG+GEMM plan; rank r's buffer 10 + r holds lhs, rhs, out. */
struct scene {
    struct fixture f;
    struct fixture_session s[WORLD];
    struct host_view view[WORLD];
    float *base[WORLD]; /* of the views */
};

#define LHS_AT 0u
#define RHS_AT 4096u
#define OUT_AT 8192u
#define BUFFER_BYTES 16384u
#define IMPORT_BYTES 65536u
#define IMPORTS 30u

static void scene_open(struct scene *scene, uint64_t join_ms, uint64_t ready_ms)
{
    uint64_t sessions[WORLD] = {1, 2};
    fixture_open(&scene->f, join_ms, ready_ms, 0);
    for (uint32_t r = 0; r < WORLD; r++)
        fixture_session_open(&scene->f, sessions[r], &scene->s[r]);
    fixture_comm_add(&scene->f, COMM, sessions, WORLD, join_ms, 0);
    fixture_plan(&scene->f, PLAN, COMM, CGM_OP_AG_GEMM, CGM_ALGO_SPLIT_PIPELINED_AG_P2P, M,
                 N * WORLD, K, WORLD);
    for (uint32_t r = 0; r < WORLD; r++) {
        scene->base[r] =
            fixture_buffer(&scene->f, 10 + r, BUFFER_BYTES, &scene->s[r], &scene->view[r]);
        for (uint32_t i = 0; i < BUFFER_BYTES / sizeof(float); i++)
            scene->base[r][i] = (float)((i * 7 + r * 3) % 5) - 2;
        host_view_push(&scene->view[r], 0, BUFFER_BYTES);
    }
}

static void scene_close(struct scene *scene)
{
    for (uint32_t r = 0; r < WORLD; r++) {
        fixture_session_close(&scene->s[r]);
        host_view_close(&scene->view[r]);
    }
    fixture_close(&scene->f);
}

static struct cgm_entry job_of(struct scene *scene, uint32_t rank, uint64_t number)
{
    struct cgm_entry e = {
        .ticket = ++scene->s[rank].ticket,
        .plan = PLAN,
        .comm_number = number,
        .opcode = CGM_OPCODE_RUN,
        .rank = rank,
        .rows = M,
    };
    e.operand[CGM_OPERAND_LHS] = (struct cgm_operand){10 + rank, LHS_AT, 0, 1, 0};
    e.operand[CGM_OPERAND_RHS] = (struct cgm_operand){10 + rank, RHS_AT, 0, 1, 0};
    e.operand[CGM_OPERAND_OUT] = (struct cgm_operand){10 + rank, OUT_AT, 0, 1, 0};
    return e;
}

static void submit(struct scene *scene, uint32_t rank, uint64_t number)
{
    struct cgm_entry e = job_of(scene, rank, number);
    fixture_push(&scene->s[rank], (uint32_t)(e.ticket % FIXTURE_ENTRIES), &e, 1);
}

/* Small integers: the product is exact. */
static void check_product(struct scene *scene, uint32_t rank)
{
    host_view_pull(&scene->view[rank], 0, BUFFER_BYTES);
    const float *out = scene->base[rank] + OUT_AT / sizeof(float);
    const float *rhs = scene->base[rank] + RHS_AT / sizeof(float);
    for (uint32_t i = 0; i < M; i++)
        for (uint32_t j = 0; j < N; j++) {
            const float *lhs = scene->base[i / (M / WORLD)] + i % (M / WORLD) * K;
            float sum = 0;
            for (uint32_t k = 0; k < K; k++)
                sum += lhs[k] * rhs[k * N + j];
            assert_true(out[i * N + j] == sum);
        }
}

static void check_poisoned(struct scene *scene, uint32_t rank)
{
    host_view_pull(&scene->view[rank], 0, BUFFER_BYTES);
    const float *out = scene->base[rank] + OUT_AT / sizeof(float);
    for (uint32_t i = 0; i < M * N; i++)
        assert_true(isnan(out[i]));
}

static void run_right(struct scene *scene, uint64_t number)
{
    for (uint32_t r = 0; r < WORLD; r++)
        submit(scene, r, number);
    for (uint32_t r = 0; r < WORLD; r++) {
        struct cgm_cqe cqe = fixture_reap(&scene->s[r]);
        assert_string_equal(cqe.detail, "");
        assert_int_equal(cqe.status, CGM_OK);
        assert_int_equal(cqe.comm_number, number);
        assert_int_equal(cqe.algorithm, CGM_ALGO_SPLIT_PIPELINED_AG_P2P);
        check_product(scene, r);
    }
}

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

/* lhs where the algorithm would copy it: each rank's own chunk of the plan's buffer. 0 stands for
 * the stride of contiguous rows there as everywhere. */
static void test_own_chunk_needs_no_stride(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, 60000, 60000);
    for (uint32_t r = 0; r < WORLD; r++) {
        Cgm__Grant grant = CGM__GRANT__INIT;
        grant.session = r + 1;
        grant.id = PLAN * 1000 + r;
        grant.writable = 1;
        fixture_ok(&scene.f, CGM_MSG_GRANT, &grant.base, NULL, 0);
        struct cgm_entry copy = job_of(&scene, r, 0);
        copy.opcode = CGM_OPCODE_COPY_IN;
        copy.chunk = r;
        copy.operand[CGM_OPERAND_RHS] = copy.operand[CGM_OPERAND_OUT] = (struct cgm_operand){0};
        fixture_push(&scene.s[r], (uint32_t)(copy.ticket % FIXTURE_ENTRIES), &copy, 1);
        assert_int_equal(fixture_reap(&scene.s[r]).status, CGM_OK);
    }
    for (uint32_t r = 0; r < WORLD; r++) {
        struct cgm_entry e = job_of(&scene, r, 1);
        e.operand[CGM_OPERAND_LHS] =
            (struct cgm_operand){PLAN * 1000 + r, r * (M / WORLD * K * sizeof(float)), 0, 1, 0};
        fixture_push(&scene.s[r], (uint32_t)(e.ticket % FIXTURE_ENTRIES), &e, 1);
    }
    for (uint32_t r = 0; r < WORLD; r++) {
        assert_string_equal(fixture_reap(&scene.s[r]).detail, "");
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

static void test_cancel_burns_the_number(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, 60000, 60000);
    submit(&scene, 0, 1);
    Cgm__CancelForward cancel = CGM__CANCEL_FORWARD__INIT;
    cancel.session = 1;
    cancel.ticket = 1;
    fixture_ok(&scene.f, CGM_MSG_CANCEL_FORWARD, &cancel.base, NULL, 0);
    assert_int_equal(fixture_reap(&scene.s[0]).status, CGM_CANCELLED);
    submit(&scene, 0, 2); /* ahead of the other rank */
    submit(&scene, 1, 1);
    assert_int_equal(fixture_reap(&scene.s[1]).status, CGM_CANCELLED);
    submit(&scene, 1, 2);
    for (uint32_t r = 0; r < WORLD; r++)
        assert_int_equal(fixture_reap(&scene.s[r]).status, CGM_OK);
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
    assert_non_null(strstr(cqe.detail, "rank 0 of comm 3 is gone"));
    assert_int_equal(fixture_reap(&scene.s[1]).status, CGM_OK);
    scene_close(&scene);
}

static void test_numbers_before_a_restart_are_burnt(void **state)
{
    (void)state;
    struct scene scene;
    uint64_t sessions[WORLD] = {1, 2};
    scene_open(&scene, 60000, 60000);
    Cgm__PlanRemove plan = CGM__PLAN_REMOVE__INIT;
    Cgm__CommRemove comm = CGM__COMM_REMOVE__INIT;
    plan.id = PLAN;
    comm.comm = COMM;
    comm.status = CGM_PEER_LOST;
    fixture_ok(&scene.f, CGM_MSG_PLAN_REMOVE, &plan.base, NULL, 0);
    fixture_ok(&scene.f, CGM_MSG_COMM_REMOVE, &comm.base, NULL, 0);
    fixture_comm_add(&scene.f, COMM, sessions, WORLD, 60000, 7);
    fixture_plan(&scene.f, PLAN, COMM, CGM_OP_AG_GEMM, CGM_ALGO_SPLIT_PIPELINED_AG_P2P, M,
                 N * WORLD, K, WORLD);
    submit(&scene, 0, 8);
    submit(&scene, 1, 6);
    submit(&scene, 1, 7);
    for (int i = 0; i < 2; i++)
        assert_int_equal(fixture_reap(&scene.s[1]).status, CGM_EXECUTOR_LOST);
    submit(&scene, 1, 8);
    for (uint32_t r = 0; r < WORLD; r++)
        assert_int_equal(fixture_reap(&scene.s[r]).status, CGM_OK);
    run_right(&scene, 9);
    scene_close(&scene);
}

/* ---- what an entry can be wrong in --------------------------------------------------------------
 */

struct bad_entry {
    const char *words; /* of the detail */
    int status;
    void (*spoil)(struct cgm_entry *entry);
};

#define SPOIL(name, statement)                                                                     \
    static void name(struct cgm_entry *e)                                                          \
    {                                                                                              \
        statement;                                                                                 \
    }
SPOIL(spoil_plan, e->plan = 99)
SPOIL(spoil_rank, e->rank = 7)
SPOIL(spoil_other_rank, e->rank = 1)
SPOIL(spoil_opcode, e->opcode = 77)
SPOIL(spoil_flags, e->flags = 1u << 30)
SPOIL(spoil_reserved, e->reserved[3] = 1)
SPOIL(spoil_rows, e->rows = M + 2)
SPOIL(spoil_odd_rows, e->rows = 3)
SPOIL(spoil_number, e->comm_number = 1000000)
SPOIL(spoil_no_lhs, e->operand[CGM_OPERAND_LHS].id = 0)
SPOIL(spoil_extra, e->operand[CGM_OPERAND_GELU_INPUT] = e->operand[CGM_OPERAND_LHS])
SPOIL(spoil_id, e->operand[CGM_OPERAND_RHS].id = 11)
SPOIL(spoil_generation, e->operand[CGM_OPERAND_RHS].generation = 2)
SPOIL(spoil_offset, e->operand[CGM_OPERAND_OUT].offset_bytes = (1ull << 30) - 4)
SPOIL(spoil_offset_wraps, e->operand[CGM_OPERAND_OUT].offset_bytes = UINT64_MAX - 3)
SPOIL(spoil_offset_odd, e->operand[CGM_OPERAND_OUT].offset_bytes = OUT_AT + 2)
SPOIL(spoil_stride, e->operand[CGM_OPERAND_OUT].row_stride_bytes = 4)
SPOIL(spoil_stride_wraps, e->operand[CGM_OPERAND_OUT].row_stride_bytes = UINT64_MAX - 3)
SPOIL(spoil_stride_odd, e->operand[CGM_OPERAND_OUT].row_stride_bytes = 1022)
SPOIL(spoil_operand_reserved, e->operand[CGM_OPERAND_OUT].reserved = 1)
SPOIL(spoil_overlap, e->operand[CGM_OPERAND_OUT].offset_bytes = RHS_AT + 16)
SPOIL(spoil_accumulate, e->flags = CGM_ENTRY_ACCUMULATE)

static const struct bad_entry bad_entries[] = {
    {"plan: 99", CGM_NOT_FOUND, spoil_plan},
    {"rank: 7", CGM_INVALID_ARGUMENT, spoil_rank},
    {"rank: 1", CGM_PERMISSION, spoil_other_rank},
    {"opcode: 77", CGM_INVALID_ARGUMENT, spoil_opcode},
    {"flags: 0x40000000", CGM_INVALID_ARGUMENT, spoil_flags},
    {"reserved[3]", CGM_INVALID_ARGUMENT, spoil_reserved},
    {"rows is 10", CGM_INVALID_ARGUMENT, spoil_rows},
    {"rows is 3", CGM_INVALID_ARGUMENT, spoil_odd_rows},
    {"comm_number: 1000000", CGM_INVALID_ARGUMENT, spoil_number},
    {"lhs: missing", CGM_INVALID_ARGUMENT, spoil_no_lhs},
    {"gelu_input", CGM_INVALID_ARGUMENT, spoil_extra},
    {"rhs.id: 11", CGM_NOT_FOUND, spoil_id},
    {"rhs.generation: 2", CGM_STALE, spoil_generation},
    {"out: 8 x 6", CGM_INVALID_ARGUMENT, spoil_offset},
    {"out: 8 x 6", CGM_INVALID_ARGUMENT, spoil_offset_wraps},
    {"out.offset_bytes", CGM_INVALID_ARGUMENT, spoil_offset_odd},
    {"out.row_stride_bytes: 4", CGM_INVALID_ARGUMENT, spoil_stride},
    {"out: 8 x 6", CGM_INVALID_ARGUMENT, spoil_stride_wraps},
    {"out.row_stride_bytes: 1022", CGM_INVALID_ARGUMENT, spoil_stride_odd},
    {"out.reserved", CGM_INVALID_ARGUMENT, spoil_operand_reserved},
    {"out: overlaps rhs", CGM_INVALID_ARGUMENT, spoil_overlap},
    {"accumulate", CGM_INVALID_ARGUMENT, spoil_accumulate},
};

/* Each is refused by name; where rank and number were right, the other rank is told too. */
static void test_bad_entries_are_refused_by_name(void **state)
{
    (void)state;
    struct scene scene;
    uint64_t number = 0;
    scene_open(&scene, 60000, 60000);
    for (size_t i = 0; i < sizeof(bad_entries) / sizeof(bad_entries[0]); i++) {
        struct cgm_entry e = job_of(&scene, 0, number + 1);
        bad_entries[i].spoil(&e);
        fixture_push(&scene.s[0], (uint32_t)(e.ticket % FIXTURE_ENTRIES), &e, 1);
        struct cgm_cqe cqe = fixture_reap(&scene.s[0]);
        print_message("%s\n", cqe.detail);
        assert_non_null(strstr(cqe.detail, bad_entries[i].words));
        assert_int_equal(cqe.status, bad_entries[i].status);
        if (atomic_load(&scene.f.journal->comm_high[COMM]) > number) {
            assert_int_equal(cqe.algorithm, CGM_ALGO_SPLIT_PIPELINED_AG_P2P);
            number++;
            submit(&scene, 1, number);
            cqe = fixture_reap(&scene.s[1]);
            assert_int_equal(cqe.status, bad_entries[i].status);
            assert_non_null(strstr(cqe.detail, "rank 0: "));
        }
    }
    assert_true(number > 10);
    run_right(&scene, number + 1);
    scene_close(&scene);
}

/* ---- what an executor before this one left damaged ----------------------------------------------
 */

#define GEMM_PLAN 6u
#define DAMAGED 20u

/* A buffer whose writer died: known to this executor as it is to one that comes after. */
static void adopt_damaged(struct scene *scene)
{
    Cgm__BufferAdopt adopt = CGM__BUFFER_ADOPT__INIT;
    Cgm__Grant grant = CGM__GRANT__INIT;
    uint32_t serial = fixture_buffer_send(&scene->f, DAMAGED + 1, BUFFER_BYTES, 0);
    assert_int_equal(fixture_reply(&scene->f, serial), CGM_OK);
    int fd = cgm_packet_take_fd(&scene->f.packet, 0);
    adopt.id = grant.id = adopt.journal = DAMAGED;
    adopt.generation = 2;
    adopt.bytes = M * N * sizeof(float);
    adopt.has_tainted = adopt.tainted = 1;
    fixture_ok(&scene->f, CGM_MSG_BUFFER_ADOPT, &adopt.base, &fd, 1);
    close(fd);
    grant.session = 1;
    grant.writable = 1;
    fixture_ok(&scene->f, CGM_MSG_GRANT, &grant.base, NULL, 0);
}

static void gemm_plan(struct scene *scene, uint64_t id, uint32_t epilogue)
{
    Cgm__PlanCreate ask = CGM__PLAN_CREATE__INIT;
    ask.comm = COMM;
    ask.op = CGM_OP_GEMM;
    ask.method = CGM_METHOD_NONE;
    ask.m = M;
    ask.n = N;
    ask.k = K;
    ask.has_epilogue = 1;
    ask.epilogue = epilogue;
    assert_int_equal(fixture_plan_try(&scene->f, id, &ask, WORLD), CGM_OK);
}

static struct cgm_cqe multiply_into_damaged(struct scene *scene, uint64_t plan)
{
    struct cgm_entry e = job_of(scene, 0, 0);
    e.plan = plan;
    e.operand[CGM_OPERAND_OUT] = (struct cgm_operand){DAMAGED, 0, 0, 2, 0};
    fixture_push(&scene->s[0], (uint32_t)(e.ticket % FIXTURE_ENTRIES), &e, 1);
    return fixture_reap(&scene->s[0]);
}

/* Adding to what is damaged reads it; writing all of it makes it sound. */
static void test_nothing_is_added_to_a_tainted_buffer(void **state)
{
    (void)state;
    struct scene scene;
    scene_open(&scene, 60000, 60000);
    gemm_plan(&scene, GEMM_PLAN, 0);
    gemm_plan(&scene, GEMM_PLAN + 1, CGM_EPILOGUE_ACCUMULATE);
    adopt_damaged(&scene);
    for (int i = 0; i < 2; i++) {
        struct cgm_cqe cqe = multiply_into_damaged(&scene, GEMM_PLAN + 1);
        assert_int_equal(cqe.status, CGM_TAINTED);
        assert_non_null(strstr(cqe.detail, "out: object 20"));
    }
    assert_int_equal(multiply_into_damaged(&scene, GEMM_PLAN).status, CGM_OK);
    assert_int_equal(multiply_into_damaged(&scene, GEMM_PLAN + 1).status, CGM_OK);
    scene_close(&scene);
}

/* ---- a ring that breaks the protocol ------------------------------------------------------------
 */

static void wait_for_bad(struct fixture *f)
{
    Cgm__Query query = CGM__QUERY__INIT;
    int status;
    for (int i = 0; i < 1000 && !f->bad[0]; i++) {
        usleep(1000);
        fixture_call(f, CGM_MSG_QUERY, &query.base, NULL, 0, &status);
    }
}

static void break_tail(struct fixture_session *s)
{
    atomic_store(&s->ring.header->sq_tail, FIXTURE_ENTRIES + 1);
}

static void break_head(struct fixture_session *s)
{
    atomic_store(&s->ring.header->cq_head, 5);
    atomic_store(&s->ring.header->sq_tail, 1);
}

static void break_slot(struct fixture_session *s)
{
    atomic_store(&s->ring.sq[0], FIXTURE_ENTRIES);
    atomic_store(&s->ring.header->sq_tail, 1);
}

static void break_ticket(struct fixture_session *s)
{
    s->ring.entry[0].ticket = 2;
    atomic_store(&s->ring.header->sq_tail, 1);
}

static void test_broken_rings_are_reported(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        void (*spoil)(struct fixture_session *s);
    } breaks[] = {{"sq_tail", break_tail},
                  {"cq_head", break_head},
                  {"slot", break_slot},
                  {"ticket", break_ticket}};
    struct scene scene;
    scene_open(&scene, 60000, 60000);
    for (size_t i = 0; i < sizeof(breaks) / sizeof(breaks[0]); i++) {
        struct fixture_session s;
        uint64_t one = 1;
        fixture_session_open(&scene.f, 100 + i, &s);
        scene.f.bad[0] = '\0';
        breaks[i].spoil(&s);
        assert_int_equal(write(s.wake_fd, &one, sizeof(one)), sizeof(one));
        wait_for_bad(&scene.f);
        assert_non_null(strstr(scene.f.bad, breaks[i].words));
        fixture_session_remove(&scene.f, &s);
        fixture_session_close(&s);
        run_right(&scene, i + 1);
    }
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jobs_run_in_order),
        cmocka_unit_test(test_local_jobs_keep_their_order),
        cmocka_unit_test(test_own_chunk_needs_no_stride),
        cmocka_unit_test(test_rank_that_never_comes_is_named),
        cmocka_unit_test(test_stream_that_never_comes_is_named),
        cmocka_unit_test(test_late_stream_launches),
        cmocka_unit_test(test_mismatch_names_rank_and_field),
        cmocka_unit_test(test_imports_go_while_jobs_come),
        cmocka_unit_test(test_barrier_waits_for_every_rank),
        cmocka_unit_test(test_cancel_burns_the_number),
        cmocka_unit_test(test_dead_session_is_named),
        cmocka_unit_test(test_who_left_submits_in_vain),
        cmocka_unit_test(test_numbers_before_a_restart_are_burnt),
        cmocka_unit_test(test_bad_entries_are_refused_by_name),
        cmocka_unit_test(test_nothing_is_added_to_a_tainted_buffer),
        cmocka_unit_test(test_broken_rings_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
