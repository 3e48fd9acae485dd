/* Copies a manual page from stdin to stdout. The line "@STATUSES@" becomes an mdoc(7) list of
 * proto/status.h, "@CONFIGURATION@" one of the configuration keys: the manual says what the tables
 * say. */
#include <stdio.h>
#include <string.h>

#include "daemon/broker/config.h"
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

int main(void)
{
    char line[1024];
    while (fgets(line, sizeof(line), stdin)) {
        if (strcmp(line, "@STATUSES@\n") == 0)
            print_statuses();
        else if (strcmp(line, "@CONFIGURATION@\n") == 0)
            print_configuration();
        else
            fputs(line, stdout);
    }
    return ferror(stdin) || fflush(stdout) ? 1 : 0;
}
