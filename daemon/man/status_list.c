/* Copies a manual page from stdin to stdout and puts an mdoc(7) list of all statuses in the place
 * of the line "@STATUSES@": the troubleshooting chapter always says what proto/status.h says. */
#include <stdio.h>
#include <string.h>

#include "proto/status.h"

struct status_entry {
    const char *name, *text, *cause, *fix;
};

static const struct status_entry entries[] = {
#define X(number, NAME, text, cause, fix, exit_class) {#NAME, text, cause, fix},
    CGM_STATUSES(X)
#undef X
};

static void print_statuses(void)
{
    puts(".Bl -tag -width 4n");
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        const struct status_entry *entry = &entries[i];
        if (entry->fix[0] == '\0')
            continue;
        printf(".It Sy %s : No %s\n", entry->name, entry->text);
        printf("Cause: %s.\n.br\nWhat to try: %s.\n", entry->cause, entry->fix);
    }
    puts(".El");
}

int main(void)
{
    char line[1024];
    while (fgets(line, sizeof(line), stdin)) {
        if (strcmp(line, "@STATUSES@\n") == 0)
            print_statuses();
        else
            fputs(line, stdout);
    }
    return ferror(stdin) || fflush(stdout) ? 1 : 0;
}
