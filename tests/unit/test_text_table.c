#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/common/checksum.h"
#include "client/common/text_table.h"

static void test_columns_are_aligned(void **state)
{
    static const struct cgm_text_column columns[] = {
        {"NAME", CGM_ALIGN_LEFT}, {"BYTES", CGM_ALIGN_RIGHT}, {"OWNER", CGM_ALIGN_LEFT}};
    struct cgm_text_table *table = cgm_text_table_new(columns, 3);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    (void)state;
    assert_int_equal(cgm_text_table_add(table, "w1"), 0);
    assert_int_equal(cgm_text_table_addf(table, "%d", 4096000), 0);
    assert_int_equal(cgm_text_table_add(table, "root"), 0);
    assert_int_equal(cgm_text_table_add(table, "gr\xc3\xb6\xc3\x9f"
                                               "er"),
                     0);
    assert_int_equal(cgm_text_table_addf(table, "%d", 7), 0);
    assert_int_equal(cgm_text_table_add(table, NULL), 0);
    assert_int_equal(cgm_text_table_add(table, "esc\x1b[2J\n"), 0);
    assert_int_equal(cgm_text_table_add(table, ""), 0);
    assert_int_equal(cgm_text_table_add(table, "x"), 0);
    assert_int_equal(cgm_text_table_add(table, "row that is not full"), 0);
    cgm_text_table_print(table, out);
    fclose(out);
    assert_string_equal(text, "NAME                    BYTES  OWNER\n"
                              "w1                    4096000  root\n"
                              "gr\xc3\xb6\xc3\x9f"
                              "er                      7  -\n"
                              "esc?[2J?                    -  x\n");
    free(text);
    cgm_text_table_free(table);
    cgm_text_table_free(NULL);
}

static void test_long_cells_are_broken(void **state)
{
    static const struct cgm_text_column columns[] = {{"NUMBER", CGM_ALIGN_RIGHT},
                                                     {"OPS", CGM_ALIGN_WRAPPED},
                                                     {"", CGM_ALIGN_BELOW},
                                                     {"takes: ", CGM_ALIGN_BELOW}};
    struct cgm_text_table *table = cgm_text_table_new(columns, 4);
    char *text = NULL, word[91];
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    (void)state;
    memset(word, 'w', sizeof(word));
    word[90] = '\0';
    assert_int_equal(cgm_text_table_add(table, "7"), 0);
    assert_int_equal(cgm_text_table_addf(table, "%s b c d", word), 0);
    assert_int_equal(cgm_text_table_add(table, "some words"), 0);
    assert_int_equal(cgm_text_table_addf(table, "x %s %s%s", word, word, word), 0);
    assert_int_equal(cgm_text_table_add(table, "8"), 0);
    assert_int_equal(cgm_text_table_add(table, ""), 0);
    assert_int_equal(cgm_text_table_add(table, ""), 0);
    assert_int_equal(cgm_text_table_add(table, "y"), 0);
    cgm_text_table_print(table, out);
    fclose(out);
    char *wanted = NULL;
    assert_true(asprintf(&wanted,
                         "NUMBER  OPS\n"
                         "     7  %s b\n"
                         "        c d\n"
                         "        some words\n"
                         "        takes: x\n"
                         "        %s\n"
                         "        %s%s\n"
                         "     8  -\n"
                         "        takes: y\n",
                         word, word, word, word) > 0);
    assert_string_equal(text, wanted);
    free(wanted);
    free(text);
    cgm_text_table_free(table);
}

static void test_sizes_and_times(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } sizes[] = {
        {0, "0 B"},
        {1023, "1023 B"},
        {1024, "1.0 KiB"},
        {1536, "1.5 KiB"},
        {12 << 20, "12 MiB"},
        {(1 << 20) - 1, "1.0 MiB"},
        {2ull << 30, "2.0 GiB"},
        {UINT64_MAX, "16 EiB"},
    };
    char text[CGM_HUMAN_BYTES], other[CGM_HUMAN_BYTES];

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        assert_string_equal(cgm_human_bytes(sizes[i].bytes, text), sizes[i].text);
    assert_string_equal(cgm_human_seconds(4.21, text), "4.2 s");
    assert_string_equal(cgm_human_seconds(200, text), "3 min 20 s");
    assert_string_equal(cgm_human_seconds(18120, text), "5 h 2 min");
    assert_string_equal(cgm_human_seconds(1e6, text), "11 d 13 h");
    assert_string_equal(cgm_human_seconds(1e47, text), cgm_human_seconds(1e13, other));
}

/* The published values of XXH64 with seed 0. */
static void test_checksum_is_xxh64(void **state)
{
    (void)state;
    assert_true(cgm_checksum("", 0) == 0xef46db3751d8e999u);
    assert_true(cgm_checksum("abc", 3) == 0x44bc2cf5ad770999u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns_are_aligned),
        cmocka_unit_test(test_long_cells_are_broken),
        cmocka_unit_test(test_sizes_and_times),
        cmocka_unit_test(test_checksum_is_xxh64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
