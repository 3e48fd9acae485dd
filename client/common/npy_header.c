#include "client/common/npy_header.h"

#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "proto/status.h"

#define KEYS 3u
#define DESCR_BYTES_MAX 32u

/* A reader of the Python literal. It never goes past `end`. */
struct reader {
    const char *at, *end;
    char *reason;
    char descr[DESCR_BYTES_MAX];
    unsigned dimensions;
    uint64_t shape[CGM_NPY_DIMENSIONS_MAX];
    bool fortran_order;
    unsigned seen; /* bit by key */
};

static int refuse(struct reader *reader, const char *reason)
{
    snprintf(reader->reason, CGM_NPY_REASON_BYTES, "%s", reason);
    return CGM_INVALID_ARGUMENT;
}

static void skip_blanks(struct reader *reader)
{
    while (reader->at < reader->end && isspace((unsigned char)*reader->at))
        reader->at++;
}

static bool take(struct reader *reader, char expected)
{
    skip_blanks(reader);
    if (reader->at == reader->end || *reader->at != expected)
        return false;
    reader->at++;
    return true;
}

static bool take_word(struct reader *reader, const char *word)
{
    size_t length = strlen(word);

    skip_blanks(reader);
    if ((size_t)(reader->end - reader->at) < length || memcmp(reader->at, word, length) != 0)
        return false;
    reader->at += length;
    return true;
}

/* 'text' or "text". */
static bool take_string(struct reader *reader, char *ret_text, size_t size)
{
    skip_blanks(reader);
    if (reader->at == reader->end || (*reader->at != '\'' && *reader->at != '"'))
        return false;
    const char *begin = reader->at + 1;
    const char *end = memchr(begin, *reader->at, (size_t)(reader->end - begin));
    if (end == NULL || (size_t)(end - begin) >= size)
        return false;
    memcpy(ret_text, begin, (size_t)(end - begin));
    ret_text[end - begin] = '\0';
    reader->at = end + 1;
    return true;
}

static int read_descr(struct reader *reader)
{
    if (!take_string(reader, reader->descr, sizeof(reader->descr)))
        return refuse(reader, "its header's 'descr' is no simple type; expected '<f4' (float32)");
    if (strcmp(reader->descr, "<f4") != 0) {
        snprintf(reader->reason, CGM_NPY_REASON_BYTES,
                 "its elements are '%s'; expected '<f4', little-endian float32: save it with "
                 "numpy.float32",
                 reader->descr);
        return CGM_INVALID_ARGUMENT;
    }
    return CGM_OK;
}

static int read_fortran_order(struct reader *reader)
{
    reader->fortran_order = take_word(reader, "True");
    if (!reader->fortran_order && !take_word(reader, "False"))
        return refuse(reader, "its header's 'fortran_order' is neither True nor False");
    return CGM_OK;
}

static int read_length(struct reader *reader, uint64_t *ret_length)
{
    uint64_t length = 0;

    skip_blanks(reader);
    if (reader->at == reader->end || !isdigit((unsigned char)*reader->at))
        return refuse(reader, "its header's 'shape' is no tuple of whole numbers");
    for (; reader->at < reader->end && isdigit((unsigned char)*reader->at); reader->at++) {
        uint64_t digit = (uint64_t)(*reader->at - '0');
        if (length > (UINT64_MAX - digit) / 10)
            return refuse(reader, "a length in its header's 'shape' is above 2^64");
        length = length * 10 + digit;
    }
    *ret_length = length;
    return CGM_OK;
}

static int read_shape(struct reader *reader)
{
    uint64_t length;
    bool comma = true;

    if (!take(reader, '('))
        return refuse(reader, "its header's 'shape' is no tuple of whole numbers");
    while (!take(reader, ')')) {
        if (!comma)
            return refuse(reader, "its header's 'shape' lacks a comma or the closing bracket");
        int status = read_length(reader, &length);
        if (status != CGM_OK)
            return status;
        if (reader->dimensions < CGM_NPY_DIMENSIONS_MAX)
            reader->shape[reader->dimensions] = length;
        reader->dimensions++;
        comma = take(reader, ',');
    }
    if (reader->dimensions == 1 && !comma)
        return refuse(reader, "its header's 'shape' is no tuple of whole numbers");
    if (reader->dimensions == 0 || reader->dimensions > CGM_NPY_DIMENSIONS_MAX) {
        snprintf(reader->reason, CGM_NPY_REASON_BYTES, "it has %u dimensions; expected 1 to %u",
                 reader->dimensions, CGM_NPY_DIMENSIONS_MAX);
        return CGM_INVALID_ARGUMENT;
    }
    return CGM_OK;
}

static const struct {
    const char *name;
    int (*read)(struct reader *reader);
} keys[KEYS] = {
    {"descr", read_descr},
    {"fortran_order", read_fortran_order},
    {"shape", read_shape},
};

static int read_key(struct reader *reader)
{
    char name[DESCR_BYTES_MAX];

    if (!take_string(reader, name, sizeof(name)) || !take(reader, ':'))
        return refuse(reader, "its header is no dictionary of descr, fortran_order and shape");
    for (unsigned key = 0; key < KEYS; key++) {
        if (strcmp(keys[key].name, name) != 0)
            continue;
        if (reader->seen & 1u << key) {
            snprintf(reader->reason, CGM_NPY_REASON_BYTES, "its header has '%s' twice", name);
            return CGM_INVALID_ARGUMENT;
        }
        reader->seen |= 1u << key;
        return keys[key].read(reader);
    }
    snprintf(reader->reason, CGM_NPY_REASON_BYTES,
             "its header has the unknown key '%s'; expected descr, fortran_order and shape", name);
    return CGM_INVALID_ARGUMENT;
}

static int read_dictionary(struct reader *reader)
{
    bool comma = true;

    if (!take(reader, '{'))
        return refuse(reader, "its header is no dictionary of descr, fortran_order and shape");
    while (!take(reader, '}')) {
        if (!comma)
            return refuse(reader, "its header lacks a comma or the closing brace");
        int status = read_key(reader);
        if (status != CGM_OK)
            return status;
        comma = take(reader, ',');
    }
    skip_blanks(reader);
    if (reader->at != reader->end)
        return refuse(reader, "its header goes on behind the closing brace");
    for (unsigned key = 0; key < KEYS; key++) {
        if (!(reader->seen & 1u << key)) {
            snprintf(reader->reason, CGM_NPY_REASON_BYTES, "its header lacks '%s'", keys[key].name);
            return CGM_INVALID_ARGUMENT;
        }
    }
    return CGM_OK;
}

/* Dimensions first ... end - 1; UINT64_MAX beyond 64 bits, also where another one is 0. */
static uint64_t product(const uint64_t *shape, unsigned first, unsigned end)
{
    uint64_t count = 1;
    bool empty = false;
    for (unsigned i = first; i < end; i++) {
        empty = empty || shape[i] == 0;
        if (__builtin_mul_overflow(count, shape[i] ? shape[i] : 1, &count))
            return UINT64_MAX;
    }
    return empty ? 0 : count;
}

void cgm_npy_header_collapse(struct cgm_npy *npy, unsigned axis)
{
    npy->rows = product(npy->shape, 0, axis);
    npy->cols = product(npy->shape, axis, npy->dimensions);
}

int cgm_npy_header_parse(const char *text, size_t size, struct cgm_npy *npy, char *ret_reason)
{
    struct reader reader = {.at = text, .end = text + size, .reason = ret_reason};

    int status = read_dictionary(&reader);
    if (status != CGM_OK)
        return status;
    if (reader.fortran_order && reader.dimensions > 2)
        return refuse(&reader, "it is in Fortran order; with more than 2 dimensions save it in C "
                               "order");
    npy->dimensions = reader.dimensions;
    memcpy(npy->shape, reader.shape, sizeof(npy->shape));
    npy->rows = product(reader.shape, 0, reader.dimensions - 1);
    npy->cols = reader.shape[reader.dimensions - 1];
    npy->fortran_order = reader.fortran_order && reader.dimensions == 2;
    uint64_t elements;
    if (__builtin_mul_overflow(npy->rows, npy->cols, &elements) ||
        product(reader.shape, 0, reader.dimensions) == UINT64_MAX ||
        elements > INT64_MAX / sizeof(float)) {
        snprintf(ret_reason, CGM_NPY_REASON_BYTES,
                 "its shape (%" PRIu64 ", %" PRIu64 ") overflows: expected at most 2^63 bytes",
                 npy->rows, npy->cols);
        return CGM_INVALID_ARGUMENT;
    }
    npy->bytes = elements * sizeof(float);
    return CGM_OK;
}

size_t cgm_npy_header_format(const struct cgm_npy *npy, char *ret_bytes, size_t size)
{
    static const char magic[] = "\x93NUMPY\x01\x00";
    const size_t prefix = sizeof(magic) - 1 + 2;
    char shape[64], text[160];

    if (npy->dimensions == 1)
        snprintf(shape, sizeof(shape), "(%" PRIu64 ",)", npy->cols);
    else
        snprintf(shape, sizeof(shape), "(%" PRIu64 ", %" PRIu64 ")", npy->rows, npy->cols);
    size_t length = (size_t)snprintf(
        text, sizeof(text), "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }", shape);
    size_t total = (prefix + length + 1 + 63) / 64 * 64;
    if (total > size)
        return 0;
    memset(ret_bytes, ' ', total);
    memcpy(ret_bytes, magic, sizeof(magic) - 1);
    ret_bytes[8] = (char)((total - prefix) & 0xff);
    ret_bytes[9] = (char)((total - prefix) >> 8);
    memcpy(ret_bytes + prefix, text, length);
    ret_bytes[total - 1] = '\n';
    return total;
}
