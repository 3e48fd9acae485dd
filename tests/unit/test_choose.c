#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/executor/algorithm.h"
#include "proto/status.h"

static char reason[300];

/* A plan of world 4, bf16, large enough that overlapping pays. */
static struct cgm_spec spec_of(int op, int method, int algorithm)
{
    Cgm__PlanCreate request = CGM__PLAN_CREATE__INIT;
    request.op = (uint32_t)op;
    request.method = (uint32_t)method;
    request.algorithm = (uint32_t)algorithm;
    uint64_t moved[2] = {8192, 8192};
    uint32_t counts[16] = {8192};
    if (op == CGM_OP_AG_GEMM || op == CGM_OP_AG || op == CGM_OP_BULK_AG)
        request.comm_type = CGM_COMM_TYPE_AG;
    if (op == CGM_OP_GEMM_RS || op == CGM_OP_RS || op == CGM_OP_BULK_RS)
        request.comm_type = CGM_COMM_TYPE_RS;
    request.n_buffer_shape = op == CGM_OP_BULK_AG || op == CGM_OP_BULK_RS ? 2 : 0;
    request.buffer_shape = moved;
    request.n_counts = op == CGM_OP_A2AV ? 16 : 0;
    request.counts = counts;
    request.m = request.n = request.k = 8192;
    request.dtype = CGM_DTYPE_BF16;
    struct cgm_spec spec;
    char detail[CGM_CQE_DETAIL];
    assert_int_equal(cgm_spec_init(&request, 4, false, detail, sizeof detail, &spec), CGM_OK);
    return spec;
}

/* -1: refused. */
static int choose(const struct cgm_spec *spec, int *ret_status)
{
    const struct cgm_algorithm *algorithm = NULL;
    *ret_status = cgm_algorithm_choose(spec, reason, sizeof reason, &algorithm);
    assert_true(reason[0] != '\0' && strlen(reason) < sizeof reason - 1);
    assert_int_equal(algorithm == NULL, *ret_status != CGM_OK);
    return algorithm ? (int)algorithm->number : -1;
}

static void assert_chosen(const struct cgm_spec *spec, int number, const char *words)
{
    int status;
    int chosen = choose(spec, &status);
    if (chosen != number || !strstr(reason, words))
        fail_msg("chose %d, status %d: \"%s\"", chosen, status, reason);
}

static void assert_refused(const struct cgm_spec *spec, int expected, const char *words)
{
    int status;
    choose(spec, &status);
    if (status != expected || !strstr(reason, words))
        fail_msg("status %d: \"%s\" lacks \"%s\"", status, reason, words);
}

static void test_method(void **state)
{
    (void)state;
    struct cgm_spec spec = spec_of(CGM_OP_AG_GEMM, CGM_METHOD_RING_EXCHANGE, CGM_ALGO_AUTO);
    assert_chosen(&spec, CGM_ALGO_SPLIT_PIPELINED_AG_P2P, "method ring_exchange of ag_gemm");
    spec = spec_of(CGM_OP_GEMM_RS, CGM_METHOD_RING_EXCHANGE, CGM_ALGO_AUTO);
    assert_chosen(&spec, CGM_ALGO_SPLIT_PIPELINED_RS_P2P, "method ring_exchange of gemm_rs");
    spec = spec_of(CGM_OP_GEMM_RS, CGM_METHOD_NONE, CGM_ALGO_AUTO);
    assert_chosen(&spec, CGM_ALGO_NO_OVERLAP, "method none");
    spec = spec_of(CGM_OP_GEMM_RS, CGM_METHOD_PIPELINE, CGM_ALGO_AUTO);
    assert_chosen(&spec, CGM_ALGO_SPLIT_PIPELINED_RS, "method pipeline of gemm_rs");
}

static void test_atomic(void **state)
{
    (void)state;
    static const struct {
        int op, method, algorithm;
    } rows[] = {
        {CGM_OP_AG_GEMM, CGM_METHOD_RING_EXCHANGE, CGM_ALGO_ATOMIC_GEMM_AG_P2P},
        {CGM_OP_GEMM_RS, CGM_METHOD_RING_EXCHANGE, CGM_ALGO_ATOMIC_GEMM_RS_P2P},
        {CGM_OP_GEMM_RS, CGM_METHOD_PIPELINE, CGM_ALGO_ATOMIC_GEMM_RS},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct cgm_spec spec = spec_of(rows[i].op, rows[i].method, CGM_ALGO_AUTO);
        spec.use_ce = spec.atomic_gemm = true;
        assert_chosen(&spec, rows[i].algorithm, "method");
        spec.algorithm = rows[i].algorithm;
        assert_chosen(&spec, rows[i].algorithm, "named in the plan");
        spec.atomic_gemm = false;
        assert_chosen(&spec, rows[i].algorithm, "named in the plan");
    }
    struct cgm_spec spec = spec_of(CGM_OP_AG_GEMM, CGM_METHOD_AUTO, CGM_ALGO_ATOMIC_GEMM_AG_P2P);
    spec.use_ce = false;
    assert_refused(&spec, CGM_NOT_SUPPORTED, "use_ce is false");
    spec = spec_of(CGM_OP_AG_GEMM, CGM_METHOD_AUTO, CGM_ALGO_FUSED_AG);
    assert_chosen(&spec, CGM_ALGO_FUSED_AG, "named in the plan");
    spec.use_ce = false;
    assert_refused(&spec, CGM_NOT_SUPPORTED, "use_ce is false");
    spec.method = CGM_METHOD_NONE;
    assert_refused(&spec, CGM_INVALID_ARGUMENT, "fused_ag belongs to method auto, but method is n");
    spec = spec_of(CGM_OP_GEMM_RS, CGM_METHOD_RING_EXCHANGE, CGM_ALGO_FUSED_RS);
    assert_refused(&spec, CGM_INVALID_ARGUMENT, "method auto, but method is ring_exchange");
}

static void test_named(void **state)
{
    (void)state;
    struct cgm_spec spec =
        spec_of(CGM_OP_AG_GEMM, CGM_METHOD_AUTO, CGM_ALGO_SPLIT_PIPELINED_AG_P2P);
    assert_chosen(&spec, CGM_ALGO_SPLIT_PIPELINED_AG_P2P, "named in the plan");
    spec.method = CGM_METHOD_RING_EXCHANGE;
    assert_chosen(&spec, CGM_ALGO_SPLIT_PIPELINED_AG_P2P, "named");
    spec.method = CGM_METHOD_NONE;
    assert_refused(&spec, CGM_INVALID_ARGUMENT,
                   "belongs to method ring_exchange, but method is none");
    spec = spec_of(CGM_OP_GEMM_RS, CGM_METHOD_AUTO, CGM_ALGO_SPLIT_PIPELINED_AG_P2P);
    assert_refused(&spec, CGM_NOT_SUPPORTED,
                   "does not do gemm_rs, which can be done by no_overlap, split_pipelined_rs and");
    spec = spec_of(CGM_OP_AG, CGM_METHOD_AUTO, CGM_ALGO_FUSED_AG);
    assert_refused(&spec, CGM_NOT_SUPPORTED, "fused_ag does not do ag, which can be done by no_");
    spec = spec_of(CGM_OP_GEMM_RS, CGM_METHOD_AUTO, CGM_ALGO_NO_OVERLAP);
    spec.atomic_gemm = true;
    assert_refused(&spec, CGM_INVALID_ARGUMENT, "no_overlap needs atomic_gemm false");
}

static void test_auto(void **state)
{
    (void)state;
    struct cgm_spec spec = spec_of(CGM_OP_AG_GEMM, CGM_METHOD_AUTO, CGM_ALGO_AUTO);
    assert_chosen(&spec, CGM_ALGO_SPLIT_PIPELINED_AG_P2P,
                  "auto: split_pipelined_ag_p2p, estimated cheapest of no_overlap, "
                  "split_pipelined_ag_p2p, fused_ag");
    spec.m = 64;
    spec.n = 64;
    assert_chosen(&spec, CGM_ALGO_NO_OVERLAP, "estimated cheapest");
    spec = spec_of(CGM_OP_GEMM_RS, CGM_METHOD_AUTO, CGM_ALGO_AUTO);
    assert_chosen(&spec, CGM_ALGO_SPLIT_PIPELINED_RS_P2P, "estimated cheapest");
    spec.world = 1;
    assert_chosen(&spec, CGM_ALGO_NO_OVERLAP, "one rank has nothing to overlap");
    spec = spec_of(CGM_OP_AG, CGM_METHOD_AUTO, CGM_ALGO_AUTO);
    assert_chosen(&spec, CGM_ALGO_NO_OVERLAP, "the only algorithm");
    spec = spec_of(CGM_OP_AR, CGM_METHOD_AUTO, CGM_ALGO_AUTO);
    assert_chosen(&spec, CGM_ALGO_NO_OVERLAP, "estimated cheapest");
    spec.m = spec.n = 16;
    assert_chosen(&spec, CGM_ALGO_ONE_SHOT_AR, "estimated cheapest");
    spec = spec_of(CGM_OP_BULK_AG, CGM_METHOD_AUTO, CGM_ALGO_AUTO);
    assert_chosen(&spec, CGM_ALGO_BULK_OVERLAP_AG, "estimated cheapest");
    spec = spec_of(CGM_OP_GEMM_RS, CGM_METHOD_AUTO, CGM_ALGO_AUTO);
    spec.atomic_gemm = true;
    assert_chosen(&spec, CGM_ALGO_ATOMIC_GEMM_RS, "cheapest of atomic_gemm_rs, atomic_gemm_rs_p2p");
    spec.op = CGM_OP_GEMM_AR;
    assert_refused(&spec, CGM_NOT_SUPPORTED, "no algorithm does gemm_ar with atomic_gemm");
}

/* Each "NAME (method M)" of the reason is an algorithm that takes the plan as it is. */
static uint32_t follow(const struct cgm_spec *spec)
{
    char name[64], method[32], said[sizeof reason];
    uint32_t n = 0;
    int status, length;
    const char *at = strstr(strcpy(said, reason), "; use ");
    for (at = at ? at + 6 : ""; sscanf(at, "%63s (method %31[a-z_])%n", name, method, &length) == 2;
         at += strspn(at, ", ")) {
        struct cgm_spec next = *spec;
        next.algorithm = cgm_type_number(CGM_TABLE_ALGO, name);
        next.method = cgm_type_number(CGM_TABLE_METHOD, method);
        assert_int_equal(choose(&next, &status), next.algorithm);
        at += length;
        n++;
    }
    return n;
}

/* What is said to work does. */
static void test_advice(void **state)
{
    (void)state;
    uint32_t n = 0;
    for (int op = CGM_OP_AG_GEMM; op <= CGM_OP_GEMM_RS; op++)
        for (int i = 0; i < 4 * CGM_PARAMETER_COUNT; i++) {
            int status;
            struct cgm_spec spec =
                spec_of(op, i & 1 ? CGM_METHOD_RING_EXCHANGE : CGM_METHOD_NONE, CGM_ALGO_AUTO);
            spec.use_ce = true;
            spec.atomic_gemm = i & 2;
            spec.asked = 1u << i / 4;
            if (i / 4 == CGM_PARAMETER_NUM_COMM_SM || choose(&spec, &status) >= 0)
                continue;
            n += follow(&spec);
        }
    assert_true(n >= 10);
    struct cgm_spec both = spec_of(CGM_OP_AG_GEMM, CGM_METHOD_RING_EXCHANGE, CGM_ALGO_AUTO);
    both.asked = 1u << CGM_PARAMETER_NUM_SPLITS | 1u << CGM_PARAMETER_AGGREGATE_AG;
    assert_refused(&both, CGM_NOT_SUPPORTED,
                   "nothing that does ag_gemm makes use of all of num_splits, aggregate_ag, which "
                   "are not the default; leave some out");
    assert_true(strlen(reason) < CGM_CQE_DETAIL);
    both.asked = 1u << CGM_PARAMETER_NUM_SPLITS | 1u << CGM_PARAMETER_USE_CE;
    both.use_ce = false;
    assert_refused(&both, CGM_NOT_SUPPORTED, "makes use of all of num_splits, use_ce");
    both.method = CGM_METHOD_AUTO;
    both.algorithm = CGM_ALGO_FUSED_AG;
    assert_refused(&both, CGM_NOT_SUPPORTED, "needs a copy engine to bring them; leave it out");
    static const int waiting[] = {CGM_ALGO_FUSED_AG, CGM_ALGO_ATOMIC_GEMM_AG_P2P};
    for (int i = 0; i < 2; i++) {
        struct cgm_spec spec = spec_of(CGM_OP_AG_GEMM, CGM_METHOD_AUTO, waiting[i]);
        spec.use_ce = true;
        spec.asked = 1u << CGM_PARAMETER_NUM_COMM_SM;
        assert_refused(&spec, CGM_NOT_SUPPORTED, "; give set_sm_margin 1 too, or leave it out");
        spec.set_sm_margin = true;
        assert_chosen(&spec, waiting[i], "named in the plan");
    }
}

static void assert_candidates(const struct cgm_spec *spec, const char *expected)
{
    const struct cgm_algorithm *found[16];
    char names[256] = "";
    uint32_t n = cgm_algorithm_candidates(spec, 16, found);
    for (uint32_t i = 0; i < n; i++)
        sprintf(names + strlen(names), "%s%s", i ? " " : "", found[i]->name);
    assert_string_equal(names, expected);
}

/* Serial first; those of atomic_gemm, too, which auto does not take unmeasured. */
static void test_candidates(void **state)
{
    (void)state;
    struct cgm_spec spec = spec_of(CGM_OP_AG_GEMM, CGM_METHOD_AUTO, CGM_ALGO_AUTO);
    assert_candidates(&spec, "no_overlap split_pipelined_ag_p2p atomic_gemm_ag_p2p fused_ag");
    spec.atomic_gemm = true;
    assert_candidates(&spec, "atomic_gemm_ag_p2p");
    spec = spec_of(CGM_OP_GEMM_RS, CGM_METHOD_AUTO, CGM_ALGO_AUTO);
    spec.atomic_gemm = true;
    assert_candidates(&spec, "atomic_gemm_rs atomic_gemm_rs_p2p");
    spec.atomic_gemm = false;
    spec.world = 1;
    assert_candidates(&spec, "");
    spec = spec_of(CGM_OP_AG_GEMM, CGM_METHOD_RING_EXCHANGE, CGM_ALGO_AUTO);
    assert_candidates(&spec, "");
    spec = spec_of(CGM_OP_AG_GEMM, CGM_METHOD_AUTO, CGM_ALGO_FUSED_AG);
    assert_candidates(&spec, "");
    spec = spec_of(CGM_OP_AG, CGM_METHOD_AUTO, CGM_ALGO_AUTO);
    assert_candidates(&spec, "no_overlap");
}

static void ask(struct cgm_spec *spec, enum cgm_parameter parameter)
{
    spec->asked |= 1u << parameter;
}

/* A parameter that is not the default must have an effect. */
static void test_parameters(void **state)
{
    (void)state;
    struct cgm_spec spec = spec_of(CGM_OP_AG_GEMM, CGM_METHOD_AUTO, CGM_ALGO_AUTO);
    ask(&spec, CGM_PARAMETER_AGGREGATE_AG);
    spec.m = spec.n = spec.k = 64;
    assert_chosen(&spec, CGM_ALGO_SPLIT_PIPELINED_AG_P2P, "the only algorithm");
    spec.method = CGM_METHOD_NONE;
    assert_refused(&spec, CGM_NOT_SUPPORTED,
                   "aggregate_ag is not the default, and no_overlap makes no use of it; use "
                   "split_pipelined_ag_p2p (method ring_exchange)");
    spec = spec_of(CGM_OP_GEMM_RS, CGM_METHOD_NONE, CGM_ALGO_AUTO);
    ask(&spec, CGM_PARAMETER_NUM_SPLITS);
    assert_refused(&spec, CGM_NOT_SUPPORTED,
                   "num_splits is not the default, and no_overlap makes no use of it; use "
                   "split_pipelined_rs (method pipeline) and ");
    spec = spec_of(CGM_OP_GEMM_RS, CGM_METHOD_AUTO, CGM_ALGO_AUTO);
    ask(&spec, CGM_PARAMETER_RS_OVERLAP_FIRST_GEMM);
    assert_chosen(&spec, CGM_ALGO_SPLIT_PIPELINED_RS, "the only algorithm");
    spec.method = CGM_METHOD_RING_EXCHANGE;
    assert_refused(&spec, CGM_NOT_SUPPORTED, "use split_pipelined_rs (method pipeline)");
    spec = spec_of(CGM_OP_GEMM_RS, CGM_METHOD_PIPELINE, CGM_ALGO_AUTO);
    ask(&spec, CGM_PARAMETER_COMM_CGA_SIZE);
    assert_refused(&spec, CGM_NOT_SUPPORTED,
                   "comm_cga_size is not the default, and nothing that does gemm_rs makes use of "
                   "it; leave it out");
    spec.method = CGM_METHOD_AUTO;
    assert_refused(&spec, CGM_NOT_SUPPORTED, "no algorithm does gemm_rs with comm_cga_size");
    spec.asked = 0;
    ask(&spec, CGM_PARAMETER_NUM_SPLITS);
    spec.m = spec.n = spec.k = 8;
    spec.num_splits = 9;
    assert_refused(&spec, CGM_INVALID_ARGUMENT, "split_pipelined_rs: num_splits is 9; with ");
    spec.num_splits = 3;
    int status;
    choose(&spec, &status);
    assert_int_equal(status, CGM_OK);
    /* Serial has one queue; a comm of one rank takes what larger ones do. */
    spec = spec_of(CGM_OP_AG_GEMM, CGM_METHOD_AUTO, CGM_ALGO_NO_OVERLAP);
    ask(&spec, CGM_PARAMETER_COMM_PRIORITY);
    assert_refused(&spec, CGM_NOT_SUPPORTED, "comm_priority");
    spec.world = 1;
    assert_chosen(&spec, CGM_ALGO_NO_OVERLAP, "named in the plan");
}

static void test_pieces(void **state)
{
    (void)state;
    struct cgm_spec spec = spec_of(CGM_OP_GEMM_RS, CGM_METHOD_PIPELINE, CGM_ALGO_AUTO);
    spec.n = 3;
    assert_chosen(&spec, CGM_ALGO_SPLIT_PIPELINED_RS, "pipeline");
    ask(&spec, CGM_PARAMETER_NUM_SPLITS);
    assert_refused(&spec, CGM_INVALID_ARGUMENT,
                   "num_splits is 4; with n 3 and 4 ranks it may be at most 3");
    spec = spec_of(CGM_OP_GEMM_AS, CGM_METHOD_PIPELINE, CGM_ALGO_AUTO);
    ask(&spec, CGM_PARAMETER_NUM_SPLITS);
    spec.m = 2;
    assert_refused(&spec, CGM_INVALID_ARGUMENT,
                   "num_splits is 4; with m 2 and 4 ranks it may be at most 2");
    spec.m = 8192;
    spec.world = 64;
    spec.num_splits = 64;
    assert_refused(&spec, CGM_INVALID_ARGUMENT, "it may be at most 7");
    spec = spec_of(CGM_OP_GEMM_RS, CGM_METHOD_AUTO, CGM_ALGO_FUSED_RS);
    ask(&spec, CGM_PARAMETER_NUM_SPLITS);
    assert_chosen(&spec, CGM_ALGO_FUSED_RS, "named");
    spec.num_splits = 17;
    assert_refused(&spec, CGM_INVALID_ARGUMENT,
                   "num_splits is 17; with m 8192 and 4 ranks it may be at most 16");
}

/* Every algorithm is complete, and every operation that it names can be planned with it. */
static void test_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < cgm_algorithm_count; i++) {
        const struct cgm_algorithm *algorithm = cgm_algorithms[i];
        assert_true(algorithm->summary && algorithm->estimate && algorithm->enqueue);
        for (int op = 0; op < 32; op++) {
            if (!(algorithm->ops & 1u << op))
                continue;
            struct cgm_spec spec = spec_of(op, algorithm->method, (int)algorithm->number);
            assert_chosen(&spec, (int)algorithm->number, algorithm->name);
            double cost = algorithm->estimate ? algorithm->estimate(&spec) : 0;
            assert_true(cost > 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_method),     cmocka_unit_test(test_atomic),
        cmocka_unit_test(test_advice),     cmocka_unit_test(test_named),
        cmocka_unit_test(test_auto),       cmocka_unit_test(test_candidates),
        cmocka_unit_test(test_parameters), cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
