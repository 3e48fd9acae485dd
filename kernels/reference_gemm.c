#include "kernels/reference_gemm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH 128u /* of one panel */
#define STRIP_ROWS 4u
#define STRIP_COLS 8u
#define LANES 4u

typedef double vec __attribute__((vector_size(LANES * sizeof(double)), aligned(8)));

/* Strips: for every step of depth STRIP_ROWS (a) or STRIP_COLS (b) values side by side, zeros
 * beyond the edge. The second half of each is its absolute values. */
struct cgm_tile_panels {
    double a[2][CGM_TILE_ROWS * DEPTH];
    double b[2][CGM_TILE_COLS * DEPTH];
};

struct cgm_tile_panels *cgm_tile_panels_new(void)
{
    return malloc(sizeof(struct cgm_tile_panels));
}

void cgm_tile_panels_free(struct cgm_tile_panels *panels)
{
    free(panels);
}

/* Element (line, step) of an operand lies at first[line * line_stride + step * step_stride]. */
struct operand {
    const float *first;
    uint64_t line_stride, step_stride, lines;
};

static void pack(const struct operand *operand, unsigned strip, uint64_t depth, double *ret_values,
                 double *ret_magnitudes)
{
    for (uint64_t line = 0; line < operand->lines; line += strip) {
        uint64_t lines = operand->lines - line < strip ? operand->lines - line : strip;
        double *to = ret_values + line * depth;
        memset(to, 0, strip * depth * sizeof(*to));
        for (uint64_t i = 0; i < lines; i++) {
            const float *from = operand->first + (line + i) * operand->line_stride;
            for (uint64_t step = 0; step < depth; step++)
                to[step * strip + i] = (double)from[step * operand->step_stride];
        }
    }
    uint64_t count = (operand->lines + strip - 1) / strip * strip * depth;
    for (uint64_t i = 0; i < count; i++)
        ret_magnitudes[i] = fabs(ret_values[i]);
}

/* One strip of a by one strip of b, added to the tile at `sum`. The products of two fp32 numbers
 * are exact in float64, so it does not matter whether they are fused with the addition. */
static inline __attribute__((always_inline)) void strip_multiply(const double *a, const double *b,
                                                                 uint64_t depth, double *sum)
{
    vec acc[STRIP_ROWS][STRIP_COLS / LANES] = {{{0}}};
    for (uint64_t step = 0; step < depth; step++) {
        const vec *line = (const vec *)(const void *)(b + step * STRIP_COLS);
        for (unsigned i = 0; i < STRIP_ROWS; i++)
            for (unsigned j = 0; j < STRIP_COLS / LANES; j++)
                acc[i][j] += a[step * STRIP_ROWS + i] * line[j];
    }
    for (unsigned i = 0; i < STRIP_ROWS; i++)
        for (unsigned j = 0; j < STRIP_COLS / LANES; j++)
            *(vec *)(void *)(sum + i * CGM_TILE_COLS + j * LANES) += acc[i][j];
}

static inline __attribute__((always_inline)) void panel_multiply(const double *a, const double *b,
                                                                 const struct cgm_tile *tile,
                                                                 uint64_t depth, double *sum)
{
    for (uint64_t col = 0; col < tile->cols; col += STRIP_COLS)
        for (uint64_t row = 0; row < tile->rows; row += STRIP_ROWS)
            strip_multiply(a + row * depth, b + col * depth, depth,
                           sum + row * CGM_TILE_COLS + col);
}

typedef void panel_fn(const double *a, const double *b, const struct cgm_tile *tile, uint64_t depth,
                      double *sum);

static void panel_multiply_plain(const double *a, const double *b, const struct cgm_tile *tile,
                                 uint64_t depth, double *sum)
{
    panel_multiply(a, b, tile, depth, sum);
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void panel_multiply_avx2(const double *a,
                                                                    const double *b,
                                                                    const struct cgm_tile *tile,
                                                                    uint64_t depth, double *sum)
{
    panel_multiply(a, b, tile, depth, sum);
}

static panel_fn *panel_fn_choose(void)
{
    bool wide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    return wide ? panel_multiply_avx2 : panel_multiply_plain;
}
#else
static panel_fn *panel_fn_choose(void)
{
    return panel_multiply_plain;
}
#endif

/* The part of an operand that `lines` rows (or columns) of the tile need from step `step` on. */
static struct operand operand_part(const float *data, uint64_t stride, bool lines_are_columns,
                                   uint64_t line, uint64_t lines, uint64_t step)
{
    uint64_t line_stride = lines_are_columns ? 1 : stride;
    uint64_t step_stride = lines_are_columns ? stride : 1;
    const float *first = data + line * line_stride + step * step_stride;
    return (struct operand){first, line_stride, step_stride, lines};
}

void cgm_tile_multiply(const struct cgm_reference_product *p, struct cgm_tile_panels *panels,
                       struct cgm_tile *tile)
{
    panel_fn *multiply = panel_fn_choose();
    memset(tile->value, 0, sizeof(tile->value));
    memset(tile->magnitude, 0, sizeof(tile->magnitude));
    for (uint64_t step = 0; step < p->depth; step += DEPTH) {
        uint64_t depth = p->depth - step < DEPTH ? p->depth - step : DEPTH;
        struct operand a = operand_part(p->a, p->a_stride, p->transa, tile->row, tile->rows, step);
        struct operand b = operand_part(p->b, p->b_stride, !p->transb, tile->col, tile->cols, step);
        pack(&a, STRIP_ROWS, depth, panels->a[0], panels->a[1]);
        pack(&b, STRIP_COLS, depth, panels->b[0], panels->b[1]);
        multiply(panels->a[0], panels->b[0], tile, depth, tile->value);
        multiply(panels->a[1], panels->b[1], tile, depth, tile->magnitude);
    }
}
