/* Rows of a QueryReply: objects as lists of keys and JSON values. All memory is malloc's, so that
 * protobuf-c frees it. Out of memory leaves a value or a row out. */
#ifndef CGM_BROKER_ROWS_H
#define CGM_BROKER_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/messages.h"

/* A page is full beyond this; a row is far smaller than what is left of a packet. */
#define CGM_ROWS_PAGE_BYTES 32768u

struct cgm_rows {
    Cgm__QueryReply *reply;
    size_t bytes;
};

int cgm_rows_init(struct cgm_rows *rows); /* OK or NO_MEMORY */
void cgm_rows_fini(struct cgm_rows *rows);
bool cgm_rows_are_full(const struct cgm_rows *rows);

/* The values that follow belong to a new row. */
void cgm_rows_begin(struct cgm_rows *rows);
void cgm_rows_text(struct cgm_rows *rows, const char *key, const char *text); /* NULL: null */
void cgm_rows_number(struct cgm_rows *rows, const char *key, uint64_t number);
void cgm_rows_bool(struct cgm_rows *rows, const char *key, bool value);
void cgm_rows_mode(struct cgm_rows *rows, const char *key, uint32_t mode); /* "0600" */
void cgm_rows_hash(struct cgm_rows *rows, const char *key, uint64_t hash); /* 0: null */
/* JSON text as it is. Replaces the value of a key that the row has already. */
void cgm_rows_json(struct cgm_rows *rows, const char *key, const char *json);

#endif
