#include "client/lib/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the check: each function takes one thing off the front, or returns NULL --------------------
 */

static const char *skip_value(const char *at, int depth);

static const char *skip_space(const char *at)
{
    while (*at == ' ')
        at++;
    return at;
}

static const char *skip_hex4(const char *at)
{
    for (int i = 0; i < 4; i++, at++)
        if (!*at || !strchr("0123456789abcdefABCDEF", *at))
            return NULL;
    return at;
}

static const char *skip_string(const char *at)
{
    if (*at++ != '"')
        return NULL;
    while (*at != '"') {
        if ((unsigned char)*at < 0x20)
            return NULL;
        if (*at++ != '\\')
            continue;
        if (*at == 'u')
            at = skip_hex4(at + 1);
        else if (*at && strchr("\"\\/bfnrt", *at))
            at++;
        else
            return NULL;
        if (!at)
            return NULL;
    }
    return at + 1;
}

static const char *skip_digits(const char *at)
{
    const char *first = at;
    while (*at >= '0' && *at <= '9')
        at++;
    return at > first ? at : NULL;
}

static const char *skip_number(const char *at)
{
    if (*at == '-')
        at++;
    at = *at == '0' ? at + 1 : skip_digits(at);
    if (at && *at == '.')
        at = skip_digits(at + 1);
    if (!at || (*at != 'e' && *at != 'E'))
        return at;
    at++;
    if (*at == '+' || *at == '-')
        at++;
    return skip_digits(at);
}

static const char *skip_word(const char *at)
{
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strncmp(at, words[i], strlen(words[i])) == 0)
            return at + strlen(words[i]);
    return NULL;
}

static const char *skip_member(const char *at, int depth)
{
    at = skip_string(at);
    if (!at)
        return NULL;
    at = skip_space(at);
    return *at == ':' ? skip_value(skip_space(at + 1), depth) : NULL;
}

/* An array or an object, of which at points to the bracket. */
static const char *skip_container(const char *at, int depth)
{
    char close = *at == '[' ? ']' : '}';
    if (depth == 0)
        return NULL;
    at = skip_space(at + 1);
    if (*at == close)
        return at + 1;
    for (;;) {
        at = close == ']' ? skip_value(at, depth - 1) : skip_member(at, depth - 1);
        if (!at)
            return NULL;
        at = skip_space(at);
        if (*at == close)
            return at + 1;
        if (*at++ != ',')
            return NULL;
        at = skip_space(at);
    }
}

static const char *skip_value(const char *at, int depth)
{
    switch (*at) {
    case '"':
        return skip_string(at);
    case '[':
    case '{':
        return skip_container(at, depth);
    case 't':
    case 'f':
    case 'n':
        return skip_word(at);
    default:
        return skip_number(at);
    }
}

bool cgm_json_is_value(const char *text)
{
    const char *end = skip_value(skip_space(text), CGM_JSON_DEPTH_MAX);
    return end && *skip_space(end) == '\0';
}

/* ---- the text ---------------------------------------------------------------------------------
 */

static bool reserve(struct cgm_text *text, size_t more)
{
    size_t capacity = text->capacity ? text->capacity : 1024;
    if (text->failed)
        return false;
    while (capacity - text->size <= more)
        capacity *= 2;
    if (capacity == text->capacity)
        return true;
    char *bytes = realloc(text->bytes, capacity);
    text->failed = !bytes;
    if (text->failed)
        return false;
    text->bytes = bytes;
    text->capacity = capacity;
    return true;
}

void cgm_text_add(struct cgm_text *text, const char *piece)
{
    size_t length = strlen(piece);
    if (!reserve(text, length))
        return;
    memcpy(text->bytes + text->size, piece, length + 1);
    text->size += length;
}

void cgm_text_add_string(struct cgm_text *text, const char *string)
{
    cgm_text_add(text, "\"");
    for (const char *c = string; *c; c++) {
        char piece[8] = {*c, '\0'};
        if (*c == '"' || *c == '\\')
            snprintf(piece, sizeof(piece), "\\%c", *c);
        else if ((unsigned char)*c < 0x20)
            snprintf(piece, sizeof(piece), "\\u%04x", (unsigned char)*c);
        cgm_text_add(text, piece);
    }
    cgm_text_add(text, "\"");
}
