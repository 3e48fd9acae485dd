/* Two sessions, one rank each, at an executor's own seam, with plans whose user buffers are copied
 * into, gathered from and named. */
#ifndef CONTENTS_SCENE_H
#define CONTENTS_SCENE_H

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

static inline void add_plan(struct scene *scene, uint64_t id, bool lost)
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
    fixture_grant_user_buffers(&scene->f, id, WORLD);
}

static inline void scene_open(struct scene *scene, bool lost)
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

static inline void scene_close(struct scene *scene)
{
    for (uint32_t r = 0; r < WORLD; r++) {
        fixture_session_close(&scene->s[r]);
        host_view_close(&scene->view[r]);
    }
    fixture_close(&scene->f);
}

static inline struct cgm_operand at(uint32_t rank, uint64_t offset)
{
    return (struct cgm_operand){10 + rank, offset, 0, 1, 0};
}

static inline void push(struct scene *scene, const struct cgm_entry *e, int ready)
{
    fixture_push(&scene->s[e->rank], (uint32_t)(e->ticket % FIXTURE_ENTRIES), e, ready);
}

/* What a copy_in of this source leaves: every element of the chunk is `value`. */
static inline void set_source(struct scene *scene, uint32_t rank, uint32_t source, float value)
{
    uint32_t offset = SOURCE_AT + source * (CHUNK_FLOATS * (uint32_t)sizeof(float));
    for (uint32_t i = 0; i < CHUNK_FLOATS; i++)
        scene->base[rank][offset / sizeof(float) + i] = value;
    host_view_push(&scene->view[rank], offset, CHUNK_FLOATS * sizeof(float));
}

static inline struct cgm_entry copy_in(struct scene *scene, uint64_t plan, uint32_t rank,
                                       uint32_t source)
{
    struct cgm_entry e = {.ticket = ++scene->s[rank].ticket,
                          .plan = plan,
                          .opcode = CGM_OPCODE_COPY_IN,
                          .rank = rank,
                          .chunk = rank};
    e.operand[CGM_OPERAND_LHS] = at(rank, SOURCE_AT + source * CHUNK_FLOATS * sizeof(float));
    return e;
}

static inline int copy(struct scene *scene, uint64_t plan, uint32_t rank, float value)
{
    set_source(scene, rank, 0, value);
    struct cgm_entry e = copy_in(scene, plan, rank, 0);
    push(scene, &e, 1);
    return fixture_reap(&scene->s[rank]).status;
}

/* Without aux_in: what lies in the user buffers is gathered. */
static inline void push_bulk(struct scene *scene, uint32_t rank)
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

static inline void check_gathered(struct scene *scene, uint32_t rank, float first, float second)
{
    const float *gathered = scene->base[rank] + GATHERED_AT / sizeof(float);
    host_view_pull(&scene->view[rank], GATHERED_AT, WORLD * CHUNK_FLOATS * sizeof(float));
    for (uint32_t i = 0; i < WORLD * CHUNK_FLOATS; i++)
        assert_true(gathered[i] == (i < CHUNK_FLOATS ? first : second));
}

static inline void run_right(struct scene *scene, float first, float second)
{
    for (uint32_t r = 0; r < WORLD; r++)
        push_bulk(scene, r);
    scene->number++;
    for (uint32_t r = 0; r < WORLD; r++) {
        assert_string_equal(fixture_reap(&scene->s[r]).detail, "");
        check_gathered(scene, r, first, second);
    }
}

static inline void run_refused(struct scene *scene, const char *words)
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

static inline void copy_both(struct scene *scene, float first, float second)
{
    assert_int_equal(copy(scene, BULK, 0, first), CGM_OK);
    assert_int_equal(copy(scene, BULK, 1, second), CGM_OK);
}

static inline void spoil_generation(struct cgm_entry *e)
{
    e->operand[CGM_OPERAND_LHS].generation = 9;
}

#endif
