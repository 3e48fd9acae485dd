#include "daemon/executor/cpu/epilogue.h"

#include <string.h>

#include "kernels/gelu.h"
#include "proto/status.h"

#define BLOCK 1024u /* values that are converted at a time */

int cgm_activation_check(const struct cgm_matrix_activation *activation)
{
    bool optional = activation->kind == CGM_ACTIVATION_GELU;
    if ((!optional && activation->kind != CGM_ACTIVATION_DGELU) ||
        cgm_matrix_is_integer(&activation->out) || cgm_matrix_is_integer(&activation->input))
        return CGM_INVALID_ARGUMENT;
    if (!activation->input.data)
        return optional ? CGM_OK : CGM_INVALID_ARGUMENT;
    return cgm_matrix_same_shape(&activation->out, &activation->input) ? CGM_OK
                                                                       : CGM_INVALID_ARGUMENT;
}

int cgm_sum_check(const struct cgm_matrix_sum *sum)
{
    uint64_t count = sum->across ? sum->src.rows : sum->src.cols;
    if (cgm_matrix_is_integer(&sum->dst) || cgm_matrix_is_integer(&sum->src))
        return CGM_INVALID_ARGUMENT;
    return sum->dst.rows == 1 && sum->dst.cols == count ? CGM_OK : CGM_INVALID_ARGUMENT;
}

static void activate_block(const struct cgm_matrix_activation *activation, uint64_t row,
                           uint64_t col, uint64_t count)
{
    float values[BLOCK], input[BLOCK];
    cgm_matrix_load(&activation->out, row, col, 1, count, values);
    if (activation->kind == CGM_ACTIVATION_DGELU) {
        cgm_matrix_load(&activation->input, row, col, 1, count, input);
        for (uint64_t i = 0; i < count; i++)
            values[i] *= cgm_gelu_derivative(input[i]);
    } else {
        if (activation->input.data)
            cgm_matrix_store(&activation->input, row, col, 1, count, values);
        for (uint64_t i = 0; i < count; i++)
            values[i] = cgm_gelu(values[i]);
    }
    cgm_matrix_store(&activation->out, row, col, 1, count, values);
}

void cgm_matrix_activate(const struct cgm_matrix_activation *activation, struct cgm_seat *seat)
{
    const struct cgm_matrix *out = &activation->out;
    for (uint64_t row = 0; row < out->rows && cgm_goes_on(seat); row++)
        for (uint64_t col = 0; col < out->cols && cgm_goes_on(seat); col += BLOCK)
            activate_block(activation, row, col, out->cols - col < BLOCK ? out->cols - col : BLOCK);
}

/* Column by column from the first row to the last. */
static void sum_down(const struct cgm_matrix_sum *sum, struct cgm_seat *seat)
{
    float sums[BLOCK];
    for (uint64_t col = 0; col < sum->src.cols && cgm_goes_on(seat); col += BLOCK) {
        uint64_t count = sum->src.cols - col < BLOCK ? sum->src.cols - col : BLOCK;
        memset(sums, 0, sizeof(sums));
        for (uint64_t row = 0; row < sum->src.rows && cgm_goes_on(seat); row++)
            cgm_matrix_add(&sum->src, row, col, count, sums);
        cgm_matrix_store(&sum->dst, 0, col, 1, count, sums);
    }
}

static void sum_across(const struct cgm_matrix_sum *sum, struct cgm_seat *seat)
{
    float values[BLOCK];
    for (uint64_t row = 0; row < sum->src.rows && cgm_goes_on(seat); row++) {
        float total = 0;
        for (uint64_t col = 0; col < sum->src.cols && cgm_goes_on(seat); col += BLOCK) {
            uint64_t count = sum->src.cols - col < BLOCK ? sum->src.cols - col : BLOCK;
            cgm_matrix_load(&sum->src, row, col, 1, count, values);
            for (uint64_t i = 0; i < count; i++)
                total += values[i];
        }
        cgm_matrix_store(&sum->dst, 0, row, 1, 1, &total);
    }
}

void cgm_matrix_sum(const struct cgm_matrix_sum *sum, struct cgm_seat *seat)
{
    if (sum->across)
        sum_across(sum, seat);
    else
        sum_down(sum, seat);
}
