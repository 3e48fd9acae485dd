#include "client/ctl/rows.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/common/text_table.h"
#include "proto/status.h"

#define JSON_VERSION 1
#define INTEGER_DIGITS_MAX 18u

/* Copies the text with integers that jansson's 63 bits may not hold as strings. NULL: no memory. */
static char *quote_long_integers(const char *json)
{
    char *copy = malloc(2 * strlen(json) + 1), *to = copy;
    bool inside = false; /* a string */

    while (copy != NULL && *json != '\0') {
        size_t digits = inside ? 0 : strspn(json, "0123456789");
        bool is_long = digits > INTEGER_DIGITS_MAX && to > copy && to[-1] != '.' && to[-1] != '-';
        if (is_long)
            *to++ = '"';
        bool is_escape = inside && json[0] == '\\' && json[1] != '\0';
        size_t length = digits > 0 ? digits : is_escape ? 2 : 1;
        inside ^= *json == '"';
        to = mempcpy(to, json, length);
        json += length;
        if (is_long)
            *to++ = '"';
    }
    if (copy != NULL)
        *to = '\0';
    return copy;
}

json_t *cgm_rows_load(const char *json, const char *what)
{
    char *text = quote_long_integers(json);

    if (text == NULL)
        return NULL;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    json_t *rows = json_object_get(root, what);
    rows = json_is_array(rows) ? json_incref(rows) : NULL;
    json_decref(root);
    free(text);
    return rows;
}

static void format_scalar(const json_t *value, char *ret_text, size_t size)
{
    switch (json_typeof(value)) {
    case JSON_STRING:
        snprintf(ret_text, size, "%s", json_string_value(value));
        break;
    case JSON_INTEGER:
        snprintf(ret_text, size, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case JSON_REAL:
        snprintf(ret_text, size, "%.3g", json_real_value(value));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        snprintf(ret_text, size, "%s", json_is_true(value) ? "yes" : "no");
        break;
    default:
        ret_text[0] = '\0';
    }
}

static void format_plain(const json_t *value, char *ret_text)
{
    size_t used = 0, i;
    const json_t *item;

    if (!json_is_array(value)) {
        format_scalar(value, ret_text, CGM_ROW_TEXT_BYTES);
        return;
    }
    json_array_foreach(value, i, item)
    {
        char text[CGM_ROW_TEXT_BYTES];
        format_scalar(item, text, sizeof(text));
        used += (size_t)snprintf(ret_text + used, CGM_ROW_TEXT_BYTES - used, "%s%s",
                                 i > 0 ? "," : "", text);
        if (used >= CGM_ROW_TEXT_BYTES)
            return;
    }
}

static void format_bytes(const json_t *value, char *ret_text)
{
    cgm_human_bytes((uint64_t)json_integer_value(value), ret_text);
}

static void format_mode(const json_t *value, char *ret_text)
{
    snprintf(ret_text, CGM_ROW_TEXT_BYTES, "%04o", (unsigned)json_integer_value(value));
}

static void format_user(const json_t *value, char *ret_text)
{
    const struct passwd *user = getpwuid((uid_t)json_integer_value(value));

    if (user != NULL)
        snprintf(ret_text, CGM_ROW_TEXT_BYTES, "%s", user->pw_name);
    else
        format_plain(value, ret_text);
}

static void format_ms(const json_t *value, char *ret_text)
{
    cgm_human_seconds(json_number_value(value) / 1e3, ret_text);
}

static void format_seconds(const json_t *value, char *ret_text)
{
    cgm_human_seconds(json_number_value(value), ret_text);
}

static void format_yes(const json_t *value, char *ret_text)
{
    bool yes = json_is_true(value) || json_integer_value(value) != 0;

    strcpy(ret_text, yes ? "yes" : "no");
}

const char *cgm_row_text(const json_t *row, const char *key, enum cgm_row_format format,
                         char ret_text[CGM_ROW_TEXT_BYTES])
{
    static void (*const formats[])(const json_t *, char *) = {
        [CGM_ROW_PLAIN] = format_plain, [CGM_ROW_BYTES] = format_bytes,
        [CGM_ROW_MODE] = format_mode,   [CGM_ROW_USER] = format_user,
        [CGM_ROW_MS] = format_ms,       [CGM_ROW_SECONDS] = format_seconds,
        [CGM_ROW_YES] = format_yes,
    };
    const json_t *value = json_object_get(row, key);

    ret_text[0] = '\0';
    if (value == NULL || json_is_null(value))
        return ret_text;
    /* A value that is no number (a mode as "0640") is text already. */
    bool plain = !json_is_number(value) && !json_is_boolean(value);
    (plain ? format_plain : formats[format])(value, ret_text);
    return ret_text;
}

int cgm_rows_print(const char *what, json_t *rows)
{
    json_t *root = json_pack("{s:i,s:o}", "version", JSON_VERSION, what, rows);

    if (root == NULL)
        return CGM_NO_MEMORY;
    json_dumpf(root, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(root);
    return CGM_OK;
}
