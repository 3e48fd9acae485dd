/* Rows of a query as jansson objects, and their values as text for people. */
#ifndef CGM_CTL_ROWS_H
#define CGM_CTL_ROWS_H

#include <jansson.h>
#include <stddef.h>

/* How a value is shown. */
enum cgm_row_format {
    CGM_ROW_PLAIN,   /* text, number, or a list with commas */
    CGM_ROW_BYTES,   /* "1.5 KiB" */
    CGM_ROW_MODE,    /* "0640" */
    CGM_ROW_USER,    /* a uid's name */
    CGM_ROW_MS,      /* "4.2 s" */
    CGM_ROW_SECONDS, /* "3 min 20 s" */
    CGM_ROW_YES,     /* "yes" or "no" */
};

#define CGM_ROW_TEXT_BYTES 512u

/* The rows of the JSON text that commgemm_query(what) gave, a new reference; NULL when the text is
 * not what its documentation says. */
json_t *cgm_rows_load(const char *json, const char *what);

/* A row's value as text; "" when the row has no such key or it is null. Returns ret_text. */
const char *cgm_row_text(const json_t *row, const char *key, enum cgm_row_format format,
                         char ret_text[CGM_ROW_TEXT_BYTES]);

/* Prints {"version":1,"<what>":[...]}; takes the rows. OK, or NO_MEMORY also when they are
 * NULL. */
int cgm_rows_print(const char *what, json_t *rows);

#endif
