/* What the tests of plans' requests share: requests that are right, and what becomes of them. */
#ifndef SPEC_FIXTURE_H
#define SPEC_FIXTURE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/executor/algorithm.h"
#include "proto/status.h"
#include "tests/seed.h"

static struct cgm_random rng;
static char detail[CGM_CQE_DETAIL];

static inline bool moves_buffer(int op)
{
    return op == CGM_OP_BULK_AG || op == CGM_OP_BULK_RS;
}

static uint64_t moved_shape[2] = {48, 5};
static uint32_t counts[CGM_COMM_SIZE_MAX * CGM_COMM_SIZE_MAX];

/* Counts of `world` ranks that add up to m. */
static inline void set_counts(Cgm__PlanCreate *request, uint32_t world)
{
    memset(counts, 0, sizeof counts);
    for (uint64_t row = 0; row < request->m; row++)
        counts[cgm_random_below(&rng, world * world)]++;
    request->n_counts = request->op == CGM_OP_A2AV ? world * world : 0;
    request->counts = counts;
}

static inline Cgm__PlanCreate request_of(int op)
{
    Cgm__PlanCreate request = CGM__PLAN_CREATE__INIT;
    request.op = (uint32_t)op;
    request.method = CGM_METHOD_AUTO;
    request.comm_type = CGM_COMM_TYPE_NONE;
    if (op == CGM_OP_AG || op == CGM_OP_AG_GEMM || op == CGM_OP_BULK_AG)
        request.comm_type = CGM_COMM_TYPE_AG;
    if (op == CGM_OP_RS || op == CGM_OP_GEMM_RS || op == CGM_OP_BULK_RS)
        request.comm_type = CGM_COMM_TYPE_RS;
    request.m = 24;
    request.n = 16;
    request.k = 8;
    request.dtype = CGM_DTYPE_BF16;
    if (moves_buffer(op)) {
        request.n_buffer_shape = 2;
        request.buffer_shape = moved_shape;
    }
    set_counts(&request, 4);
    return request;
}

static inline int spec_of(const Cgm__PlanCreate *request, uint32_t world, struct cgm_spec *ret_spec)
{
    detail[0] = '\0';
    return cgm_spec_init(request, world, false, detail, sizeof detail, ret_spec);
}

static inline void assert_shape(struct cgm_shape shape, bool transposed, uint64_t rows,
                                uint64_t cols, int dtype)
{
    assert_int_equal(shape.rows, transposed ? cols : rows);
    assert_int_equal(shape.cols, transposed ? rows : cols);
    assert_int_equal(shape.dtype, dtype);
}

#endif
