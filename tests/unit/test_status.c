#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "proto/status.h"

static void test_table_is_dense_and_ordered(void **state)
{
    (void)state;
    int expected = 0;
#define X(number, NAME, text, cause, fix, exit_class)                                              \
    assert_int_equal(number, expected);                                                            \
    expected--;                                                                                    \
    assert_string_equal(cgm_status_text(number), text);
    CGM_STATUSES(X)
#undef X
    assert_string_equal(cgm_status_text(expected), "unknown status");
    assert_string_equal(cgm_status_text(1), "unknown status");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table_is_dense_and_ordered)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
