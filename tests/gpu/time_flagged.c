/* The rate of a flagged product beside that of the device's library, which takes the best of its
 * candidates; bf16, one GPU, no communication: in one part with wide and with narrow tiles, and in
 * four parts with flags. Variants in turn, median of rounds. Nothing is
 * checked here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/executor/cuda/queue.h"
#include "kernels/device_kernels.h"
#include "proto/status.h"

#define ROUNDS 7u
#define ROUND_US 4000.0
#define PARTS 4u

static const struct cgm_backend_ops *const ops = &cgm_backend_cuda;
static struct cgm_backend *backend;
static struct cgm_queue *queue;
static struct cgm_flag *done, *awaited, *published[PARTS];

static void must(int status, const char *what)
{
    if (status != CGM_OK) {
        fprintf(stderr, "%s: %s\n", what, cgm_status_text(status));
        exit(1);
    }
}

struct shape {
    uint64_t m, n, k;
    bool transa, transb;
};

enum variant { LIBRARY, WIDE, NARROW, FLAGGED, VARIANTS };

struct product {
    struct cgm_mem *mem;
    struct cgm_gemm gemm;
    struct cgm_gemm_part parts[PARTS];
    double us[VARIANTS][ROUNDS];
};

static struct cgm_view lay(struct cgm_mem *mem, uint64_t *at, uint64_t rows, uint64_t cols)
{
    struct cgm_view view = {mem, *at, rows, cols, cols, CGM_DTYPE_BF16};
    struct cgm_kernel_matrix numbers = {.data = mem->at[0] + *at,
                                        .rows = rows,
                                        .cols = cols,
                                        .stride = cols,
                                        .format = CGM_DTYPE_BF16};
    must(cgm_kernel_noise_launch(&numbers, 0) == cudaSuccess ? CGM_OK : CGM_INTERNAL, "noise");
    *at += rows * cols * 2;
    return view;
}

/* Four blocks of rows, each awaiting a flag that is there and publishing one. */
static void cut(struct product *product, const struct shape *shape)
{
    uint64_t rows = shape->m / PARTS;
    for (uint32_t i = 0; i < PARTS; i++) {
        struct cgm_gemm_part *part = &product->parts[i];
        *part = (struct cgm_gemm_part){.a = product->gemm.a,
                                       .out = product->gemm.out,
                                       .await = {awaited, 0},
                                       .publish = {published[i], 1}};
        part->out.rows = rows;
        part->out.offset_bytes += i * rows * part->out.stride * 2;
        part->a.offset_bytes += i * rows * (shape->transa ? 1 : part->a.stride) * 2;
        *(shape->transa ? &part->a.cols : &part->a.rows) = rows;
    }
}

static void make(struct product *product, const struct shape *shape)
{
    uint64_t at = 0, m = shape->m, n = shape->n, k = shape->k;
    memset(product, 0, sizeof(*product));
    must(ops->mem_alloc(backend, 0, (m * k + k * n + m * n) * 2, 0, &product->mem), "memory");
    struct cgm_gemm *gemm = &product->gemm;
    gemm->transa = shape->transa;
    gemm->transb = shape->transb;
    gemm->a = lay(product->mem, &at, shape->transa ? k : m, shape->transa ? m : k);
    gemm->b = lay(product->mem, &at, shape->transb ? n : k, shape->transb ? k : n);
    gemm->out = lay(product->mem, &at, m, n);
    must(cudaDeviceSynchronize() == cudaSuccess ? CGM_OK : CGM_INTERNAL, "noise");
    cut(product, shape);
    must(ops->prepare_gemm(queue, gemm, CGM_PREPARE_TRIALS), "preparation");
}

static void multiply(const struct product *product, enum variant variant)
{
    struct cgm_gemm_part whole = {.a = product->gemm.a, .out = product->gemm.out};
    struct cgm_flagged_gemm flagged = {.gemm = product->gemm,
                                       .parts = variant == FLAGGED ? product->parts : &whole,
                                       .n_parts = variant == FLAGGED ? PARTS : 1,
                                       .tile_cols = variant == WIDE     ? 256
                                                    : variant == NARROW ? 128
                                                                        : 0};
    must(variant == LIBRARY ? ops->gemm(queue, &product->gemm) : ops->flagged_gemm(queue, &flagged),
         "product");
}

static double time_round(const struct product *product, enum variant variant, uint32_t count)
{
    static uint64_t epoch;
    static cudaEvent_t begin, end;
    cudaStream_t stream = queue->stream->handle;
    float ms;
    if (!begin && (cudaEventCreate(&begin) || cudaEventCreate(&end)))
        exit(1);
    must((int)cudaEventRecord(begin, stream), "event");
    for (uint32_t i = 0; i < count; i++)
        multiply(product, variant);
    must((int)cudaEventRecord(end, stream), "event");
    must(ops->signal(queue, done, ++epoch), "signal");
    while (ops->flag_read(done) < epoch)
        ;
    must((int)cudaEventSynchronize(end) | (int)cudaEventElapsedTime(&ms, begin, end), "event");
    return (double)ms * 1e3 / count;
}

static int by_value(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static void time_shape(const struct shape *shape)
{
    static struct product product;
    double us[VARIANTS], flops = 2.0 * (double)shape->m * (double)shape->n * (double)shape->k;
    make(&product, shape);
    double once = time_round(&product, LIBRARY, 1);
    uint32_t count = once < ROUND_US ? (uint32_t)(ROUND_US / once) : 1;
    for (uint32_t round = 0; round < ROUNDS; round++)
        for (int v = 0; v < VARIANTS; v++)
            product.us[v][round] = time_round(&product, v, count);
    for (int v = 0; v < VARIANTS; v++) {
        qsort(product.us[v], ROUNDS, sizeof(double), by_value);
        us[v] = product.us[v][ROUNDS / 2];
    }
    printf("%5llu %5llu %5llu %c%c: library %7.1f us (%3.0f TFLOP/s), wide tiles %7.1f us: %.3f, "
           "narrow %7.1f us: %.3f, in %u parts with flags %7.1f us: %.3f\n",
           (unsigned long long)shape->m, (unsigned long long)shape->n, (unsigned long long)shape->k,
           shape->transa ? 'T' : 'N', shape->transb ? 'T' : 'N', us[LIBRARY],
           flops / us[LIBRARY] / 1e6, us[WIDE], us[LIBRARY] / us[WIDE], us[NARROW],
           us[LIBRARY] / us[NARROW], PARTS, us[FLAGGED], us[LIBRARY] / us[FLAGGED]);
    ops->mem_free(product.mem);
}

int main(void)
{
    static const struct shape shapes[] = {
        {8192, 14336, 8192, false, false},  {8192, 14336, 8192, false, true},
        {2048, 14336, 8192, false, false},  {2048, 14336, 8192, false, true},
        {2048, 14336, 8192, true, false},   {2048, 14336, 8192, true, true},
        {512, 14336, 8192, false, false},   {8192, 2560, 8192, false, false},
        {8192, 8192, 7168, false, false},   {8192, 8192, 2048, false, false},
        {2048, 8192, 7168, false, false},   {512, 8192, 7168, false, false},
        {4096, 12288, 12288, false, false}, {4864, 1024, 8256, false, false},
        {4864, 2048, 8256, false, false},   {4864, 4096, 2064, false, false},
        {8192, 10240, 2048, false, false},  {512, 2048, 8192, false, false},
        {128, 4096, 8192, false, false},    {2048, 2560, 8192, false, false},
    };
    const struct cgm_backend_options options = {.devices = 1};
    char detail[256] = "";
    if (ops->open(&options, detail, sizeof(detail), &backend) != CGM_OK) {
        fprintf(stderr, "%s\n", detail);
        return 77;
    }
    must(ops->queue_new(backend, 0, 0, 0, &queue), "queue");
    must(ops->flag_new(backend, 0, CGM_FLAG_HOST, &done), "flag");
    must(ops->flag_new(backend, 0, CGM_FLAG_DEVICE, &awaited), "flag");
    for (uint32_t i = 0; i < PARTS; i++)
        must(ops->flag_new(backend, 0, CGM_FLAG_DEVICE, &published[i]), "flag");
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        time_shape(&shapes[i]);
    return 0;
}
