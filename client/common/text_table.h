/* Text in aligned columns for terminals and files: headings in capitals, two spaces between
 * columns, no blanks at the end of a line. Widths count characters of UTF-8, not bytes; control
 * characters in a cell are printed as '?', so that no name can play with a terminal. */
#ifndef CGM_TEXT_TABLE_H
#define CGM_TEXT_TABLE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define CGM_TEXT_TABLE_WIDTH 100u

enum cgm_align {
    CGM_ALIGN_LEFT,
    CGM_ALIGN_RIGHT,
    /* Left, and broken between words where the line would be longer than CGM_TEXT_TABLE_WIDTH; the
     * last column beside others. */
    CGM_ALIGN_WRAPPED,
    /* Under the row, behind the heading ("takes: "), broken in the same way; behind all columns
     * beside others. */
    CGM_ALIGN_BELOW,
};

struct cgm_text_table;

struct cgm_text_column {
    const char *heading; /* must outlive the table */
    enum cgm_align align;
};

/* NULL when there is no memory, as the other calls' -1. */
struct cgm_text_table *cgm_text_table_new(const struct cgm_text_column *columns, size_t n_columns);
void cgm_text_table_free(struct cgm_text_table *table);

/* Appends a cell to the current row; a row is full after n_columns cells and the next one begins.
 * NULL or "" is printed as "-". */
int cgm_text_table_add(struct cgm_text_table *table, const char *text);
int cgm_text_table_addf(struct cgm_text_table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Prints headings and full rows. */
void cgm_text_table_print(const struct cgm_text_table *table, FILE *out);

#define CGM_HUMAN_BYTES 32u
/* "0 B", "1023 B", "1.5 KiB", "12 MiB", "2.0 GiB": at most three digits before the unit or one and
 * a fraction. ret_text holds CGM_HUMAN_BYTES; it is also returned. */
const char *cgm_human_bytes(uint64_t bytes, char *ret_text);

/* "4.2 s", "3 min 20 s", "5 h 2 min", "12 d 3 h". */
const char *cgm_human_seconds(double seconds, char *ret_text);

#endif
