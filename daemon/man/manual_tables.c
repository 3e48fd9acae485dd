/* Copies a manual page from stdin to stdout. A line such as "@STATUSES@" becomes an mdoc(7) list of
 * what a table of the program says: statuses, keys of the configuration, algorithms, parameters of
 * plans, events, questions. With the argument "tests" it prints the tests that the events name. */
#include <stdio.h>
#include <string.h>

#include "daemon/broker/config.h"
#include "daemon/executor/algorithm.h"
#include "daemon/man/cases.h"
#include "daemon/man/events.h"
#include "proto/status.h"

static const struct {
    const char *name, *text, *cause, *fix;
} statuses[] = {
#define X(number, NAME, text, cause, fix, exit_class) {#NAME, text, cause, fix},
    CGM_STATUSES(X)
#undef X
};

static const struct {
    const char *key, *fallback, *limits, *help;
} keys[] = {
#define LIMITS_TEXT(low, high) ""
#define LIMITS_MODE(low, high) ""
#define LIMITS_NUMBER(low, high) "From " #low " to " #high ".\n"
#define LIMITS_CHOICE(low, list) "One of " list ".\n"
#define X(key, KIND, fallback, low, high, help) {#key, fallback, LIMITS_##KIND(low, high), help},
    CGM_CONFIG_KEYS(X)
#undef X
};

static void print_statuses(void)
{
    puts(".Bl -tag -width 4n");
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
        if (statuses[i].fix[0] != '\0')
            printf(".It Sy %s : No %s\nCause: %s.\n.br\nWhat to try: %s.\n", statuses[i].name,
                   statuses[i].text, statuses[i].cause, statuses[i].fix);
    puts(".El");
}

/* mdoc wants every sentence on a line of its own. */
static void print_sentences(const char *text)
{
    for (const char *end; (end = strstr(text, ". ")); text = end + 2)
        printf("%.*s.\n", (int)(end - text), text);
    printf("%s.\n", text);
}

static void print_configuration(void)
{
    puts(".Bl -tag -width 4n");
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        printf(".It Cm %s No = %s\n", keys[i].key, keys[i].fallback);
        print_sentences(keys[i].help);
        fputs(keys[i].limits, stdout);
    }
    puts(".El");
}

/* "gemm, ag_gemm" */
static void print_operations(uint32_t ops)
{
    const char *comma = "";
    for (int op = 0; op < 32; op++)
        if (ops >> op & 1) {
            printf("%s%s", comma, cgm_type_name(CGM_TABLE_OP, op));
            comma = ", ";
        }
}

static void print_algorithms(void)
{
    puts(".Bl -tag -width 4n");
    for (size_t i = 0; i < cgm_algorithm_count; i++) {
        const struct cgm_algorithm *a = cgm_algorithms[i];
        printf(".It Cm %s No (%d)\n", a->name, a->number);
        print_operations(a->ops);
        printf("; method %s%s:\n%s.\n", cgm_type_name(CGM_TABLE_METHOD, a->method),
               a->atomic ? " with atomic_gemm" : "", a->summary);
    }
    puts(".El");
}

/* Algorithms without which a parameter has no effect: names, "every algorithm", or nothing. */
static void print_users(int parameter)
{
    size_t count = 0;
    const char *comma = "";
    for (size_t i = 0; i < cgm_algorithm_count; i++)
        count += cgm_algorithms[i]->parameters >> parameter & 1;
    if (count == 0 || count == cgm_algorithm_count) {
        puts(count ? "On every algorithm." : "On none in this release.");
        return;
    }
    fputs("On ", stdout);
    for (size_t i = 0; i < cgm_algorithm_count; i++)
        if (cgm_algorithms[i]->parameters >> parameter & 1) {
            printf("%s%s", comma, cgm_algorithms[i]->name);
            comma = ", ";
        }
    puts(".");
}

static void print_parameters(void)
{
    static const char *const rows[][2] = {
#define X(SYMBOL, name, text) {#name, text},
        CGM_PARAMETERS(X)
#undef X
    };
    puts(".Bl -tag -width 4n");
    for (int i = 0; i < CGM_PARAMETER_COUNT; i++) {
        printf(".It Cm %s\nIs about: %s.\n", rows[i][0], rows[i][1]);
        print_users(i);
    }
    puts(".El");
}

/* The words of a list, one a line behind `before`. */
static void print_words(const char *before, const char *words)
{
    while (*words) {
        int length = (int)strcspn(words, " ");
        printf("%s%.*s\n", before, length, words);
        words += length + (words[length] == ' ');
    }
}

static void print_events(void)
{
    puts(".Bl -tag -width 4n");
    for (size_t i = 0; i < CGM_EVENT_COUNT; i++) {
        printf(".It Sy %s\n", cgm_events[i].event);
        print_sentences(cgm_events[i].outcome);
        puts(".Pp\nShown by");
        print_words(".br\n", cgm_events[i].tests);
    }
    puts(".El");
}

static void print_cases(void)
{
    puts(".Bl -tag -width 4n");
    for (size_t i = 0; i < CGM_CASE_COUNT; i++) {
        printf(".It Sy %s\n", cgm_cases[i].question);
        print_sentences(cgm_cases[i].advice);
        puts(".Bl -tag -width 4n -compact");
        for (size_t k = 0; k < CGM_CASE_STATUSES_MAX && cgm_cases[i].statuses[k] != CGM_OK; k++) {
            int status = cgm_cases[i].statuses[k];
            printf(".It %s\n%s.\nWhat to try: %s.\n", cgm_status_name(status),
                   cgm_status_cause(status), cgm_status_fix(status));
        }
        puts(".El");
    }
    puts(".El");
}

static const struct {
    const char *line;
    void (*print)(void);
} tables[] = {
    {"@STATUSES@\n", print_statuses},     {"@CONFIGURATION@\n", print_configuration},
    {"@ALGORITHMS@\n", print_algorithms}, {"@PARAMETERS@\n", print_parameters},
    {"@EVENTS@\n", print_events},         {"@CASES@\n", print_cases},
};

static void print_line(const char *line)
{
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
        if (strcmp(line, tables[i].line) == 0) {
            tables[i].print();
            return;
        }
    fputs(line, stdout);
}

int main(int argc, char **argv)
{
    char line[1024];
    for (size_t i = 0; argc == 2 && strcmp(argv[1], "tests") == 0 && i < CGM_EVENT_COUNT; i++)
        print_words("", cgm_events[i].tests);
    if (argc > 1)
        return 0;
    while (fgets(line, sizeof(line), stdin))
        print_line(line);
    return ferror(stdin) || fflush(stdout) ? 1 : 0;
}
