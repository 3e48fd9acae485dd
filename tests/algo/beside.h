/* Judging what a job moves besides its product: the other buffer of bulk_ag and bulk_rs, and the
 * rows of a2av. Both are exact: copies, or fp32 sums in rank order that are rounded once. */
#ifndef BESIDE_H
#define BESIDE_H

#include "tests/algo/trial.h"

/* How `part` is stored in `view`, against what is there. */
static inline void judge_copy(const struct trial *trial, const struct part *part,
                              const struct cgm_view *view, const unsigned char *found,
                              const char *what, uint32_t index, uint32_t rank)
{
    size_t row_bytes = view->cols * cgm_dtype_bytes(view->dtype);
    size_t stride = view->stride * cgm_dtype_bytes(view->dtype);
    size_t bytes = view->offset_bytes + view->rows * stride;
    unsigned char *expected = must_alloc(bytes);
    part_store(part, false, view, expected);
    for (uint64_t row = 0; row < view->rows; row++) {
        size_t at = view->offset_bytes + row * stride;
        if (memcmp(expected + at, found + at, row_bytes) == 0)
            continue;
        describe(trial->config, &trial->spec);
        fail_msg("launch %u, rank %u: row %llu of %s is not what it should be", index, rank,
                 (unsigned long long)row, what);
    }
    free(expected);
}

/* The rows that others send to a rank, sender by sender. */
static inline void judge_exchange(const struct trial *trial, uint32_t index, uint32_t rank)
{
    const struct job *job = &trial->jobs[index];
    const struct cgm_spec *spec = &trial->spec;
    struct cgm_view out = trial->launches[index].operands[rank][CGM_OPERAND_OUT];
    for (uint32_t from = 0; from < spec->world; from++) {
        struct part part = part_of(trial, &job->lhs, CGM_OPERAND_LHS, from);
        part.values += cgm_operation_sent_before(spec, from, rank) * part.stride;
        part.rows = spec->counts[from * spec->world + rank];
        if (part.rows == 0)
            continue;
        struct cgm_view block =
            cgm_view_rows(&out, cgm_operation_received_before(spec, rank, from), part.rows);
        judge_copy(trial, &part, &block, job->after[rank], "out", index, rank);
    }
}

/* This rank's block of the sum of all ranks' matrices; free it. */
static inline struct part sum_of(const struct trial *trial, const struct job *job, uint32_t rank)
{
    uint64_t rows = job->moved.rows / trial->spec.world, cols = job->moved.cols;
    uint64_t first = rank * rows * cols;
    float *sum = must_alloc(rows * cols * sizeof(float));
    for (uint64_t i = 0; i < rows * cols; i++) {
        sum[i] = job->moved.values[0][first + i];
        for (uint32_t r = 1; r < trial->spec.world; r++)
            sum[i] += job->moved.values[r][first + i];
    }
    return (struct part){.values = sum, .rows = rows, .cols = cols, .stride = cols};
}

/* Where the result of the move lies: aux_out in the arena, or the user buffer. */
static inline struct cgm_view moved_to(const struct trial *trial, uint32_t index, uint32_t rank,
                                       const unsigned char **ret_base)
{
    const struct cgm_view *aux = &trial->launches[index].operands[rank][CGM_OPERAND_AUX_OUT];
    struct arena *user = &trial->rig->user[rank];
    *ret_base = trial->jobs[index].after[rank];
    if (aux->mem)
        return *aux;
    host_view_pull(&user->view, 0, user->used);
    *ret_base = user->base;
    return view_in_chunk(trial, trial->jobs[index].rows, rank,
                         trial->spec.op == CGM_OP_BULK_AG ? UINT32_MAX : rank);
}

/* `rounds`: a library summed, in the buffer's own type. */
static inline void judge_moved(const struct trial *trial, uint32_t index, uint32_t rank,
                               bool rounds)
{
    const struct job *job = &trial->jobs[index];
    const unsigned char *base;
    struct cgm_view view = moved_to(trial, index, rank, &base);
    if (trial->spec.op == CGM_OP_BULK_AG) {
        struct matrix whole = job->moved;
        whole.sharing = WHOLE;
        struct part part = matrix_part(&whole, trial->spec.world, rank);
        judge_copy(trial, &part, &view, base, "the gathered buffer", index, rank);
    } else if (!rounds) {
        struct part part = sum_of(trial, job, rank);
        judge_copy(trial, &part, &view, base, "the scattered buffer", index, rank);
        free((void *)(uintptr_t)part.values);
    }
}

#endif
