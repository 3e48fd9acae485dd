/* Ranks in a sentence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "proto/ranks.h"

static void test_sentences(void **state)
{
    static const struct {
        uint64_t mask;
        unsigned count;
        const char *text;
    } cases[] = {
        {0, 0, ""},
        {1, 1, "0"},
        {1ull << 63, 1, "63"},
        {UINT64_MAX, 64, "0 to 63"},
        {UINT64_MAX - 1, 63, "1 to 63"},
        {UINT64_MAX >> 1, 63, "0 to 62"},
        {0x33, 4, "0, 1, 4, 5"},
        {0xf7, 7, "0 to 2, 4 to 7"},
        {0x8000000000000001, 2, "0, 63"},
        {0x5555555555555555, 32, "0, 2, 4, 6, 8, 10, 12, 14 and 24 more"},
        {0x7777777777777777, 48, "0 to 2, 4 to 6, 8 to 10 and 39 more"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[40];
        assert_int_equal(cgm_ranks_text(cases[i].mask, text, sizeof(text)), cases[i].count);
        assert_string_equal(text, cases[i].text);
    }
}

/* Whatever the mask and the room for it. */
static void test_room(void **state)
{
    uint64_t mask = 0x9e3779b97f4a7c15;
    (void)state;
    for (int i = 0; i < 20000; i++) {
        char text[256];
        size_t size = 16 + (size_t)i % 240;
        memset(text, '#', sizeof(text));
        mask ^= mask << 13, mask ^= mask >> 7, mask ^= mask << 17;
        unsigned count = cgm_ranks_text(mask & (i % 2 ? mask >> 3 : mask << 5), text, size);
        assert_true(count <= 64);
        assert_non_null(memchr(text, '\0', size));
        assert_true(text[size] == '#');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sentences),
        cmocka_unit_test(test_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
