/* commgemmctl status: the daemon's one row of state, a line for each of its values. */
#include <stdio.h>
#include <stdlib.h>

#include "client/ctl/ctl.h"
#include "client/ctl/rows.h"
#include "proto/printable.h"
#include "proto/status.h"

#define LABEL_CHARACTERS 15

static const struct {
    const char *label, *key;
    enum cgm_row_format format;
} lines[] = {
    {"Release", "release", CGM_ROW_PLAIN},
    {"PID", "pid", CGM_ROW_PLAIN},
    {"Socket", "socket", CGM_ROW_PLAIN},
    {"Up", "uptime_s", CGM_ROW_SECONDS},
    {"Backend", "backend", CGM_ROW_PLAIN},
    {"Devices", "devices", CGM_ROW_PLAIN},
    {"Executor PID", "executor_pid", CGM_ROW_PLAIN},
    {"Executor life", "executor_life", CGM_ROW_PLAIN},
    {"Executor deaths", "executor_deaths", CGM_ROW_PLAIN},
    {"Executor error", "executor_missing", CGM_ROW_PLAIN},
    {"Jobs launched", "jobs_launched", CGM_ROW_PLAIN},
    {"Jobs done", "jobs_done", CGM_ROW_PLAIN},
    {"Jobs failed", "jobs_failed", CGM_ROW_PLAIN},
    {"Sessions", "sessions", CGM_ROW_PLAIN},
    {"Comms", "comms", CGM_ROW_PLAIN},
    {"Buffers", "buffers", CGM_ROW_PLAIN},
    {"Plans", "plans", CGM_ROW_PLAIN},
    {"Imports", "imports", CGM_ROW_PLAIN},
    {"Poller sleeps", "poller_sleeps", CGM_ROW_PLAIN},
    {"Launches replayed", "replays", CGM_ROW_PLAIN},
    {"Draining", "draining", CGM_ROW_YES},
    {"Warnings", "warnings", CGM_ROW_PLAIN},
};

static int print_lines(const char *json)
{
    char text[CGM_ROW_TEXT_BYTES];
    json_t *rows = cgm_rows_load(json, "status");
    const json_t *row = json_array_get(rows, 0);

    for (size_t i = 0; row != NULL && i < sizeof(lines) / sizeof(lines[0]); i++) {
        cgm_row_text(row, lines[i].key, lines[i].format, text);
        cgm_printable(text);
        printf("%*s: %s\n", LABEL_CHARACTERS, lines[i].label, text[0] != '\0' ? text : "-");
    }
    int status = row != NULL ? CGM_OK : CGM_BAD_MESSAGE;
    json_decref(rows);
    return status;
}

int cgm_ctl_status(void *settings, int n_words, char **words)
{
    const struct cgm_ctl *ctl = settings;
    char *json;

    (void)n_words;
    (void)words;
    int result = cgm_ctl_query(ctl, "status", &json);
    if (result != 0)
        return result;
    int status = CGM_OK;
    if (ctl->json)
        puts(json);
    else
        status = print_lines(json);
    free(json);
    return status == CGM_OK ? 0 : cgm_ctl_fail(ctl, status, NULL, NULL);
}
