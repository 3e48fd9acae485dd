/* The verbs that list: what the daemon answers to a query of the verb's first word, as a table or
 * as JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/common/text_table.h"
#include "client/ctl/ctl.h"
#include "client/ctl/rows.h"
#include "proto/status.h"

struct column {
    const char *key, *heading;
    enum cgm_align align;
    enum cgm_row_format format;
};

#define LEFT(key, heading, format)                                                                 \
    {                                                                                              \
        key, heading, CGM_ALIGN_LEFT, CGM_ROW_##format                                             \
    }
#define RIGHT(key, heading, format)                                                                \
    {                                                                                              \
        key, heading, CGM_ALIGN_RIGHT, CGM_ROW_##format                                            \
    }

#define WRAPPED(key, heading)                                                                      \
    {                                                                                              \
        key, heading, CGM_ALIGN_WRAPPED, CGM_ROW_PLAIN                                             \
    }
#define BELOW(key, heading)                                                                        \
    {                                                                                              \
        key, heading, CGM_ALIGN_BELOW, CGM_ROW_PLAIN                                               \
    }

static const struct column sessions[] = {
    RIGHT("id", "ID", PLAIN),          RIGHT("pid", "PID", PLAIN),
    LEFT("uid", "USER", USER),         LEFT("name", "PROGRAM", PLAIN),
    RIGHT("bytes", "MEMORY", BYTES),   RIGHT("imports", "IMPORTS", PLAIN),
    RIGHT("jobs", "JOBS", PLAIN),      RIGHT("ring_entries", "RING", PLAIN),
    LEFT("ranks", "COMM:RANK", PLAIN),
};
static const struct column comms[] = {
    RIGHT("id", "ID", PLAIN),      LEFT("name", "NAME", PLAIN),
    RIGHT("size", "SIZE", PLAIN),  LEFT("uid", "OWNER", USER),
    LEFT("mode", "MODE", MODE),    RIGHT("joined", "JOINED", PLAIN),
    LEFT("broken", "BROKEN", YES), LEFT("missing", "MISSING RANKS", PLAIN),
};
static const struct column buffers[] = {
    RIGHT("id", "ID", PLAIN),
    LEFT("name", "NAME", PLAIN),
    RIGHT("bytes", "SIZE", BYTES),
    LEFT("owner", "OWNER", USER),
    LEFT("mode", "MODE", MODE),
    RIGHT("generation", "GENERATION", PLAIN),
    LEFT("tainted", "TAINTED", YES),
    RIGHT("device", "DEVICE", PLAIN),
    RIGHT("sessions", "SESSIONS", PLAIN),
    LEFT("plan", "PLAN", PLAIN),
};
static const struct column plans[] = {
    LEFT("id", "ID", PLAIN),
    RIGHT("comm", "COMM", PLAIN),
    LEFT("op", "OP", PLAIN),
    LEFT("method", "METHOD", PLAIN),
    LEFT("algorithm", "ALGORITHM", PLAIN),
    RIGHT("m", "M", PLAIN),
    RIGHT("n", "N", PLAIN),
    RIGHT("k", "K", PLAIN),
    LEFT("dtype", "TYPE", PLAIN),
    RIGHT("world", "RANKS", PLAIN),
    RIGHT("refs", "REFS", PLAIN),
    RIGHT("workspace_bytes", "MEMORY/RANK", BYTES),
    LEFT("reason", "REASON", PLAIN),
};
static const struct column jobs[] = {
    RIGHT("session", "SESSION", PLAIN), RIGHT("ticket", "TICKET", PLAIN),
    RIGHT("comm", "COMM", PLAIN),       RIGHT("rank", "RANK", PLAIN),
    RIGHT("number", "NUMBER", PLAIN),   LEFT("state", "STATE", PLAIN),
    RIGHT("age_ms", "AGE", MS),
};
static const struct column algorithms[] = {
    RIGHT("number", "NUMBER", PLAIN),
    LEFT("name", "NAME", PLAIN),
    LEFT("method", "METHOD", PLAIN),
    LEFT("atomic", "ATOMIC", YES),
    LEFT("backend", "BACKEND", PLAIN),
    WRAPPED("ops", "OPS"),
    BELOW("summary", ""),
    BELOW("parameters", "parameters: "),
};
static const struct column imports[] = {
    RIGHT("id", "ID", PLAIN),      RIGHT("session", "SESSION", PLAIN),
    RIGHT("bytes", "SIZE", BYTES), RIGHT("segments", "SEGMENTS", PLAIN),
    LEFT("idle", "CLOSED", YES),
};

static const struct column quotas[] = {
    LEFT("uid", "USER", USER),          LEFT("quota", "QUOTA", PLAIN),
    RIGHT("used", "USED", PLAIN),       RIGHT("ending", "ENDING", PLAIN),
    RIGHT("allowed", "ALLOWED", PLAIN),
};

static const struct column tune[] = {
    LEFT("op", "OP", PLAIN),
    RIGHT("m", "M", PLAIN),
    RIGHT("n", "N", PLAIN),
    RIGHT("k", "K", PLAIN),
    LEFT("dtype", "TYPE", PLAIN),
    RIGHT("world", "RANKS", PLAIN),
    LEFT("algorithm", "ALGORITHM", PLAIN),
    LEFT("parameters", "WITH", PLAIN),
    RIGHT("us", "US", PLAIN),
    LEFT("others", "OTHERS", PLAIN),
    LEFT("measured", "MEASURED", PLAIN),
    LEFT("platform", "PLATFORM", PLAIN),
};

#define COLUMNS_MAX 16u
#define LISTING(array)                                                                             \
    {                                                                                              \
#array, array, sizeof(array) / sizeof((array)[0])                                          \
    }
static const struct {
    const char *what;
    const struct column *columns;
    size_t n_columns;
} listings[] = {
    LISTING(sessions),   LISTING(comms),   LISTING(buffers), LISTING(plans), LISTING(jobs),
    LISTING(algorithms), LISTING(imports), LISTING(quotas),  LISTING(tune),
};

static int fill_row(struct cgm_text_table *table, const json_t *row, const struct column *columns,
                    size_t n_columns)
{
    char text[CGM_ROW_TEXT_BYTES];

    for (size_t c = 0; c < n_columns; c++) {
        cgm_row_text(row, columns[c].key, columns[c].format, text);
        if (cgm_text_table_add(table, text) != 0)
            return CGM_NO_MEMORY;
    }
    return CGM_OK;
}

static int print_rows(const json_t *rows, const struct column *columns, size_t n_columns)
{
    struct cgm_text_column headings[COLUMNS_MAX];
    int status = CGM_OK;
    size_t i;
    const json_t *row;

    for (size_t c = 0; c < n_columns; c++)
        headings[c] = (struct cgm_text_column){columns[c].heading, columns[c].align};
    struct cgm_text_table *table = cgm_text_table_new(headings, n_columns);
    if (table == NULL)
        return CGM_NO_MEMORY;
    json_array_foreach(rows, i, row) if (status == CGM_OK) status =
        fill_row(table, row, columns, n_columns);
    if (status == CGM_OK)
        cgm_text_table_print(table, stdout);
    cgm_text_table_free(table);
    return status;
}

static int print_listing(const char *what, const char *json)
{
    json_t *rows = cgm_rows_load(json, what);
    int status = CGM_BAD_MESSAGE;

    for (size_t i = 0; rows != NULL && i < sizeof(listings) / sizeof(listings[0]); i++)
        if (strcmp(listings[i].what, what) == 0)
            status = print_rows(rows, listings[i].columns, listings[i].n_columns);
    json_decref(rows);
    return status;
}

static int print_text(const char *json)
{
    puts(json);
    return CGM_OK;
}

int cgm_ctl_list(void *settings, int n_words, char **words)
{
    const struct cgm_ctl *ctl = settings;
    char *json, what[32];

    (void)n_words;
    (void)words;
    snprintf(what, sizeof(what), "%.*s", (int)strcspn(ctl->verb, " "), ctl->verb);
    int result = cgm_ctl_query(ctl, what, &json);
    if (result != 0)
        return result;
    int status = ctl->json ? print_text(json) : print_listing(what, json);
    free(json);
    return status == CGM_OK ? 0 : cgm_ctl_fail(ctl, status, NULL, NULL);
}
