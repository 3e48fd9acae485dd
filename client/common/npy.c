#include "client/common/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/common/npy_header.h"
#include "proto/status.h"

#define MAGIC_BYTES 6u
#define PREFIX_BYTES_MAX 12u       /* magic, version, header length */
#define HEADER_BYTES_MAX 192u      /* of a file that is written */
#define TRANSPOSE_BYTES (1u << 20) /* read at once from a file in Fortran order */

static int refuse(const char *path, const char *reason, char *ret_detail)
{
    snprintf(ret_detail, CGM_NPY_DETAIL_BYTES, "%s: %s", path, reason);
    return CGM_INVALID_ARGUMENT;
}

static int refuse_errno(const char *path, const char *what, char *ret_detail)
{
    snprintf(ret_detail, CGM_NPY_DETAIL_BYTES, "%s: %s: %s", path, what, strerror(errno));
    return CGM_IO;
}

/* All bytes or an error; the end of the file before them is one. */
static int read_at(const struct cgm_npy *npy, void *ret_bytes, uint64_t size, uint64_t offset,
                   char *ret_detail)
{
    uint8_t *bytes = ret_bytes;

    while (size > 0) {
        ssize_t got = pread(npy->fd, bytes, size, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return refuse_errno(npy->path, "cannot read", ret_detail);
        if (got == 0)
            return refuse(npy->path, "the file became shorter while it was read", ret_detail);
        bytes += got;
        size -= (uint64_t)got;
        offset += (uint64_t)got;
    }
    return CGM_OK;
}

static int write_at(const struct cgm_npy *npy, const void *values, uint64_t size, uint64_t offset,
                    char *ret_detail)
{
    const uint8_t *bytes = values;

    while (size > 0) {
        ssize_t done = pwrite(npy->fd, bytes, size, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return refuse_errno(npy->path, "cannot write", ret_detail);
        bytes += done;
        size -= (uint64_t)done;
        offset += (uint64_t)done;
    }
    return CGM_OK;
}

/* Magic, version and header length. */
static int read_prefix(const struct cgm_npy *npy, uint64_t file_bytes, uint64_t *ret_header_offset,
                       uint64_t *ret_header_bytes, char *ret_detail)
{
    uint8_t prefix[PREFIX_BYTES_MAX] = {0};
    char reason[128];

    uint64_t size = file_bytes < sizeof(prefix) ? file_bytes : sizeof(prefix);
    int status = read_at(npy, prefix, size, 0, ret_detail);
    if (status != CGM_OK)
        return status;
    if (size < MAGIC_BYTES || memcmp(prefix, "\x93NUMPY", MAGIC_BYTES) != 0)
        return refuse(npy->path, "no .npy file: expected it to begin with \\x93NUMPY", ret_detail);
    if (size < sizeof(prefix))
        return refuse(npy->path, "truncated: the file ends inside its header", ret_detail);
    if (prefix[6] < 1 || prefix[6] > 3 || prefix[7] != 0) {
        snprintf(reason, sizeof(reason), "format version %u.%u; expected 1.0, 2.0 or 3.0",
                 prefix[6], prefix[7]);
        return refuse(npy->path, reason, ret_detail);
    }
    *ret_header_bytes = prefix[8] | (uint64_t)prefix[9] << 8;
    *ret_header_offset = 10;
    if (prefix[6] >= 2) {
        *ret_header_bytes |= (uint64_t)prefix[10] << 16 | (uint64_t)prefix[11] << 24;
        *ret_header_offset = 12;
    }
    return CGM_OK;
}

static int read_header(struct cgm_npy *npy, uint64_t offset, uint64_t size, char *ret_detail)
{
    char reason[CGM_NPY_REASON_BYTES];

    char *text = malloc(size + 1);
    if (text == NULL)
        return refuse_errno(npy->path, "cannot read", ret_detail);
    int status = read_at(npy, text, size, offset, ret_detail);
    if (status == CGM_OK) {
        status = cgm_npy_header_parse(text, size, npy, reason);
        if (status != CGM_OK)
            refuse(npy->path, reason, ret_detail);
    }
    free(text);
    return status;
}

static int check_length(const struct cgm_npy *npy, uint64_t file_bytes, char *ret_detail)
{
    uint64_t present = file_bytes - npy->data_offset;
    char reason[256];

    if (present == npy->bytes)
        return CGM_OK;
    snprintf(reason, sizeof(reason),
             "%s: shape (%" PRIu64 ", %" PRIu64 ") needs %" PRIu64
             " bytes behind the header, the file has %" PRIu64,
             present < npy->bytes ? "truncated" : "trailing bytes", npy->rows, npy->cols,
             npy->bytes, present);
    return refuse(npy->path, reason, ret_detail);
}

static int read_layout(struct cgm_npy *npy, char *ret_detail)
{
    struct stat info;
    uint64_t header_offset, header_bytes;
    char reason[128];

    if (fstat(npy->fd, &info) != 0)
        return refuse_errno(npy->path, "cannot read", ret_detail);
    if (!S_ISREG(info.st_mode))
        return refuse(npy->path, "not a regular file; expected a .npy file", ret_detail);
    uint64_t file_bytes = (uint64_t)info.st_size;
    int status = read_prefix(npy, file_bytes, &header_offset, &header_bytes, ret_detail);
    if (status != CGM_OK)
        return status;
    npy->data_offset = header_offset + header_bytes;
    if (npy->data_offset > file_bytes) {
        snprintf(reason, sizeof(reason),
                 "truncated: its header is %" PRIu64 " bytes long, the file %" PRIu64, header_bytes,
                 file_bytes);
        return refuse(npy->path, reason, ret_detail);
    }
    if (header_bytes > CGM_NPY_HEADER_BYTES_MAX) {
        snprintf(reason, sizeof(reason),
                 "its header is %" PRIu64 " bytes long; expected at most %u", header_bytes,
                 CGM_NPY_HEADER_BYTES_MAX);
        return refuse(npy->path, reason, ret_detail);
    }
    status = read_header(npy, header_offset, header_bytes, ret_detail);
    return status == CGM_OK ? check_length(npy, file_bytes, ret_detail) : status;
}

int cgm_npy_open(const char *path, struct cgm_npy *ret_npy, char *ret_detail)
{
    struct cgm_npy npy = {.path = path};

    /* Non-blocking: a FIFO must be refused, not waited for. */
    npy.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (npy.fd < 0)
        return refuse_errno(path, "cannot open", ret_detail);
    int status = read_layout(&npy, ret_detail);
    if (status != CGM_OK) {
        close(npy.fd);
        return status;
    }
    *ret_npy = npy;
    return CGM_OK;
}

void cgm_npy_close(struct cgm_npy *npy)
{
    close(npy->fd);
    npy->fd = -1;
}

static uint64_t element_offset(const struct cgm_npy *npy, uint64_t index)
{
    return npy->data_offset + index * sizeof(float);
}

static int read_fortran_block(const struct cgm_npy *npy, uint64_t row, uint64_t rows, uint64_t col,
                              uint64_t cols, float *ret_values, uint64_t stride, char *ret_detail)
{
    float *column = calloc(1, TRANSPOSE_BYTES);
    uint64_t step = TRANSPOSE_BYTES / sizeof(float);
    int status = CGM_OK;

    if (column == NULL)
        return refuse_errno(npy->path, "cannot read", ret_detail);
    for (uint64_t c = 0; c < cols && status == CGM_OK; c++) {
        for (uint64_t r = 0; r < rows && status == CGM_OK; r += step) {
            uint64_t count = rows - r < step ? rows - r : step;
            status = read_at(npy, column, count * sizeof(float),
                             element_offset(npy, (col + c) * npy->rows + row + r), ret_detail);
            for (uint64_t i = 0; i < count && status == CGM_OK; i++)
                ret_values[(r + i) * stride + c] = column[i];
        }
    }
    free(column);
    return status;
}

int cgm_npy_read_block(const struct cgm_npy *npy, uint64_t row, uint64_t rows, uint64_t col,
                       uint64_t cols, float *ret_values, uint64_t stride, char *ret_detail)
{
    if (stride == 0)
        stride = cols;
    if (rows == 0 || cols == 0)
        return CGM_OK;
    if (npy->fortran_order)
        return read_fortran_block(npy, row, rows, col, cols, ret_values, stride, ret_detail);
    if (cols == npy->cols && stride == cols)
        return read_at(npy, ret_values, rows * cols * sizeof(float),
                       element_offset(npy, row * cols), ret_detail);
    for (uint64_t r = 0; r < rows; r++) {
        int status = read_at(npy, ret_values + r * stride, cols * sizeof(float),
                             element_offset(npy, (row + r) * npy->cols + col), ret_detail);
        if (status != CGM_OK)
            return status;
    }
    return CGM_OK;
}

int cgm_npy_read(const struct cgm_npy *npy, float *ret_values, char *ret_detail)
{
    return cgm_npy_read_block(npy, 0, npy->rows, 0, npy->cols, ret_values, 0, ret_detail);
}

/* Header and length: an element that nobody writes reads as zero. */
static int write_layout(struct cgm_npy *npy, char *ret_detail)
{
    char header[HEADER_BYTES_MAX];
    struct stat info;

    npy->data_offset = cgm_npy_header_format(npy, header, sizeof(header));
    int status = write_at(npy, header, npy->data_offset, 0, ret_detail);
    if (status != CGM_OK)
        return status;
    if (fstat(npy->fd, &info) != 0)
        return refuse_errno(npy->path, "cannot write", ret_detail);
    if (S_ISREG(info.st_mode) && ftruncate(npy->fd, (off_t)(npy->data_offset + npy->bytes)) != 0)
        return refuse_errno(npy->path, "cannot write", ret_detail);
    return CGM_OK;
}

int cgm_npy_collapse(struct cgm_npy *npy, unsigned axis, char *ret_detail)
{
    if (axis == 0 || axis >= npy->dimensions) {
        snprintf(ret_detail, CGM_NPY_DETAIL_BYTES,
                 "%s: it has %u dimensions; an axis boundary is from 1 to one less", npy->path,
                 npy->dimensions);
        return CGM_INVALID_ARGUMENT;
    }
    cgm_npy_header_collapse(npy, axis);
    return CGM_OK;
}

int cgm_npy_create(const char *path, unsigned dimensions, uint64_t rows, uint64_t cols,
                   struct cgm_npy *ret_npy, char *ret_detail)
{
    struct cgm_npy npy = {
        .dimensions = dimensions,
        .rows = dimensions == 1 ? 1 : rows,
        .cols = cols,
        .path = path,
    };

    uint64_t elements;
    if (__builtin_mul_overflow(npy.rows, npy.cols, &elements) ||
        elements > INT64_MAX / sizeof(float) - HEADER_BYTES_MAX)
        return refuse(path, "the shape overflows: expected at most 2^63 bytes", ret_detail);
    npy.bytes = elements * sizeof(float);
    if (cgm_new_file_open(path, &npy.file) != CGM_OK)
        return refuse_errno(path, "cannot create", ret_detail);
    npy.fd = npy.file.fd;
    int status = write_layout(&npy, ret_detail);
    if (status != CGM_OK) {
        cgm_npy_discard(&npy);
        return status;
    }
    *ret_npy = npy;
    return CGM_OK;
}

int cgm_npy_write_block(const struct cgm_npy *npy, uint64_t row, uint64_t rows, uint64_t col,
                        uint64_t cols, const float *values, uint64_t stride, char *ret_detail)
{
    if (stride == 0)
        stride = cols;
    if (rows == 0 || cols == 0)
        return CGM_OK;
    if (cols == npy->cols && stride == cols)
        return write_at(npy, values, rows * cols * sizeof(float), element_offset(npy, row * cols),
                        ret_detail);
    for (uint64_t r = 0; r < rows; r++) {
        int status = write_at(npy, values + r * stride, cols * sizeof(float),
                              element_offset(npy, (row + r) * npy->cols + col), ret_detail);
        if (status != CGM_OK)
            return status;
    }
    return CGM_OK;
}

int cgm_npy_finish(struct cgm_npy *npy, char *ret_detail)
{
    npy->fd = -1;
    if (cgm_new_file_finish(&npy->file) == CGM_OK)
        return CGM_OK;
    return refuse_errno(npy->path, "cannot write", ret_detail);
}

void cgm_npy_discard(struct cgm_npy *npy)
{
    npy->fd = -1;
    cgm_new_file_discard(&npy->file);
}

int cgm_npy_save(const char *path, unsigned dimensions, uint64_t rows, uint64_t cols,
                 const float *values, char *ret_detail)
{
    struct cgm_npy npy;

    int status = cgm_npy_create(path, dimensions, rows, cols, &npy, ret_detail);
    if (status != CGM_OK)
        return status;
    status = cgm_npy_write_block(&npy, 0, npy.rows, 0, cols, values, 0, ret_detail);
    if (status != CGM_OK) {
        cgm_npy_discard(&npy);
        return status;
    }
    return cgm_npy_finish(&npy, ret_detail);
}
