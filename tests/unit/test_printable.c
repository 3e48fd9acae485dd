#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>

#include "proto/printable.h"

static void test_what_controls_a_terminal(void **state)
{
    static const char *const rows[][2] = {
        {"", ""},
        {"plain text ~", "plain text ~"},
        {"a\tb\nc\r\x1b[0m\x7f", "a?b?c??[0m?"},
        {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x99\x82", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x99\x82"},
        {"\x9b[2J", "?[2J"},                        /* a control character of one byte */
        {"\xc2\x9b[2J \xc2\xa0", "??[2J \xc2\xa0"}, /* and of two */
        {"\xc0\x8a \xe0\x80\x8a \xf0\x80\x80\x8a", "?? ??? ????"}, /* longer than need be */
        {"cut \xe2\x82", "cut ??"},                                /* off in the middle */
        {"\xf8\x88\x80\x80\x80 \xff", "????? ?"},
        {"\xe2(\xa1", "?(?"},
        {"\xed\xa0\x80 \xf4\x90\x80\x80", "??? ????"}, /* no character has it */
    };
    char text[64];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        snprintf(text, sizeof(text), "%s", rows[i][0]);
        cgm_printable(text);
        assert_string_equal(text, rows[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_controls_a_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
