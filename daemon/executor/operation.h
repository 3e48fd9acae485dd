/* What an operation computes: its operands and their shapes on one rank. One table row each; shapes
 * follow the table of commgemm.h. No devices here. */
#ifndef CGM_OPERATION_H
#define CGM_OPERATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/messages.h"
#include "proto/parameter.h"
#include "proto/ring.h"
#include "proto/types.h"

/* A PlanCreate with every default filled in. Plain data; equal bytes mean an equal plan.
 *
 * out_dtype: dtype, or fp32. buffer_dtype: what the user buffer holds: dtype where it holds inputs;
 * for gemm_rs and gemm_ar, which keep partial products in it and send them so, out_dtype or fp32.
 * buffer_dtype of bulk_ag and bulk_rs: the type of the other buffer that they move. */
struct cgm_spec {
    int op, method, comm_type, algorithm;
    uint64_t m, n, k;
    int dtype, out_dtype;
    bool transa, transb;
    uint32_t epilogue;        /* enum cgm_epilogue */
    uint64_t buffer_shape[2]; /* rows and cols of the user buffer */
    int buffer_dtype;
    uint32_t tp_size, num_splits, num_max_streams, comm_cga_size;
    int gemm_priority, comm_priority;
    uint32_t num_comm_sm;
    bool set_sm_margin, use_ce, atomic_gemm, rs_overlap_first_gemm, aggregate_ag;
    bool allow_tf32; /* fp32 products may round their inputs to TF32 */
    /* Bits 1u << enum cgm_parameter: not what the method's default is; and those that the request
     * names, which auto leaves alone. */
    uint32_t asked, given;

    /* a2av: [from * world + to], rows that one rank sends to another; else 0. */
    uint32_t counts[CGM_COMM_SIZE_MAX * CGM_COMM_SIZE_MAX];

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

/* Pieces by default where a method carries the plan out, and multiprocessors for communication that
 * no copy engine does. */
uint32_t cgm_spec_splits(const struct cgm_spec *spec, int method);
#define CGM_COMM_SMS 16u

/* Whether use_ce was given or chosen: whoever says how copies are made wants collectives made of
 * copies, not a library's. */
bool cgm_spec_wants_copies(const struct cgm_spec *spec);

/* Whether the operation takes this operand, and its shape on `rank` for `rows` active rows. Ranks
 * differ in a2av alone: one that sends or receives no rows has no such operand. */
enum cgm_presence cgm_operation_operand(const struct cgm_spec *spec, uint32_t rank, uint64_t rows,
                                        int operand, struct cgm_shape *ret_shape);

/* Shape of the plan's user buffer on one rank: what the seed calls buffer_shape. It is chunks
 * behind each other, each stored like one rank's shard of the gathered lhs, or of the partial
 * product. */
struct cgm_shape cgm_operation_user_buffer(const struct cgm_spec *spec);

/* How many chunks the user buffer has: the world where it is gathered or scattered, else 1. */
uint32_t cgm_operation_chunks(const struct cgm_spec *spec);

/* Chunk `chunk` of the user buffer with `rows` active rows of the whole product. Where it begins
 * and the distance of its rows (ret_stride, in elements) do not depend on rows. UINT32_MAX: all of
 * the buffer, its chunks cut to the active rows and laid behind each other; offset 0. Also the
 * shape of copy_in's lhs. False for a chunk that there is not. */
bool cgm_operation_chunk(const struct cgm_spec *spec, uint64_t rows, uint32_t chunk,
                         uint64_t *ret_offset_bytes, uint64_t *ret_stride,
                         struct cgm_shape *ret_shape);

/* Whether an operand of rank's job may lie in the plan's own user buffer on rank `owner`: anywhere
 * where no job of the plan writes it; for ag_gemm only lhs, and exactly as rank's own chunk. Stride
 * 0: of one row. */
bool cgm_operation_may_use_buffer(const struct cgm_spec *spec, uint32_t owner, uint32_t rank,
                                  int operand, uint64_t offset_bytes, uint64_t row_stride_bytes);

/* Rows come in multiples of this: the world where they are sharded, m for a2av, else 1. */
uint64_t cgm_operation_rows_step(const struct cgm_spec *spec);

/* OK, or INVALID_ARGUMENT when rows is 0, above the capacity, or no multiple of the step. */
int cgm_operation_check_rows(const struct cgm_spec *spec, uint64_t rows, char *ret_detail,
                             size_t detail_bytes);

/* OK, or INVALID_ARGUMENT for a job with the accumulate flag whose operation cannot add to out. */
int cgm_operation_check_accumulate(const struct cgm_spec *spec, char *ret_detail,
                                   size_t detail_bytes);

/* The algorithm that a method stands for, whether it is in this release or not; -1 when the method
 * does not go with the operation. */
int cgm_operation_algorithm(int op, int method, bool atomic);

/* a2av: rows that lie before those to `peer` in what rank sends, and before those from `peer` in
 * what it receives; with peer = world all of them. */
uint64_t cgm_operation_sent_before(const struct cgm_spec *spec, uint32_t rank, uint32_t peer);
uint64_t cgm_operation_received_before(const struct cgm_spec *spec, uint32_t rank, uint32_t peer);

/* True when there is a GEMM. */
bool cgm_operation_is_product(int op);

/* True when operation shards the rows of the product over the ranks. */
bool cgm_operation_shards_rows(int op);

#endif
