#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/common/args.h"
#include "proto/status.h"
#include "proto/types.h"

struct settings {
    const char *socket, *private;
    bool json, help;
    uint64_t bytes, count;
    int64_t priority;
    double share;
    uint32_t mode;
    int backend, op;
};

static const struct cgm_option global[] = {
    {.name = "socket", .kind = CGM_ARG_PATH, CGM_FIELD(struct settings, socket), .summary = "s"},
    {.name = "json",
     .letter = 'j',
     .kind = CGM_ARG_FLAG,
     CGM_FIELD(struct settings, json),
     .summary = "print JSON"},
    {.name = "help",
     .letter = 'h',
     .kind = CGM_ARG_FLAG,
     CGM_FIELD(struct settings, help),
     .ends = true,
     .summary = "print this text"},
    {.name = "gemm-priority",
     .kind = CGM_ARG_INT,
     CGM_FIELD(struct settings, priority),
     .min = -5,
     .max = 5,
     .summary = "p"},
    {.name = "count",
     .letter = 'n',
     .kind = CGM_ARG_UINT,
     CGM_FIELD(struct settings, count),
     .min = 1,
     .max = 64,
     .summary = "c"},
    {.name = "share", .kind = CGM_ARG_REAL, CGM_FIELD(struct settings, share), .summary = "r"},
    {.name = "backend",
     .kind = CGM_ARG_CHOICE,
     .choices = "auto|cpu|cuda",
     CGM_FIELD(struct settings, backend),
     .summary = "b"},
    {.name = "op",
     .kind = CGM_ARG_TYPE,
     .table = CGM_TABLE_OP,
     CGM_FIELD(struct settings, op),
     .summary = "o"},
    {.name = "private",
     .kind = CGM_ARG_TEXT,
     .implied = "auto",
     CGM_FIELD(struct settings, private),
     .summary = "v"},
};
static const struct cgm_option create_options[] = {
    {.name = "bytes",
     .kind = CGM_ARG_BYTES,
     CGM_FIELD(struct settings, bytes),
     .min = 1,
     .summary = "size"},
    {.name = "mode", .kind = CGM_ARG_MODE, CGM_FIELD(struct settings, mode), .summary = "mode"},
};
static const struct cgm_option_table tables[] = {CGM_OPTION_TABLE(NULL, global)};
static const struct cgm_verb verbs[] = {
    {.name = "status", .arguments = "", .summary = "print the state"},
    {.name = "buffers", .arguments = "", .summary = "list buffers"},
    {.name = "buffers create",
     .arguments = "NAME",
     .min_words = 1,
     .max_words = 1,
     .table = CGM_OPTION_TABLE(NULL, create_options),
     .summary = "create a buffer"},
    {.name = "buffers import",
     .arguments = "NAME FILE",
     .min_words = 2,
     .max_words = 2,
     .summary = "import a buffer"},
    {.name = "completion",
     .arguments = "bash",
     .min_words = 1,
     .max_words = 1,
     .summary = "print a completion script"},
    {.name = "secret", .arguments = "", .summary = "hidden", .hidden = true},
};
static const struct cgm_section sections[] = {
    {"exit status", "0 is right.\n\n    .kept as it is\n\nLast."},
};
static const struct cgm_program with_verbs = {
    .name = "tool-x",
    .summary = "do things",
    .usage = "[OPTION]... VERB",
    .description = "It does.",
    .tables = tables,
    .n_tables = 1,
    .verbs = verbs,
    .n_verbs = sizeof(verbs) / sizeof(verbs[0]),
    .sections = sections,
    .n_sections = 1,
};
static const struct cgm_program without_verbs = {
    .name = "tool",
    .summary = "do things",
    .usage = "[OPTION]...",
    .description = "It does.",
    .tables = tables,
    .n_tables = 1,
};

static struct settings settings;
static struct cgm_args args;
static char *words[16];
static char line[256];

/* Splits at blanks and parses. */
static int parse(const struct cgm_program *program, const char *text)
{
    int n_words = 0;
    char *rest;

    snprintf(line, sizeof(line), "%s", text);
    for (char *word = strtok_r(line, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        words[n_words++] = word;
    words[n_words] = NULL;
    memset(&settings, 0, sizeof(settings));
    return cgm_args_parse(program, n_words, words, &settings, &args);
}

static void expect_refused(const struct cgm_program *program, const char *text,
                           const char *expected)
{
    if (parse(program, text) != CGM_INVALID_ARGUMENT)
        fail_msg("\"%s\" was accepted", text);
    if (strstr(args.detail, expected) == NULL)
        fail_msg("\"%s\": \"%s\" lacks \"%s\"", text, args.detail, expected);
}

static void test_values_are_stored(void **state)
{
    (void)state;
    assert_int_equal(parse(&without_verbs, "tool a --socket=/x -n 64 --gemm_priority -5 b "
                                           "--share 0.25 --backend cuda --op gemm_rs -j"),
                     CGM_OK);
    assert_string_equal(settings.socket, "/x");
    assert_int_equal(settings.count, 64);
    assert_int_equal(settings.priority, -5);
    assert_true(settings.share == 0.25);
    assert_int_equal(settings.backend, 2);
    assert_int_equal(settings.op, CGM_OP_GEMM_RS);
    assert_true(settings.json);
    assert_int_equal(args.n_words, 2);
    assert_string_equal(args.words[0], "a");
    assert_string_equal(args.words[1], "b");
    assert_true(cgm_args_given(&without_verbs, &args, "gemm-priority"));
    assert_false(cgm_args_given(&without_verbs, &args, "private"));
}

static void test_a_value_may_be_implied(void **state)
{
    (void)state;
    assert_int_equal(parse(&without_verbs, "tool --private cpu"), CGM_OK);
    assert_string_equal(settings.private, "auto");
    assert_int_equal(args.n_words, 1);
    assert_int_equal(parse(&without_verbs, "tool --private=cpu"), CGM_OK);
    assert_string_equal(settings.private, "cpu");
}

static void test_bad_options_are_named(void **state)
{
    static const char *const cases[][2] = {
        {"tool --frob", "--frob"},
        {"tool -x", "-x"},
        {"tool --json=1", "--json takes no value"},
        {"tool --socket", "--socket needs a value (PATH)"},
        {"tool -n", "--count needs a value"},
        {"tool --socket=", "--socket is \"\""},
        {"tool -n 0", "--count is \"0\"; it must be a whole number from 1 to 64"},
        {"tool -n 65", "\"65\""},
        {"tool -n 1x", "\"1x\""},
        {"tool -n -1", "\"-1\""},
        {"tool -n 99999999999999999999", "\"99999999999999999999\""},
        {"tool --gemm-priority 6", "from -5 to 5"},
        {"tool --gemm-priority --5", "\"--5\""},
        {"tool --share nan", "\"nan\""},
        {"tool --share 1e999", "\"1e999\""},
        {"tool --share 0.5x", "\"0.5x\""},
        {"tool --backend cu", "one of auto, cpu, cuda"},
        {"tool --op frob", "ag_gemm"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect_refused(&without_verbs, cases[i][0], cases[i][1]);
}

static void test_sizes(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},           {"4096", 4096},     {"4K", 4096},  {"3m", 3u << 20},
        {"2G", 2ull << 30}, {"1T", 1ull << 40}, {"00012", 12}, {"16777215T", 16777215ull << 40},
    };
    static const char *const bad[] = {"",    "K",    "-1",   "+1",        "1.5G", "12Q",
                                      "1KB", "0x10", " 12 ", "16777216T", "4 K",  "1e3"};
    uint64_t bytes;

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(cgm_bytes_parse(good[i].text, &bytes), CGM_OK);
        assert_true(bytes == good[i].bytes);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (cgm_bytes_parse(bad[i], &bytes) != CGM_INVALID_ARGUMENT)
            fail_msg("\"%s\" was accepted", bad[i]);
    expect_refused(&with_verbs, "tool buffers create x --bytes 12Q", "--bytes is \"12Q\"");
    expect_refused(&with_verbs, "tool buffers create x --bytes 0", "at least 1");
    expect_refused(&with_verbs, "tool buffers create x --mode 0888", "--mode is \"0888\"");
    expect_refused(&with_verbs, "tool buffers create x --mode 1777", "0777");
}

static void test_verbs_are_found(void **state)
{
    (void)state;
    assert_int_equal(parse(&with_verbs, "tool --json status"), CGM_OK);
    assert_ptr_equal(args.verb, &verbs[0]);
    assert_true(settings.json);
    assert_int_equal(parse(&with_verbs, "tool buffers --json"), CGM_OK);
    assert_ptr_equal(args.verb, &verbs[1]);
    assert_true(settings.json);
    assert_int_equal(
        parse(&with_verbs, "tool --json buffers create x --bytes 4K --socket /s --mode 0640"),
        CGM_OK);
    assert_ptr_equal(args.verb, &verbs[2]);
    assert_string_equal(args.words[0], "x");
    assert_int_equal(settings.bytes, 4096);
    assert_int_equal(settings.mode, 0640);
    assert_string_equal(settings.socket, "/s");
    assert_true(settings.json);
    assert_true(cgm_args_given(&with_verbs, &args, "bytes"));
    assert_int_equal(parse(&with_verbs, "tool"), CGM_OK);
    assert_null(args.verb);
    assert_int_equal(parse(&with_verbs, "tool buffers create --help"), CGM_OK);
    assert_true(settings.help);
    assert_ptr_equal(args.verb, &verbs[2]);
}

static void test_bad_verbs_and_words_are_named(void **state)
{
    (void)state;
    expect_refused(&with_verbs, "tool frob", "\"frob\" is no verb; the verbs are status, buffers");
    expect_refused(&with_verbs, "tool buffers frob", "\"buffers frob\" is no verb");
    expect_refused(&with_verbs, "tool buffers frob", "buffers create, buffers import");
    expect_refused(&with_verbs, "tool status x", "status takes no argument, got \"x\"");
    expect_refused(&with_verbs, "tool buffers create", "buffers create needs NAME");
    expect_refused(&with_verbs, "tool buffers import a", "needs NAME FILE");
    expect_refused(&with_verbs, "tool buffers create a b", "got also \"b\"");
    expect_refused(&with_verbs, "tool --bytes 4K buffers create a", "--bytes");
    parse(&with_verbs, "tool frob");
    assert_null(strstr(args.detail, "secret"));
}

/* What a call writes; the caller frees it. */
static char *written(void (*write)(const struct cgm_program *, FILE *))
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    assert_non_null(out);
    write(&with_verbs, out);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void write_help(const struct cgm_program *program, FILE *out)
{
    cgm_args_help(program, NULL, out);
}

static void write_verb_help(const struct cgm_program *program, FILE *out)
{
    cgm_args_help(program, &verbs[2], out);
}

/* Everything that is not hidden is in every text. */
static void test_texts_come_from_the_tables(void **state)
{
    char *help = written(write_help), *manual = written(cgm_args_manual);
    char *completion = written(cgm_args_completion), *verb_help = written(write_verb_help);

    (void)state;
    for (size_t i = 0; i + 1 < sizeof(verbs) / sizeof(verbs[0]); i++) {
        assert_non_null(strstr(help, verbs[i].name));
        assert_non_null(strstr(manual, verbs[i].name));
        assert_non_null(strstr(completion, verbs[i].name));
    }
    for (size_t i = 0; i < sizeof(global) / sizeof(global[0]); i++) {
        char name[64];
        snprintf(name, sizeof(name), "--%s", global[i].name);
        assert_non_null(strstr(help, name));
        assert_non_null(strstr(verb_help, name));
        assert_non_null(strstr(completion, name));
    }
    assert_non_null(strstr(help, "  -j, --json"));
    assert_non_null(strstr(help, "      --private[=TEXT]"));
    assert_non_null(strstr(verb_help, "Usage: tool-x buffers create [OPTION]... NAME"));
    assert_non_null(strstr(verb_help, "--bytes=BYTES"));
    assert_non_null(strstr(manual, "\\fB\\-\\-gemm\\-priority\\fR=\\fIN\\fR"));
    assert_non_null(strstr(manual, "\n\\&.kept as it is"));
    assert_non_null(strstr(manual, ".SH EXIT STATUS"));
    assert_null(strstr(help, "secret"));
    assert_null(strstr(manual, "secret"));
    assert_null(strstr(completion, "secret"));
    free(help);
    free(manual);
    free(completion);
    free(verb_help);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_are_stored),
        cmocka_unit_test(test_a_value_may_be_implied),
        cmocka_unit_test(test_bad_options_are_named),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_verbs_are_found),
        cmocka_unit_test(test_bad_verbs_and_words_are_named),
        cmocka_unit_test(test_texts_come_from_the_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
