#include "proto/types.h"

#include <stdio.h>
#include <string.h>

struct type_row {
    int number;
    const char *name;
};

#define ROW(number, SYMBOL, spelling) {number, spelling},
#define ROW_AND(number, SYMBOL, spelling, extra) {number, spelling},
static const struct type_row dtypes[] = {CGM_DTYPES(ROW_AND)};
static const struct type_row ops[] = {CGM_OPS(ROW_AND)};
static const struct type_row methods[] = {CGM_METHODS(ROW)};
static const struct type_row comm_types[] = {CGM_COMM_TYPES(ROW)};
static const struct type_row algos[] = {CGM_ALGORITHMS(ROW)};
static const struct type_row phases[] = {CGM_PHASES(ROW)};
#undef ROW
#undef ROW_AND

#define TABLE(rows)                                                                                \
    {                                                                                              \
        rows, sizeof(rows) / sizeof((rows)[0])                                                     \
    }
static const struct {
    const struct type_row *rows;
    size_t count;
} tables[] = {
    [CGM_TABLE_DTYPE] = TABLE(dtypes),   [CGM_TABLE_OP] = TABLE(ops),
    [CGM_TABLE_METHOD] = TABLE(methods), [CGM_TABLE_COMM_TYPE] = TABLE(comm_types),
    [CGM_TABLE_ALGO] = TABLE(algos),     [CGM_TABLE_PHASE] = TABLE(phases),
};
#undef TABLE

const char *cgm_type_name(enum cgm_type_table table, int number)
{
    for (size_t i = 0; i < tables[table].count; i++)
        if (tables[table].rows[i].number == number)
            return tables[table].rows[i].name;
    return NULL;
}

int cgm_type_number(enum cgm_type_table table, const char *name)
{
    for (size_t i = 0; i < tables[table].count; i++)
        if (strcmp(tables[table].rows[i].name, name) == 0)
            return tables[table].rows[i].number;
    return -1;
}

void cgm_type_list(enum cgm_type_table table, char *ret_text, size_t size)
{
    size_t used = 0;
    ret_text[0] = '\0';
    for (size_t i = 0; i < tables[table].count && used < size; i++)
        used += (size_t)snprintf(ret_text + used, size - used, "%s%s", i ? ", " : "",
                                 tables[table].rows[i].name);
}

size_t cgm_dtype_bytes(int dtype)
{
    switch (dtype) {
#define X(number, SYMBOL, spelling, bytes)                                                         \
    case number:                                                                                   \
        return bytes;
        CGM_DTYPES(X)
#undef X
    default:
        return 0;
    }
}

bool cgm_op_is_collective(int op)
{
    switch (op) {
#define X(number, SYMBOL, spelling, collective)                                                    \
    case number:                                                                                   \
        return collective;
        CGM_OPS(X)
#undef X
    default:
        return false;
    }
}
