/* From a request to a plan's parameters: defaults, and the words of every refusal. */
#include "tests/unit/spec_fixture.h"

static void test_defaults(void **state)
{
    (void)state;
    struct cgm_spec spec;
    Cgm__PlanCreate request = request_of(CGM_OP_GEMM_RS);
    request.method = CGM_METHOD_RING_EXCHANGE;
    assert_int_equal(spec_of(&request, 4, &spec), CGM_OK);
    assert_int_equal(spec.algorithm, CGM_ALGO_AUTO);
    assert_int_equal(spec.out_dtype, CGM_DTYPE_BF16);
    assert_int_equal(spec.buffer_dtype, CGM_DTYPE_BF16);
    assert_int_equal(spec.buffer_shape[0], 24);
    assert_int_equal(spec.buffer_shape[1], 16);
    assert_int_equal(spec.tp_size, 4);
    assert_int_equal(spec.num_splits, 4);
    assert_int_equal(spec.comm_cga_size, 1);
    assert_int_equal(spec.num_comm_sm, 1);
    assert_true(spec.use_ce);
    assert_false(spec.set_sm_margin);

    request.method = CGM_METHOD_PIPELINE;
    request.has_out_dtype = 1;
    request.out_dtype = CGM_DTYPE_FP32;
    request.num_comm_sm = 7;
    assert_int_equal(spec_of(&request, 8, &spec), CGM_OK);
    assert_int_equal(spec.buffer_dtype, CGM_DTYPE_FP32);
    assert_int_equal(spec.num_splits, 4);
    assert_int_equal(spec.comm_cga_size, 2);
    assert_int_equal(spec.num_comm_sm, 7);
    assert_false(spec.use_ce);
    assert_true(spec.set_sm_margin);

    request.method = CGM_METHOD_NONE; /* nothing runs beside the product */
    request.num_comm_sm = 0;
    assert_int_equal(spec_of(&request, 4, &spec), CGM_OK);
    assert_int_equal(spec.num_comm_sm, 16);
    assert_false(spec.use_ce);
    assert_false(spec.set_sm_margin);

    request.method = CGM_METHOD_RING_EXCHANGE; /* one multiprocessor would hold all up */
    request.has_use_ce = 1;
    assert_int_equal(spec_of(&request, 4, &spec), CGM_OK);
    assert_int_equal(spec.num_comm_sm, 16);
    assert_false(spec.use_ce);
}

static void test_equal_requests_give_equal_bytes(void **state)
{
    (void)state;
    struct cgm_spec a, b;
    memset(&a, 0x11, sizeof a);
    memset(&b, 0x22, sizeof b);
    Cgm__PlanCreate request = request_of(CGM_OP_AG_GEMM);
    assert_int_equal(spec_of(&request, 4, &a), CGM_OK);
    assert_int_equal(spec_of(&request, 4, &b), CGM_OK);
    assert_memory_equal(&a, &b, sizeof a);
}

#define REQUIRED_FIELDS(X)                                                                         \
    X(op)                                                                                          \
    X(method)                                                                                      \
    X(comm_type)                                                                                   \
    X(m)                                                                                           \
    X(n)                                                                                           \
    X(k)                                                                                           \
    X(dtype)
#define OPTIONAL_FIELDS(X)                                                                         \
    X(algorithm)                                                                                   \
    X(out_dtype)                                                                                   \
    X(transa)                                                                                      \
    X(transb)                                                                                      \
    X(epilogue)                                                                                    \
    X(buffer_dtype)                                                                                \
    X(tp_size)                                                                                     \
    X(num_splits)                                                                                  \
    X(num_max_streams)                                                                             \
    X(comm_cga_size)                                                                               \
    X(gemm_priority)                                                                               \
    X(comm_priority)                                                                               \
    X(num_comm_sm)                                                                                 \
    X(set_sm_margin)                                                                               \
    X(use_ce)                                                                                      \
    X(atomic_gemm)                                                                                 \
    X(rs_overlap_first_gemm)                                                                       \
    X(aggregate_ag)                                                                                \
    X(allow_tf32)

static void set_field(Cgm__PlanCreate *request, const char *name, uint64_t value)
{
#define SET_REQUIRED(field)                                                                        \
    if (strcmp(name, #field) == 0) {                                                               \
        request->field = (__typeof__(request->field))value;                                        \
        return;                                                                                    \
    }
#define SET_OPTIONAL(field)                                                                        \
    if (strcmp(name, #field) == 0) {                                                               \
        request->has_##field = 1;                                                                  \
        request->field = (__typeof__(request->field))value;                                        \
        return;                                                                                    \
    }
    REQUIRED_FIELDS(SET_REQUIRED)
    OPTIONAL_FIELDS(SET_OPTIONAL)
    fail_msg("no field %s", name);
}

#define BIG CGM_DIM_MAX
#define INVALID CGM_INVALID_ARGUMENT
#define UNSUPPORTED CGM_NOT_SUPPORTED

/* World 4; m 24, n 16, k 8 in bf16. */
static const struct {
    int op;
    struct {
        const char *field;
        uint64_t value;
    } set[3];
    int status;
    const char *words[3];
} refusals[] = {
    {CGM_OP_GEMM, {{"op", 99}}, INVALID, {"op is 99", "ag_gemm, gemm_rs"}},
    {CGM_OP_GEMM, {{"op", UINT32_MAX}}, INVALID, {"op is 4294967295"}},
    {CGM_OP_GEMM, {{"op", CGM_OP_NOOP}}, INVALID, {"op is noop", "gemm, ag_gemm"}},
    {CGM_OP_GEMM, {{"op", CGM_OP_COPY_IN}}, INVALID, {"op is copy_in"}},
    {CGM_OP_GEMM, {{"op", CGM_OP_A2AV}}, INVALID, {"0 counts", "a2av of 4 ranks needs 16"}},
    {CGM_OP_A2AV, {{"m", 25}}, INVALID, {"counts add up to 24; m is 25"}},
    {CGM_OP_A2AV, {{"op", CGM_OP_AR}}, INVALID, {"counts are given", "a2av, not ar"}},
    {CGM_OP_AG,
     {{"op", CGM_OP_BULK_AG}},
     INVALID,
     {"buffer_shape is 0 x 0", "bulk_ag needs the rows and columns"}},
    {CGM_OP_GEMM_AS, {{"n", 18}}, INVALID, {"n is 18", "gemm_as", "multiple of 4"}},
    {CGM_OP_GEMM_AS,
     {{"method", CGM_METHOD_RING_EXCHANGE}},
     UNSUPPORTED,
     {"gemm_as with ring_exchange is not supported; use pipeline, none or auto"}},
    {CGM_OP_BULK_AG,
     {{"method", CGM_METHOD_PIPELINE}},
     UNSUPPORTED,
     {"AG with pipeline is not supported; use bulk, none or auto"}},
    {CGM_OP_BULK_RS, {{"comm_type", CGM_COMM_TYPE_AG}}, INVALID, {"comm_type is ag", "needs rs"}},
    {CGM_OP_GEMM, {{"method", 5}}, INVALID, {"method is 5", "ring_exchange"}},
    {CGM_OP_GEMM, {{"comm_type", 3}}, INVALID, {"comm_type is 3", "none, rs, ag"}},
    {CGM_OP_GEMM, {{"algorithm", 9}}, INVALID, {"algorithm is 9", "no_overlap"}},
    {CGM_OP_GEMM, {{"dtype", 9}}, INVALID, {"dtype is 9", "fp32, fp16, bf16"}},
    {CGM_OP_GEMM, {{"dtype", CGM_DTYPE_INT32}}, INVALID, {"dtype is int32", "bf16, int8"}},
    {CGM_OP_RS, {{"dtype", CGM_DTYPE_INT8}}, INVALID, {"dtype is int8", "rs takes", "int32"}},
    {CGM_OP_GEMM_RS,
     {{"dtype", CGM_DTYPE_INT8}, {"k", 1 << 17}},
     INVALID,
     {"k is 131072", "up to a k of 131071"}},
    {CGM_OP_GEMM,
     {{"dtype", CGM_DTYPE_INT8}, {"epilogue", CGM_EPILOGUE_BIAS}},
     INVALID,
     {"epilogue is 1", "int8"}},
    {CGM_OP_GEMM,
     {{"dtype", CGM_DTYPE_INT8}, {"out_dtype", CGM_DTYPE_FP32}},
     INVALID,
     {"out_dtype is fp32", "int8 give int32"}},
    {CGM_OP_GEMM, {{"out_dtype", CGM_DTYPE_INT32}}, UNSUPPORTED, {"out_dtype is int32"}},
    {CGM_OP_GEMM_RS,
     {{"dtype", CGM_DTYPE_INT8}, {"buffer_dtype", CGM_DTYPE_FP32}},
     INVALID,
     {"buffer_dtype is fp32", "holds int32"}},
    {CGM_OP_GEMM, {{"dtype", CGM_DTYPE_INT8}, {"allow_tf32", 1}}, INVALID, {"allow_tf32", "int8"}},
    {CGM_OP_GEMM, {{"out_dtype", 77}}, INVALID, {"out_dtype is 77"}},
    {CGM_OP_GEMM, {{"buffer_dtype", 77}}, INVALID, {"buffer_dtype is 77"}},
    {CGM_OP_GEMM, {{"m", 0}}, INVALID, {"m is 0", "1 and 2147483647"}},
    {CGM_OP_GEMM, {{"n", BIG + 1}}, INVALID, {"n is 2147483648", "1 and 2147483647"}},
    {CGM_OP_GEMM, {{"k", UINT64_MAX}}, INVALID, {"k is 18446744073709551615"}},
    {CGM_OP_GEMM, {{"m", BIG}, {"k", BIG}}, INVALID, {"lhs", "2147483647 x 2147483647", "bytes"}},
    {CGM_OP_GEMM, {{"n", BIG}, {"k", BIG}}, INVALID, {"rhs", "limit is 70368744177664"}},
    {CGM_OP_GEMM, {{"m", BIG}, {"n", BIG}}, INVALID, {"out"}},
    {CGM_OP_AG_GEMM, {{"m", BIG - 3}, {"k", 1 << 15}}, INVALID, {"aux_out"}},
    {CGM_OP_AG_GEMM, {{"m", 26}}, INVALID, {"m is 26", "4 ranks", "multiple of 4"}},
    {CGM_OP_AG_GEMM, {{"n", 18}}, INVALID, {"n is 18", "multiple of 4"}},
    {CGM_OP_GEMM_RS, {{"m", 26}}, INVALID, {"m is 26"}},
    {CGM_OP_GEMM_RS, {{"k", 9}}, INVALID, {"k is 9", "multiple of 4"}},
    {CGM_OP_GEMM_AR, {{"k", 9}}, INVALID, {"k is 9"}},
    {CGM_OP_AG, {{"m", 3}}, INVALID, {"m is 3"}},
    {CGM_OP_RS, {{"m", 3}}, INVALID, {"m is 3"}},
    {CGM_OP_AG, {{"transa", 1}}, INVALID, {"transa", "ag"}},
    {CGM_OP_AR, {{"transb", 1}}, INVALID, {"transb", "ar"}},
    {CGM_OP_AG_GEMM, {{"comm_type", CGM_COMM_TYPE_RS}}, INVALID, {"comm_type is rs", "needs ag"}},
    {CGM_OP_GEMM_RS, {{"comm_type", 0}}, INVALID, {"comm_type is none", "needs rs"}},
    {CGM_OP_GEMM, {{"comm_type", CGM_COMM_TYPE_AG}}, INVALID, {"comm_type is ag", "needs none"}},
    {CGM_OP_AG_GEMM,
     {{"method", CGM_METHOD_PIPELINE}},
     UNSUPPORTED,
     {"AG with pipeline is not supported; use ring_exchange"}},
    {CGM_OP_AG_GEMM, {{"method", CGM_METHOD_BULK}}, UNSUPPORTED, {"AG with bulk", "ring_exchange"}},
    {CGM_OP_GEMM_RS, {{"method", CGM_METHOD_BULK}}, UNSUPPORTED, {"RS with bulk", "ring_exchange"}},
    {CGM_OP_GEMM,
     {{"method", CGM_METHOD_RING_EXCHANGE}},
     UNSUPPORTED,
     {"gemm with ring_exchange is not supported; use none or auto"}},
    {CGM_OP_AR, {{"method", CGM_METHOD_BULK}}, UNSUPPORTED, {"ar with bulk"}},
    {CGM_OP_AG_GEMM,
     {{"method", CGM_METHOD_NONE}, {"atomic_gemm", 1}},
     UNSUPPORTED,
     {"AG with none and atomic_gemm", "use ring_exchange or auto, or leave atomic_gemm out"}},
    {CGM_OP_GEMM_AR,
     {{"method", CGM_METHOD_PIPELINE}, {"atomic_gemm", 1}},
     UNSUPPORTED,
     {"with pipeline and atomic_gemm is not supported; leave atomic_gemm out"}},
    {CGM_OP_GEMM,
     {{"method", CGM_METHOD_BULK}, {"atomic_gemm", 1}},
     UNSUPPORTED,
     {"with bulk and atomic_gemm is not supported; leave atomic_gemm out and use none or auto"}},
    {CGM_OP_AG_GEMM,
     {{"method", CGM_METHOD_BULK}, {"atomic_gemm", 1}},
     UNSUPPORTED,
     {"AG with bulk and atomic_gemm is not supported; use ring_exchange or auto"}},
    {CGM_OP_GEMM, {{"epilogue", 16}}, INVALID, {"epilogue is 16", "bias"}},
    {CGM_OP_AG,
     {{"epilogue", CGM_EPILOGUE_GELU}},
     INVALID,
     {"gelu does not go with ag", "gemm, ag_gemm, gemm_rs, gemm_ar"}},
    {CGM_OP_RS, {{"epilogue", CGM_EPILOGUE_GRAD}}, INVALID, {"grad does not go with rs"}},
    {CGM_OP_GEMM,
     {{"epilogue", CGM_EPILOGUE_GRAD}},
     INVALID,
     {"grad is set alone", "gelu", "bias"}},
    {CGM_OP_GEMM,
     {{"epilogue", CGM_EPILOGUE_GELU | CGM_EPILOGUE_ACCUMULATE}},
     INVALID,
     {"gelu does not go with accumulate"}},
    {CGM_OP_AG_GEMM,
     {{"epilogue", CGM_EPILOGUE_GRAD | CGM_EPILOGUE_BIAS}},
     INVALID,
     {"sums lhs, which ag_gemm divides", "gemm"}},
    {CGM_OP_GEMM_AR,
     {{"epilogue", CGM_EPILOGUE_GRAD | CGM_EPILOGUE_BIAS}},
     INVALID,
     {"sums lhs, which gemm_ar divides"}},
    {CGM_OP_AG,
     {{"epilogue", CGM_EPILOGUE_BIAS}},
     INVALID,
     {"bias does not go with ag", "gemm, ag_gemm, gemm_rs, gemm_ar, gemm_as"}},
    {CGM_OP_GEMM_AR,
     {{"epilogue", CGM_EPILOGUE_ACCUMULATE}},
     INVALID,
     {"accumulate does not go with gemm_ar", "gemm, ag_gemm, gemm_rs"}},
    {CGM_OP_GEMM,
     {{"out_dtype", CGM_DTYPE_FP16}},
     UNSUPPORTED,
     {"out_dtype is fp16", "bf16 or fp32"}},
    {CGM_OP_GEMM,
     {{"dtype", CGM_DTYPE_FP32}, {"out_dtype", CGM_DTYPE_BF16}},
     UNSUPPORTED,
     {"out_dtype is bf16"}},
    {CGM_OP_RS, {{"out_dtype", CGM_DTYPE_FP32}}, INVALID, {"out_dtype is fp32", "rs of bf16"}},
    {CGM_OP_AG_GEMM,
     {{"buffer_dtype", CGM_DTYPE_FP32}},
     INVALID,
     {"buffer_dtype is fp32", "holds bf16"}},
    {CGM_OP_GEMM_RS,
     {{"buffer_dtype", CGM_DTYPE_FP16}},
     INVALID,
     {"buffer_dtype is fp16", "bf16 or fp32"}},
    {CGM_OP_GEMM, {{"tp_size", 3}}, INVALID, {"tp_size is 3", "4 ranks"}},
    {CGM_OP_GEMM, {{"num_splits", 65}}, INVALID, {"num_splits is 65", "0 and 64"}},
    {CGM_OP_GEMM, {{"num_max_streams", 17}}, INVALID, {"num_max_streams is 17", "0 and 16"}},
    {CGM_OP_GEMM, {{"comm_cga_size", 17}}, INVALID, {"comm_cga_size is 17"}},
    {CGM_OP_GEMM, {{"num_comm_sm", UINT32_MAX}}, INVALID, {"num_comm_sm is 4294967295", "256"}},
    {CGM_OP_GEMM, {{"gemm_priority", 6}}, INVALID, {"gemm_priority is 6", "-5 and 5"}},
    {CGM_OP_GEMM, {{"comm_priority", (uint64_t)-6}}, INVALID, {"comm_priority is -6", "-5 and 5"}},
    {CGM_OP_GEMM_RS, {{"aggregate_ag", 1}}, INVALID, {"aggregate_ag", "gemm_rs"}},
    {CGM_OP_GEMM,
     {{"allow_tf32", 1}, {"dtype", CGM_DTYPE_BF16}},
     INVALID,
     {"allow_tf32 is set", "gemm of bf16"}},
    {CGM_OP_RS,
     {{"allow_tf32", 1}, {"dtype", CGM_DTYPE_FP32}},
     INVALID,
     {"allow_tf32 is set", "not with rs"}},
    {CGM_OP_AG_GEMM, {{"rs_overlap_first_gemm", 1}}, INVALID, {"rs_overlap_first_gemm", "ag_gemm"}},
};

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        struct cgm_spec spec;
        Cgm__PlanCreate request = request_of(refusals[i].op);
        assert_int_equal(spec_of(&request, 4, &spec), CGM_OK);
        for (int j = 0; j < 3 && refusals[i].set[j].field; j++)
            set_field(&request, refusals[i].set[j].field, refusals[i].set[j].value);
        int status = spec_of(&request, 4, &spec);
        if (status != refusals[i].status)
            fail_msg("refusal %zu (%s): status %d, \"%s\"", i, refusals[i].set[0].field, status,
                     detail);
        for (int j = 0; j < 3 && refusals[i].words[j]; j++)
            if (!strstr(detail, refusals[i].words[j]))
                fail_msg("refusal %zu: \"%s\" lacks \"%s\"", i, detail, refusals[i].words[j]);
    }
}

static void test_world(void **state)
{
    (void)state;
    struct cgm_spec spec;
    Cgm__PlanCreate request = request_of(CGM_OP_GEMM);
    assert_int_equal(spec_of(&request, 0, &spec), CGM_INVALID_ARGUMENT);
    assert_int_equal(spec_of(&request, 65, &spec), CGM_INVALID_ARGUMENT);
    assert_non_null(strstr(detail, "65 ranks"));
    assert_int_equal(spec_of(&request, 64, &spec), CGM_OK);
}

static void test_buffer_shape(void **state)
{
    (void)state;
    static const struct {
        uint64_t dims[4];
        size_t count;
        int status;
    } shapes[] = {
        {{24, 8}, 2, CGM_OK},       {{192}, 1, CGM_OK},
        {{2, 12, 2, 4}, 4, CGM_OK}, {{0, 0}, 2, CGM_OK},
        {{24, 16}, 2, INVALID},     {{24, 0}, 2, INVALID},
        {{24}, 1, INVALID},         {{1ull << 63, 2}, 2, INVALID},
        {{191}, 1, INVALID},        {{1ull << 32, 1ull << 32, 192}, 3, INVALID},
    };
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct cgm_spec spec;
        uint64_t dims[4];
        memcpy(dims, shapes[i].dims, sizeof dims);
        Cgm__PlanCreate request = request_of(CGM_OP_AG_GEMM);
        request.n_buffer_shape = shapes[i].count;
        request.buffer_shape = dims;
        assert_int_equal(spec_of(&request, 4, &spec), shapes[i].status);
        if (shapes[i].status == CGM_OK)
            assert_int_equal(spec.buffer_shape[0] * spec.buffer_shape[1], 192);
        else
            assert_non_null(strstr(detail, "24 x 8 elements"));
    }
}

static void test_shape_of_a_moved_buffer(void **state)
{
    (void)state;
    static const struct {
        uint64_t dims[3];
        size_t count;
        int status;
        const char *words;
    } shapes[] = {
        {{8, 5}, 2, CGM_OK, ""},
        {{2, 4, 5}, 3, CGM_OK, ""},
        {{10, 5}, 2, INVALID, "buffer_shape has 10 rows; bulk_rs divides them over 4 ranks"},
        {{40}, 1, INVALID, "buffer_shape is 0 x 40"},
        {{8, 0}, 2, INVALID, "buffer_shape is 8 x 0"},
        {{1ull << 40, 1ull << 40, 1}, 3, INVALID, "buffer_shape is 18446744073709551615 x 1"},
        {{BIG - 3, BIG}, 2, INVALID, "limit is 70368744177664 bytes"},
    };
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct cgm_spec spec;
        uint64_t dims[3];
        memcpy(dims, shapes[i].dims, sizeof dims);
        Cgm__PlanCreate request = request_of(CGM_OP_BULK_RS);
        request.n_buffer_shape = shapes[i].count;
        request.buffer_shape = dims;
        request.has_buffer_dtype = 1;
        request.buffer_dtype = CGM_DTYPE_FP32;
        assert_int_equal(spec_of(&request, 4, &spec), shapes[i].status);
        assert_non_null(strstr(detail, shapes[i].words));
        if (shapes[i].status == CGM_OK)
            assert_shape(cgm_operation_user_buffer(&spec), false, 8, 5, CGM_DTYPE_FP32);
    }
}

/* What is not the default, and so must have an effect. */
static void test_parameters_asked_for(void **state)
{
    (void)state;
    static const struct {
        const char *field;
        uint64_t value;
        uint32_t asked;
    } cases[] = {
        {"num_splits", 4, 0},
        {"num_splits", 3, 1u << CGM_PARAMETER_NUM_SPLITS},
        {"num_max_streams", 3, 0},
        {"num_max_streams", 1, 0},
        {"num_max_streams", 2, 1u << CGM_PARAMETER_NUM_MAX_STREAMS},
        {"comm_cga_size", 2, 0},
        {"comm_cga_size", 1, 1u << CGM_PARAMETER_COMM_CGA_SIZE},
        {"gemm_priority", 1, 1u << CGM_PARAMETER_GEMM_PRIORITY},
        {"comm_priority", (uint64_t)-1, 1u << CGM_PARAMETER_COMM_PRIORITY},
        {"use_ce", 0, 0},
        {"use_ce", 1, 1u << CGM_PARAMETER_USE_CE},
        {"rs_overlap_first_gemm", 1, 1u << CGM_PARAMETER_RS_OVERLAP_FIRST_GEMM},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cgm_spec spec;
        Cgm__PlanCreate request = request_of(CGM_OP_GEMM_RS);
        request.method = CGM_METHOD_PIPELINE;
        set_field(&request, cases[i].field, cases[i].value);
        assert_int_equal(spec_of(&request, 8, &spec), CGM_OK);
        assert_int_equal(spec.asked, cases[i].asked);
    }
}

int main(void)
{
    test_seed(&rng);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_equal_requests_give_equal_bytes),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_world),
        cmocka_unit_test(test_buffer_shape),
        cmocka_unit_test(test_shape_of_a_moved_buffer),
        cmocka_unit_test(test_parameters_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
