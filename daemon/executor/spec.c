/* cgm_spec_init: from a request to a plan's parameters. Each check below has one subject, and every
 * refusal names the field, its value and the limits. */
#include "daemon/executor/operation_table.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/executor/algorithm.h"
#include "proto/status.h"

struct check {
    const Cgm__PlanCreate *request;
    const struct cgm_operation_row *row;
    struct cgm_spec *spec;
    char *detail;
    size_t detail_bytes;
};

__attribute__((format(printf, 3, 4))) static int refuse(const struct check *check, int status,
                                                        const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(check->detail, check->detail_bytes, format, arguments);
    va_end(arguments);
    return status;
}

static const char *op_name(const struct check *check)
{
    return cgm_type_name(CGM_TABLE_OP, check->spec->op);
}

static const char *dtype_name(int dtype)
{
    return cgm_type_name(CGM_TABLE_DTYPE, dtype);
}

/* ---- fields that are numbers of a table -------------------------------------------------------
 */

#define REQUEST(field) offsetof(Cgm__PlanCreate, field)
#define SPEC(field) offsetof(struct cgm_spec, field)

static const struct {
    const char *name;
    size_t request, spec; /* uint32_t in the one, int in the other */
    enum cgm_type_table table;
} spellings[] = {
    {"op", REQUEST(op), SPEC(op), CGM_TABLE_OP},
    {"method", REQUEST(method), SPEC(method), CGM_TABLE_METHOD},
    {"comm_type", REQUEST(comm_type), SPEC(comm_type), CGM_TABLE_COMM_TYPE},
    {"algorithm", REQUEST(algorithm), SPEC(algorithm), CGM_TABLE_ALGO},
    {"dtype", REQUEST(dtype), SPEC(dtype), CGM_TABLE_DTYPE},
    {"out_dtype", REQUEST(out_dtype), SPEC(out_dtype), CGM_TABLE_DTYPE},
    {"buffer_dtype", REQUEST(buffer_dtype), SPEC(buffer_dtype), CGM_TABLE_DTYPE},
};

static uint32_t load_u32(const void *base, size_t offset)
{
    uint32_t value;
    memcpy(&value, (const char *)base + offset, sizeof value);
    return value;
}

static void store_i32(void *base, size_t offset, int32_t value)
{
    memcpy((char *)base + offset, &value, sizeof value);
}

static int check_spellings(struct check *check)
{
    for (size_t i = 0; i < sizeof(spellings) / sizeof(spellings[0]); i++) {
        uint32_t value = load_u32(check->request, spellings[i].request);
        if (value > INT_MAX || !cgm_type_name(spellings[i].table, (int)value)) {
            char list[512];
            cgm_type_list(spellings[i].table, list, sizeof list);
            return refuse(check, CGM_INVALID_ARGUMENT,
                          "%s is %u; it must be the number of one of %s", spellings[i].name, value,
                          list);
        }
        store_i32(check->spec, spellings[i].spec, (int32_t)value);
    }
    return CGM_OK;
}

static int check_op(struct check *check)
{
    check->row = cgm_operation_row(check->spec->op);
    if (check->row)
        return CGM_OK;
    bool local = check->spec->op == CGM_OP_NOOP || check->spec->op == CGM_OP_COPY_IN;
    char list[128];
    cgm_operation_list(0, list, sizeof list);
    return refuse(check, local ? CGM_INVALID_ARGUMENT : CGM_NOT_SUPPORTED,
                  local ? "op is %s, which needs no plan of its own; a plan's op is one of %s"
                        : "op %s is not supported; there are %s",
                  op_name(check), list);
}

/* ---- sizes ------------------------------------------------------------------------------------
 */

static int check_size(struct check *check, const char *name, uint64_t value, uint64_t *ret_size)
{
    if (value == 0 || value > CGM_DIM_MAX)
        return refuse(check, CGM_INVALID_ARGUMENT, "%s is %llu; the limits are 1 and %llu", name,
                      (unsigned long long)value, CGM_DIM_MAX);
    *ret_size = value;
    return CGM_OK;
}

/* k of a collective is not used and not kept. */
static int check_sizes(struct check *check)
{
    struct cgm_spec *spec = check->spec;
    int status = check_size(check, "m", check->request->m, &spec->m);
    if (status == CGM_OK)
        status = check_size(check, "n", check->request->n, &spec->n);
    if (status == CGM_OK && check->row->product)
        status = check_size(check, "k", check->request->k, &spec->k);
    return status;
}

/* a2av: how many rows go from whom to whom. They add up to m, of which the ranks hold parts. */
static int check_counts(struct check *check)
{
    struct cgm_spec *spec = check->spec;
    size_t n = check->request->n_counts, pairs = (size_t)spec->world * spec->world;
    uint64_t sum = 0;
    if (!check->row->counted && n > 0)
        return refuse(check, CGM_INVALID_ARGUMENT, "counts are given; they go with a2av, not %s",
                      op_name(check));
    if (!check->row->counted)
        return CGM_OK;
    if (n != pairs)
        return refuse(check, CGM_INVALID_ARGUMENT,
                      "there are %zu counts; %s of %u ranks needs %zu, one from each rank to each",
                      n, op_name(check), spec->world, pairs);
    for (size_t i = 0; i < n; i++) {
        spec->counts[i] = check->request->counts[i];
        sum += spec->counts[i];
    }
    if (sum != spec->m)
        return refuse(check, CGM_INVALID_ARGUMENT, "counts add up to %llu; m is %llu",
                      (unsigned long long)sum, (unsigned long long)spec->m);
    return CGM_OK;
}

static bool row_has_dim(const struct cgm_operation_row *row, enum cgm_dim dim)
{
    for (int i = 0; i < CGM_OPERAND_COUNT; i++)
        if (row->operand[i].rows == dim || row->operand[i].cols == dim)
            return true;
    return false;
}

static int check_sharding(struct check *check)
{
    const struct cgm_spec *spec = check->spec;
    const struct {
        const char *name;
        uint64_t value;
        enum cgm_dim dim;
    } sharded[] = {{"m", spec->m, CGM_DIM_M_SHARD},
                   {"n", spec->n, CGM_DIM_N_SHARD},
                   {"k", spec->k, CGM_DIM_K_SHARD}};
    for (size_t i = 0; i < sizeof(sharded) / sizeof(sharded[0]); i++)
        if (row_has_dim(check->row, sharded[i].dim) && sharded[i].value % spec->world)
            return refuse(check, CGM_INVALID_ARGUMENT,
                          "%s is %llu; %s divides it over %u ranks, so it must be a multiple of %u",
                          sharded[i].name, (unsigned long long)sharded[i].value, op_name(check),
                          spec->world, spec->world);
    return CGM_OK;
}

static int check_bytes(struct check *check, const char *name, struct cgm_shape shape)
{
    uint64_t limit = CGM_BUFFER_BYTES_MAX / cgm_dtype_bytes(shape.dtype);
    if (shape.rows == 0 || shape.cols <= limit / shape.rows)
        return CGM_OK;
    return refuse(check, CGM_INVALID_ARGUMENT,
                  "%s would be %llu x %llu of %s; the limit is %llu bytes for one matrix", name,
                  (unsigned long long)shape.rows, (unsigned long long)shape.cols,
                  dtype_name(shape.dtype), CGM_BUFFER_BYTES_MAX);
}

static int check_matrices(struct check *check, uint32_t rank)
{
    static const char *const names[] = {
#define X(index, SYMBOL, spelling) [index] = spelling,
        CGM_OPERANDS(X)
#undef X
    };
    for (int i = 0; i < CGM_OPERAND_COUNT; i++) {
        struct cgm_shape shape;
        if (cgm_operation_operand(check->spec, rank, check->spec->m, i, &shape) == CGM_ABSENT)
            continue;
        int status = check_bytes(check, names[i], shape);
        if (status != CGM_OK)
            return status;
    }
    return CGM_OK;
}

/* Ranks differ where the plan has counts. */
static int check_all_matrices(struct check *check)
{
    uint32_t ranks = check->row->counted ? check->spec->world : 1;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        int status = check_matrices(check, rank);
        if (status != CGM_OK)
            return status;
    }
    return check_bytes(check, "the user buffer", cgm_operation_user_buffer(check->spec));
}

/* ---- types and the user buffer ----------------------------------------------------------------
 */

/* Products of two int8 are at most 2^14: sums of so many of them, over all ranks, fit in int32. */
#define INT8_K_MAX ((1ull << 17) - 1)

static bool is_integer(int dtype)
{
    return dtype == CGM_DTYPE_INT8 || dtype == CGM_DTYPE_INT32;
}

static int check_dtype(struct check *check)
{
    const struct cgm_spec *spec = check->spec;
    if (!is_integer(spec->dtype))
        return CGM_OK;
    if (!(check->row->integers & 1u << spec->dtype))
        return refuse(check, CGM_INVALID_ARGUMENT, "dtype is %s; %s takes fp32, fp16, bf16%s%s",
                      dtype_name(spec->dtype), op_name(check),
                      check->row->integers & 1u << CGM_DTYPE_INT8 ? ", int8" : "",
                      check->row->integers & 1u << CGM_DTYPE_INT32 ? ", int32" : "");
    if (spec->epilogue)
        return refuse(check, CGM_INVALID_ARGUMENT,
                      "epilogue is %u; products of int8 are exact and have none", spec->epilogue);
    if (check->row->product && spec->k > INT8_K_MAX)
        return refuse(check, CGM_INVALID_ARGUMENT,
                      "k is %llu; sums of int8 products fit in int32 up to a k of %llu",
                      (unsigned long long)spec->k, INT8_K_MAX);
    return CGM_OK;
}

/* What a product of int8 gives, in either field. */
static int check_int8_product(struct check *check, const char *field, int dtype)
{
    if (dtype == CGM_DTYPE_INT32)
        return CGM_OK;
    return refuse(check, CGM_INVALID_ARGUMENT, "%s is %s; products of int8 give int32", field,
                  dtype_name(dtype));
}

static int check_out_dtype(struct check *check)
{
    struct cgm_spec *spec = check->spec;
    bool of_int8 = check->row->product && spec->dtype == CGM_DTYPE_INT8;
    if (!check->request->has_out_dtype)
        spec->out_dtype = of_int8 ? CGM_DTYPE_INT32 : spec->dtype;
    if (of_int8)
        return check_int8_product(check, "out_dtype", spec->out_dtype);
    if (spec->out_dtype == spec->dtype)
        return CGM_OK;
    if (!check->row->product)
        return refuse(check, CGM_INVALID_ARGUMENT, "out_dtype is %s; %s of %s gives %s",
                      dtype_name(spec->out_dtype), op_name(check), dtype_name(spec->dtype),
                      dtype_name(spec->dtype));
    if (spec->out_dtype != CGM_DTYPE_FP32)
        return refuse(check, CGM_NOT_SUPPORTED, "out_dtype is %s; with dtype %s it may be %s%s",
                      dtype_name(spec->out_dtype), dtype_name(spec->dtype), dtype_name(spec->dtype),
                      spec->dtype == CGM_DTYPE_FP32 ? "" : " or fp32");
    return CGM_OK;
}

/* Of bulk_ag and bulk_rs: whatever can be moved, and summed. */
static int check_moved_dtype(struct check *check)
{
    if (check->row->comm_type == CGM_COMM_TYPE_AG || check->spec->buffer_dtype != CGM_DTYPE_INT8)
        return CGM_OK;
    return refuse(check, CGM_INVALID_ARGUMENT,
                  "buffer_dtype is int8; %s sums buffers of fp32, fp16, bf16, int32",
                  op_name(check));
}

static int check_buffer_dtype(struct check *check)
{
    struct cgm_spec *spec = check->spec;
    int natural = check->row->partials ? spec->out_dtype : spec->dtype;
    if (!check->request->has_buffer_dtype)
        spec->buffer_dtype = natural;
    bool wide = check->row->partials && !is_integer(natural); /* fp32 would do too */
    if (check->row->moves_buffer)
        return check_moved_dtype(check);
    if (spec->buffer_dtype == natural || (wide && spec->buffer_dtype == CGM_DTYPE_FP32))
        return CGM_OK;
    return refuse(check, CGM_INVALID_ARGUMENT,
                  "buffer_dtype is %s; the user buffer of %s holds %s%s",
                  dtype_name(spec->buffer_dtype), op_name(check), dtype_name(natural),
                  wide && natural != CGM_DTYPE_FP32 ? " or fp32" : "");
}

/* Of bulk_ag and bulk_rs: what they move beside the GEMM. The dimensions before the last one are
 * its rows. */
static int check_moved_buffer(struct check *check)
{
    const Cgm__PlanCreate *request = check->request;
    struct cgm_spec *spec = check->spec;
    uint64_t rows = request->n_buffer_shape > 1 ? 1 : 0, cols = 0;
    if (!check->row->moves_buffer)
        return CGM_OK;
    for (size_t i = 0; i < request->n_buffer_shape; i++) {
        uint64_t dim = request->buffer_shape[i];
        if (i + 1 == request->n_buffer_shape)
            cols = dim;
        else if (__builtin_mul_overflow(rows, dim, &rows))
            rows = UINT64_MAX;
    }
    if (rows == 0 || cols == 0 || rows > CGM_DIM_MAX || cols > CGM_DIM_MAX)
        return refuse(check, CGM_INVALID_ARGUMENT,
                      "buffer_shape is %llu x %llu; %s needs the rows and columns of the buffer "
                      "that it moves beside the GEMM, each from 1 to %llu",
                      (unsigned long long)rows, (unsigned long long)cols, op_name(check),
                      CGM_DIM_MAX);
    if (rows % spec->world)
        return refuse(
            check, CGM_INVALID_ARGUMENT,
            "buffer_shape has %llu rows; %s divides them over %u ranks, so they must be a "
            "multiple of %u",
            (unsigned long long)rows, op_name(check), spec->world, spec->world);
    spec->buffer_shape[0] = rows;
    spec->buffer_shape[1] = cols;
    return CGM_OK;
}

/* As the seed gives it: any number of dimensions that make as many elements. All zero: absent. */
static int check_buffer_shape(struct check *check)
{
    if (check->row->moves_buffer)
        return CGM_OK;
    struct cgm_shape need = cgm_operation_user_buffer(check->spec);
    uint64_t elements = need.rows * need.cols, product = 1;
    bool given = false, fits = true;
    for (size_t i = 0; i < check->request->n_buffer_shape; i++) {
        uint64_t dim = check->request->buffer_shape[i];
        given = given || dim != 0;
        fits = fits && dim != 0 && dim <= elements / product;
        product = fits ? product * dim : 1;
    }
    check->spec->buffer_shape[0] = need.rows;
    check->spec->buffer_shape[1] = need.cols;
    if (!given || (fits && product == elements))
        return CGM_OK;
    char text[128];
    size_t used = 0;
    for (size_t i = 0; i < check->request->n_buffer_shape && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%llu", i ? " x " : "",
                                 (unsigned long long)check->request->buffer_shape[i]);
    return refuse(check, CGM_INVALID_ARGUMENT,
                  "buffer_shape is %s; the user buffer of %s has %llu x %llu elements", text,
                  op_name(check), (unsigned long long)need.rows, (unsigned long long)need.cols);
}

/* ---- what the operation does ------------------------------------------------------------------
 */

static const struct {
    const char *name;
    uint32_t bit;
} epilogue_names[] = {{"bias", CGM_EPILOGUE_BIAS},
                      {"gelu", CGM_EPILOGUE_GELU},
                      {"grad", CGM_EPILOGUE_GRAD},
                      {"accumulate", CGM_EPILOGUE_ACCUMULATE}};

/* lhs and its whole k are on every rank: what sums lhs without communication. */
static bool has_whole_lhs(const struct cgm_operation_row *row)
{
    return row->operand[CGM_OPERAND_LHS].rows == CGM_DIM_M &&
           row->operand[CGM_OPERAND_LHS].cols == CGM_DIM_K;
}

/* Writes "gemm, bulk_ag, ...". */
static void list_whole_lhs(char *ret_text, size_t size)
{
    size_t used = 0;
    ret_text[0] = '\0';
    for (int op = 0; cgm_type_name(CGM_TABLE_OP, op) && used < size; op++)
        if (cgm_operation_row(op) && has_whole_lhs(cgm_operation_row(op)))
            used += (size_t)snprintf(ret_text + used, size - used, "%s%s", used ? ", " : "",
                                     cgm_type_name(CGM_TABLE_OP, op));
}

/* Which of them go together. */
static int check_epilogue_pairs(struct check *check, uint32_t bits)
{
    bool grad = bits & CGM_EPILOGUE_GRAD, gelu = bits & CGM_EPILOGUE_GELU;
    char list[128];
    if (grad && !gelu && !(bits & CGM_EPILOGUE_BIAS))
        return refuse(
            check, CGM_INVALID_ARGUMENT,
            "epilogue grad is set alone; with gelu it is GELU's derivative, with bias the "
            "bias gradient");
    if (gelu && bits & CGM_EPILOGUE_ACCUMULATE)
        return refuse(check, CGM_INVALID_ARGUMENT,
                      "epilogue gelu does not go with accumulate: out is no sum then");
    if (!grad || gelu || has_whole_lhs(check->row))
        return CGM_OK;
    list_whole_lhs(list, sizeof list);
    return refuse(check, CGM_INVALID_ARGUMENT,
                  "epilogue grad with bias and without gelu sums lhs, which %s divides over the "
                  "ranks; it goes with %s",
                  op_name(check), list);
}

static int check_epilogue(struct check *check)
{
    uint32_t bits = check->request->epilogue;
    if (bits & ~(uint32_t)CGM_EPILOGUE_ALL)
        return refuse(check, CGM_INVALID_ARGUMENT,
                      "epilogue is %u; it is a sum of 1 (bias), 2 (gelu), 4 (grad), 8 (accumulate)",
                      bits);
    for (size_t i = 0; i < sizeof(epilogue_names) / sizeof(epilogue_names[0]); i++) {
        if (!(bits & epilogue_names[i].bit & ~check->row->epilogues))
            continue;
        char list[128];
        cgm_operation_list(epilogue_names[i].bit, list, sizeof list);
        return refuse(check, CGM_INVALID_ARGUMENT,
                      "epilogue %s does not go with %s; it goes with %s", epilogue_names[i].name,
                      op_name(check), list);
    }
    check->spec->epilogue = bits;
    return check_epilogue_pairs(check, bits);
}

static int check_layout(struct check *check)
{
    check->spec->transa = check->request->transa;
    check->spec->transb = check->request->transb;
    if (!check->row->product && (check->spec->transa || check->spec->transb))
        return refuse(check, CGM_INVALID_ARGUMENT, "%s is set; %s has no product to transpose for",
                      check->spec->transa ? "transa" : "transb", op_name(check));
    return CGM_OK;
}

static int check_comm_type(struct check *check)
{
    if (check->spec->comm_type == check->row->comm_type)
        return CGM_OK;
    return refuse(check, CGM_INVALID_ARGUMENT, "comm_type is %s; op %s needs %s",
                  cgm_type_name(CGM_TABLE_COMM_TYPE, check->spec->comm_type), op_name(check),
                  cgm_type_name(CGM_TABLE_COMM_TYPE, check->row->comm_type));
}

/* Spelled as people say it: "AG with pipeline". */
static const char *pattern_name(const struct check *check)
{
    switch (check->row->comm_type) {
    case CGM_COMM_TYPE_AG:
        return "AG";
    case CGM_COMM_TYPE_RS:
        return "RS";
    default:
        return op_name(check);
    }
}

static int check_method(struct check *check)
{
    struct cgm_spec *spec = check->spec;
    spec->atomic_gemm = check->request->atomic_gemm;
    if (spec->method == CGM_METHOD_AUTO ||
        cgm_operation_algorithm(spec->op, spec->method, spec->atomic_gemm) >= 0)
        return CGM_OK;
    char list[128];
    cgm_operation_methods(spec->op, list, sizeof list);
    return refuse(check, CGM_NOT_SUPPORTED, "op %s: %s with %s%s is not supported; use %s",
                  op_name(check), pattern_name(check),
                  cgm_type_name(CGM_TABLE_METHOD, spec->method),
                  spec->atomic_gemm ? " and atomic_gemm" : "", list);
}

/* ---- knobs ------------------------------------------------------------------------------------
 */

#define PRIORITY_MIN (-5)
#define PRIORITY_MAX 5

static const struct {
    const char *name;
    size_t request, spec;
    bool is_signed;
    int64_t min, max;
} knobs[] = {
    {"num_splits", REQUEST(num_splits), SPEC(num_splits), false, 0, 64},
    {"num_max_streams", REQUEST(num_max_streams), SPEC(num_max_streams), false, 0, 16},
    {"comm_cga_size", REQUEST(comm_cga_size), SPEC(comm_cga_size), false, 0, 16},
    {"num_comm_sm", REQUEST(num_comm_sm), SPEC(num_comm_sm), false, 0, 256},
    {"gemm_priority", REQUEST(gemm_priority), SPEC(gemm_priority), true, PRIORITY_MIN,
     PRIORITY_MAX},
    {"comm_priority", REQUEST(comm_priority), SPEC(comm_priority), true, PRIORITY_MIN,
     PRIORITY_MAX},
};

static int check_knobs(struct check *check)
{
    for (size_t i = 0; i < sizeof(knobs) / sizeof(knobs[0]); i++) {
        uint32_t raw = load_u32(check->request, knobs[i].request);
        int64_t value = knobs[i].is_signed ? (int64_t)(int32_t)raw : (int64_t)raw;
        if (value < knobs[i].min || value > knobs[i].max)
            return refuse(check, CGM_INVALID_ARGUMENT, "%s is %lld; the limits are %lld and %lld",
                          knobs[i].name, (long long)value, (long long)knobs[i].min,
                          (long long)knobs[i].max);
        store_i32(check->spec, knobs[i].spec, (int32_t)value);
    }
    return CGM_OK;
}

static int check_tp_size(struct check *check)
{
    uint32_t value = check->request->tp_size;
    if (value != 0 && value != check->spec->world)
        return refuse(check, CGM_INVALID_ARGUMENT, "tp_size is %u; the comm has %u ranks", value,
                      check->spec->world);
    check->spec->tp_size = check->spec->world;
    return CGM_OK;
}

/* Switches of one operation's algorithms. */
static int check_switches(struct check *check)
{
    struct cgm_spec *spec = check->spec;
    spec->aggregate_ag = check->request->aggregate_ag;
    spec->rs_overlap_first_gemm = check->request->rs_overlap_first_gemm;
    if (spec->aggregate_ag && spec->op != CGM_OP_AG_GEMM)
        return refuse(check, CGM_INVALID_ARGUMENT,
                      "aggregate_ag is set; it goes with ag_gemm, not %s", op_name(check));
    if (spec->rs_overlap_first_gemm && spec->op != CGM_OP_GEMM_RS)
        return refuse(check, CGM_INVALID_ARGUMENT,
                      "rs_overlap_first_gemm is set; it goes with gemm_rs, not %s", op_name(check));
    return CGM_OK;
}

static int check_tf32(struct check *check)
{
    struct cgm_spec *spec = check->spec;
    spec->allow_tf32 = check->request->allow_tf32;
    if (spec->allow_tf32 && (!check->row->product || spec->dtype != CGM_DTYPE_FP32))
        return refuse(check, CGM_INVALID_ARGUMENT,
                      "allow_tf32 is set; it goes with products of fp32, not with %s of %s",
                      op_name(check), dtype_name(spec->dtype));
    return CGM_OK;
}

static void fill_default(struct cgm_spec *spec, enum cgm_parameter parameter, uint32_t value,
                         uint32_t *field)
{
    if (*field == 0)
        *field = value;
    if (*field != value)
        spec->asked |= 1u << parameter;
}

static void fill_switch(struct cgm_spec *spec, enum cgm_parameter parameter, bool given, bool asked,
                        bool value, bool *field)
{
    *field = given ? asked : value;
    if (*field != value)
        spec->asked |= 1u << parameter;
}

/* Those whose default is nothing. */
static int ask_of_others(struct cgm_spec *spec)
{
    const bool asked[CGM_PARAMETER_COUNT] = {
        [CGM_PARAMETER_GEMM_PRIORITY] = spec->gemm_priority != 0,
        [CGM_PARAMETER_COMM_PRIORITY] = spec->comm_priority != 0,
        [CGM_PARAMETER_RS_OVERLAP_FIRST_GEMM] = spec->rs_overlap_first_gemm,
        [CGM_PARAMETER_AGGREGATE_AG] = spec->aggregate_ag,
    };
    for (int i = 0; i < CGM_PARAMETER_COUNT; i++)
        spec->asked |= asked[i] ? 1u << i : 0;
    return CGM_OK;
}

#define PUSH_BYTES (4ull << 20) /* smaller pushes take longer for a byte */

/* Pieces of a rank's columns, which go to every peer. */
static uint32_t splits_to_all(const struct cgm_spec *spec)
{
    uint64_t bytes = spec->m * (spec->n / spec->world) * cgm_dtype_bytes(spec->out_dtype);
    uint64_t pieces = bytes / PUSH_BYTES;
    return pieces < 2 ? 2 : pieces < 4 ? (uint32_t)pieces : 4;
}

/* A named algorithm is cut as its method is. */
static uint32_t default_splits(const struct cgm_spec *spec)
{
    if (spec->op == CGM_OP_GEMM_AS)
        return splits_to_all(spec);
    const struct cgm_algorithm *named = cgm_algorithm_find(spec->algorithm);
    int method = named ? named->method : spec->method;
    return method == CGM_METHOD_RING_EXCHANGE || method == CGM_METHOD_AUTO ? spec->world : 4;
}

/* One set of defaults where ranks exchange chunks, one where collectives run. Pushes by copy
 * engines need no multiprocessors; products need not spare any where nothing runs beside them. */
static int fill_defaults(struct check *check)
{
    struct cgm_spec *spec = check->spec;
    const Cgm__PlanCreate *request = check->request;
    bool exchange = spec->method == CGM_METHOD_RING_EXCHANGE || spec->method == CGM_METHOD_AUTO;
    fill_switch(spec, CGM_PARAMETER_USE_CE, request->has_use_ce, request->use_ce, exchange,
                &spec->use_ce);
    fill_switch(spec, CGM_PARAMETER_SET_SM_MARGIN, request->has_set_sm_margin,
                request->set_sm_margin, !exchange && spec->method != CGM_METHOD_NONE,
                &spec->set_sm_margin);
    fill_default(spec, CGM_PARAMETER_NUM_SPLITS, default_splits(spec), &spec->num_splits);
    fill_default(spec, CGM_PARAMETER_NUM_MAX_STREAMS, 3, &spec->num_max_streams);
    if (spec->num_max_streams == 1) /* what there is */
        spec->asked &= ~(1u << CGM_PARAMETER_NUM_MAX_STREAMS);
    fill_default(spec, CGM_PARAMETER_COMM_CGA_SIZE, exchange ? 1 : 2, &spec->comm_cga_size);
    fill_default(spec, CGM_PARAMETER_NUM_COMM_SM, exchange && spec->use_ce ? 1 : 16,
                 &spec->num_comm_sm);
    return ask_of_others(spec);
}

/* ---- all of it --------------------------------------------------------------------------------
 */

static int (*const checks[])(struct check *check) = {
    check_spellings, check_op,           check_sizes,        check_layout,       check_comm_type,
    check_method,    check_epilogue,     check_sharding,     check_counts,       check_dtype,
    check_out_dtype, check_buffer_dtype, check_moved_buffer, check_all_matrices, check_buffer_shape,
    check_knobs,     check_tp_size,      check_switches,     check_tf32,         fill_defaults,
};

int cgm_spec_init(const Cgm__PlanCreate *request, uint32_t world, bool devices_shared,
                  char *ret_detail, size_t detail_bytes, struct cgm_spec *ret_spec)
{
    struct cgm_spec spec;
    memset(&spec, 0, sizeof spec);
    struct check check = {
        .request = request, .spec = &spec, .detail = ret_detail, .detail_bytes = detail_bytes};
    if (world == 0 || world > CGM_COMM_SIZE_MAX)
        return refuse(&check, CGM_INVALID_ARGUMENT,
                      "the comm has %u ranks; the limits are 1 and %u", world, CGM_COMM_SIZE_MAX);
    spec.world = world;
    spec.devices_shared = devices_shared;
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        int status = checks[i](&check);
        if (status != CGM_OK)
            return status;
    }
    memcpy(ret_spec, &spec, sizeof spec);
    return CGM_OK;
}
