#include "daemon/executor/operation_table.h"

#include <stdio.h>

#include "daemon/executor/algorithm.h"
#include "proto/status.h"

#define INT8 (1u << CGM_DTYPE_INT8)
#define INT32 (1u << CGM_DTYPE_INT32)

/* Of every product; some add accumulation. */
#define PRODUCT (CGM_EPILOGUE_BIAS | CGM_EPILOGUE_GELU | CGM_EPILOGUE_GRAD)

static const struct cgm_operation_row rows_of_table[] = {
    {
        .op = CGM_OP_GEMM,
        .comm_type = CGM_COMM_TYPE_NONE,
        .product = true,
        .epilogues = PRODUCT | CGM_EPILOGUE_ACCUMULATE,
        .integers = INT8,
        .operand = {[CGM_OPERAND_LHS] = {CGM_DIM_M, CGM_DIM_K},
                    [CGM_OPERAND_RHS] = {CGM_DIM_K, CGM_DIM_N},
                    [CGM_OPERAND_BIAS] = {CGM_DIM_ONE, CGM_DIM_N},
                    [CGM_OPERAND_OUT] = {CGM_DIM_M, CGM_DIM_N}},
        .chunk = {CGM_DIM_M, CGM_DIM_K},
    },
    {
        .op = CGM_OP_AG_GEMM,
        .comm_type = CGM_COMM_TYPE_AG,
        .product = true,
        .uses_buffer = true,
        .epilogues = PRODUCT | CGM_EPILOGUE_ACCUMULATE,
        .integers = INT8,
        .operand = {[CGM_OPERAND_LHS] = {CGM_DIM_M_SHARD, CGM_DIM_K},
                    [CGM_OPERAND_RHS] = {CGM_DIM_K, CGM_DIM_N_SHARD},
                    [CGM_OPERAND_BIAS] = {CGM_DIM_ONE, CGM_DIM_N_SHARD},
                    [CGM_OPERAND_OUT] = {CGM_DIM_M, CGM_DIM_N_SHARD},
                    [CGM_OPERAND_AUX_OUT] = {CGM_DIM_M, CGM_DIM_K}},
        .chunk = {CGM_DIM_M_SHARD, CGM_DIM_K},
    },
    {
        .op = CGM_OP_GEMM_RS,
        .comm_type = CGM_COMM_TYPE_RS,
        .product = true,
        .partials = true,
        .uses_buffer = true,
        .epilogues = PRODUCT | CGM_EPILOGUE_ACCUMULATE,
        .integers = INT8,
        .operand = {[CGM_OPERAND_LHS] = {CGM_DIM_M, CGM_DIM_K_SHARD},
                    [CGM_OPERAND_RHS] = {CGM_DIM_K_SHARD, CGM_DIM_N},
                    [CGM_OPERAND_BIAS] = {CGM_DIM_ONE, CGM_DIM_N},
                    [CGM_OPERAND_OUT] = {CGM_DIM_M_SHARD, CGM_DIM_N}},
        .chunk = {CGM_DIM_M_SHARD, CGM_DIM_N},
    },
    {
        .op = CGM_OP_GEMM_AR,
        .comm_type = CGM_COMM_TYPE_NONE,
        .product = true,
        .partials = true,
        .uses_buffer = true,
        .epilogues = PRODUCT,
        .integers = INT8,
        .operand = {[CGM_OPERAND_LHS] = {CGM_DIM_M, CGM_DIM_K_SHARD},
                    [CGM_OPERAND_RHS] = {CGM_DIM_K_SHARD, CGM_DIM_N},
                    [CGM_OPERAND_BIAS] = {CGM_DIM_ONE, CGM_DIM_N},
                    [CGM_OPERAND_OUT] = {CGM_DIM_M, CGM_DIM_N}},
        .chunk = {CGM_DIM_M, CGM_DIM_N},
    },
    {
        .op = CGM_OP_GEMM_AS,
        .comm_type = CGM_COMM_TYPE_NONE,
        .product = true,
        .epilogues = PRODUCT,
        .integers = INT8,
        .operand = {[CGM_OPERAND_LHS] = {CGM_DIM_M, CGM_DIM_K},
                    [CGM_OPERAND_RHS] = {CGM_DIM_K, CGM_DIM_N_SHARD},
                    [CGM_OPERAND_BIAS] = {CGM_DIM_ONE, CGM_DIM_N_SHARD},
                    [CGM_OPERAND_OUT] = {CGM_DIM_M, CGM_DIM_N}},
        .chunk = {CGM_DIM_M, CGM_DIM_K},
    },
    {
        .op = CGM_OP_BULK_AG,
        .comm_type = CGM_COMM_TYPE_AG,
        .product = true,
        .uses_buffer = true,
        .moves_buffer = true,
        .epilogues = PRODUCT | CGM_EPILOGUE_ACCUMULATE,
        .integers = INT8,
        .operand = {[CGM_OPERAND_LHS] = {CGM_DIM_M, CGM_DIM_K},
                    [CGM_OPERAND_RHS] = {CGM_DIM_K, CGM_DIM_N},
                    [CGM_OPERAND_BIAS] = {CGM_DIM_ONE, CGM_DIM_N},
                    [CGM_OPERAND_AUX_IN] = {CGM_DIM_BUFFER_SHARD, CGM_DIM_BUFFER_COLS},
                    [CGM_OPERAND_OUT] = {CGM_DIM_M, CGM_DIM_N},
                    [CGM_OPERAND_AUX_OUT] = {CGM_DIM_BUFFER_ROWS, CGM_DIM_BUFFER_COLS}},
        .chunk = {CGM_DIM_BUFFER_SHARD, CGM_DIM_BUFFER_COLS},
    },
    {
        .op = CGM_OP_BULK_RS,
        .comm_type = CGM_COMM_TYPE_RS,
        .product = true,
        .uses_buffer = true,
        .moves_buffer = true,
        .epilogues = PRODUCT | CGM_EPILOGUE_ACCUMULATE,
        .integers = INT8,
        .operand = {[CGM_OPERAND_LHS] = {CGM_DIM_M, CGM_DIM_K},
                    [CGM_OPERAND_RHS] = {CGM_DIM_K, CGM_DIM_N},
                    [CGM_OPERAND_BIAS] = {CGM_DIM_ONE, CGM_DIM_N},
                    [CGM_OPERAND_AUX_IN] = {CGM_DIM_BUFFER_ROWS, CGM_DIM_BUFFER_COLS},
                    [CGM_OPERAND_OUT] = {CGM_DIM_M, CGM_DIM_N},
                    [CGM_OPERAND_AUX_OUT] = {CGM_DIM_BUFFER_SHARD, CGM_DIM_BUFFER_COLS}},
        .chunk = {CGM_DIM_BUFFER_SHARD, CGM_DIM_BUFFER_COLS},
    },
    {
        .op = CGM_OP_AG,
        .comm_type = CGM_COMM_TYPE_AG,
        .integers = INT8 | INT32,
        .operand = {[CGM_OPERAND_LHS] = {CGM_DIM_M_SHARD, CGM_DIM_N},
                    [CGM_OPERAND_OUT] = {CGM_DIM_M, CGM_DIM_N}},
        .chunk = {CGM_DIM_M_SHARD, CGM_DIM_N},
    },
    {
        .op = CGM_OP_RS,
        .comm_type = CGM_COMM_TYPE_RS,
        .integers = INT32,
        .operand = {[CGM_OPERAND_LHS] = {CGM_DIM_M, CGM_DIM_N},
                    [CGM_OPERAND_OUT] = {CGM_DIM_M_SHARD, CGM_DIM_N}},
        .chunk = {CGM_DIM_M_SHARD, CGM_DIM_N},
    },
    {
        .op = CGM_OP_AR,
        .comm_type = CGM_COMM_TYPE_NONE,
        .integers = INT32,
        .operand = {[CGM_OPERAND_LHS] = {CGM_DIM_M, CGM_DIM_N},
                    [CGM_OPERAND_OUT] = {CGM_DIM_M, CGM_DIM_N}},
        .chunk = {CGM_DIM_M, CGM_DIM_N},
    },
    {
        .op = CGM_OP_A2AV,
        .comm_type = CGM_COMM_TYPE_NONE,
        .counted = true,
        .integers = INT8 | INT32,
        .operand = {[CGM_OPERAND_LHS] = {CGM_DIM_SENT, CGM_DIM_N},
                    [CGM_OPERAND_OUT] = {CGM_DIM_RECEIVED, CGM_DIM_N}},
        .chunk = {CGM_DIM_SENT_MOST, CGM_DIM_N},
    },
};
#define ROW_COUNT (sizeof(rows_of_table) / sizeof(rows_of_table[0]))

/* In the order in which a refusal offers them. */
static const struct {
    int op, method;
    bool atomic;
    int algorithm;
} method_rows[] = {
    {CGM_OP_AG_GEMM, CGM_METHOD_RING_EXCHANGE, false, CGM_ALGO_SPLIT_PIPELINED_AG_P2P},
    {CGM_OP_AG_GEMM, CGM_METHOD_RING_EXCHANGE, true, CGM_ALGO_ATOMIC_GEMM_AG_P2P},
    {CGM_OP_AG_GEMM, CGM_METHOD_NONE, false, CGM_ALGO_NO_OVERLAP},
    {CGM_OP_GEMM_RS, CGM_METHOD_RING_EXCHANGE, false, CGM_ALGO_SPLIT_PIPELINED_RS_P2P},
    {CGM_OP_GEMM_RS, CGM_METHOD_RING_EXCHANGE, true, CGM_ALGO_ATOMIC_GEMM_RS_P2P},
    {CGM_OP_GEMM_RS, CGM_METHOD_PIPELINE, false, CGM_ALGO_SPLIT_PIPELINED_RS},
    {CGM_OP_GEMM_RS, CGM_METHOD_PIPELINE, true, CGM_ALGO_ATOMIC_GEMM_RS},
    {CGM_OP_GEMM_RS, CGM_METHOD_NONE, false, CGM_ALGO_NO_OVERLAP},
    {CGM_OP_BULK_AG, CGM_METHOD_BULK, false, CGM_ALGO_BULK_OVERLAP_AG},
    {CGM_OP_BULK_AG, CGM_METHOD_NONE, false, CGM_ALGO_NO_OVERLAP},
    {CGM_OP_BULK_RS, CGM_METHOD_BULK, false, CGM_ALGO_BULK_OVERLAP_RS},
    {CGM_OP_BULK_RS, CGM_METHOD_NONE, false, CGM_ALGO_NO_OVERLAP},
    {CGM_OP_GEMM, CGM_METHOD_NONE, false, CGM_ALGO_NO_OVERLAP},
    {CGM_OP_GEMM_AR, CGM_METHOD_RING_EXCHANGE, false, CGM_ALGO_TWO_SHOT_AR},
    {CGM_OP_GEMM_AR, CGM_METHOD_PIPELINE, false, CGM_ALGO_ONE_SHOT_AR},
    {CGM_OP_GEMM_AR, CGM_METHOD_NONE, false, CGM_ALGO_NO_OVERLAP},
    {CGM_OP_GEMM_AS, CGM_METHOD_PIPELINE, false, CGM_ALGO_SPLIT_AS},
    {CGM_OP_GEMM_AS, CGM_METHOD_PIPELINE, true, CGM_ALGO_ATOMIC_GEMM_AS},
    {CGM_OP_GEMM_AS, CGM_METHOD_NONE, false, CGM_ALGO_NO_OVERLAP},
    {CGM_OP_AG, CGM_METHOD_NONE, false, CGM_ALGO_NO_OVERLAP},
    {CGM_OP_RS, CGM_METHOD_NONE, false, CGM_ALGO_NO_OVERLAP},
    {CGM_OP_AR, CGM_METHOD_RING_EXCHANGE, false, CGM_ALGO_TWO_SHOT_AR},
    {CGM_OP_AR, CGM_METHOD_PIPELINE, false, CGM_ALGO_ONE_SHOT_AR},
    {CGM_OP_AR, CGM_METHOD_NONE, false, CGM_ALGO_NO_OVERLAP},
    {CGM_OP_A2AV, CGM_METHOD_NONE, false, CGM_ALGO_NO_OVERLAP},
};
#define METHOD_ROW_COUNT (sizeof(method_rows) / sizeof(method_rows[0]))

const struct cgm_operation_row *cgm_operation_row(int op)
{
    for (size_t i = 0; i < ROW_COUNT; i++)
        if (rows_of_table[i].op == op)
            return &rows_of_table[i];
    return NULL;
}

void cgm_operation_list(uint32_t epilogues, char *ret_text, size_t size)
{
    size_t used = 0;
    ret_text[0] = '\0';
    for (size_t i = 0; i < ROW_COUNT && used < size; i++)
        if ((rows_of_table[i].epilogues & epilogues) == epilogues)
            used += (size_t)snprintf(ret_text + used, size - used, "%s%s", used ? ", " : "",
                                     cgm_type_name(CGM_TABLE_OP, rows_of_table[i].op));
}

int cgm_operation_algorithm(int op, int method, bool atomic)
{
    for (size_t i = 0; i < METHOD_ROW_COUNT; i++)
        if (method_rows[i].op == op && method_rows[i].method == method &&
            method_rows[i].atomic == atomic)
            return method_rows[i].algorithm;
    return -1;
}

void cgm_operation_methods(int op, bool atomic, char *ret_text, size_t size)
{
    size_t used = 0;
    ret_text[0] = '\0';
    for (size_t i = 0; i < METHOD_ROW_COUNT && used < size; i++)
        if (method_rows[i].op == op && method_rows[i].atomic == atomic &&
            cgm_algorithm_find(method_rows[i].algorithm))
            used += (size_t)snprintf(ret_text + used, size - used, "%s%s", used ? ", " : "",
                                     cgm_type_name(CGM_TABLE_METHOD, method_rows[i].method));
    if (used > 0 && used < size)
        snprintf(ret_text + used, size - used, " or auto");
}

uint64_t cgm_operation_sent_before(const struct cgm_spec *spec, uint32_t rank, uint32_t peer)
{
    uint64_t rows = 0;
    for (uint32_t to = 0; to < peer; to++)
        rows += spec->counts[rank * spec->world + to];
    return rows;
}

uint64_t cgm_operation_received_before(const struct cgm_spec *spec, uint32_t rank, uint32_t peer)
{
    uint64_t rows = 0;
    for (uint32_t from = 0; from < peer; from++)
        rows += spec->counts[from * spec->world + rank];
    return rows;
}

static uint64_t sent_most(const struct cgm_spec *spec)
{
    uint64_t most = 0;
    for (uint32_t rank = 0; rank < spec->world; rank++) {
        uint64_t rows = cgm_operation_sent_before(spec, rank, spec->world);
        most = rows > most ? rows : most;
    }
    return most;
}

static uint64_t dim_value(const struct cgm_spec *spec, uint32_t rank, uint64_t rows,
                          enum cgm_dim dim)
{
    switch (dim) {
    case CGM_DIM_NONE:
        return 0;
    case CGM_DIM_ONE:
        return 1;
    case CGM_DIM_M:
        return rows;
    case CGM_DIM_M_SHARD:
        return rows / spec->world;
    case CGM_DIM_N:
        return spec->n;
    case CGM_DIM_N_SHARD:
        return spec->n / spec->world;
    case CGM_DIM_K:
        return spec->k;
    case CGM_DIM_K_SHARD:
        return spec->k / spec->world;
    case CGM_DIM_BUFFER_ROWS:
        return spec->buffer_shape[0];
    case CGM_DIM_BUFFER_SHARD:
        return spec->buffer_shape[0] / spec->world;
    case CGM_DIM_BUFFER_COLS:
        return spec->buffer_shape[1];
    case CGM_DIM_SENT:
        return cgm_operation_sent_before(spec, rank, spec->world);
    case CGM_DIM_RECEIVED:
        return cgm_operation_received_before(spec, rank, spec->world);
    case CGM_DIM_SENT_MOST:
        return sent_most(spec);
    }
    return 0;
}

static struct cgm_shape shape_of(const struct cgm_spec *spec, uint32_t rank, uint64_t rows,
                                 const struct cgm_dims *dims, bool transposed, int dtype)
{
    uint64_t a = dim_value(spec, rank, rows, dims->rows);
    uint64_t b = dim_value(spec, rank, rows, dims->cols);
    return (struct cgm_shape){transposed ? b : a, transposed ? a : b, dtype};
}

static bool operand_is_aux(int operand)
{
    return operand == CGM_OPERAND_AUX_IN || operand == CGM_OPERAND_AUX_OUT;
}

/* aux_out of ag_gemm is stored as its lhs is. */
static bool operand_is_transposed(const struct cgm_spec *spec, int operand)
{
    if (operand == CGM_OPERAND_RHS)
        return spec->transb;
    if (operand_is_aux(operand) && cgm_operation_row(spec->op)->moves_buffer)
        return false;
    return spec->transa && (operand == CGM_OPERAND_LHS || operand == CGM_OPERAND_AUX_OUT);
}

static int operand_dtype(const struct cgm_spec *spec, int operand)
{
    if (operand_is_aux(operand) && cgm_operation_row(spec->op)->moves_buffer)
        return spec->buffer_dtype;
    return operand == CGM_OPERAND_LHS || operand == CGM_OPERAND_RHS || operand_is_aux(operand)
               ? spec->dtype
               : spec->out_dtype;
}

/* What an operand is shaped like; of a bias gradient: a row of out, or of op(lhs) transposed. */
static struct cgm_dims operand_dims(const struct cgm_spec *spec, int operand)
{
    const struct cgm_dims *table = cgm_operation_row(spec->op)->operand;
    bool of_out = spec->epilogue & CGM_EPILOGUE_GELU;
    switch (operand) {
    case CGM_OPERAND_GELU_INPUT:
    case CGM_OPERAND_PRE_GELU_OUT:
        return table[CGM_OPERAND_OUT];
    case CGM_OPERAND_BIAS_GRAD:
        return (struct cgm_dims){CGM_DIM_ONE, of_out ? table[CGM_OPERAND_OUT].cols
                                                     : table[CGM_OPERAND_LHS].rows};
    default:
        return table[operand];
    }
}

/* Operands that an epilogue brings along: with all of `with` and none of `without`. */
static const struct {
    int operand;
    uint32_t with, without;
    enum cgm_presence presence;
} epilogue_rows[] = {
    {CGM_OPERAND_BIAS, CGM_EPILOGUE_BIAS, CGM_EPILOGUE_GRAD, CGM_REQUIRED},
    {CGM_OPERAND_BIAS_GRAD, CGM_EPILOGUE_BIAS | CGM_EPILOGUE_GRAD, 0, CGM_REQUIRED},
    {CGM_OPERAND_PRE_GELU_OUT, CGM_EPILOGUE_GELU, CGM_EPILOGUE_GRAD, CGM_OPTIONAL},
    {CGM_OPERAND_GELU_INPUT, CGM_EPILOGUE_GELU | CGM_EPILOGUE_GRAD, 0, CGM_REQUIRED},
};

/* Of an operand that is there whatever the epilogue: CGM_REQUIRED. */
static enum cgm_presence presence_by_epilogue(uint32_t epilogue, int operand)
{
    for (size_t i = 0; i < sizeof(epilogue_rows) / sizeof(epilogue_rows[0]); i++) {
        if (epilogue_rows[i].operand != operand)
            continue;
        bool wanted = (epilogue & epilogue_rows[i].with) == epilogue_rows[i].with &&
                      !(epilogue & epilogue_rows[i].without);
        return wanted ? epilogue_rows[i].presence : CGM_ABSENT;
    }
    return CGM_REQUIRED;
}

enum cgm_presence cgm_operation_operand(const struct cgm_spec *spec, uint32_t rank, uint64_t rows,
                                        int operand, struct cgm_shape *ret_shape)
{
    struct cgm_dims dims = operand_dims(spec, operand);
    *ret_shape = shape_of(spec, rank, rows, &dims, operand_is_transposed(spec, operand),
                          operand_dtype(spec, operand));
    if (dims.rows == CGM_DIM_NONE || dims.cols == CGM_DIM_NONE || ret_shape->rows == 0)
        return CGM_ABSENT;
    if (operand_is_aux(operand))
        return CGM_OPTIONAL;
    return presence_by_epilogue(spec->epilogue, operand);
}

bool cgm_operation_is_product(int op)
{
    const struct cgm_operation_row *row = cgm_operation_row(op);
    return row && row->product;
}

bool cgm_operation_shards_rows(int op)
{
    const struct cgm_operation_row *row = cgm_operation_row(op);
    return row && row->chunk.rows == CGM_DIM_M_SHARD;
}

uint64_t cgm_operation_rows_step(const struct cgm_spec *spec)
{
    if (cgm_operation_row(spec->op)->counted)
        return spec->m;
    return cgm_operation_shards_rows(spec->op) ? spec->world : 1;
}

uint32_t cgm_operation_chunks(const struct cgm_spec *spec)
{
    enum cgm_dim rows = cgm_operation_row(spec->op)->chunk.rows;
    return rows == CGM_DIM_M_SHARD || rows == CGM_DIM_BUFFER_SHARD ? spec->world : 1;
}

static struct cgm_shape chunk_shape(const struct cgm_spec *spec, uint64_t rows)
{
    const struct cgm_operation_row *row = cgm_operation_row(spec->op);
    bool holds_lhs = row->product && !row->partials && !row->moves_buffer;
    return shape_of(spec, 0, rows, &row->chunk, holds_lhs && spec->transa, spec->buffer_dtype);
}

struct cgm_shape cgm_operation_user_buffer(const struct cgm_spec *spec)
{
    struct cgm_shape shape = chunk_shape(spec, spec->m);
    shape.rows *= cgm_operation_chunks(spec);
    return shape;
}

bool cgm_operation_chunk(const struct cgm_spec *spec, uint64_t rows, uint32_t chunk,
                         uint64_t *ret_offset_bytes, uint64_t *ret_stride,
                         struct cgm_shape *ret_shape)
{
    struct cgm_shape capacity = chunk_shape(spec, spec->m), shape = chunk_shape(spec, rows);
    uint32_t chunks = cgm_operation_chunks(spec);
    if (chunk == UINT32_MAX)
        shape.rows *= chunks;
    else if (chunk >= chunks)
        return false;
    uint64_t first = chunk == UINT32_MAX ? 0 : chunk;
    *ret_offset_bytes = first * capacity.rows * capacity.cols * cgm_dtype_bytes(capacity.dtype);
    *ret_stride = capacity.cols;
    *ret_shape = shape;
    return true;
}

bool cgm_operation_may_use_buffer(const struct cgm_spec *spec, uint32_t owner, uint32_t rank,
                                  int operand, uint64_t offset_bytes, uint64_t row_stride_bytes)
{
    const struct cgm_operation_row *row = cgm_operation_row(spec->op);
    if (!row->uses_buffer)
        return true;
    uint64_t offset, stride;
    struct cgm_shape shape;
    if (row->partials || row->moves_buffer || operand != CGM_OPERAND_LHS || owner != rank ||
        !cgm_operation_chunk(spec, spec->m, rank, &offset, &stride, &shape))
        return false;
    return offset_bytes == offset &&
           (!row_stride_bytes || row_stride_bytes == stride * cgm_dtype_bytes(shape.dtype));
}

int cgm_operation_check_rows(const struct cgm_spec *spec, uint64_t rows, char *ret_detail,
                             size_t detail_bytes)
{
    unsigned long long value = rows, capacity = spec->m;
    if (rows == 0 || rows > spec->m)
        return cgm_detail(ret_detail, detail_bytes, CGM_INVALID_ARGUMENT,
                          "rows is %llu; the plan's m allows 1 to %llu", value, capacity);
    if (cgm_operation_row(spec->op)->counted && rows != spec->m)
        return cgm_detail(ret_detail, detail_bytes, CGM_INVALID_ARGUMENT,
                          "rows is %llu; %s moves all of the %llu rows that the plan's counts say",
                          value, cgm_type_name(CGM_TABLE_OP, spec->op), capacity);
    if (rows % cgm_operation_rows_step(spec))
        return cgm_detail(ret_detail, detail_bytes, CGM_INVALID_ARGUMENT,
                          "rows is %llu; %s divides them over %u ranks, so it must be a multiple "
                          "of %u",
                          value, cgm_type_name(CGM_TABLE_OP, spec->op), spec->world, spec->world);
    return CGM_OK;
}

int cgm_operation_check_accumulate(const struct cgm_spec *spec, char *ret_detail,
                                   size_t detail_bytes)
{
    if (cgm_operation_row(spec->op)->epilogues & CGM_EPILOGUE_ACCUMULATE)
        return CGM_OK;
    char list[128];
    cgm_operation_list(CGM_EPILOGUE_ACCUMULATE, list, sizeof list);
    return cgm_detail(ret_detail, detail_bytes, CGM_INVALID_ARGUMENT,
                      "accumulate does not go with %s; it goes with %s",
                      cgm_type_name(CGM_TABLE_OP, spec->op), list);
}
