#include "daemon/broker/rows.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/status.h"

int cgm_rows_init(struct cgm_rows *rows)
{
    rows->bytes = 0;
    rows->reply = malloc(sizeof(*rows->reply));
    if (!rows->reply)
        return CGM_NO_MEMORY;
    cgm__query_reply__init(rows->reply);
    return CGM_OK;
}

void cgm_rows_fini(struct cgm_rows *rows)
{
    cgm__query_reply__free_unpacked(rows->reply, NULL);
}

bool cgm_rows_are_full(const struct cgm_rows *rows)
{
    return rows->bytes >= CGM_ROWS_PAGE_BYTES;
}

void cgm_rows_begin(struct cgm_rows *rows)
{
    Cgm__QueryReply *reply = rows->reply;
    Cgm__Row *row = malloc(sizeof(*row));
    Cgm__Row **list = realloc(reply->row, (reply->n_row + 1) * sizeof(*list));
    if (list)
        reply->row = list;
    if (!row || !list) {
        free(row);
        return;
    }
    cgm__row__init(row);
    list[reply->n_row++] = row;
}

static char **find_value(Cgm__Row *row, const char *key)
{
    for (size_t i = 0; i < row->n_key; i++)
        if (strcmp(row->key[i], key) == 0)
            return &row->value[i];
    return NULL;
}

static void replace(char **value, const char *json)
{
    char *copy = strdup(json);
    if (!copy)
        return;
    free(*value);
    *value = copy;
}

static void append(Cgm__Row *row, const char *key, const char *json)
{
    char **keys = realloc(row->key, (row->n_key + 1) * sizeof(*keys));
    if (keys)
        row->key = keys;
    char **values = realloc(row->value, (row->n_value + 1) * sizeof(*values));
    if (values)
        row->value = values;
    char *key_copy = strdup(key), *json_copy = strdup(json);
    if (!keys || !values || !key_copy || !json_copy) {
        free(key_copy);
        free(json_copy);
        return;
    }
    keys[row->n_key++] = key_copy;
    values[row->n_value++] = json_copy;
}

void cgm_rows_json(struct cgm_rows *rows, const char *key, const char *json)
{
    if (rows->reply->n_row == 0)
        return;
    Cgm__Row *row = rows->reply->row[rows->reply->n_row - 1];
    char **value = find_value(row, key);
    rows->bytes += strlen(key) + strlen(json) + 8;
    if (value)
        replace(value, json);
    else
        append(row, key, json);
}

void cgm_rows_text(struct cgm_rows *rows, const char *key, const char *text)
{
    json_t *string = text ? json_string(text) : json_null();
    char *json = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
    cgm_rows_json(rows, key, json ? json : "null");
    free(json);
    json_decref(string);
}

void cgm_rows_number(struct cgm_rows *rows, const char *key, uint64_t number)
{
    char json[24];
    snprintf(json, sizeof(json), "%ju", (uintmax_t)number);
    cgm_rows_json(rows, key, json);
}

void cgm_rows_bool(struct cgm_rows *rows, const char *key, bool value)
{
    cgm_rows_json(rows, key, value ? "true" : "false");
}

void cgm_rows_mode(struct cgm_rows *rows, const char *key, uint32_t mode)
{
    char json[16];
    snprintf(json, sizeof(json), "\"%04o\"", mode);
    cgm_rows_json(rows, key, json);
}

void cgm_rows_hash(struct cgm_rows *rows, const char *key, uint64_t hash)
{
    char json[24];
    snprintf(json, sizeof(json), "\"%016jx\"", (uintmax_t)hash);
    cgm_rows_json(rows, key, hash ? json : "null");
}
