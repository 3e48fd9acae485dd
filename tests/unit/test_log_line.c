#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/log_line.h"

static void test_under_systemd_the_level_is_a_number(void **state)
{
    (void)state;
    char text[32];
    setenv("JOURNAL_STREAM", "8:1", 1);
    assert_int_equal(cgm_log_line_begin(text, sizeof(text), 4), 3);
    assert_string_equal(text, "<4>");
}

static void test_on_a_terminal_time_and_word(void **state)
{
    (void)state;
    static const int levels[] = {3, 4, 6, 7};
    static const char *const words[] = {" error   ", " warning ", " info    ", " debug   "};
    char text[32];
    unsetenv("JOURNAL_STREAM");
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
        int length = cgm_log_line_begin(text, sizeof(text), levels[i]);
        assert_int_equal(length, strlen(text));
        assert_int_equal(text[2], ':');
        assert_int_equal(text[8], '.');
        assert_string_equal(text + 12, words[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_under_systemd_the_level_is_a_number),
        cmocka_unit_test(test_on_a_terminal_time_and_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
