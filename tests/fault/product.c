#include "tests/fault/product.h"

#include <string.h>

#include "kernels/number_format.h"
#include "kernels/random.h"
#include "kernels/reference.h"
#include "proto/types.h"

enum sharing { NOTHING, WHOLE, BY_ROWS, BY_COLS, OWN };

static const struct layout {
    int op;
    enum sharing lhs, rhs, out;
    bool sums; /* the output is a sum over the ranks */
} layouts[] = {
    {CGM_OP_AG_GEMM, BY_ROWS, BY_COLS, BY_COLS, false},
    {CGM_OP_GEMM_RS, BY_COLS, BY_ROWS, BY_ROWS, true},
    {CGM_OP_GEMM_AR, BY_COLS, BY_ROWS, WHOLE, true},
    {CGM_OP_GEMM_AS, WHOLE, BY_COLS, WHOLE, false},
    {CGM_OP_AG, BY_ROWS, NOTHING, WHOLE, false},
    {CGM_OP_RS, OWN, NOTHING, BY_ROWS, true},
    {CGM_OP_AR, OWN, NOTHING, WHOLE, true},
};

#define SIDE 64u
_Static_assert(PRODUCT_M == SIDE && PRODUCT_N == SIDE && PRODUCT_K == SIDE,
               "every matrix is square");

struct square {
    float values[SIDE * SIDE];
};

struct part {
    uint64_t row, col, rows, cols;
};

static const struct layout *find(int op)
{
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
        if (layouts[i].op == op)
            return &layouts[i];
    return NULL;
}

bool product_knows(int op)
{
    return find(op) != NULL;
}

/* which: 0 lhs, 1 rhs. */
static void fill(enum sharing sharing, uint64_t seed, int which, uint32_t rank,
                 struct square *ret_square)
{
    struct cgm_random random;
    cgm_random_init(&random, seed * 16 + (uint64_t)which * 8 + (sharing == OWN ? rank + 1 : 0));
    cgm_random_fill(&random, CGM_FILL_NORMAL, ret_square->values, SIDE * SIDE);
}

static struct part part_of(enum sharing sharing, uint32_t rank)
{
    struct part part = {0, 0, SIDE, SIDE};
    if (sharing == BY_ROWS)
        part = (struct part){rank * SIDE / PRODUCT_WORLD, 0, SIDE / PRODUCT_WORLD, SIDE};
    if (sharing == BY_COLS)
        part = (struct part){0, rank * SIDE / PRODUCT_WORLD, SIDE, SIDE / PRODUCT_WORLD};
    return part;
}

static bool operand(enum sharing sharing, uint64_t seed, int which, uint32_t rank,
                    float *ret_values)
{
    struct square square;
    struct part part = part_of(sharing, rank);
    if (sharing == NOTHING)
        return false;
    fill(sharing, seed, which, rank, &square);
    for (uint64_t i = 0; i < part.rows; i++)
        memcpy(ret_values + i * part.cols, square.values + (part.row + i) * SIDE + part.col,
               part.cols * sizeof(float));
    return true;
}

bool product_lhs(int op, uint64_t seed, uint32_t rank, float *ret_values)
{
    return operand(find(op)->lhs, seed, 0, rank, ret_values);
}

bool product_rhs(int op, uint64_t seed, uint32_t rank, float *ret_values)
{
    return operand(find(op)->rhs, seed, 1, rank, ret_values);
}

/* Whole products are one term; sums have one partial product of each rank. */
static void refer_to_products(const struct layout *layout, uint64_t seed,
                              struct cgm_reference *reference)
{
    struct square lhs, rhs;
    uint32_t parts = layout->sums ? PRODUCT_WORLD : 1;
    uint64_t depth = SIDE / parts;
    fill(layout->lhs, seed, 0, 0, &lhs);
    fill(layout->rhs, seed, 1, 0, &rhs);
    for (uint32_t i = 0; i < parts; i++) {
        struct cgm_reference_product product = {
            .a = lhs.values + i * depth,
            .b = rhs.values + i * depth * SIDE,
            .a_stride = SIDE,
            .b_stride = SIDE,
            .depth = depth,
        };
        cgm_reference_add_product(reference, &product);
    }
}

static void refer_to_matrices(const struct layout *layout, uint64_t seed,
                              struct cgm_reference *reference)
{
    struct square square;
    for (uint32_t rank = 0; rank < (layout->sums ? PRODUCT_WORLD : 1); rank++) {
        fill(layout->lhs, seed, 0, rank, &square);
        cgm_reference_add_matrix(reference, square.values, SIDE);
    }
}

bool product_is_right(int op, uint64_t seed, uint32_t rank, const float *out)
{
    const struct layout *layout = find(op);
    struct part part = part_of(layout->out, rank);
    struct cgm_reference reference;
    struct cgm_verdict verdict = {0};
    struct cgm_reference_found found = {out,       CGM_FORMAT_FP32, part.row, part.col,
                                        part.rows, part.cols,       part.cols};
    if (cgm_reference_init(&reference, SIDE, SIDE, layout->sums) != 0)
        return false;
    if (layout->rhs == NOTHING)
        refer_to_matrices(layout, seed, &reference);
    else
        refer_to_products(layout, seed, &reference);
    cgm_reference_check(&reference, &found, &verdict);
    cgm_reference_fini(&reference);
    return cgm_verdict_is_right(&verdict);
}
