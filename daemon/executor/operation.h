/* What an operation computes: its operands and their shapes on one rank. One table row each; shapes
 * follow design.md's table of operations. No devices here. */
#ifndef CGM_OPERATION_H
#define CGM_OPERATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/messages.h"
#include "proto/ring.h"
#include "proto/types.h"

/* A PlanCreate with every default filled in. Plain data; equal bytes mean an equal plan. */
struct cgm_spec {
    int op, method, comm_type, algorithm;
    uint64_t m, n, k;
    int dtype, out_dtype;
    bool transa, transb;
    uint32_t epilogue; /* enum cgm_epilogue */
    uint64_t buffer_shape[2];
    int buffer_dtype;
    uint32_t tp_size, num_splits, num_max_streams, comm_cga_size;
    int gemm_priority, comm_priority;
    uint32_t num_comm_sm;
    bool set_sm_margin, use_ce, atomic_gemm, rs_overlap_first_gemm, aggregate_ag;

    uint32_t world;
    bool devices_shared; /* two ranks on one device */
};

struct cgm_shape {
    uint64_t rows, cols; /* as stored, transposition applied */
    int dtype;
};

enum cgm_presence { CGM_ABSENT, CGM_OPTIONAL, CGM_REQUIRED };

/* Fills a spec from a request, with defaults, and checks every field against its limits, the method
 * against the operation, and m, n, k against the world. OK, INVALID_ARGUMENT or NOT_SUPPORTED; the
 * detail names the field, its value and the limits, or what would work instead. */
int cgm_spec_init(const Cgm__PlanCreate *request, uint32_t world, bool devices_shared,
                  char *ret_detail, size_t detail_bytes, struct cgm_spec *ret_spec);

/* Whether the operation takes this operand, and its shape on one rank for `rows` active rows. */
enum cgm_presence cgm_operation_operand(const struct cgm_spec *spec, uint64_t rows, int operand,
                                        struct cgm_shape *ret_shape);

/* Shape of the plan's user buffer on one rank: what the seed calls buffer_shape. */
struct cgm_shape cgm_operation_user_buffer(const struct cgm_spec *spec);

/* OK, or INVALID_ARGUMENT when rows is 0, above the capacity, or no multiple of the world where rows
 * are sharded. */
int cgm_operation_check_rows(const struct cgm_spec *spec, uint64_t rows, char *ret_detail,
                             size_t detail_bytes);

/* True when operation shards the rows of the product over the ranks. */
bool cgm_operation_shards_rows(int op);

#endif
