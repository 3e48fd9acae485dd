#include "daemon/executor/cpu/gemm.h"

#include <limits.h>
#include <sys/mman.h>

#include "kernels/number_format.h"
#include "kernels/openblas.h"
#include "proto/status.h"

/* Blocks of products whose operands are converted. */
#define BLOCK_ROWS 768u
#define BLOCK_COLS 768u
#define BLOCK_DEPTH 768u
/* Blocks of others: some tenths of a second each, so that an abort is seen and others get a seat,
 * also where each page that is touched has to be made. */
#define WHOLE_STEPS (1ull << 34)
#define WHOLE_AREA (1ull << 24) /* elements of a factor or of the product in one block */
#define WHOLE_DEPTH 16384u      /* of a block of what is too large with all of its depth */
#define PAGE 4096u

/* What is not fp32 once: the thread keeps the seat meanwhile. Deeper products have less of the
 * result in a block, so that a block takes no longer; of what is still deeper the sums are few
 * enough to be the thread's own, and it gets another seat between two steps. */
#define HELD_STEPS (1ull << 33)
#define HELD_DEPTH (1ull << 17)
#define HELD_COLS_MIN 256u
#define OWN_SIDE 64u
/* Pages are only touched when something is multiplied that is not fp32. */
struct cgm_gemm_panels {
    float a[BLOCK_ROWS * BLOCK_DEPTH];
    float b[BLOCK_DEPTH * BLOCK_COLS];
    float out[BLOCK_ROWS * BLOCK_COLS];
};

/* fp32 values that BLAS can take. */
struct panel {
    float *values;
    uint64_t stride;
};

struct block {
    uint64_t row, col, step;
    uint64_t rows, cols, depth;
};

struct cgm_gemm_panels *cgm_gemm_panels_new(unsigned seats)
{
    void *panels = mmap(NULL, seats * sizeof(struct cgm_gemm_panels), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return panels == MAP_FAILED ? NULL : panels;
}

void cgm_gemm_panels_free(struct cgm_gemm_panels *panels, unsigned seats)
{
    if (panels)
        munmap(panels, seats * sizeof(*panels));
}

static uint64_t gemm_depth(const struct cgm_matrix_gemm *gemm)
{
    return gemm->transa ? gemm->a.rows : gemm->a.cols;
}

static bool size_is_blas(const struct cgm_matrix *m)
{
    return m->rows <= INT_MAX && m->cols <= INT_MAX && m->stride <= INT_MAX;
}

/* int8 goes with int8, and gives int32; nothing else is an integer. */
static bool types_fit(const struct cgm_matrix_gemm *g)
{
    if (g->a.dtype == CGM_FORMAT_INT8)
        return g->b.dtype == CGM_FORMAT_INT8 && g->out.dtype == CGM_FORMAT_INT32 && !g->bias.data &&
               !g->accumulate;
    return !cgm_matrix_is_integer(&g->a) && !cgm_matrix_is_integer(&g->b) &&
           !cgm_matrix_is_integer(&g->out) && !cgm_matrix_is_integer(&g->bias);
}

int cgm_gemm_check(const struct cgm_matrix_gemm *g)
{
    uint64_t a_rows = g->transa ? g->a.cols : g->a.rows;
    uint64_t b_rows = g->transb ? g->b.cols : g->b.rows;
    uint64_t b_cols = g->transb ? g->b.rows : g->b.cols;
    if (!g->a.data || !g->b.data || !g->out.data)
        return CGM_INVALID_ARGUMENT;
    if (a_rows != g->out.rows || b_cols != g->out.cols || b_rows != gemm_depth(g))
        return CGM_INVALID_ARGUMENT;
    if (!types_fit(g))
        return CGM_INVALID_ARGUMENT;
    if (g->bias.data && (g->bias.rows != 1 || g->bias.cols != g->out.cols))
        return CGM_INVALID_ARGUMENT;
    bool fits = size_is_blas(&g->a) && size_is_blas(&g->b) && size_is_blas(&g->out);
    return fits ? CGM_OK : CGM_INVALID_ARGUMENT;
}

static bool is_direct(const struct cgm_matrix *matrix)
{
    return matrix->dtype == CGM_FORMAT_FP32;
}

/* The part of an operand that a block needs. lines: rows of op(a), columns of op(b). */
static struct panel operand_panel(const struct cgm_matrix *matrix, bool lines_are_rows,
                                  uint64_t line, uint64_t lines, uint64_t step, uint64_t depth,
                                  float *workspace)
{
    uint64_t row = lines_are_rows ? line : step, rows = lines_are_rows ? lines : depth;
    uint64_t col = lines_are_rows ? step : line, cols = lines_are_rows ? depth : lines;
    if (is_direct(matrix))
        return (struct panel){(float *)(void *)cgm_matrix_at(matrix, row, col), matrix->stride};
    cgm_matrix_load(matrix, row, col, rows, cols, workspace);
    return (struct panel){workspace, cols};
}

/* The first addend of every sum of the block: what is accumulated into, and the bias. False: there
 * is none, and the product overwrites. */
static bool out_begin(const struct cgm_matrix_gemm *gemm, const struct block *block,
                      const struct panel *out)
{
    for (uint64_t i = 0; i < block->rows; i++) {
        float *sums = out->values + i * out->stride;
        if (gemm->accumulate && !is_direct(&gemm->out))
            cgm_matrix_load(&gemm->out, block->row + i, block->col, 1, block->cols, sums);
        if (gemm->accumulate && gemm->bias.data)
            cgm_matrix_add(&gemm->bias, 0, block->col, block->cols, sums);
        else if (gemm->bias.data)
            cgm_matrix_load(&gemm->bias, 0, block->col, 1, block->cols, sums);
    }
    return gemm->accumulate || gemm->bias.data;
}

static void block_multiply(const struct cgm_matrix_gemm *gemm, const struct block *block,
                           const struct panel *out, bool add, struct cgm_gemm_panels *panels)
{
    struct panel a = operand_panel(&gemm->a, !gemm->transa, block->row, block->rows, block->step,
                                   block->depth, panels->a);
    struct panel b = operand_panel(&gemm->b, gemm->transb, block->col, block->cols, block->step,
                                   block->depth, panels->b);
    cgm_openblas.sgemm(CblasRowMajor, gemm->transa ? CblasTrans : CblasNoTrans,
                       gemm->transb ? CblasTrans : CblasNoTrans, (int)block->rows, (int)block->cols,
                       (int)block->depth, 1.0f, a.values, (int)a.stride, b.values, (int)b.stride,
                       add ? 1.0f : 0.0f, out->values, (int)out->stride);
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Lines that lie apart have pages of their own, two for their ends. With those of what is between
 * a block touches CGM_HOLES_BYTES of each matrix at most. */
static uint64_t lines_max(const struct cgm_matrix *matrix)
{
    return CGM_HOLES_BYTES / 2 / min_u64(matrix->stride * sizeof(float), 2 * PAGE);
}

/* From a block's first step to its last they are no part of the result yet. */
static bool has_sums(const struct cgm_matrix_gemm *gemm)
{
    return !is_direct(&gemm->out) && !cgm_matrix_is_integer(&gemm->out);
}

/* Meanwhile they are in the seat's panel. */
static bool holds_seat(const struct cgm_matrix_gemm *gemm)
{
    return has_sums(gemm) && gemm_depth(gemm) <= HELD_DEPTH;
}

static bool has_own_sums(const struct cgm_matrix_gemm *gemm)
{
    return has_sums(gemm) && gemm_depth(gemm) > HELD_DEPTH;
}

static struct block panel_limits(const struct cgm_matrix_gemm *gemm)
{
    struct block most = {.rows = BLOCK_ROWS, .cols = BLOCK_COLS, .depth = BLOCK_DEPTH};
    if (holds_seat(gemm)) {
        uint64_t sums = HELD_STEPS / gemm_depth(gemm);
        most.cols = min_u64(BLOCK_COLS, max_u64(HELD_COLS_MIN, sums / BLOCK_ROWS));
        most.rows = min_u64(BLOCK_ROWS, sums / most.cols);
    } else if (has_own_sums(gemm)) {
        most.rows = most.cols = OWN_SIDE;
    }
    return most;
}

_Static_assert(HELD_STEPS / HELD_DEPTH >= HELD_COLS_MIN, "a block has a row");

_Static_assert(2 * WHOLE_AREA * sizeof(float) <= CGM_HOLES_BYTES, "and as much for the ends");

/* The largest blocks of a product. */
static struct block block_limits(const struct cgm_matrix_gemm *gemm)
{
    uint64_t depth = gemm_depth(gemm), cols = gemm->out.cols;
    if (!is_direct(&gemm->a) || !is_direct(&gemm->b) || !is_direct(&gemm->out))
        return panel_limits(gemm);
    if (gemm->transa)
        depth = min_u64(depth, lines_max(&gemm->a));
    if (gemm->transb)
        cols = min_u64(cols, lines_max(&gemm->b));
    else
        depth = min_u64(depth, lines_max(&gemm->b));
    if (cols > WHOLE_AREA / depth) {
        depth = min_u64(depth, WHOLE_DEPTH);
        cols = WHOLE_AREA / depth;
    }
    uint64_t rows = min_u64(WHOLE_STEPS / (cols * depth), WHOLE_AREA / max_u64(cols, depth));
    rows = min_u64(rows, lines_max(&gemm->out));
    if (!gemm->transa)
        rows = min_u64(rows, lines_max(&gemm->a));
    return (struct block){.rows = rows, .cols = cols, .depth = depth};
}

_Static_assert(BLOCK_DEPTH * 128u * 128u < 1u << 24, "sums of int8 products are fp32 numbers");

/* The block's sums, which are integers, to out, or added to what is there. */
static void block_store_integers(const struct cgm_matrix *out, const struct block *block,
                                 const float *sums)
{
    for (uint64_t i = 0; i < block->rows; i++) {
        int32_t *row = (int32_t *)(void *)cgm_matrix_at(out, block->row + i, block->col);
        for (uint64_t j = 0; j < block->cols; j++) {
            uint32_t before = block->step > 0 ? (uint32_t)row[j] : 0;
            row[j] = (int32_t)(before + (uint32_t)(int32_t)sums[i * block->cols + j]);
        }
    }
}

/* What a thread works with. */
struct worker {
    const struct cgm_matrix_gemm *gemm;
    struct cgm_gemm_panels *panels; /* of all seats */
    struct cgm_seat *seat;
};

/* Of the seat that the thread has now. */
static struct cgm_gemm_panels *panels_of(const struct worker *worker)
{
    return &worker->panels[worker->seat->number];
}

static void integers_over_depth(const struct worker *worker, struct block block)
{
    const struct cgm_matrix_gemm *gemm = worker->gemm;
    uint64_t depth = gemm_depth(gemm);
    for (block.step = 0; block.step < depth && cgm_seat_take(worker->seat);
         block.step += block.depth) {
        struct cgm_gemm_panels *panels = panels_of(worker);
        struct panel out = {panels->out, block.cols};
        block.depth = min_u64(depth - block.step, BLOCK_DEPTH);
        block_multiply(gemm, &block, &out, false, panels);
        block_store_integers(&gemm->out, &block, panels->out);
    }
}

static bool goes_on(const struct worker *worker)
{
    if (cgm_is_aborted(worker->seat->abort))
        return false;
    return holds_seat(worker->gemm) || cgm_seat_take(worker->seat);
}

/* All of the depth for the block's rows and columns; on the seat. What was aborted is not stored:
 * in the panel there may be another user's sums still. */
static void blocks_over_depth(const struct worker *worker, struct block block, uint64_t depth_limit)
{
    const struct cgm_matrix_gemm *gemm = worker->gemm;
    float own_sums[OWN_SIDE * OWN_SIDE];
    uint64_t depth = gemm_depth(gemm);
    bool direct = is_direct(&gemm->out);
    struct panel out = {has_own_sums(gemm) ? own_sums : panels_of(worker)->out, block.cols};
    if (direct)
        out = (struct panel){(float *)(void *)cgm_matrix_at(&gemm->out, block.row, block.col),
                             gemm->out.stride};
    bool add = out_begin(gemm, &block, &out);
    for (block.step = 0; block.step < depth && goes_on(worker); block.step += block.depth) {
        block.depth = min_u64(depth - block.step, depth_limit);
        block_multiply(gemm, &block, &out, add || block.step > 0, panels_of(worker));
    }
    if (!direct && block.step >= depth)
        cgm_matrix_store(&gemm->out, block.row, block.col, block.rows, block.cols, out.values);
}

void cgm_gemm_multiply(const struct cgm_matrix_gemm *gemm, struct cgm_gemm_panels *panels,
                       struct cgm_seat *seat)
{
    struct block limits = block_limits(gemm), block = {0};
    const struct worker worker = {gemm, panels, seat};
    for (block.row = 0; block.row < gemm->out.rows; block.row += block.rows) {
        block.rows = min_u64(gemm->out.rows - block.row, limits.rows);
        for (block.col = 0; block.col < gemm->out.cols; block.col += block.cols) {
            block.cols = min_u64(gemm->out.cols - block.col, limits.cols);
            if (cgm_is_aborted(seat->abort) || !cgm_seat_take(seat))
                return;
            if (cgm_matrix_is_integer(&gemm->out))
                integers_over_depth(&worker, block);
            else
                blocks_over_depth(&worker, block, limits.depth);
        }
    }
}
