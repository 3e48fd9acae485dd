#include "client/ctl/transfer.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "client/common/progress.h"
#include "proto/status.h"

#define PIECE_ELEMENTS (4u << 20)

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

void cgm_transfer_catch_signals(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, before;

    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        if (signals[i] != SIGHUP || (sigaction(SIGHUP, NULL, &before) == 0 &&
                                     before.sa_handler != SIG_IGN)) /* as nohup leaves it */
            sigaction(signals[i], &action, NULL);
}

/* A piece is some whole rows or a part of the only row; `element` is its first one's position. */
typedef int (*piece_fn)(const struct cgm_npy *npy, uint64_t row, uint64_t rows, uint64_t col,
                        uint64_t cols, uint64_t element, void *context, char *ret_detail);

static int transfer(const struct cgm_npy *npy, const char *label, piece_fn move, void *context,
                    char *ret_detail)
{
    uint64_t cols = npy->rows > 1 || npy->cols < PIECE_ELEMENTS ? npy->cols : PIECE_ELEMENTS;
    uint64_t rows = cols > 0 && cols < PIECE_ELEMENTS ? PIECE_ELEMENTS / cols : 1;
    struct cgm_progress progress;
    int status = CGM_OK;

    cgm_progress_init(&progress, stderr, label, npy->bytes);
    for (uint64_t row = 0; row < npy->rows; row += rows) {
        uint64_t n_rows = npy->rows - row < rows ? npy->rows - row : rows;
        for (uint64_t col = 0; col < npy->cols && status == CGM_OK; col += cols) {
            uint64_t n_cols = npy->cols - col < cols ? npy->cols - col : cols;
            uint64_t element = row * npy->cols + col;
            cgm_progress_update(&progress, element * sizeof(float));
            status = move(npy, row, n_rows, col, n_cols, element, context, ret_detail);
            if (interrupted) {
                snprintf(ret_detail, CGM_NPY_DETAIL_BYTES, "%s: interrupted", npy->path);
                status = CGM_CANCELLED;
            }
        }
    }
    cgm_progress_fini(&progress);
    return status;
}

static int read_piece(const struct cgm_npy *npy, uint64_t row, uint64_t rows, uint64_t col,
                      uint64_t cols, uint64_t element, void *context, char *ret_detail)
{
    return cgm_npy_read_block(npy, row, rows, col, cols, (float *)context + element, 0, ret_detail);
}

int cgm_transfer_read(const struct cgm_npy *npy, float *ret_values, char *ret_detail)
{
    return transfer(npy, "reading", read_piece, ret_values, ret_detail);
}

/* What write_piece needs and does not change. */
struct source {
    const float *values;
};

static int write_piece(const struct cgm_npy *npy, uint64_t row, uint64_t rows, uint64_t col,
                       uint64_t cols, uint64_t element, void *context, char *ret_detail)
{
    const struct source *source = context;

    return cgm_npy_write_block(npy, row, rows, col, cols, source->values + element, 0, ret_detail);
}

int cgm_transfer_write(const struct cgm_npy *npy, const float *values, char *ret_detail)
{
    struct source source = {values};

    return transfer(npy, "writing", write_piece, &source, ret_detail);
}
