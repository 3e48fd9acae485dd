/* The public header repeats numbers and spellings of proto/: here they are held together. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "client/include/commgemm.h"
#include "proto/messages.h"
#include "proto/ring.h"
#include "proto/status.h"
#include "proto/types.h"

#define NUMBER(public, internal) _Static_assert((int)(public) == (int)(internal), #public)

#define X(number, NAME, text, cause, fix, exit_class) NUMBER(COMMGEMM_##NAME, number);
CGM_STATUSES(X)
#undef X
#define X(number, SYMBOL, spelling, bytes) NUMBER(COMMGEMM_##SYMBOL, number);
CGM_DTYPES(X)
#undef X
#define X(number, SYMBOL, spelling, collective) NUMBER(COMMGEMM_OP_##SYMBOL, number);
CGM_OPS(X)
#undef X
#define X(number, SYMBOL, spelling) NUMBER(COMMGEMM_METHOD_##SYMBOL, number);
CGM_METHODS(X)
#undef X
#define X(number, SYMBOL, spelling) NUMBER(COMMGEMM_COMM_##SYMBOL, number);
CGM_COMM_TYPES(X)
#undef X
#define X(number, SYMBOL, spelling) NUMBER(COMMGEMM_ALGO_##SYMBOL, number);
CGM_ALGORITHMS(X)
#undef X
#define X(number, SYMBOL, spelling) NUMBER(COMMGEMM_PHASE_##SYMBOL, number);
CGM_PHASES(X)
#undef X
NUMBER(COMMGEMM_EPILOGUE_BIAS, CGM_EPILOGUE_BIAS);
NUMBER(COMMGEMM_EPILOGUE_GELU, CGM_EPILOGUE_GELU);
NUMBER(COMMGEMM_EPILOGUE_GRAD, CGM_EPILOGUE_GRAD);
NUMBER(COMMGEMM_EPILOGUE_ACCUMULATE, CGM_EPILOGUE_ACCUMULATE);

/* The job's operands lie in the order of the table, so that a binding may treat them as an array.
 */
#define OPERAND(field, SYMBOL)                                                                     \
    _Static_assert(offsetof(struct commgemm_job, field) ==                                         \
                       offsetof(struct commgemm_job, lhs) +                                        \
                           CGM_OPERAND_##SYMBOL * sizeof(struct commgemm_operand),                 \
                   #field)
OPERAND(lhs, LHS);
OPERAND(rhs, RHS);
OPERAND(bias, BIAS);
OPERAND(gelu_input, GELU_INPUT);
OPERAND(aux_in, AUX_IN);
OPERAND(out, OUT);
OPERAND(bias_grad, BIAS_GRAD);
OPERAND(pre_gelu_out, PRE_GELU_OUT);
OPERAND(aux_out, AUX_OUT);
OPERAND(lhs_scale, LHS_SCALE);
OPERAND(rhs_scale, RHS_SCALE);
OPERAND(out_scale, OUT_SCALE);

static void test_status_texts(void **state)
{
    (void)state;
#define X(number, NAME, text, cause, fix, exit_class)                                              \
    assert_string_equal(commgemm_status_name(COMMGEMM_##NAME), #NAME);                             \
    assert_string_equal(commgemm_strerror(COMMGEMM_##NAME), text);                                 \
    assert_string_equal(commgemm_status_cause(COMMGEMM_##NAME), cause);                            \
    assert_string_equal(commgemm_status_fix(COMMGEMM_##NAME), fix);
    CGM_STATUSES(X)
#undef X
    assert_string_equal(commgemm_strerror(-1000), "unknown status");
    assert_string_equal(commgemm_status_name(1), "UNKNOWN");
}

static void check_spellings(const char *(*name_of)(int), int (*from_name)(const char *),
                            enum cgm_type_table table)
{
    for (int number = -2; number < 300; number++) {
        const char *name = name_of(number);
        assert_ptr_equal(name, cgm_type_name(table, number));
        if (name && from_name)
            assert_int_equal(from_name(name), number);
    }
    if (from_name) {
        assert_int_equal(from_name("no such name"), -1);
        assert_int_equal(from_name(NULL), -1);
    }
}

static void test_spellings(void **state)
{
    (void)state;
    check_spellings(commgemm_dtype_name, commgemm_dtype_from_name, CGM_TABLE_DTYPE);
    check_spellings(commgemm_op_name, commgemm_op_from_name, CGM_TABLE_OP);
    check_spellings(commgemm_method_name, commgemm_method_from_name, CGM_TABLE_METHOD);
    check_spellings(commgemm_algorithm_name, commgemm_algorithm_from_name, CGM_TABLE_ALGO);
    check_spellings(commgemm_phase_name, NULL, CGM_TABLE_PHASE);
    assert_int_equal(commgemm_dtype_bytes(COMMGEMM_FP32), 4);
    assert_int_equal(commgemm_dtype_bytes(99), 0);
}

static void test_version(void **state)
{
    int major = -1, minor = -1, patch = -1;
    (void)state;
    const char *text = commgemm_version();
    char *end;
    major = (int)strtol(text, &end, 10);
    minor = (int)strtol(end + 1, &end, 10);
    patch = (int)strtol(end + 1, &end, 10);
    assert_int_equal(major, COMMGEMM_VERSION_MAJOR);
    assert_int_equal(minor, COMMGEMM_VERSION_MINOR);
    assert_int_equal(patch, COMMGEMM_VERSION_PATCH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_texts),
        cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
