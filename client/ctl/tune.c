/* commgemmctl tune: what auto measured goes into files, comes out of files, or is forgotten. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/common/new_file.h"
#include "client/ctl/ctl.h"
#include "client/ctl/rows.h"
#include "proto/status.h"
#include "proto/timing.h"

#define DETAIL_BYTES 512

/* {"version":1,"tune":[{"cleared":3}]} */
static int print_count(const struct cgm_ctl *ctl, const char *what, uint32_t count)
{
    if (!ctl->json) {
        printf("%u plans' times %s\n", count, what);
        return 0;
    }
    int status = cgm_rows_print("tune", json_pack("[{s:I}]", what, (json_int_t)count));
    return status == CGM_OK ? 0 : cgm_ctl_fail(ctl, status, NULL, NULL);
}

static int fail_change(const struct cgm_ctl *ctl, int status)
{
    return cgm_ctl_fail(ctl, status, commgemm_last_error(),
                        status == CGM_PERMISSION ? "run it as the daemon's user or root" : NULL);
}

int cgm_ctl_tune_clear(void *settings, int n_words, char **words)
{
    const struct cgm_ctl *ctl = settings;
    commgemm_client *client;
    uint32_t count;

    (void)n_words;
    (void)words;
    int result = cgm_ctl_connect(ctl, &client);
    if (result != 0)
        return result;
    int status = commgemm_tune_clear(client, &count);
    result = status == CGM_OK ? print_count(ctl, "cleared", count) : fail_change(ctl, status);
    commgemm_disconnect(client);
    return result;
}

/* ---- export ------------------------------------------------------------------------------------
 */

/* OK, or IO with errno. */
static int write_rows(const json_t *rows, FILE *file, uint32_t *ret_count)
{
    struct cgm_timings_out out;
    const json_t *row;
    size_t i;

    cgm_timings_begin(&out, file);
    json_array_foreach(rows, i, row)
    {
        const char *record = json_string_value(json_object_get(row, "record"));
        if (record == NULL)
            return CGM_BAD_MESSAGE;
        cgm_timings_line(&out, record);
    }
    cgm_timings_end(&out);
    *ret_count = out.count;
    return fflush(file) == 0 && !ferror(file) ? CGM_OK : CGM_IO;
}

/* OK, or a status with errno. */
static int write_file(const json_t *rows, const char *path, uint32_t *ret_count)
{
    struct cgm_new_file file;
    int status = cgm_new_file_open(path, &file);

    if (status != CGM_OK)
        return status;
    FILE *stream = cgm_new_file_stream(&file);
    status = stream == NULL ? CGM_IO : write_rows(rows, stream, ret_count);
    if (stream != NULL && fclose(stream) != 0)
        status = CGM_IO;
    if (status == CGM_OK)
        return cgm_new_file_finish(&file);
    cgm_new_file_discard(&file);
    return status;
}

static int export_rows(const struct cgm_ctl *ctl, const json_t *rows, const char *path)
{
    char detail[DETAIL_BYTES];
    uint32_t count = 0;
    int status = write_file(rows, path, &count);

    if (status == CGM_OK)
        return print_count(ctl, "exported", count);
    snprintf(detail, sizeof(detail), "%.256s: %s", path, strerror(errno));
    return cgm_ctl_fail(ctl, status, status == CGM_IO ? detail : NULL,
                        status == CGM_IO ? "check the path, its permissions and the free space"
                                         : NULL);
}

int cgm_ctl_tune_export(void *settings, int n_words, char **words)
{
    const struct cgm_ctl *ctl = settings;
    char *json;

    (void)n_words;
    int result = cgm_ctl_query(ctl, "tune", &json);
    if (result != 0)
        return result;
    json_t *rows = cgm_rows_load(json, "tune");
    free(json);
    result = rows == NULL ? cgm_ctl_fail(ctl, CGM_BAD_MESSAGE, NULL, NULL)
                          : export_rows(ctl, rows, words[0]);
    json_decref(rows);
    return result;
}

/* ---- import ------------------------------------------------------------------------------------
 */

struct records {
    char *lines[CGM_TIMINGS_MAX];
    uint32_t count;
    bool failed; /* out of memory */
};

static void add_record(void *context, const char *line, const struct cgm_timing *timing)
{
    struct records *records = context;

    (void)timing;
    records->lines[records->count] = strdup(line);
    if (records->lines[records->count] == NULL)
        records->failed = true;
    else
        records->count++;
}

static int read_records(const char *path, struct records *records, char detail[DETAIL_BYTES])
{
    char why[128];
    FILE *file = fopen(path, "re");

    if (file == NULL) {
        snprintf(detail, DETAIL_BYTES, "%.256s: %s", path, strerror(errno));
        return errno == ENOENT ? CGM_NOT_FOUND : CGM_IO;
    }
    int status = cgm_timings_read(file, add_record, records, why, sizeof(why));
    fclose(file);
    snprintf(detail, DETAIL_BYTES, "%.256s: %s", path, status == CGM_OK ? "" : why);
    return status == CGM_OK && records->failed ? CGM_NO_MEMORY : status;
}

static int import_records(const struct cgm_ctl *ctl, const struct records *records)
{
    commgemm_client *client;

    int result = cgm_ctl_connect(ctl, &client);
    if (result != 0)
        return result;
    int status = commgemm_tune_import(client, (const char *const *)records->lines, records->count);
    result =
        status == CGM_OK ? print_count(ctl, "imported", records->count) : fail_change(ctl, status);
    commgemm_disconnect(client);
    return result;
}

int cgm_ctl_tune_import(void *settings, int n_words, char **words)
{
    const struct cgm_ctl *ctl = settings;
    struct records *records = calloc(1, sizeof(*records));
    char detail[DETAIL_BYTES];

    (void)n_words;
    if (records == NULL)
        return cgm_ctl_fail(ctl, CGM_NO_MEMORY, NULL, NULL);
    int status = read_records(words[0], records, detail);
    int result = status == CGM_OK ? import_records(ctl, records)
                                  : cgm_ctl_fail(ctl, status, detail,
                                                 "a file that commgemmctl tune export wrote");
    while (records->count > 0)
        free(records->lines[--records->count]);
    free(records);
    return result;
}
