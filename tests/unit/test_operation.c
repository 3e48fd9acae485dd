#include "tests/unit/spec_fixture.h"

static const int plan_ops[] = {CGM_OP_GEMM,    CGM_OP_AG_GEMM, CGM_OP_GEMM_RS, CGM_OP_GEMM_AR,
                               CGM_OP_GEMM_AS, CGM_OP_BULK_AG, CGM_OP_BULK_RS, CGM_OP_AG,
                               CGM_OP_RS,      CGM_OP_AR,      CGM_OP_A2AV};
#define PLAN_OPS (sizeof(plan_ops) / sizeof(plan_ops[0]))

static bool is_product(int op)
{
    return op == CGM_OP_GEMM || op == CGM_OP_AG_GEMM || op == CGM_OP_GEMM_RS ||
           op == CGM_OP_GEMM_AR || op == CGM_OP_GEMM_AS || op == CGM_OP_BULK_AG ||
           op == CGM_OP_BULK_RS;
}

static struct cgm_shape operand(const struct cgm_spec *spec, uint64_t rows, int index,
                                enum cgm_presence presence)
{
    struct cgm_shape shape;
    assert_int_equal(cgm_operation_operand(spec, 0, rows, index, &shape), presence);
    return shape;
}

/* Row `rank` of the counts goes out, column `rank` comes in; who has none has no operand. */
static void check_counted_shapes(const struct cgm_spec *spec)
{
    uint64_t most = 0;
    for (uint32_t rank = 0; rank < spec->world; rank++) {
        uint64_t sent = 0, received = 0;
        struct cgm_shape lhs, out;
        for (uint32_t peer = 0; peer < spec->world; peer++) {
            assert_int_equal(cgm_operation_sent_before(spec, rank, peer), sent);
            assert_int_equal(cgm_operation_received_before(spec, rank, peer), received);
            sent += counts[rank * spec->world + peer];
            received += counts[peer * spec->world + rank];
        }
        most = sent > most ? sent : most;
        assert_int_equal(cgm_operation_operand(spec, rank, spec->m, CGM_OPERAND_LHS, &lhs),
                         sent ? CGM_REQUIRED : CGM_ABSENT);
        assert_int_equal(cgm_operation_operand(spec, rank, spec->m, CGM_OPERAND_OUT, &out),
                         received ? CGM_REQUIRED : CGM_ABSENT);
        assert_shape(lhs, false, sent, spec->n, spec->dtype);
        assert_shape(out, false, received, spec->n, spec->dtype);
    }
    assert_int_equal(cgm_operation_user_buffer(spec).rows, most);
}

static void check_moved_shapes(const struct cgm_spec *spec, uint64_t rows)
{
    uint64_t part = spec->buffer_shape[0] / spec->world, cols = spec->buffer_shape[1];
    bool gathers = spec->op == CGM_OP_BULK_AG;
    assert_shape(operand(spec, rows, CGM_OPERAND_AUX_IN, CGM_OPTIONAL), false,
                 gathers ? part : spec->buffer_shape[0], cols, spec->buffer_dtype);
    assert_shape(operand(spec, rows, CGM_OPERAND_AUX_OUT, CGM_OPTIONAL), false,
                 gathers ? spec->buffer_shape[0] : part, cols, spec->buffer_dtype);
}

/* The table of commgemm.h, written down once more. */
static void check_shapes(const struct cgm_spec *spec, uint64_t rows)
{
    uint64_t w = spec->world, n = spec->n, k = spec->k;
    int type = spec->dtype, out = spec->out_dtype;
    if (spec->op == CGM_OP_A2AV) {
        check_counted_shapes(spec);
        return;
    }
    struct cgm_shape lhs = operand(spec, rows, CGM_OPERAND_LHS, CGM_REQUIRED);
    struct cgm_shape result = operand(spec, rows, CGM_OPERAND_OUT, CGM_REQUIRED);
    struct cgm_shape rhs = {0};
    if (is_product(spec->op))
        rhs = operand(spec, rows, CGM_OPERAND_RHS, CGM_REQUIRED);
    switch (spec->op) {
    case CGM_OP_GEMM:
        assert_shape(lhs, spec->transa, rows, k, type);
        assert_shape(rhs, spec->transb, k, n, type);
        assert_shape(result, false, rows, n, out);
        break;
    case CGM_OP_AG_GEMM:
        assert_shape(lhs, spec->transa, rows / w, k, type);
        assert_shape(rhs, spec->transb, k, n / w, type);
        assert_shape(result, false, rows, n / w, out);
        assert_shape(operand(spec, rows, CGM_OPERAND_AUX_OUT, CGM_OPTIONAL), spec->transa, rows, k,
                     type);
        break;
    case CGM_OP_GEMM_RS:
        assert_shape(lhs, spec->transa, rows, k / w, type);
        assert_shape(rhs, spec->transb, k / w, n, type);
        assert_shape(result, false, rows / w, n, out);
        break;
    case CGM_OP_GEMM_AR:
        assert_shape(lhs, spec->transa, rows, k / w, type);
        assert_shape(rhs, spec->transb, k / w, n, type);
        assert_shape(result, false, rows, n, out);
        break;
    case CGM_OP_GEMM_AS:
        assert_shape(lhs, spec->transa, rows, k, type);
        assert_shape(rhs, spec->transb, k, n / w, type);
        assert_shape(result, false, rows, n, out);
        break;
    case CGM_OP_BULK_AG:
    case CGM_OP_BULK_RS:
        assert_shape(lhs, spec->transa, rows, k, type);
        assert_shape(rhs, spec->transb, k, n, type);
        assert_shape(result, false, rows, n, out);
        check_moved_shapes(spec, rows);
        break;
    case CGM_OP_AG:
        assert_shape(lhs, false, rows / w, n, type);
        assert_shape(result, false, rows, n, type);
        break;
    case CGM_OP_RS:
        assert_shape(lhs, false, rows, n, type);
        assert_shape(result, false, rows / w, n, type);
        break;
    default:
        assert_shape(lhs, false, rows, n, type);
        assert_shape(result, false, rows, n, type);
    }
}

static void check_bias(const struct cgm_spec *spec)
{
    bool has = spec->epilogue & CGM_EPILOGUE_BIAS;
    bool shards_cols = spec->op == CGM_OP_AG_GEMM || spec->op == CGM_OP_GEMM_AS;
    struct cgm_shape bias =
        operand(spec, spec->m, CGM_OPERAND_BIAS, has ? CGM_REQUIRED : CGM_ABSENT);
    if (has)
        assert_shape(bias, false, 1, shards_cols ? spec->n / spec->world : spec->n,
                     spec->out_dtype);
}

/* GELU, its derivative and the bias gradient bring operands along, shaped like out, a row of out or
 * the rows of op(lhs). */
static void test_operands_of_epilogues(void **state)
{
    (void)state;
    static const struct {
        uint32_t epilogue;
        enum cgm_presence bias, bias_grad, gelu_input, pre_gelu_out;
    } cases[] = {
        {CGM_EPILOGUE_GELU, CGM_ABSENT, CGM_ABSENT, CGM_ABSENT, CGM_OPTIONAL},
        {CGM_EPILOGUE_GELU | CGM_EPILOGUE_BIAS, CGM_REQUIRED, CGM_ABSENT, CGM_ABSENT, CGM_OPTIONAL},
        {CGM_EPILOGUE_GELU | CGM_EPILOGUE_GRAD, CGM_ABSENT, CGM_ABSENT, CGM_REQUIRED, CGM_ABSENT},
        {CGM_EPILOGUE_GELU | CGM_EPILOGUE_GRAD | CGM_EPILOGUE_BIAS, CGM_ABSENT, CGM_REQUIRED,
         CGM_REQUIRED, CGM_ABSENT},
        {CGM_EPILOGUE_GRAD | CGM_EPILOGUE_BIAS, CGM_ABSENT, CGM_REQUIRED, CGM_ABSENT, CGM_ABSENT},
    };
    for (size_t i = 0; i < PLAN_OPS * sizeof(cases) / sizeof(cases[0]); i++) {
        int op = plan_ops[i % PLAN_OPS];
        uint32_t epilogue = cases[i / PLAN_OPS].epilogue;
        bool of_out = epilogue & CGM_EPILOGUE_GELU;
        struct cgm_spec spec;
        Cgm__PlanCreate request = request_of(op);
        request.epilogue = epilogue;
        request.has_out_dtype = 1;
        request.out_dtype = CGM_DTYPE_FP32;
        request.transa = i % 2;
        if (!is_product(op) || (!of_out && op != CGM_OP_GEMM))
            continue;
        assert_int_equal(spec_of(&request, 2, &spec), CGM_OK);
        struct cgm_shape out = operand(&spec, 6, CGM_OPERAND_OUT, CGM_REQUIRED), shape;
        operand(&spec, 6, CGM_OPERAND_BIAS, cases[i / PLAN_OPS].bias);
        shape = operand(&spec, 6, CGM_OPERAND_BIAS_GRAD, cases[i / PLAN_OPS].bias_grad);
        assert_shape(shape, false, 1, of_out ? out.cols : 6, CGM_DTYPE_FP32);
        shape = operand(&spec, 6, CGM_OPERAND_GELU_INPUT, cases[i / PLAN_OPS].gelu_input);
        assert_shape(shape, false, out.rows, out.cols, CGM_DTYPE_FP32);
        shape = operand(&spec, 6, CGM_OPERAND_PRE_GELU_OUT, cases[i / PLAN_OPS].pre_gelu_out);
        assert_shape(shape, false, out.rows, out.cols, CGM_DTYPE_FP32);
    }
}

static void check_absent(const struct cgm_spec *spec)
{
    static const int never[] = {CGM_OPERAND_GELU_INPUT,   CGM_OPERAND_BIAS_GRAD,
                                CGM_OPERAND_PRE_GELU_OUT, CGM_OPERAND_LHS_SCALE,
                                CGM_OPERAND_RHS_SCALE,    CGM_OPERAND_OUT_SCALE};
    for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++)
        operand(spec, spec->m, never[i], CGM_ABSENT);
    if (!is_product(spec->op))
        operand(spec, spec->m, CGM_OPERAND_RHS, CGM_ABSENT);
    if (!moves_buffer(spec->op))
        operand(spec, spec->m, CGM_OPERAND_AUX_IN, CGM_ABSENT);
    if (spec->op != CGM_OP_AG_GEMM && !moves_buffer(spec->op))
        operand(spec, spec->m, CGM_OPERAND_AUX_OUT, CGM_ABSENT);
}

/* Chunks lie behind each other, fill the buffer, and keep their place when rows are fewer. */
static void check_chunks(const struct cgm_spec *spec, uint64_t rows)
{
    struct cgm_shape buffer = cgm_operation_user_buffer(spec), whole, chunk, active = {0};
    uint32_t chunks = cgm_operation_chunks(spec);
    uint64_t offset, stride, at = 0, active_offset, active_stride, active_rows = 0;
    assert_int_equal(
        chunks, cgm_operation_shards_rows(spec->op) || moves_buffer(spec->op) ? spec->world : 1);
    for (uint32_t i = 0; i < chunks; i++) {
        assert_true(cgm_operation_chunk(spec, spec->m, i, &offset, &stride, &chunk));
        assert_true(cgm_operation_chunk(spec, rows, i, &active_offset, &active_stride, &active));
        assert_int_equal(offset, at);
        assert_int_equal(active_offset, offset);
        assert_int_equal(stride, chunk.cols);
        assert_int_equal(active_stride, stride);
        assert_true(active.rows <= chunk.rows && active.cols <= chunk.cols);
        assert_int_equal(chunk.cols, buffer.cols);
        at += chunk.rows * chunk.cols * cgm_dtype_bytes(chunk.dtype);
        active_rows += active.rows;
    }
    assert_int_equal(at, buffer.rows * buffer.cols * cgm_dtype_bytes(buffer.dtype));
    assert_true(cgm_operation_chunk(spec, rows, UINT32_MAX, &offset, &stride, &whole));
    assert_int_equal(offset, 0);
    assert_int_equal(whole.rows, active_rows);
    assert_int_equal(whole.cols, active.cols);
    assert_false(cgm_operation_chunk(spec, rows, chunks, &offset, &stride, &chunk));
}

static void test_shapes(void **state)
{
    (void)state;
    for (int i = 0; i < 5000; i++) {
        struct cgm_spec spec;
        uint32_t world = 1 + (uint32_t)cgm_random_below(&rng, 9);
        int op = plan_ops[cgm_random_below(&rng, PLAN_OPS)];
        Cgm__PlanCreate request = request_of(op);
        request.m = world * (1 + cgm_random_below(&rng, 50));
        request.n = world * (1 + cgm_random_below(&rng, 50));
        request.k = world * (1 + cgm_random_below(&rng, 50));
        request.dtype = (uint32_t)cgm_random_below(&rng, 3);
        request.has_out_dtype = is_product(op) && cgm_random_below(&rng, 2);
        request.out_dtype = CGM_DTYPE_FP32;
        request.transa = is_product(op) && cgm_random_below(&rng, 2);
        request.transb = is_product(op) && cgm_random_below(&rng, 2);
        request.epilogue = is_product(op) && cgm_random_below(&rng, 2) ? CGM_EPILOGUE_BIAS : 0;
        uint64_t moved[2] = {world * (1 + cgm_random_below(&rng, 50)),
                             1 + cgm_random_below(&rng, 9)};
        request.buffer_shape = moves_buffer(op) ? moved : NULL;
        set_counts(&request, world);
        assert_int_equal(spec_of(&request, world, &spec), CGM_OK);
        uint64_t step = cgm_operation_rows_step(&spec);
        uint64_t rows = step * (1 + cgm_random_below(&rng, request.m / step));
        assert_int_equal(cgm_operation_check_rows(&spec, rows, detail, sizeof detail), CGM_OK);
        check_shapes(&spec, rows);
        check_bias(&spec);
        check_absent(&spec);
        check_chunks(&spec, rows);
    }
}

static void test_rows(void **state)
{
    (void)state;
    struct cgm_spec spec;
    Cgm__PlanCreate request = request_of(CGM_OP_AG_GEMM);
    assert_int_equal(spec_of(&request, 4, &spec), CGM_OK);
    assert_int_equal(cgm_operation_check_rows(&spec, 24, detail, sizeof detail), CGM_OK);
    assert_int_equal(cgm_operation_check_rows(&spec, 0, detail, sizeof detail),
                     CGM_INVALID_ARGUMENT);
    assert_non_null(strstr(detail, "rows is 0"));
    assert_int_equal(cgm_operation_check_rows(&spec, 28, detail, sizeof detail),
                     CGM_INVALID_ARGUMENT);
    assert_non_null(strstr(detail, "1 to 24"));
    assert_int_equal(cgm_operation_check_rows(&spec, 10, detail, sizeof detail),
                     CGM_INVALID_ARGUMENT);
    assert_non_null(strstr(detail, "rows is 10"));
    assert_non_null(strstr(detail, "4 ranks"));
    assert_int_equal(cgm_operation_check_rows(&spec, UINT64_MAX, detail, sizeof detail),
                     CGM_INVALID_ARGUMENT);

    request = request_of(CGM_OP_GEMM_AR);
    assert_int_equal(spec_of(&request, 4, &spec), CGM_OK);
    assert_int_equal(cgm_operation_check_rows(&spec, 1, detail, sizeof detail), CGM_OK);
}

static void test_accumulate(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLAN_OPS; i++) {
        struct cgm_spec spec;
        Cgm__PlanCreate request = request_of(plan_ops[i]);
        set_counts(&request, 2);
        assert_int_equal(spec_of(&request, 2, &spec), CGM_OK);
        bool adds = plan_ops[i] == CGM_OP_GEMM || plan_ops[i] == CGM_OP_AG_GEMM ||
                    plan_ops[i] == CGM_OP_GEMM_RS || moves_buffer(plan_ops[i]);
        assert_int_equal(cgm_operation_check_accumulate(&spec, detail, sizeof detail),
                         adds ? CGM_OK : CGM_INVALID_ARGUMENT);
        request.epilogue = CGM_EPILOGUE_ACCUMULATE;
        assert_int_equal(spec_of(&request, 2, &spec), adds ? CGM_OK : CGM_INVALID_ARGUMENT);
    }
}

static void test_use_of_the_buffer(void **state)
{
    (void)state;
    struct cgm_spec spec;
    Cgm__PlanCreate request = request_of(CGM_OP_AG_GEMM);
    assert_int_equal(spec_of(&request, 4, &spec), CGM_OK);
    uint64_t chunk = 24 / 4 * 8 * 2, stride = 8 * 2;
    assert_true(cgm_operation_may_use_buffer(&spec, 2, 2, CGM_OPERAND_LHS, 2 * chunk, stride));
    assert_false(cgm_operation_may_use_buffer(&spec, 2, 2, CGM_OPERAND_LHS, chunk, stride));
    assert_false(cgm_operation_may_use_buffer(&spec, 2, 2, CGM_OPERAND_LHS, 2 * chunk, 2 * stride));
    assert_false(cgm_operation_may_use_buffer(&spec, 2, 1, CGM_OPERAND_LHS, 2 * chunk, stride));
    assert_false(cgm_operation_may_use_buffer(&spec, 2, 2, CGM_OPERAND_OUT, 2 * chunk, stride));
    request = request_of(CGM_OP_GEMM_RS);
    assert_int_equal(spec_of(&request, 4, &spec), CGM_OK);
    assert_false(cgm_operation_may_use_buffer(&spec, 0, 0, CGM_OPERAND_LHS, 0, 32));
    request = request_of(CGM_OP_RS);
    assert_int_equal(spec_of(&request, 4, &spec), CGM_OK);
    assert_true(cgm_operation_may_use_buffer(&spec, 3, 0, CGM_OPERAND_LHS, 0, 32));
}

static void test_integers(void **state)
{
    (void)state;
    struct cgm_spec spec;
    Cgm__PlanCreate request = request_of(CGM_OP_GEMM_RS);
    request.dtype = CGM_DTYPE_INT8;
    request.k = (1 << 17) - 4;
    assert_int_equal(spec_of(&request, 4, &spec), CGM_OK);
    assert_int_equal(spec.out_dtype, CGM_DTYPE_INT32);
    assert_int_equal(spec.buffer_dtype, CGM_DTYPE_INT32);
    request = request_of(CGM_OP_AG);
    request.dtype = CGM_DTYPE_INT8;
    assert_int_equal(spec_of(&request, 4, &spec), CGM_OK);
    assert_int_equal(spec.out_dtype, CGM_DTYPE_INT8);
    request = request_of(CGM_OP_AR);
    request.dtype = CGM_DTYPE_INT32;
    assert_int_equal(spec_of(&request, 4, &spec), CGM_OK);
    assert_int_equal(spec.buffer_dtype, CGM_DTYPE_INT32);
}

/* The algorithm table and the table of methods say the same. */
static void test_methods_and_algorithms_agree(void **state)
{
    (void)state;
    for (size_t i = 0; i < cgm_algorithm_count; i++) {
        const struct cgm_algorithm *algorithm = cgm_algorithms[i];
        assert_ptr_equal(cgm_algorithm_find(algorithm->number), algorithm);
        assert_string_equal(cgm_type_name(CGM_TABLE_ALGO, algorithm->number), algorithm->name);
        /* What no method stands for is taken by name or by auto. */
        int number = algorithm->method == CGM_METHOD_AUTO ? -1 : (int)algorithm->number;
        for (int op = 0; op < 32; op++)
            if (algorithm->ops & 1u << op)
                assert_int_equal(cgm_operation_algorithm(op, algorithm->method, algorithm->atomic),
                                 number);
    }
    assert_null(cgm_algorithm_find(9));
    assert_null(cgm_algorithm_find(-1));
}

int main(void)
{
    test_seed(&rng);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operands_of_epilogues),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_accumulate),
        cmocka_unit_test(test_use_of_the_buffer),
        cmocka_unit_test(test_methods_and_algorithms_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
