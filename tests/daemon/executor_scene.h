/* Two sessions, one rank each, at an executor's own seam, with a plan whose products are known. */
#ifndef EXECUTOR_SCENE_H
#define EXECUTOR_SCENE_H

#include <math.h>

#include "executor_fixture.h"

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

/* Rank r's session is of the user r * apart. */
static inline void scene_open_of(struct scene *scene, uint64_t join_ms, uint64_t ready_ms,
                                 uint32_t apart)
{
    uint64_t sessions[WORLD] = {1, 2};
    fixture_open(&scene->f, join_ms, ready_ms, 0);
    for (uint32_t r = 0; r < WORLD; r++)
        fixture_session_open_as(&scene->f, sessions[r], r * apart, &scene->s[r]);
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

static inline void scene_open(struct scene *scene, uint64_t join_ms, uint64_t ready_ms)
{
    scene_open_of(scene, join_ms, ready_ms, 0);
}

static inline void scene_close(struct scene *scene)
{
    for (uint32_t r = 0; r < WORLD; r++) {
        fixture_session_close(&scene->s[r]);
        host_view_close(&scene->view[r]);
    }
    fixture_close(&scene->f);
}

static inline struct cgm_entry job_of(struct scene *scene, uint32_t rank, uint64_t number)
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

static inline void submit(struct scene *scene, uint32_t rank, uint64_t number)
{
    struct cgm_entry e = job_of(scene, rank, number);
    fixture_push(&scene->s[rank], (uint32_t)(e.ticket % FIXTURE_ENTRIES), &e, 1);
}

/* Small integers: the product is exact. */
static inline void check_product(struct scene *scene, uint32_t rank)
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

static inline void check_poisoned(struct scene *scene, uint32_t rank)
{
    host_view_pull(&scene->view[rank], 0, BUFFER_BYTES);
    const float *out = scene->base[rank] + OUT_AT / sizeof(float);
    for (uint32_t i = 0; i < M * N; i++)
        assert_true(isnan(out[i]));
}

static inline void run_right(struct scene *scene, uint64_t number)
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

#endif
