#include "client/common/text_table.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/printable.h"

#define GAP 2            /* blanks between columns */
#define SECONDS_MAX 1e12 /* that are told as such: about 30,000 years */

struct cgm_text_table {
    const struct cgm_text_column *columns;
    size_t n_columns;
    char **cells; /* row by row */
    size_t n_cells, capacity;
    size_t widths[]; /* by column, of the widest text */
};

/* Characters of UTF-8: every byte that continues none. */
static size_t width_of(const char *text)
{
    size_t width = 0;

    for (; *text != '\0'; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

struct cgm_text_table *cgm_text_table_new(const struct cgm_text_column *columns, size_t n_columns)
{
    struct cgm_text_table *table = calloc(1, sizeof(*table) + n_columns * sizeof(*table->widths));

    if (table == NULL)
        return NULL;
    table->columns = columns;
    table->n_columns = n_columns;
    for (size_t c = 0; c < n_columns; c++)
        table->widths[c] = width_of(columns[c].heading);
    return table;
}

void cgm_text_table_free(struct cgm_text_table *table)
{
    if (table == NULL)
        return;
    for (size_t i = 0; i < table->n_cells; i++)
        free(table->cells[i]);
    free(table->cells);
    free(table);
}

/* Takes the cell, also on failure. */
static int append(struct cgm_text_table *table, char *cell)
{
    if (table->n_cells == table->capacity) {
        size_t capacity = table->capacity == 0 ? 64 : 2 * table->capacity;
        char **cells = realloc(table->cells, capacity * sizeof(*cells));
        if (cells == NULL) {
            free(cell);
            return -1;
        }
        table->cells = cells;
        table->capacity = capacity;
    }
    cgm_printable(cell);
    size_t *widest = &table->widths[table->n_cells % table->n_columns];
    size_t width = width_of(cell);
    *widest = width > *widest ? width : *widest;
    table->cells[table->n_cells++] = cell;
    return 0;
}

int cgm_text_table_add(struct cgm_text_table *table, const char *text)
{
    char *cell = strdup(text != NULL && text[0] != '\0' ? text : "-");

    return cell != NULL ? append(table, cell) : -1;
}

int cgm_text_table_addf(struct cgm_text_table *table, const char *format, ...)
{
    char *cell;
    va_list arguments;

    va_start(arguments, format);
    int length = vasprintf(&cell, format, arguments);
    va_end(arguments);
    return length >= 0 ? append(table, cell) : -1;
}

/* Begins at column `indent`, where every further line begins, too; ends the line. */
static void print_wrapped(FILE *out, const char *text, size_t indent)
{
    size_t column = indent;

    while (*text != '\0') {
        size_t bytes = strcspn(text, " ");
        char word[CGM_TEXT_TABLE_WIDTH * 4];
        snprintf(word, sizeof(word), "%.*s", (int)bytes, text);
        if (column > indent && column + 1 + width_of(word) > CGM_TEXT_TABLE_WIDTH)
            column = (size_t)fprintf(out, "\n%*s", (int)indent, "") - 1;
        else if (column > indent)
            column += (size_t)fprintf(out, " ");
        fprintf(out, "%.*s", (int)bytes, text);
        column += width_of(word);
        text += bytes;
        text += strspn(text, " ");
    }
    fprintf(out, "\n");
}

static void print_cell(FILE *out, const char *text, enum cgm_align align, size_t width, bool last)
{
    int blanks = (int)(width - width_of(text));

    if (align == CGM_ALIGN_RIGHT)
        fprintf(out, "%*s%s", blanks, "", text);
    else
        fprintf(out, "%s%*s", text, last ? 0 : blanks, "");
    fprintf(out, last ? "\n" : "%*s", GAP, "");
}

/* What is beside others; `cells` NULL: the headings. */
static void print_row(const struct cgm_text_table *table, char **cells, size_t n, FILE *out)
{
    size_t begin = 0;

    for (size_t c = 0; c < n; c++) {
        const char *text = cells == NULL ? table->columns[c].heading : cells[c];
        if (table->columns[c].align == CGM_ALIGN_WRAPPED)
            print_wrapped(out, text, begin);
        else
            print_cell(out, text, table->columns[c].align, table->widths[c], c + 1 == n);
        begin += table->widths[c] + GAP;
    }
}

static void print_below(const struct cgm_text_table *table, char **cells, size_t c, FILE *out)
{
    const char *heading = table->columns[c].heading;
    size_t indent = table->widths[0] + GAP;
    char *text;

    if (strcmp(cells[c], "-") == 0 || asprintf(&text, "%s%s", heading, cells[c]) < 0)
        return;
    fprintf(out, "%*s", (int)indent, "");
    print_wrapped(out, text, indent);
    free(text);
}

void cgm_text_table_print(const struct cgm_text_table *table, FILE *out)
{
    size_t rows = table->n_cells / table->n_columns, beside = 0;

    while (beside < table->n_columns && table->columns[beside].align != CGM_ALIGN_BELOW)
        beside++;
    print_row(table, NULL, beside, out);
    for (size_t row = 0; row < rows; row++) {
        char **cells = &table->cells[row * table->n_columns];
        print_row(table, cells, beside, out);
        for (size_t c = beside; c < table->n_columns; c++)
            print_below(table, cells, c, out);
    }
}

const char *cgm_human_bytes(uint64_t bytes, char *ret_text)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;

    /* 999.5 would be printed with four digits. */
    for (; value >= (unit == 0 ? 1024 : 999.5); unit++)
        value /= 1024;
    snprintf(ret_text, CGM_HUMAN_BYTES, unit > 0 && value < 9.95 ? "%.1f %s" : "%.0f %s", value,
             units[unit]);
    return ret_text;
}

const char *cgm_human_seconds(double seconds, char *ret_text)
{
    /* A longer time is no time: whoever tells it may have made it up. */
    double told = seconds > SECONDS_MAX ? SECONDS_MAX : seconds;
    unsigned long long whole = told > 0 ? (unsigned long long)told : 0;

    if (seconds < 60)
        snprintf(ret_text, CGM_HUMAN_BYTES, "%.1f s", seconds);
    else if (whole < 3600)
        snprintf(ret_text, CGM_HUMAN_BYTES, "%llu min %llu s", whole / 60, whole % 60);
    else if (whole < 86400)
        snprintf(ret_text, CGM_HUMAN_BYTES, "%llu h %llu min", whole / 3600, whole / 60 % 60);
    else
        snprintf(ret_text, CGM_HUMAN_BYTES, "%llu d %llu h", whole / 86400, whole / 3600 % 24);
    return ret_text;
}
