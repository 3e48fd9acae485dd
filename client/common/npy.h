/* NumPy .npy files of float32. More than two dimensions are taken as a matrix: in C order, those
 * before the last one as its rows, or as cgm_npy_collapse says. Nothing but regular files of
 * versions 1 to 3 whose length is exactly what the header says is read. Values are moved by pread
 * and pwrite, so a rank can read its shard of a large file, and a file that shrinks meanwhile is an
 * error, not a signal.
 *
 * Failures: IO when the system fails, INVALID_ARGUMENT for a file that is not as described above;
 * `ret_detail` (of CGM_NPY_DETAIL_BYTES) names the file, what it has and what was expected. */
#ifndef CGM_NPY_H
#define CGM_NPY_H

#include <stdbool.h>
#include <stdint.h>

#include "client/common/new_file.h"

#define CGM_NPY_DETAIL_BYTES 512u

#define CGM_NPY_DIMENSIONS_MAX 16u

/* An open file. A one-dimensional array of n elements has 1 row and n columns. */
struct cgm_npy {
    int fd;
    unsigned dimensions;
    uint64_t shape[CGM_NPY_DIMENSIONS_MAX]; /* of an opened file */
    uint64_t rows, cols;
    uint64_t bytes;     /* of all elements */
    bool fortran_order; /* in the file; callers see rows and columns in C order all the same */
    uint64_t data_offset;
    const char *path;         /* the caller's, must outlive the file */
    struct cgm_new_file file; /* of one that is written, whose fd is `fd` */
};

int cgm_npy_open(const char *path, struct cgm_npy *ret_npy, char *ret_detail);
void cgm_npy_close(struct cgm_npy *npy);

/* Dimensions before `axis`, 1 to dimensions - 1, make the rows of an opened file, the others its
 * columns. A matrix in Fortran order stays as it is. */
int cgm_npy_collapse(struct cgm_npy *npy, unsigned axis, char *ret_detail);

/* Reads the block of rows [row, row + rows) and columns [col, col + cols), which must lie inside,
 * into C order with `stride` elements between rows (0: cols). */
int cgm_npy_read_block(const struct cgm_npy *npy, uint64_t row, uint64_t rows, uint64_t col,
                       uint64_t cols, float *ret_values, uint64_t stride, char *ret_detail);

/* Reads all elements in C order, ret_values holds npy->bytes. */
int cgm_npy_read(const struct cgm_npy *npy, float *ret_values, char *ret_detail);

/* A file of version 1 in C order that takes its name, also from one that is there, when it is
 * finished; dimensions 1: `rows` is ignored. An element that is not written before that is zero. */
int cgm_npy_create(const char *path, unsigned dimensions, uint64_t rows, uint64_t cols,
                   struct cgm_npy *ret_npy, char *ret_detail);

/* Writes a block, as cgm_npy_read_block reads one. */
int cgm_npy_write_block(const struct cgm_npy *npy, uint64_t row, uint64_t rows, uint64_t col,
                        uint64_t cols, const float *values, uint64_t stride, char *ret_detail);

/* Closes a written file, gives it its name and reports what only that finds; it is discarded when
 * that fails, as it is to be when a write does: what was there before stays. */
int cgm_npy_finish(struct cgm_npy *npy, char *ret_detail);
void cgm_npy_discard(struct cgm_npy *npy);

/* Writes a whole file: create, one block, finish; nothing is left behind on failure. */
int cgm_npy_save(const char *path, unsigned dimensions, uint64_t rows, uint64_t cols,
                 const float *values, char *ret_detail);

#endif
