/* What a client may write into its ring and must not: bad entries, operands that are not sound, and
 * a ring that breaks the protocol. */
#include "executor_scene.h"

/* ---- what an entry can be wrong in --------------------------------------------------------------
 */

struct bad_entry {
    const char *words; /* of the detail */
    int status;
    void (*spoil)(struct cgm_entry *entry);
    bool poisons; /* out is right by itself, and is made NaN */
};

#define SPOIL(name, statement)                                                                     \
    static void name(struct cgm_entry *e)                                                          \
    {                                                                                              \
        statement;                                                                                 \
    }
SPOIL(spoil_plan, e->plan = 99)
SPOIL(spoil_comm, e->comm = COMM + 1)
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
SPOIL(spoil_stride_wide,
      e->operand[CGM_OPERAND_LHS].row_stride_bytes = (1ull << 31) * sizeof(float))
SPOIL(spoil_operand_reserved, e->operand[CGM_OPERAND_OUT].reserved = 1)
SPOIL(spoil_overlap, e->operand[CGM_OPERAND_OUT].offset_bytes = RHS_AT + 16)
SPOIL(spoil_accumulate, e->flags = CGM_ENTRY_ACCUMULATE)

static const struct bad_entry bad_entries[] = {
    {"plan: 0000000000000063 does not exist", CGM_NOT_FOUND, spoil_plan, false},
    {"comm: 4; plan 0000000000000005 is of 3", CGM_INVALID_ARGUMENT, spoil_comm, false},
    {"rank: 7", CGM_INVALID_ARGUMENT, spoil_rank, false},
    {"rank: 1", CGM_PERMISSION, spoil_other_rank, false},
    {"opcode: 77", CGM_INVALID_ARGUMENT, spoil_opcode, false},
    {"flags: 0x40000000", CGM_INVALID_ARGUMENT, spoil_flags, false},
    {"reserved[3]", CGM_INVALID_ARGUMENT, spoil_reserved, false},
    {"rows is 10", CGM_INVALID_ARGUMENT, spoil_rows, false},
    {"rows is 3", CGM_INVALID_ARGUMENT, spoil_odd_rows, false},
    {"comm_number: 1000000", CGM_INVALID_ARGUMENT, spoil_number, false},
    {"lhs: missing", CGM_INVALID_ARGUMENT, spoil_no_lhs, true},
    {"gelu_input", CGM_INVALID_ARGUMENT, spoil_extra, true},
    {"rhs.id: 11", CGM_NOT_FOUND, spoil_id, true},
    {"rhs.generation: 2", CGM_STALE, spoil_generation, true},
    {"out: 8 x 6", CGM_INVALID_ARGUMENT, spoil_offset, false},
    {"out: 8 x 6", CGM_INVALID_ARGUMENT, spoil_offset_wraps, false},
    {"out.offset_bytes", CGM_INVALID_ARGUMENT, spoil_offset_odd, false},
    {"out.row_stride_bytes: 4", CGM_INVALID_ARGUMENT, spoil_stride, false},
    {"out.row_stride_bytes: 18446744073709551612; rows of a product", CGM_INVALID_ARGUMENT,
     spoil_stride_wraps, false},
    {"lhs.row_stride_bytes: 8589934592; rows of a product's operand lie at most 2147483647",
     CGM_INVALID_ARGUMENT, spoil_stride_wide, true},
    {"out.row_stride_bytes: 1022", CGM_INVALID_ARGUMENT, spoil_stride_odd, false},
    {"out.reserved", CGM_INVALID_ARGUMENT, spoil_operand_reserved, false},
    {"out: overlaps rhs", CGM_INVALID_ARGUMENT, spoil_overlap, false},
    {"accumulate", CGM_INVALID_ARGUMENT, spoil_accumulate, false},
};

/* A float of the rank's out. */
static void write_out(struct scene *scene, uint32_t rank, float value)
{
    scene->base[rank][OUT_AT / sizeof(float)] = value;
    host_view_push(&scene->view[rank], OUT_AT, sizeof(float));
}

static float read_out(struct scene *scene, uint32_t rank)
{
    host_view_pull(&scene->view[rank], OUT_AT, sizeof(float));
    return scene->base[rank][OUT_AT / sizeof(float)];
}

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
        write_out(&scene, 0, 42);
        fixture_push(&scene.s[0], (uint32_t)(e.ticket % FIXTURE_ENTRIES), &e, 1);
        struct cgm_cqe cqe = fixture_reap(&scene.s[0]);
        print_message("%s\n", cqe.detail);
        assert_non_null(strstr(cqe.detail, bad_entries[i].words));
        assert_int_equal(cqe.status, bad_entries[i].status);
        if (bad_entries[i].poisons)
            check_poisoned(&scene, 0);
        else
            assert_true(read_out(&scene, 0) == 42);
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

#define GEMM_PLAN 6u

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

/* Columns of one matrix, rows of which are twice as far apart. */
static void test_columns_side_by_side(void **state)
{
    (void)state;
    struct scene scene;
    struct cgm_cqe cqe;
    scene_open(&scene, 60000, 60000);
    gemm_plan(&scene, GEMM_PLAN, 0);
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t apart = K - 1 + i % 2;
        struct cgm_entry e = job_of(&scene, 0, 0);
        e.plan = GEMM_PLAN;
        e.rows = i < 2 ? M : 1;
        e.operand[CGM_OPERAND_LHS].row_stride_bytes = (K + N) * sizeof(float);
        e.operand[CGM_OPERAND_OUT].row_stride_bytes = (K + N) * sizeof(float);
        e.operand[CGM_OPERAND_OUT].offset_bytes = LHS_AT + apart * sizeof(float);
        fixture_push(&scene.s[0], (uint32_t)(e.ticket % FIXTURE_ENTRIES), &e, 1);
        cqe = fixture_reap(&scene.s[0]);
        assert_int_equal(cqe.status, apart == K ? CGM_OK : CGM_INVALID_ARGUMENT);
    }
    scene_close(&scene);
}

#define SMALL 30u

/* Its memory is pages; what was asked for is what an operand may lie in. */
static void test_operands_end_with_the_buffer(void **state)
{
    (void)state;
    struct scene scene;
    struct host_view view;
    scene_open(&scene, 60000, 60000);
    gemm_plan(&scene, GEMM_PLAN, 0);
    fixture_buffer(&scene.f, SMALL, M * N * sizeof(float), &scene.s[0], &view);
    for (uint32_t beyond = 0; beyond < 2; beyond++) {
        struct cgm_entry e = job_of(&scene, 0, 0);
        e.plan = GEMM_PLAN;
        e.operand[CGM_OPERAND_OUT] = (struct cgm_operand){SMALL, beyond * sizeof(float), 0, 1, 0};
        fixture_push(&scene.s[0], (uint32_t)(e.ticket % FIXTURE_ENTRIES), &e, 1);
        struct cgm_cqe cqe = fixture_reap(&scene.s[0]);
        assert_int_equal(cqe.status, beyond ? CGM_INVALID_ARGUMENT : CGM_OK);
        assert_true(!beyond || strstr(cqe.detail, "at offset 4, stride 24, end outside the "
                                                  "object's 192 bytes"));
    }
    host_view_close(&view);
    scene_close(&scene);
}

/* ---- what an executor before this one left damaged ----------------------------------------------
 */

#define DAMAGED 20u

/* A buffer whose writer died: known to this executor as it is to one that comes after. */
static void adopt_damaged(struct scene *scene)
{
    Cgm__BufferAdopt adopt = CGM__BUFFER_ADOPT__INIT;
    uint32_t serial = fixture_buffer_send(&scene->f, DAMAGED + 1, BUFFER_BYTES, 0);
    assert_int_equal(fixture_reply(&scene->f, serial), CGM_OK);
    int fd = cgm_packet_take_fd(&scene->f.packet, 0);
    adopt.id = adopt.journal = DAMAGED;
    adopt.generation = 2;
    adopt.bytes = M * N * sizeof(float);
    adopt.has_tainted = adopt.tainted = 1;
    fixture_ok(&scene->f, CGM_MSG_BUFFER_ADOPT, &adopt.base, &fd, 1);
    close(fd);
    fixture_grant(&scene->f, 1, DAMAGED, true);
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
        cmocka_unit_test(test_bad_entries_are_refused_by_name),
        cmocka_unit_test(test_columns_side_by_side),
        cmocka_unit_test(test_operands_end_with_the_buffer),
        cmocka_unit_test(test_nothing_is_added_to_a_tainted_buffer),
        cmocka_unit_test(test_broken_rings_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
