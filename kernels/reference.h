/* The float64 oracle. A reference holds, for every element of a result, what the inputs give in
 * float64 and how far a right implementation may be from it:
 *
 *   |out - R| <= u |R| + u r Q + K 2^-24 G + tiny
 *
 * R sum of the products and addends       G the same sum of absolute values
 * Q sum of |P| over partial products P that are rounded to the output's format before they are
 *   added, r how often each is rounded    K number of terms behind one element
 * With inputs that are rounded on the way (TF32), 2 e G more, e their unit.
 * u, tiny: the output format's unit and smallest normal number. An integer must be R.
 *
 * Behind an activation the bound is that of what it is applied to, rounded to the output format,
 * times the steepest slope between the two, plus u |R'|, R' the activation of R. Derivatives are
 * taken in fp32: 2^-21 |R| more.
 *
 * Inputs are fp32 arrays that hold numbers of the job's format (cgm_format_round): R and G are
 * about the rounded inputs. Row-major; strides count elements. */
#ifndef CGM_REFERENCE_H
#define CGM_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cgm_reference_activation {
    CGM_REFERENCE_LINEAR,
    CGM_REFERENCE_GELU,  /* R' = gelu(R), tanh form */
    CGM_REFERENCE_DGELU, /* R' = R gelu'(x) */
};

struct cgm_reference {
    uint64_t rows, cols;
    double *value;           /* R */
    double *magnitude;       /* G */
    double *partials;        /* Q, or NULL */
    uint64_t terms;          /* K */
    double partial_rounding; /* r; 1 when a partial product is rounded once */
    double input_rounding;   /* e; 0 when inputs are taken as they are */
    enum cgm_reference_activation activation;
    double *factors; /* DGELU: GELU's derivative for each element; else NULL */
};

/* op(a) * op(b): a is stored rows x depth, or depth x rows with transa; b is stored depth x cols,
 * or cols x depth with transb. */
struct cgm_reference_product {
    const float *a, *b;
    uint64_t a_stride, b_stride, depth;
    bool transa, transb;
    unsigned threads; /* 0: one */
};

/* A part of a result: rows x cols elements whose first one belongs at (row, col). */
struct cgm_reference_found {
    const void *data;
    int format; /* enum cgm_format */
    uint64_t row, col, rows, cols, stride;
};

/* The worst element. Right: ratio <= 1 and no_number == 0. */
struct cgm_verdict {
    double ratio; /* |out - R| / bound; infinite for an element that is no number */
    uint64_t row, col;
    double found, expected, bound; /* of that element */
    uint64_t no_number;            /* elements that are NaN: wrong, or never written */
    uint64_t checked;
};

/* Starts at 0. Returns 0, or -1 when memory is short. */
int cgm_reference_init(struct cgm_reference *reference, uint64_t rows, uint64_t cols,
                       bool partials);
void cgm_reference_fini(struct cgm_reference *reference);

/* Adds one product (with partials: one partial product). Returns 0, or -1 when memory is short. */
int cgm_reference_add_product(struct cgm_reference *reference,
                              const struct cgm_reference_product *product);

/* Adds a matrix of the result's shape: a source of a reduction, or what is accumulated into. */
void cgm_reference_add_matrix(struct cgm_reference *reference, const float *values,
                              uint64_t stride);

/* Adds one row to every row. */
void cgm_reference_add_bias(struct cgm_reference *reference, const float *bias);

/* The product may have been rounded before the one of the two was added, and that sum before the
 * other: r is 2, and Q has both. With partials. */
void cgm_reference_round_before_both(struct cgm_reference *reference, const float *matrix,
                                     uint64_t stride, const float *bias);

/* What is checked from now on is the GELU of R, or R times GELU's derivative at `input`, a matrix
 * of the result's shape. The latter returns 0, or -1 when memory is short. */
void cgm_reference_gelu(struct cgm_reference *reference);
int cgm_reference_dgelu(struct cgm_reference *reference, const float *input, uint64_t stride);

/* One row: the sums over rows row ... row + rows - 1 of columns col ... col + cols - 1 of a result
 * that was rounded to `format`. Returns 0, or -1 when memory is short. */
struct cgm_reference_window {
    uint64_t row, col, rows, cols;
};
int cgm_reference_init_sum(struct cgm_reference *reference, const struct cgm_reference *of,
                           const struct cgm_reference_window *window, int format);

/* Checks a part and adds what it finds to *verdict, which begins as {0}. An infinity is right where
 * the bound reaches beyond the format's largest number. */
void cgm_reference_check(const struct cgm_reference *reference,
                         const struct cgm_reference_found *found, struct cgm_verdict *verdict);

/* What an element must be near to, and how far from it one of this format may be. */
double cgm_reference_value(const struct cgm_reference *reference, uint64_t row, uint64_t col);
double cgm_reference_bound(const struct cgm_reference *reference, uint64_t row, uint64_t col,
                           int format);

bool cgm_verdict_is_right(const struct cgm_verdict *verdict);

#endif
