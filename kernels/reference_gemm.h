/* Products in float64 for reference.c: tiles of the result, each over the whole depth. */
#ifndef CGM_REFERENCE_GEMM_H
#define CGM_REFERENCE_GEMM_H

#include "kernels/reference.h"

#define CGM_TILE_ROWS 128u
#define CGM_TILE_COLS 256u

/* One thread's working memory. */
struct cgm_tile {
    double value[CGM_TILE_ROWS * CGM_TILE_COLS];
    double magnitude[CGM_TILE_ROWS * CGM_TILE_COLS];
    uint64_t row, col, rows, cols; /* which part of the result */
};

struct cgm_tile_panels; /* packed operands */

struct cgm_tile_panels *cgm_tile_panels_new(void);
void cgm_tile_panels_free(struct cgm_tile_panels *panels);

/* Sets value and magnitude of the tile's part; rows of both are CGM_TILE_COLS apart. */
void cgm_tile_multiply(const struct cgm_reference_product *product, struct cgm_tile_panels *panels,
                       struct cgm_tile *tile);

#endif
