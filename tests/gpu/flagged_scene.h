/* What the test of flagged products works on: products of random shapes, and one whose rows come
 * and go in chunks. */
#ifndef FLAGGED_SCENE_H
#define FLAGGED_SCENE_H

#include <fcntl.h>

#include "kernels/number_format.h"
#include "kernels/reference.h"
#include "tests/gpu/gpu_fixture.h"

#define REFERENCE_THREADS 16u

static inline uint64_t pick(uint64_t count)
{
    return cgm_random_below(&rng, count);
}

/* Random numbers as this format has them; the caller frees them. */
static inline float *numbers_new(uint64_t count, int dtype)
{
    float *values = malloc(count * sizeof(*values));
    assert_non_null(values);
    cgm_random_fill(&rng, CGM_FILL_NORMAL, values, count);
    cgm_format_round(dtype, values, count);
    return values;
}

static inline void judge(const struct cgm_reference *reference, const struct cgm_view *out,
                         const unsigned char *base)
{
    struct cgm_verdict verdict = {0};
    struct cgm_reference_found found = {.data = base + out->offset_bytes,
                                        .format = out->dtype,
                                        .rows = out->rows,
                                        .cols = out->cols,
                                        .stride = out->stride};
    cgm_reference_check(reference, &found, &verdict);
    if (!cgm_verdict_is_right(&verdict))
        fail_msg("%llu x %llu: ratio %g at %llu, %llu: %g for %g; %llu NaN",
                 (unsigned long long)out->rows, (unsigned long long)out->cols, verdict.ratio,
                 (unsigned long long)verdict.row, (unsigned long long)verdict.col, verdict.found,
                 verdict.expected, (unsigned long long)verdict.no_number);
}

/* ---- any product ------------------------------------------------------------------------------
 */

struct operand {
    struct cgm_view view;
    float *values; /* as stored, without gaps */
};

struct product {
    struct memory memory;
    struct operand a, b, bias, out;
    struct operand twin; /* absent, or where out's numbers go too */
    struct cgm_gemm gemm;
    uint64_t bytes;
    uint32_t n_parts;
    bool by_cols, woven;
    uint32_t tile_cols;
};

#define PRODUCT_BYTES (8 * MIB)

static inline void operand_place(struct product *product, struct operand *operand, uint64_t rows,
                                 uint64_t cols, int dtype)
{
    uint64_t element = cgm_dtype_bytes(dtype), unit = pick(6) ? 16 / element : 1;
    uint64_t stride = (cols + pick(20) + unit - 1) / unit * unit;
    uint64_t offset = (product->bytes + 255) / 256 * 256 + pick(3) * unit * element;
    operand->view = view_of(product->memory.mem, offset, rows, cols, stride, dtype);
    operand->values = numbers_new(rows * cols, dtype);
    for (uint64_t row = 0; row < rows; row++)
        cgm_format_store(dtype, operand->values + row * cols, cols,
                         product->memory.view.base + offset + row * stride * element);
    product->bytes = offset + rows * stride * element;
    assert_true(product->bytes <= PRODUCT_BYTES);
}

/* kind: bits of transa, transb, bf16 or fp16. */
static inline void product_open(struct product *product, int kind)
{
    static const uint64_t sizes[] = {1, 8, 40, 64, 128, 129, 264, 300, 520};
    uint64_t m = sizes[pick(9)], n = sizes[pick(9)], k = pick(4) ? sizes[pick(9)] : 2056;
    bool transa = kind & 1, transb = kind & 2;
    int dtype = kind & 4 ? CGM_DTYPE_BF16 : CGM_DTYPE_FP16;
    int out_dtype = pick(2) ? CGM_DTYPE_FP32 : dtype;
    memset(product, 0, sizeof(*product));
    memory_open(&product->memory, 0, PRODUCT_BYTES);
    memset(product->memory.view.base, 0xff, PRODUCT_BYTES);
    operand_place(product, &product->a, transa ? k : m, transa ? m : k, dtype);
    operand_place(product, &product->b, transb ? n : k, transb ? k : n, dtype);
    operand_place(product, &product->out, m, n, out_dtype);
    if (pick(2))
        operand_place(product, &product->bias, 1, n, out_dtype);
    if (pick(2))
        operand_place(product, &product->twin, m, n, out_dtype);
    host_view_push(&product->memory.view, 0, PRODUCT_BYTES);
    product->gemm = (struct cgm_gemm){.label = label,
                                      .b = product->b.view,
                                      .bias = product->bias.view,
                                      .transa = transa,
                                      .transb = transb,
                                      .accumulate = pick(3) == 0};
    product->n_parts = 1 + (uint32_t)pick(10);
    product->by_cols = pick(2);
    product->woven = pick(2);
    product->tile_cols = (uint32_t)pick(3) * 128;
}

static inline void product_close(struct product *product)
{
    free(product->a.values);
    free(product->b.values);
    free(product->bias.values);
    free(product->out.values);
    free(product->twin.values);
    memory_close(&product->memory);
}

static inline struct cgm_view cut(const struct cgm_view *view, bool cols, uint64_t first,
                                  uint64_t count)
{
    struct cgm_view part = *view;
    part.offset_bytes += first * (cols ? 1 : view->stride) * cgm_dtype_bytes(view->dtype);
    *(cols ? &part.cols : &part.rows) = count;
    return part;
}

/* Cuts out into parts of rows or columns, the last one first. */
static inline int product_multiply(struct lane *lane, const struct product *product)
{
    struct cgm_gemm_part parts[CGM_GEMM_PARTS_MAX];
    struct cgm_flagged_gemm flagged = {.gemm = product->gemm, .parts = parts};
    const struct cgm_view *out = &product->out.view;
    uint64_t length = product->by_cols ? out->cols : out->rows;
    for (uint32_t i = product->n_parts; i-- > 0;) {
        uint64_t first = length * i / product->n_parts;
        uint64_t count = length * (i + 1) / product->n_parts - first;
        struct cgm_gemm_part *part = &parts[flagged.n_parts];
        *part = (struct cgm_gemm_part){.a = product->a.view,
                                       .out = cut(out, product->by_cols, first, count),
                                       .col = product->by_cols ? first : 0};
        if (!product->by_cols)
            part->a = cut(&product->a.view, product->gemm.transa, first, count);
        if (product->twin.view.mem)
            part->also[part->n_also++] = cut(&product->twin.view, product->by_cols, first, count);
        flagged.n_parts += count > 0;
    }
    flagged.woven = product->woven;
    flagged.tile_cols = product->tile_cols;
    return ops->flagged_gemm(lane->queue, &flagged);
}

static inline void product_judge(struct product *product)
{
    const struct cgm_view *out = &product->out.view;
    struct cgm_reference reference;
    struct cgm_reference_product terms = {.a = product->a.values,
                                          .b = product->b.values,
                                          .a_stride = product->a.view.cols,
                                          .b_stride = product->b.view.cols,
                                          .depth = product->gemm.transa ? product->a.view.rows
                                                                        : product->a.view.cols,
                                          .transa = product->gemm.transa,
                                          .transb = product->gemm.transb,
                                          .threads = REFERENCE_THREADS};
    /* What the device's library does part by part may round before each addend. */
    bool addends = product->gemm.accumulate || product->bias.values;
    assert_int_equal(cgm_reference_init(&reference, out->rows, out->cols, addends), 0);
    reference.partial_rounding = 2;
    assert_int_equal(cgm_reference_add_product(&reference, &terms), 0);
    if (product->gemm.accumulate)
        cgm_reference_add_matrix(&reference, product->out.values, out->cols);
    if (product->bias.values)
        cgm_reference_add_bias(&reference, product->bias.values);
    host_view_pull(&product->memory.view, 0, PRODUCT_BYTES);
    judge(&reference, out, product->memory.view.base);
    if (product->twin.view.mem)
        judge(&reference, &product->twin.view, product->memory.view.base);
    cgm_reference_fini(&reference);
}

/* ---- a product in chunks of rows --------------------------------------------------------------
 */

#define CHUNKS 4u
#define CHUNK_ROWS 512u
#define ROWS (CHUNKS * CHUNK_ROWS)
#define COLS 4096u
#define DEPTH 512u

struct chunks {
    struct memory device; /* a, b, out, spare */
    struct cgm_mem *host; /* a as it will be, out as it was taken: a memfd */
    unsigned char *base;  /* of host */
    struct cgm_view a, b, out, spare, coming, taken;
    struct cgm_flag *arrived[CHUNKS], *finished[CHUNKS];
    struct cgm_reference reference;
    uint64_t epoch;
};

static inline struct cgm_view matrix(struct cgm_mem *mem, uint64_t *offset, uint64_t rows,
                                     uint64_t cols)
{
    struct cgm_view view = view_of(mem, *offset, rows, cols, cols, CGM_DTYPE_BF16);
    *offset += rows * cols * 2;
    return view;
}

/* Host memory, which only copy engines read. */
static inline void chunks_open_host(struct chunks *chunks)
{
    char detail[CGM_CQE_DETAIL];
    uint64_t bytes = (uint64_t)ROWS * (DEPTH + COLS) * 2, offset = 0;
    int fd = memfd_create("chunks", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(fallocate(fd, 0, 0, (off_t)bytes), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    chunks->base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(chunks->base, MAP_FAILED);
    struct cgm_memory_segment segment = {.kind = 1, .fd = fd, .length = bytes};
    assert_int_equal(
        ops->mem_import(backend, 0, &segment, 1, false, detail, sizeof(detail), &chunks->host),
        CGM_OK);
    close(fd);
    chunks->coming = matrix(chunks->host, &offset, ROWS, DEPTH);
    chunks->taken = matrix(chunks->host, &offset, ROWS, COLS);
}

static inline void chunks_open_device(struct chunks *chunks)
{
    uint64_t offset = 0, bytes = ((uint64_t)ROWS * DEPTH + 2 * DEPTH * COLS + ROWS * COLS) * 2;
    memory_open(&chunks->device, 0, bytes);
    chunks->a = matrix(chunks->device.mem, &offset, ROWS, DEPTH);
    chunks->b = matrix(chunks->device.mem, &offset, DEPTH, COLS);
    chunks->out = matrix(chunks->device.mem, &offset, ROWS, COLS);
    chunks->spare = matrix(chunks->device.mem, &offset, DEPTH, COLS);
    memset(chunks->device.view.base, 0xff, bytes);
    for (uint32_t i = 0; i < CHUNKS; i++) {
        assert_int_equal(ops->flag_new(backend, 0, CGM_FLAG_DEVICE, &chunks->arrived[i]), CGM_OK);
        assert_int_equal(ops->flag_new(backend, 0, CGM_FLAG_DEVICE, &chunks->finished[i]), CGM_OK);
    }
}

static inline void chunks_open(struct chunks *chunks)
{
    memset(chunks, 0, sizeof(*chunks));
    chunks->epoch = 1;
    chunks_open_host(chunks);
    chunks_open_device(chunks);
    float *a = numbers_new((uint64_t)ROWS * DEPTH, CGM_DTYPE_BF16);
    float *b = numbers_new((uint64_t)DEPTH * COLS, CGM_DTYPE_BF16);
    struct cgm_reference_product terms = {.a = a,
                                          .b = b,
                                          .a_stride = DEPTH,
                                          .b_stride = COLS,
                                          .depth = DEPTH,
                                          .threads = REFERENCE_THREADS};
    cgm_format_store(CGM_FORMAT_BF16, a, (uint64_t)ROWS * DEPTH, chunks->base);
    cgm_format_store(CGM_FORMAT_BF16, b, (uint64_t)DEPTH * COLS,
                     chunks->device.view.base + chunks->b.offset_bytes);
    host_view_push(&chunks->device.view, 0, chunks->device.view.bytes);
    assert_int_equal(cgm_reference_init(&chunks->reference, ROWS, COLS, false), 0);
    assert_int_equal(cgm_reference_add_product(&chunks->reference, &terms), 0);
    free(a);
    free(b);
}

static inline void chunks_close(struct chunks *chunks)
{
    for (uint32_t i = 0; i < CHUNKS; i++) {
        ops->flag_free(chunks->arrived[i]);
        ops->flag_free(chunks->finished[i]);
    }
    cgm_reference_fini(&chunks->reference);
    ops->mem_free(chunks->host);
    munmap(chunks->base, (size_t)ROWS * (DEPTH + COLS) * 2);
    memory_close(&chunks->device);
}

/* Once more, from NaN. */
static inline void chunks_reset(struct chunks *chunks, struct lane *lane)
{
    chunks->epoch++;
    memset(chunks->base + chunks->taken.offset_bytes, 0xff, (size_t)ROWS * COLS * 2);
    assert_int_equal(ops->poison(lane->queue, &chunks->a), CGM_OK);
    assert_int_equal(ops->poison(lane->queue, &chunks->out), CGM_OK);
    lane_finish(lane);
}

/* The last chunk first. */
static inline int chunks_multiply(const struct chunks *chunks, struct lane *lane)
{
    struct cgm_gemm_part parts[CHUNKS];
    struct cgm_flagged_gemm flagged = {
        .gemm = {.label = label, .b = chunks->b}, .parts = parts, .n_parts = CHUNKS};
    for (uint32_t i = 0; i < CHUNKS; i++) {
        uint32_t chunk = CHUNKS - 1 - i;
        parts[i] =
            (struct cgm_gemm_part){.a = cut(&chunks->a, false, chunk * CHUNK_ROWS, CHUNK_ROWS),
                                   .out = cut(&chunks->out, false, chunk * CHUNK_ROWS, CHUNK_ROWS),
                                   .await = {chunks->arrived[chunk], chunks->epoch},
                                   .publish = {chunks->finished[chunk], chunks->epoch}};
    }
    return ops->flagged_gemm(lane->queue, &flagged);
}

static inline void chunks_bring(const struct chunks *chunks, struct lane *lane, uint32_t chunk)
{
    struct cgm_copy copy = {.label = label,
                            .dst = cut(&chunks->a, false, chunk * CHUNK_ROWS, CHUNK_ROWS),
                            .src = cut(&chunks->coming, false, chunk * CHUNK_ROWS, CHUNK_ROWS)};
    assert_int_equal(ops->copy(lane->queue, &copy), CGM_OK);
    assert_int_equal(ops->signal(lane->queue, chunks->arrived[chunk], chunks->epoch), CGM_OK);
}

static inline void chunks_take(const struct chunks *chunks, struct lane *lane, uint32_t chunk)
{
    struct cgm_copy copy = {.label = label,
                            .dst = cut(&chunks->taken, false, chunk * CHUNK_ROWS, CHUNK_ROWS),
                            .src = cut(&chunks->out, false, chunk * CHUNK_ROWS, CHUNK_ROWS)};
    assert_int_equal(ops->wait(lane->queue, chunks->finished[chunk], chunks->epoch, &label),
                     CGM_OK);
    assert_int_equal(ops->copy(lane->queue, &copy), CGM_OK);
}

static inline void chunks_judge(struct chunks *chunks)
{
    host_view_pull(&chunks->device.view, 0, chunks->device.view.bytes);
    judge(&chunks->reference, &chunks->out, chunks->device.view.base);
}

static inline void chunks_judge_taken(const struct chunks *chunks)
{
    judge(&chunks->reference, &chunks->taken, chunks->base);
}

#endif
