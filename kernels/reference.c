#include "kernels/reference.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "kernels/number_format.h"
#include "kernels/reference_gemm.h"

#define THREADS_MAX 64u
#define FP32_UNIT 0x1p-24

int cgm_reference_init(struct cgm_reference *reference, uint64_t rows, uint64_t cols, bool partials)
{
    *reference = (struct cgm_reference){.rows = rows, .cols = cols, .partial_rounding = 1};
    reference->value = calloc(rows * cols, sizeof(double));
    reference->magnitude = calloc(rows * cols, sizeof(double));
    reference->partials = partials ? calloc(rows * cols, sizeof(double)) : NULL;
    if (reference->value && reference->magnitude && (!partials || reference->partials))
        return 0;
    cgm_reference_fini(reference);
    return -1;
}

void cgm_reference_fini(struct cgm_reference *reference)
{
    free(reference->value);
    free(reference->magnitude);
    free(reference->partials);
    free(reference->factors);
    *reference = (struct cgm_reference){0};
}

/* What the threads of one product share; `next` deals out the tiles. */
struct product_work {
    struct cgm_reference *reference;
    const struct cgm_reference_product *product;
    _Atomic uint64_t next;
    _Atomic bool failed;
};

static uint64_t tiles(uint64_t size, uint64_t tile)
{
    return (size + tile - 1) / tile;
}

static void tile_place(const struct cgm_reference *reference, uint64_t number,
                       struct cgm_tile *tile)
{
    uint64_t across = tiles(reference->cols, CGM_TILE_COLS);
    tile->row = number / across * CGM_TILE_ROWS;
    tile->col = number % across * CGM_TILE_COLS;
    uint64_t rows = reference->rows - tile->row, cols = reference->cols - tile->col;
    tile->rows = rows < CGM_TILE_ROWS ? rows : CGM_TILE_ROWS;
    tile->cols = cols < CGM_TILE_COLS ? cols : CGM_TILE_COLS;
}

static void tile_add(struct cgm_reference *reference, const struct cgm_tile *tile)
{
    for (uint64_t i = 0; i < tile->rows; i++) {
        uint64_t at = (tile->row + i) * reference->cols + tile->col;
        for (uint64_t j = 0; j < tile->cols; j++) {
            double value = tile->value[i * CGM_TILE_COLS + j];
            reference->value[at + j] += value;
            reference->magnitude[at + j] += tile->magnitude[i * CGM_TILE_COLS + j];
            if (reference->partials)
                reference->partials[at + j] += fabs(value);
        }
    }
}

static void *product_thread(void *argument)
{
    struct product_work *work = argument;
    struct cgm_tile *tile = malloc(sizeof(*tile));
    struct cgm_tile_panels *panels = cgm_tile_panels_new();
    uint64_t total =
        tiles(work->reference->rows, CGM_TILE_ROWS) * tiles(work->reference->cols, CGM_TILE_COLS);
    if (!tile || !panels)
        atomic_store(&work->failed, true);
    while (tile && panels && !atomic_load(&work->failed)) {
        uint64_t number = atomic_fetch_add(&work->next, 1);
        if (number >= total)
            break;
        tile_place(work->reference, number, tile);
        cgm_tile_multiply(work->product, panels, tile);
        tile_add(work->reference, tile);
    }
    cgm_tile_panels_free(panels);
    free(tile);
    return NULL;
}

/* The caller is one of the threads; with fewer than asked for it only takes longer. */
int cgm_reference_add_product(struct cgm_reference *reference,
                              const struct cgm_reference_product *product)
{
    struct product_work work = {.reference = reference, .product = product};
    pthread_t threads[THREADS_MAX];
    unsigned wanted = product->threads > THREADS_MAX ? THREADS_MAX : product->threads;
    unsigned started = 0;
    while (started + 1 < wanted &&
           pthread_create(&threads[started], NULL, product_thread, &work) == 0)
        started++;
    product_thread(&work);
    while (started > 0)
        pthread_join(threads[--started], NULL);
    reference->terms += product->depth;
    return atomic_load(&work.failed) ? -1 : 0;
}

static void add_row(struct cgm_reference *reference, uint64_t row, const float *values)
{
    for (uint64_t col = 0; col < reference->cols; col++) {
        reference->value[row * reference->cols + col] += (double)values[col];
        reference->magnitude[row * reference->cols + col] += fabs((double)values[col]);
    }
}

void cgm_reference_add_matrix(struct cgm_reference *reference, const float *values, uint64_t stride)
{
    for (uint64_t row = 0; row < reference->rows; row++)
        add_row(reference, row, values + row * stride);
    reference->terms++;
}

void cgm_reference_add_bias(struct cgm_reference *reference, const float *bias)
{
    for (uint64_t row = 0; row < reference->rows; row++)
        add_row(reference, row, bias);
    reference->terms++;
}

void cgm_reference_round_before_both(struct cgm_reference *reference, const float *matrix,
                                     uint64_t stride, const float *bias)
{
    reference->partial_rounding = 2;
    for (uint64_t row = 0; row < reference->rows; row++)
        for (uint64_t col = 0; col < reference->cols; col++)
            reference->partials[row * reference->cols + col] +=
                fabs((double)matrix[row * stride + col]) + fabs((double)bias[col]);
}

/* ---- activations ---- */

#define SQRT_2_PI 0.79788456080286535588
#define GELU_CUBE 0.044715
/* Of GELU between any two numbers; its derivative's largest value. */
#define GELU_SLOPE 1.13
/* How far GELU's derivative may be off when it is taken in fp32. */
#define DERIVATIVE_ERROR 0x1p-21

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(SQRT_2_PI * (x + GELU_CUBE * x * x * x)));
}

static double gelu_derivative(double x)
{
    double t = tanh(SQRT_2_PI * (x + GELU_CUBE * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * SQRT_2_PI * (1 + 3 * GELU_CUBE * x * x);
}

void cgm_reference_gelu(struct cgm_reference *reference)
{
    reference->activation = CGM_REFERENCE_GELU;
}

int cgm_reference_dgelu(struct cgm_reference *reference, const float *input, uint64_t stride)
{
    reference->factors = malloc(reference->rows * reference->cols * sizeof(double));
    if (!reference->factors)
        return -1;
    for (uint64_t row = 0; row < reference->rows; row++)
        for (uint64_t col = 0; col < reference->cols; col++)
            reference->factors[row * reference->cols + col] =
                gelu_derivative((double)input[row * stride + col]);
    reference->activation = CGM_REFERENCE_DGELU;
    return 0;
}

static double element_value(const struct cgm_reference *reference, uint64_t at)
{
    switch (reference->activation) {
    case CGM_REFERENCE_GELU:
        return gelu(reference->value[at]);
    case CGM_REFERENCE_DGELU:
        return reference->value[at] * reference->factors[at];
    default:
        return reference->value[at];
    }
}

/* ---- bounds ---- */

static double linear_bound(const struct cgm_reference *reference, uint64_t at,
                           const struct cgm_format_info *info)
{
    double bound = info->unit * fabs(reference->value[at]) + info->smallest_normal;
    bound += ((double)reference->terms * FP32_UNIT + 2 * reference->input_rounding) *
             reference->magnitude[at];
    if (reference->partials)
        bound += info->unit * reference->partial_rounding * reference->partials[at];
    return bound;
}

static double element_bound(const struct cgm_reference *reference, uint64_t at,
                            const struct cgm_format_info *info)
{
    if (info->is_integer)
        return 0;
    double bound = linear_bound(reference, at, info);
    if (reference->activation == CGM_REFERENCE_LINEAR)
        return bound;
    double slope = GELU_SLOPE, own = info->unit * fabs(element_value(reference, at));
    if (reference->activation == CGM_REFERENCE_DGELU) {
        slope = fabs(reference->factors[at]);
        own += DERIVATIVE_ERROR * fabs(reference->value[at]);
    }
    return slope * bound + own + info->smallest_normal;
}

/* What the summands may be off goes into the sum's partials, which are rounded once: u Q is it. */
int cgm_reference_init_sum(struct cgm_reference *reference, const struct cgm_reference *of,
                           const struct cgm_reference_window *window, int format)
{
    const struct cgm_format_info *info = cgm_format_info(format);
    if (cgm_reference_init(reference, 1, window->cols, true))
        return -1;
    for (uint64_t row = window->row; row < window->row + window->rows; row++)
        for (uint64_t col = 0; col < window->cols; col++) {
            uint64_t at = row * of->cols + window->col + col;
            double value = element_value(of, at), bound = element_bound(of, at, info);
            reference->value[col] += value;
            reference->magnitude[col] += fabs(value) + bound;
            reference->partials[col] += bound / info->unit;
        }
    reference->terms = window->rows;
    return 0;
}

static double element_ratio(double found, double expected, double bound,
                            const struct cgm_format_info *info)
{
    if (isnan(found) || isnan(expected))
        return isnan(found) && isnan(expected) ? 0 : INFINITY;
    if (found == expected)
        return 0;
    if (isinf(found))
        return copysign(1, found) * expected + bound > info->largest ? 0 : INFINITY;
    return fabs(found - expected) / bound;
}

static void check_element(const struct cgm_reference *reference, uint64_t row, uint64_t col,
                          double found, const struct cgm_format_info *info,
                          struct cgm_verdict *verdict)
{
    uint64_t at = row * reference->cols + col;
    double expected = element_value(reference, at);
    double bound = element_bound(reference, at, info);
    double ratio = element_ratio(found, expected, bound, info);
    verdict->no_number += isnan(found) && !isnan(expected) ? 1 : 0;
    if (verdict->checked++ == 0 || ratio > verdict->ratio) {
        verdict->ratio = ratio;
        verdict->row = row, verdict->col = col;
        verdict->found = found, verdict->expected = expected, verdict->bound = bound;
    }
}

#define CHECK_BLOCK 512u

/* An int32 is not always an fp32 number. */
static void load_numbers(int format, const void *source, uint64_t count, double *ret_numbers)
{
    float block[CHECK_BLOCK];
    if (format != CGM_FORMAT_INT32)
        cgm_format_load(format, source, count, block);
    for (uint64_t i = 0; i < count; i++)
        ret_numbers[i] =
            format == CGM_FORMAT_INT32 ? cgm_format_element(format, source, i) : (double)block[i];
}

void cgm_reference_check(const struct cgm_reference *reference,
                         const struct cgm_reference_found *found, struct cgm_verdict *verdict)
{
    const struct cgm_format_info *info = cgm_format_info(found->format);
    double block[CHECK_BLOCK];
    for (uint64_t row = 0; row < found->rows; row++) {
        for (uint64_t col = 0; col < found->cols; col += CHECK_BLOCK) {
            uint64_t n = found->cols - col < CHECK_BLOCK ? found->cols - col : CHECK_BLOCK;
            uint64_t at = row * found->stride + col;
            load_numbers(found->format, (const char *)found->data + at * info->bytes, n, block);
            for (uint64_t i = 0; i < n; i++)
                check_element(reference, found->row + row, found->col + col + i, block[i], info,
                              verdict);
        }
    }
}

double cgm_reference_value(const struct cgm_reference *reference, uint64_t row, uint64_t col)
{
    return element_value(reference, row * reference->cols + col);
}

double cgm_reference_bound(const struct cgm_reference *reference, uint64_t row, uint64_t col,
                           int format)
{
    return element_bound(reference, row * reference->cols + col, cgm_format_info(format));
}

bool cgm_verdict_is_right(const struct cgm_verdict *verdict)
{
    return verdict->ratio <= 1 && verdict->no_number == 0;
}
