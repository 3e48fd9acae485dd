/* cgm_spec_init: from a request to a plan's parameters. */
#include "daemon/executor/spec_check.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/status.h"

int cgm_check_refuse(const struct cgm_check *check, int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(check->detail, check->detail_bytes, format, arguments);
    va_end(arguments);
    return status;
}

/* ---- fields that are numbers of a table -------------------------------------------------------
 */

static const struct {
    const char *name;
    size_t request, spec; /* uint32_t in the one, int in the other */
    enum cgm_type_table table;
} spellings[] = {
    {"op", CGM_CHECK_REQUEST(op), CGM_CHECK_SPEC(op), CGM_TABLE_OP},
    {"method", CGM_CHECK_REQUEST(method), CGM_CHECK_SPEC(method), CGM_TABLE_METHOD},
    {"comm_type", CGM_CHECK_REQUEST(comm_type), CGM_CHECK_SPEC(comm_type), CGM_TABLE_COMM_TYPE},
    {"algorithm", CGM_CHECK_REQUEST(algorithm), CGM_CHECK_SPEC(algorithm), CGM_TABLE_ALGO},
    {"dtype", CGM_CHECK_REQUEST(dtype), CGM_CHECK_SPEC(dtype), CGM_TABLE_DTYPE},
    {"out_dtype", CGM_CHECK_REQUEST(out_dtype), CGM_CHECK_SPEC(out_dtype), CGM_TABLE_DTYPE},
    {"buffer_dtype", CGM_CHECK_REQUEST(buffer_dtype), CGM_CHECK_SPEC(buffer_dtype),
     CGM_TABLE_DTYPE},
};

static int check_spellings(struct cgm_check *check)
{
    for (size_t i = 0; i < sizeof(spellings) / sizeof(spellings[0]); i++) {
        uint32_t value = cgm_check_load(check, spellings[i].request);
        if (value > INT_MAX || !cgm_type_name(spellings[i].table, (int)value)) {
            char list[512];
            cgm_type_list(spellings[i].table, list, sizeof list);
            return cgm_check_refuse(check, CGM_INVALID_ARGUMENT,
                                    "%s is %u; it must be the number of one of %s",
                                    spellings[i].name, value, list);
        }
        cgm_check_store(check, spellings[i].spec, (int32_t)value);
    }
    return CGM_OK;
}

static int check_op(struct cgm_check *check)
{
    check->row = cgm_operation_row(check->spec->op);
    if (check->row)
        return CGM_OK;
    bool local = check->spec->op == CGM_OP_NOOP || check->spec->op == CGM_OP_COPY_IN;
    char list[128];
    cgm_operation_list(0, list, sizeof list);
    return cgm_check_refuse(
        check, local ? CGM_INVALID_ARGUMENT : CGM_NOT_SUPPORTED,
        local ? "op is %s, which needs no plan of its own; a plan's op is one of %s"
              : "op %s is not supported; there are %s",
        cgm_check_op_name(check), list);
}

/* ---- types -------------------------------------------------------------------------------------
 */

/* Products of two int8 are at most 2^14: sums of so many of them, over all ranks, fit in int32. */
#define INT8_K_MAX ((1ull << 17) - 1)

static bool is_integer(int dtype)
{
    return dtype == CGM_DTYPE_INT8 || dtype == CGM_DTYPE_INT32;
}

static int check_dtype(struct cgm_check *check)
{
    const struct cgm_spec *spec = check->spec;
    if (!is_integer(spec->dtype))
        return CGM_OK;
    if (!(check->row->integers & 1u << spec->dtype))
        return cgm_check_refuse(check, CGM_INVALID_ARGUMENT,
                                "dtype is %s; %s takes fp32, fp16, bf16%s%s",
                                cgm_check_dtype_name(spec->dtype), cgm_check_op_name(check),
                                check->row->integers & 1u << CGM_DTYPE_INT8 ? ", int8" : "",
                                check->row->integers & 1u << CGM_DTYPE_INT32 ? ", int32" : "");
    if (spec->epilogue)
        return cgm_check_refuse(check, CGM_INVALID_ARGUMENT,
                                "epilogue is %u; products of int8 are exact and have none",
                                spec->epilogue);
    if (check->row->product && spec->k > INT8_K_MAX)
        return cgm_check_refuse(check, CGM_INVALID_ARGUMENT,
                                "k is %llu; sums of int8 products fit in int32 up to a k of %llu",
                                (unsigned long long)spec->k, INT8_K_MAX);
    return CGM_OK;
}

/* What a product of int8 gives, in either field. */
static int check_int8_product(struct cgm_check *check, const char *field, int dtype)
{
    if (dtype == CGM_DTYPE_INT32)
        return CGM_OK;
    return cgm_check_refuse(check, CGM_INVALID_ARGUMENT, "%s is %s; products of int8 give int32",
                            field, cgm_check_dtype_name(dtype));
}

static int check_out_dtype(struct cgm_check *check)
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
        return cgm_check_refuse(check, CGM_INVALID_ARGUMENT, "out_dtype is %s; %s of %s gives %s",
                                cgm_check_dtype_name(spec->out_dtype), cgm_check_op_name(check),
                                cgm_check_dtype_name(spec->dtype),
                                cgm_check_dtype_name(spec->dtype));
    if (spec->out_dtype != CGM_DTYPE_FP32)
        return cgm_check_refuse(
            check, CGM_NOT_SUPPORTED, "out_dtype is %s; with dtype %s it may be %s%s",
            cgm_check_dtype_name(spec->out_dtype), cgm_check_dtype_name(spec->dtype),
            cgm_check_dtype_name(spec->dtype), spec->dtype == CGM_DTYPE_FP32 ? "" : " or fp32");
    return CGM_OK;
}

/* Of bulk_ag and bulk_rs: whatever can be moved, and summed. */
static int check_moved_dtype(struct cgm_check *check)
{
    if (check->row->comm_type == CGM_COMM_TYPE_AG || check->spec->buffer_dtype != CGM_DTYPE_INT8)
        return CGM_OK;
    return cgm_check_refuse(check, CGM_INVALID_ARGUMENT,
                            "buffer_dtype is int8; %s sums buffers of fp32, fp16, bf16, int32",
                            cgm_check_op_name(check));
}

static int check_buffer_dtype(struct cgm_check *check)
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
    return cgm_check_refuse(
        check, CGM_INVALID_ARGUMENT, "buffer_dtype is %s; the user buffer of %s holds %s%s",
        cgm_check_dtype_name(spec->buffer_dtype), cgm_check_op_name(check),
        cgm_check_dtype_name(natural), wide && natural != CGM_DTYPE_FP32 ? " or fp32" : "");
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
static int check_epilogue_pairs(struct cgm_check *check, uint32_t bits)
{
    bool grad = bits & CGM_EPILOGUE_GRAD, gelu = bits & CGM_EPILOGUE_GELU;
    char list[128];
    if (grad && !gelu && !(bits & CGM_EPILOGUE_BIAS))
        return cgm_check_refuse(
            check, CGM_INVALID_ARGUMENT,
            "epilogue grad is set alone; with gelu it is GELU's derivative, with bias the "
            "bias gradient");
    if (gelu && bits & CGM_EPILOGUE_ACCUMULATE)
        return cgm_check_refuse(check, CGM_INVALID_ARGUMENT,
                                "epilogue gelu does not go with accumulate: out is no sum then");
    if (!grad || gelu || has_whole_lhs(check->row))
        return CGM_OK;
    list_whole_lhs(list, sizeof list);
    return cgm_check_refuse(
        check, CGM_INVALID_ARGUMENT,
        "epilogue grad with bias and without gelu sums lhs, which %s divides over the "
        "ranks; it goes with %s",
        cgm_check_op_name(check), list);
}

static int check_epilogue(struct cgm_check *check)
{
    uint32_t bits = check->request->epilogue;
    if (bits & ~(uint32_t)CGM_EPILOGUE_ALL)
        return cgm_check_refuse(
            check, CGM_INVALID_ARGUMENT,
            "epilogue is %u; it is a sum of 1 (bias), 2 (gelu), 4 (grad), 8 (accumulate)", bits);
    for (size_t i = 0; i < sizeof(epilogue_names) / sizeof(epilogue_names[0]); i++) {
        if (!(bits & epilogue_names[i].bit & ~check->row->epilogues))
            continue;
        char list[128];
        cgm_operation_list(epilogue_names[i].bit, list, sizeof list);
        return cgm_check_refuse(check, CGM_INVALID_ARGUMENT,
                                "epilogue %s does not go with %s; it goes with %s",
                                epilogue_names[i].name, cgm_check_op_name(check), list);
    }
    check->spec->epilogue = bits;
    return check_epilogue_pairs(check, bits);
}

static int check_layout(struct cgm_check *check)
{
    check->spec->transa = check->request->transa;
    check->spec->transb = check->request->transb;
    if (!check->row->product && (check->spec->transa || check->spec->transb))
        return cgm_check_refuse(
            check, CGM_INVALID_ARGUMENT, "%s is set; %s has no product to transpose for",
            check->spec->transa ? "transa" : "transb", cgm_check_op_name(check));
    return CGM_OK;
}

static int check_comm_type(struct cgm_check *check)
{
    if (check->spec->comm_type == check->row->comm_type)
        return CGM_OK;
    return cgm_check_refuse(check, CGM_INVALID_ARGUMENT, "comm_type is %s; op %s needs %s",
                            cgm_type_name(CGM_TABLE_COMM_TYPE, check->spec->comm_type),
                            cgm_check_op_name(check),
                            cgm_type_name(CGM_TABLE_COMM_TYPE, check->row->comm_type));
}

/* Spelled as people say it: "AG with pipeline". */
static const char *pattern_name(const struct cgm_check *check)
{
    switch (check->row->comm_type) {
    case CGM_COMM_TYPE_AG:
        return "AG";
    case CGM_COMM_TYPE_RS:
        return "RS";
    default:
        return cgm_check_op_name(check);
    }
}

/* What works instead of a method that the operation does not have as it is. */
static void way_around_method(const struct cgm_spec *spec, char *ret_text, size_t size)
{
    char list[128];
    bool has_it = cgm_operation_algorithm(spec->op, spec->method, false) >= 0;
    cgm_operation_methods(spec->op, spec->atomic_gemm, list, sizeof list);
    if (list[0]) {
        snprintf(ret_text, size, "use %s%s", list, has_it ? ", or leave atomic_gemm out" : "");
    } else if (has_it) {
        snprintf(ret_text, size, "leave atomic_gemm out");
    } else {
        cgm_operation_methods(spec->op, false, list, sizeof list);
        snprintf(ret_text, size, "leave atomic_gemm out and use %s", list);
    }
}

static int check_method(struct cgm_check *check)
{
    struct cgm_spec *spec = check->spec;
    spec->atomic_gemm = check->request->atomic_gemm;
    if (spec->method == CGM_METHOD_AUTO ||
        cgm_operation_algorithm(spec->op, spec->method, spec->atomic_gemm) >= 0)
        return CGM_OK;
    char way[160];
    way_around_method(spec, way, sizeof way);
    return cgm_check_refuse(check, CGM_NOT_SUPPORTED, "op %s: %s with %s%s is not supported; %s",
                            cgm_check_op_name(check), pattern_name(check),
                            cgm_type_name(CGM_TABLE_METHOD, spec->method),
                            spec->atomic_gemm ? " and atomic_gemm" : "", way);
}

/* ---- all of it --------------------------------------------------------------------------------
 */

static int (*const checks[])(struct cgm_check *check) = {
    check_spellings,        check_op,           cgm_check_sizes,        check_layout,
    check_comm_type,        check_method,       check_epilogue,         cgm_check_sharding,
    cgm_check_counts,       check_dtype,        check_out_dtype,        check_buffer_dtype,
    cgm_check_moved_buffer, cgm_check_matrices, cgm_check_buffer_shape, cgm_check_knobs,
    cgm_check_tp_size,      cgm_check_switches, cgm_check_tf32,         cgm_check_fill_defaults,
};

int cgm_spec_init(const Cgm__PlanCreate *request, uint32_t world, bool devices_shared,
                  char *ret_detail, size_t detail_bytes, struct cgm_spec *ret_spec)
{
    struct cgm_spec spec;
    memset(&spec, 0, sizeof spec);
    struct cgm_check check = {
        .request = request, .spec = &spec, .detail = ret_detail, .detail_bytes = detail_bytes};
    if (world == 0 || world > CGM_COMM_SIZE_MAX)
        return cgm_check_refuse(&check, CGM_INVALID_ARGUMENT,
                                "the comm has %u ranks; the limits are 1 and %u", world,
                                CGM_COMM_SIZE_MAX);
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
