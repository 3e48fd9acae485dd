#include "daemon/executor/spec_check.h"

#include <stdio.h>

#include "proto/status.h"

static int check_size(struct cgm_check *check, const char *name, uint64_t value, uint64_t *ret_size)
{
    if (value == 0 || value > CGM_DIM_MAX)
        return cgm_check_refuse(check, CGM_INVALID_ARGUMENT,
                                "%s is %llu; the limits are 1 and %llu", name,
                                (unsigned long long)value, CGM_DIM_MAX);
    *ret_size = value;
    return CGM_OK;
}

int cgm_check_sizes(struct cgm_check *check)
{
    struct cgm_spec *spec = check->spec;
    int status = check_size(check, "m", check->request->m, &spec->m);
    if (status == CGM_OK)
        status = check_size(check, "n", check->request->n, &spec->n);
    if (status == CGM_OK && check->row->product)
        status = check_size(check, "k", check->request->k, &spec->k);
    return status;
}

int cgm_check_counts(struct cgm_check *check)
{
    struct cgm_spec *spec = check->spec;
    size_t n = check->request->n_counts, pairs = (size_t)spec->world * spec->world;
    uint64_t sum = 0;
    if (!check->row->counted && n > 0)
        return cgm_check_refuse(check, CGM_INVALID_ARGUMENT,
                                "counts are given; they go with a2av, not %s",
                                cgm_check_op_name(check));
    if (!check->row->counted)
        return CGM_OK;
    if (n != pairs)
        return cgm_check_refuse(
            check, CGM_INVALID_ARGUMENT,
            "there are %zu counts; %s of %u ranks needs %zu, one from each rank to each", n,
            cgm_check_op_name(check), spec->world, pairs);
    for (size_t i = 0; i < n; i++) {
        spec->counts[i] = check->request->counts[i];
        sum += spec->counts[i];
    }
    if (sum != spec->m)
        return cgm_check_refuse(check, CGM_INVALID_ARGUMENT, "counts add up to %llu; m is %llu",
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

int cgm_check_sharding(struct cgm_check *check)
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
            return cgm_check_refuse(
                check, CGM_INVALID_ARGUMENT,
                "%s is %llu; %s divides it over %u ranks, so it must be a multiple of %u",
                sharded[i].name, (unsigned long long)sharded[i].value, cgm_check_op_name(check),
                spec->world, spec->world);
    return CGM_OK;
}

static int check_bytes(struct cgm_check *check, const char *name, struct cgm_shape shape)
{
    uint64_t limit = CGM_BUFFER_BYTES_MAX / cgm_dtype_bytes(shape.dtype);
    if (shape.rows == 0 || shape.cols <= limit / shape.rows)
        return CGM_OK;
    return cgm_check_refuse(check, CGM_INVALID_ARGUMENT,
                            "%s would be %llu x %llu of %s; the limit is %llu bytes for one matrix",
                            name, (unsigned long long)shape.rows, (unsigned long long)shape.cols,
                            cgm_check_dtype_name(shape.dtype), CGM_BUFFER_BYTES_MAX);
}

static int check_rank(struct cgm_check *check, uint32_t rank)
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
int cgm_check_matrices(struct cgm_check *check)
{
    uint32_t ranks = check->row->counted ? check->spec->world : 1;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        int status = check_rank(check, rank);
        if (status != CGM_OK)
            return status;
    }
    return check_bytes(check, "the user buffer", cgm_operation_user_buffer(check->spec));
}

int cgm_check_moved_buffer(struct cgm_check *check)
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
        return cgm_check_refuse(
            check, CGM_INVALID_ARGUMENT,
            "buffer_shape is %llu x %llu; %s needs the rows and columns of the buffer "
            "that it moves beside the GEMM, each from 1 to %llu",
            (unsigned long long)rows, (unsigned long long)cols, cgm_check_op_name(check),
            CGM_DIM_MAX);
    if (rows % spec->world)
        return cgm_check_refuse(
            check, CGM_INVALID_ARGUMENT,
            "buffer_shape has %llu rows; %s divides them over %u ranks, so they must be a "
            "multiple of %u",
            (unsigned long long)rows, cgm_check_op_name(check), spec->world, spec->world);
    spec->buffer_shape[0] = rows;
    spec->buffer_shape[1] = cols;
    return CGM_OK;
}

int cgm_check_buffer_shape(struct cgm_check *check)
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
    return cgm_check_refuse(check, CGM_INVALID_ARGUMENT,
                            "buffer_shape is %s; the user buffer of %s has %llu x %llu elements",
                            text, cgm_check_op_name(check), (unsigned long long)need.rows,
                            (unsigned long long)need.cols);
}
