#include "client/bench/shards.h"

#include <stddef.h>
#include <string.h>

#include "proto/types.h"

/* A matrix before transposition: its sizes by letter, and how the ranks share it. S is w times M:
 * one M x N matrix of every rank behind the other; R x C is the buffer that a bulk operation moves,
 * T w times R; W is w. A zero letter: absent. */
struct rule {
    char rows, cols;
    enum cgm_split split;
};

struct shape_row {
    int op;
    struct rule matrix[CGM_MATRIX_COUNT]; /* lhs, rhs, bias, out, aux, aux_in */
};

#define ALL CGM_SPLIT_NONE
#define ROWS CGM_SPLIT_ROWS
#define COLS CGM_SPLIT_COLS

static const struct shape_row shapes[] = {
    {CGM_OP_GEMM, {{'M', 'K', ALL}, {'K', 'N', ALL}, {'1', 'N', ALL}, {'M', 'N', ALL}, {0}}},
    {CGM_OP_AG_GEMM,
     {{'M', 'K', ROWS}, {'K', 'N', COLS}, {'1', 'N', COLS}, {'M', 'N', COLS}, {'M', 'K', ALL}}},
    {CGM_OP_GEMM_RS, {{'M', 'K', COLS}, {'K', 'N', ROWS}, {'1', 'N', ALL}, {'M', 'N', ROWS}, {0}}},
    {CGM_OP_GEMM_AR, {{'M', 'K', COLS}, {'K', 'N', ROWS}, {'1', 'N', ALL}, {'M', 'N', ALL}, {0}}},
    {CGM_OP_GEMM_AS, {{'M', 'K', ALL}, {'K', 'N', COLS}, {'1', 'N', COLS}, {'M', 'N', ALL}, {0}}},
    {CGM_OP_BULK_AG,
     {{'M', 'K', ALL},
      {'K', 'N', ALL},
      {'1', 'N', ALL},
      {'M', 'N', ALL},
      {'R', 'C', ALL},
      {'R', 'C', ROWS}}},
    {CGM_OP_BULK_RS,
     {{'M', 'K', ALL},
      {'K', 'N', ALL},
      {'1', 'N', ALL},
      {'M', 'N', ALL},
      {'R', 'C', ROWS},
      {'T', 'C', ROWS}}},
    {CGM_OP_AG, {{'M', 'N', ROWS}, {0}, {0}, {'M', 'N', ALL}, {0}}},
    {CGM_OP_RS, {{'S', 'N', ROWS}, {0}, {0}, {'M', 'N', ROWS}, {0}}},
    {CGM_OP_AR, {{'S', 'N', ROWS}, {0}, {0}, {'M', 'N', ALL}, {0}}},
    {CGM_OP_A2AV, {{'M', 'N', ROWS}, {0}, {0}, {'M', 'N', ROWS}, {0}}},
};

static uint64_t size_of(const struct cgm_sizes *sizes, char letter)
{
    switch (letter) {
    case 'M':
        return sizes->m;
    case 'N':
        return sizes->n;
    case 'K':
        return sizes->k;
    case 'S':
        return sizes->m * sizes->world;
    case 'R':
        return sizes->buffer_rows;
    case 'C':
        return sizes->buffer_cols;
    case 'W':
        return sizes->world;
    case 'T':
        return sizes->buffer_rows * sizes->world;
    default:
        return 1;
    }
}

static struct cgm_matrix make(const struct cgm_sizes *sizes, const struct rule *rule, int dtype,
                              bool transposed)
{
    uint64_t rows = size_of(sizes, rule->rows), cols = size_of(sizes, rule->cols);
    enum cgm_split split = rule->split;
    if (transposed) {
        uint64_t swap = rows;
        rows = cols;
        cols = swap;
        split = split == ROWS ? COLS : split == COLS ? ROWS : ALL;
    }
    return (struct cgm_matrix){
        .present = true,
        .split = split,
        .dtype = dtype,
        .rows = rows,
        .cols = cols,
        .shard_rows = split == ROWS ? rows / sizes->world : rows,
        .shard_cols = split == COLS ? cols / sizes->world : cols,
    };
}

/* The sum of out's rows that each rank has, or of lhs over k. */
static struct rule gradient_rule(const struct cgm_sizes *sizes, const struct rule *out)
{
    if (!sizes->gelu)
        return (struct rule){'1', 'M', ALL};
    if (out->split == ROWS)
        return (struct rule){'W', 'N', ROWS};
    return (struct rule){'1', 'N', out->split};
}

static void describe_epilogue(const struct cgm_sizes *sizes, const struct rule *out,
                              struct cgm_matrix ret_matrices[CGM_MATRIX_COUNT])
{
    struct rule gradient = gradient_rule(sizes, out);
    if (sizes->gelu)
        ret_matrices[sizes->grad ? CGM_MATRIX_GELU_INPUT : CGM_MATRIX_PRE_GELU] =
            make(sizes, out, sizes->out_dtype, false);
    if (sizes->grad && sizes->bias)
        ret_matrices[CGM_MATRIX_BIAS_GRAD] = make(sizes, &gradient, sizes->out_dtype, false);
}

bool cgm_shards_describe(const struct cgm_sizes *sizes,
                         struct cgm_matrix ret_matrices[CGM_MATRIX_COUNT])
{
    const struct shape_row *row = NULL;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        if (shapes[i].op == sizes->op)
            row = &shapes[i];
    if (row == NULL)
        return false;
    bool bulk = row->matrix[CGM_MATRIX_AUX_IN].rows;
    const bool wanted[CGM_MATRIX_COUNT] = {
        true, true, sizes->bias && !sizes->grad, true, sizes->aux || bulk, true};
    const bool transposed[CGM_MATRIX_COUNT] = {sizes->transa, sizes->transb, false, false,
                                               sizes->transa && !bulk};
    memset(ret_matrices, 0, CGM_MATRIX_COUNT * sizeof(*ret_matrices));
    for (int i = 0; i < CGM_MATRIX_COUNT; i++) {
        int dtype = i == CGM_MATRIX_OUT || i == CGM_MATRIX_BIAS ? sizes->out_dtype : sizes->dtype;
        if (bulk && i >= CGM_MATRIX_AUX)
            dtype = sizes->buffer_dtype;
        if (row->matrix[i].rows && wanted[i])
            ret_matrices[i] = make(sizes, &row->matrix[i], dtype, transposed[i]);
    }
    if (row->matrix[CGM_MATRIX_RHS].rows)
        describe_epilogue(sizes, &row->matrix[CGM_MATRIX_OUT], ret_matrices);
    return true;
}

/* Of per rank, what goes to the rank `distance` further on: more, the further. */
static uint64_t count_of(const struct cgm_sizes *sizes, uint64_t distance)
{
    uint64_t w = sizes->world, rows = sizes->m / w, unit = w * (w + 1) / 2, others = 0;
    if (distance > 0)
        return rows * (distance + 1) / unit;
    for (uint64_t i = 1; i < w; i++)
        others += rows * (i + 1) / unit;
    return rows - others;
}

void cgm_shards_count(const struct cgm_sizes *sizes, uint32_t *ret_counts)
{
    uint32_t w = sizes->world;
    for (uint32_t from = 0; from < w; from++)
        for (uint32_t to = 0; to < w; to++)
            ret_counts[from * w + to] = (uint32_t)count_of(sizes, (to + w - from) % w);
}

/* a2av: rank receives the blocks of all in the order of their ranks; each sends its own in that of
 * the ranks that they go to. */
static uint64_t exchanged_row(const struct cgm_sizes *sizes, uint32_t rank, uint64_t row)
{
    uint32_t w = sizes->world, from = 0;
    while (row >= count_of(sizes, (rank + w - from) % w))
        row -= count_of(sizes, (rank + w - from++) % w);
    for (uint32_t to = 0; to < rank; to++)
        row += count_of(sizes, (to + w - from) % w);
    return from * (sizes->m / w) + row;
}

uint64_t cgm_shards_source_row(const struct cgm_sizes *sizes, uint32_t rank, uint64_t row)
{
    return sizes->op == CGM_OP_A2AV ? exchanged_row(sizes, rank, row) : row;
}

bool cgm_matrix_is_output(enum cgm_matrix_name name)
{
    return name == CGM_MATRIX_OUT || name == CGM_MATRIX_AUX || name == CGM_MATRIX_PRE_GELU ||
           name == CGM_MATRIX_BIAS_GRAD;
}

const char *cgm_matrix_text(enum cgm_matrix_name name)
{
    static const char *const names[CGM_MATRIX_COUNT] = {
        "lhs", "rhs", "bias", "out", "aux", "aux_in", "gelu_input", "pre_gelu_out", "bias_grad"};
    return names[name];
}

uint64_t cgm_matrix_bytes(const struct cgm_matrix *matrix)
{
    return matrix->present ? matrix->rows * matrix->cols * cgm_dtype_bytes(matrix->dtype) : 0;
}

uint64_t cgm_matrix_shard_bytes(const struct cgm_matrix *matrix)
{
    if (!matrix->present)
        return 0;
    return matrix->shard_rows * matrix->shard_cols * cgm_dtype_bytes(matrix->dtype);
}

void cgm_matrix_origin(const struct cgm_matrix *matrix, uint32_t rank, uint64_t *ret_row,
                       uint64_t *ret_col)
{
    *ret_row = matrix->split == ROWS ? rank * matrix->shard_rows : 0;
    *ret_col = matrix->split == COLS ? rank * matrix->shard_cols : 0;
}

static uint64_t origin_bytes(const struct cgm_matrix *matrix, uint32_t rank)
{
    uint64_t row, col;
    cgm_matrix_origin(matrix, rank, &row, &col);
    return (row * matrix->cols + col) * cgm_dtype_bytes(matrix->dtype);
}

void cgm_matrix_take(const struct cgm_matrix *matrix, const void *whole, uint32_t rank,
                     void *ret_shard)
{
    uint64_t element = cgm_dtype_bytes(matrix->dtype);
    const char *from = (const char *)whole + origin_bytes(matrix, rank);
    for (uint64_t row = 0; row < matrix->shard_rows; row++)
        memcpy((char *)ret_shard + row * matrix->shard_cols * element,
               from + row * matrix->cols * element, matrix->shard_cols * element);
}

void cgm_matrix_put(const struct cgm_matrix *matrix, const void *shard, uint32_t rank,
                    void *ret_whole)
{
    uint64_t element = cgm_dtype_bytes(matrix->dtype);
    char *to = (char *)ret_whole + origin_bytes(matrix, rank);
    for (uint64_t row = 0; row < matrix->shard_rows; row++)
        memcpy(to + row * matrix->cols * element,
               (const char *)shard + row * matrix->shard_cols * element,
               matrix->shard_cols * element);
}
