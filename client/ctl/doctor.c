/* commgemmctl doctor: the checks of this machine, then the connection, then the daemon's own. */
#include "client/ctl/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/common/json_text.h"
#include "client/common/text_table.h"
#include "client/ctl/rows.h"
#include "proto/status.h"

static const char *const result_names[] = {
    [CGM_FINDING_OK] = "ok",
    [CGM_FINDING_WARNING] = "warning",
    [CGM_FINDING_FAILURE] = "failure",
};

/* Rows with the keys of the daemon's own (check, result, text, fix), and where it was checked: the
 * same limit may differ between this process and the daemon's. */
static int append_finding(json_t *rows, const char *check, const struct cgm_finding *finding)
{
    return json_array_append_new(rows, json_pack("{s:s,s:s,s:s,s:o,s:o}", "where", "here", "check",
                                                 check, "result", result_names[finding->result],
                                                 "text", cgm_json_text(finding->text), "fix",
                                                 cgm_json_text(finding->fix)));
}

static int append_local(const struct cgm_ctl *ctl, json_t *rows)
{
    int result = 0;

    for (unsigned i = 0; i < cgm_n_checks; i++) {
        struct cgm_finding finding = {0};
        cgm_checks[i].run(ctl, &finding);
        result |= append_finding(rows, cgm_checks[i].name, &finding);
    }
    return result;
}

static void judge_failed_connect(int status, struct cgm_finding *ret)
{
    bool stopped = status == CGM_NOT_RUNNING;

    cgm_finding_set(ret, stopped ? CGM_FINDING_WARNING : CGM_FINDING_FAILURE,
                    cgm_status_fix(status), "%s%s%s", cgm_status_text(status),
                    commgemm_last_error()[0] != '\0' ? ": " : "", commgemm_last_error());
}

static void judge_release(commgemm_client *client, struct cgm_finding *ret)
{
    struct commgemm_info info;

    if (commgemm_get_info(client, &info) != COMMGEMM_OK)
        cgm_finding_set(ret, CGM_FINDING_FAILURE, "restart the daemon", "it does not answer: %s",
                        commgemm_last_error());
    else if (strcmp(info.release, COMMGEMM_RELEASE) != 0)
        cgm_finding_set(ret, CGM_FINDING_WARNING, "install the same release of both, and restart",
                        "the daemon is release %s, commgemmctl %s; both speak protocol %u",
                        info.release, COMMGEMM_RELEASE, info.protocol);
    else
        cgm_finding_set(ret, CGM_FINDING_OK, "", "release %s answers, protocol %u, backend %s",
                        info.release, info.protocol, info.backend[0] ? info.backend : "none yet");
}

static int extend_with_daemon_rows(json_t *rows, json_t *found)
{
    json_t *row;
    size_t i;

    json_array_foreach(
        found, i, row) if (json_object_set_new(row, "where", json_string("daemon")) != 0) return -1;
    return json_array_extend(rows, found);
}

/* The daemon's own rows; a failed query is a finding. */
static int append_daemon(commgemm_client *client, json_t *rows)
{
    struct cgm_finding finding;
    json_t *found = NULL;
    char *json;

    if (commgemm_query(client, "doctor", &json) == COMMGEMM_OK) {
        found = cgm_rows_load(json, "doctor");
        free(json);
    }
    if (found != NULL) {
        int result = extend_with_daemon_rows(rows, found);
        json_decref(found);
        return result;
    }
    cgm_finding_set(&finding, CGM_FINDING_FAILURE, "look into the daemon's log",
                    "its checks cannot be read: %s", commgemm_last_error());
    return append_finding(rows, "daemon", &finding);
}

static int append_connection(const struct cgm_ctl *ctl, json_t *rows)
{
    struct cgm_finding finding;
    commgemm_client *client;

    int status = cgm_ctl_try_connect(ctl, &client);
    if (status != CGM_OK) {
        judge_failed_connect(status, &finding);
        return append_finding(rows, "daemon", &finding);
    }
    judge_release(client, &finding);
    int result = append_finding(rows, "daemon", &finding);
    result |= append_daemon(client, rows);
    commgemm_disconnect(client);
    return result;
}

static bool has_failure(const json_t *rows)
{
    char text[CGM_ROW_TEXT_BYTES];
    const json_t *row;
    size_t i;

    json_array_foreach(rows, i, row) if (strcmp(cgm_row_text(row, "result", CGM_ROW_PLAIN, text),
                                                "failure") == 0) return true;
    return false;
}

static const struct cgm_text_column columns[] = {
    {"RESULT", CGM_ALIGN_LEFT},
    {"WHERE", CGM_ALIGN_LEFT},
    {"CHECK", CGM_ALIGN_LEFT},
    {"FOUND", CGM_ALIGN_LEFT},
};
static const char *const keys[] = {"result", "where", "check", "text"};
#define COLUMNS (sizeof(keys) / sizeof(keys[0]))

/* What was found, and below it the fix. */
static int add_finding(struct cgm_text_table *table, const json_t *row)
{
    char text[CGM_ROW_TEXT_BYTES];
    int failed = 0;

    for (size_t c = 0; c < COLUMNS; c++)
        failed |= cgm_text_table_add(table, cgm_row_text(row, keys[c], CGM_ROW_PLAIN, text));
    if (strcmp(cgm_row_text(row, "result", CGM_ROW_PLAIN, text), result_names[CGM_FINDING_OK]) == 0)
        return failed;
    if (cgm_row_text(row, "fix", CGM_ROW_PLAIN, text)[0] == '\0')
        return failed;
    for (size_t c = 0; c + 1 < COLUMNS; c++)
        failed |= cgm_text_table_add(table, " ");
    return failed | cgm_text_table_addf(table, "try: %s", text);
}

static int print_findings(const json_t *rows)
{
    struct cgm_text_table *table = cgm_text_table_new(columns, COLUMNS);
    const json_t *row;
    size_t i;
    int failed = 0;

    if (table == NULL)
        return -1;
    json_array_foreach(rows, i, row) failed |= add_finding(table, row);
    if (failed == 0)
        cgm_text_table_print(table, stdout);
    cgm_text_table_free(table);
    return failed;
}

int cgm_ctl_doctor(void *settings, int n_words, char **words)
{
    const struct cgm_ctl *ctl = settings;
    json_t *rows = json_array();

    (void)n_words;
    (void)words;
    if (rows == NULL || append_local(ctl, rows) != 0 || append_connection(ctl, rows) != 0) {
        json_decref(rows);
        return cgm_ctl_fail(ctl, CGM_NO_MEMORY, NULL, NULL);
    }
    int failed = ctl->json ? cgm_rows_print("doctor", json_incref(rows)) : print_findings(rows);
    bool unhealthy = has_failure(rows);
    json_decref(rows);
    if (failed != 0)
        return cgm_ctl_fail(ctl, CGM_NO_MEMORY, NULL, NULL);
    return unhealthy ? CGM_EXIT_FAILED : CGM_EXIT_OK;
}
