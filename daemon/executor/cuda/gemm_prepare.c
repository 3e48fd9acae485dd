/* Choosing a product's code. With launches held a product is run by each of the candidates that
 * cuBLASLt names, and the fastest one is kept; without, it gets the best of what was run before. */
#include <stdio.h>
#include <string.h>

#include "daemon/executor/cuda/gemm.h"
#include "daemon/executor/cuda/gemm_codes.h"
#include "daemon/executor/cuda/queue.h"
#include "daemon/executor/cuda/view.h"
#include "proto/status.h"
#include "proto/types.h"

/* No candidate and no round is begun after this long. */
#define TRIAL_NS 50000000ull
#define RUNS 4
/* How often the code for so many times fewer rows is loaded, and down to which number. */
#define FEWER 4u
#define FEWER_TIMES 3
#define FEWER_MIN 16u
/* Less work than this is not worth a choice. */
#define FLOPS_MIN 2e9
/* Written between two runs, so that inputs come from memory: more than an L2 cache holds. */
#define FLUSH_BYTES (96ull << 20)
/* cuBLASLt's own first candidate stays unless another one is faster by this factor. */
#define GAIN_MIN 1.03f

typedef unsigned long long ull;

/* ---- memory to run it on -------------------------------------------------------------------- */

struct stage {
    struct cgm_device *device;
    struct cgm_kernel_gemm g; /* placed in memory */
    struct cgm_stream stream;
    char *memory, *flush; /* flush NULL: no room for trials */
    cudaEvent_t begin, end;
};

static uint64_t bytes_of(const struct cgm_kernel_matrix *matrix)
{
    uint64_t bytes = matrix->rows * matrix->stride * cgm_dtype_bytes(matrix->format);
    return (bytes + 255) / 256 * 256 + 256;
}

/* Inside its 256 bytes it begins as far off as the real one. */
static char *place(struct cgm_kernel_matrix *matrix, char *at)
{
    uint64_t bytes = bytes_of(matrix);
    matrix->data = at + (uintptr_t)matrix->data % CGM_GEMM_ALIGN_MAX;
    return at + bytes;
}

/* Without trials, a and b share what the longer of them needs. From the stream's pool: cudaMalloc
 * would map it for every peer, which takes longer than all trials. */
static int stage_open(struct stage *stage, struct cgm_device *device,
                      const struct cgm_kernel_gemm *g, bool trials)
{
    uint64_t a = bytes_of(&g->a), b = bytes_of(&g->b), inputs = a > b ? a : b;
    uint64_t rest = bytes_of(&g->out) + CGM_GEMM_WORKSPACE_BYTES + CGM_GEMM_BIAS_BYTES;
    uint64_t bytes = trials ? a + b + rest + FLUSH_BYTES : inputs + rest;
    *stage = (struct stage){.device = device, .g = *g, .stream = {.handle = device->service}};
    int status = cgm_cuda_try(cudaMallocAsync((void **)&stage->memory, bytes, device->service),
                              "cudaMallocAsync for the first run of a product", device->index);
    if (status != CGM_OK)
        return status;
    char *at = place(&stage->g.a, stage->memory);
    at = place(&stage->g.b, trials ? at : stage->memory);
    at = place(&stage->g.out, trials ? at : stage->memory + inputs);
    stage->stream.workspace = at;
    if (g->bias.data)
        stage->g.bias.data = at + CGM_GEMM_WORKSPACE_BYTES;
    if (trials)
        stage->flush = at + CGM_GEMM_WORKSPACE_BYTES + CGM_GEMM_BIAS_BYTES;
    return CGM_OK;
}

static int stage_close(struct stage *stage)
{
    uint32_t device = stage->device->index;
    int status =
        cgm_cuda_check(cudaFreeAsync(stage->memory, stage->stream.handle), "cudaFreeAsync", device);
    return status == CGM_OK ? cgm_cuda_check(cudaStreamSynchronize(stage->stream.handle),
                                             "cudaFreeAsync", device)
                            : status;
}

/* Once, on whatever is there, so that its code is loaded. */
static int run_once(struct stage *stage, const struct cgm_gemm_entry *entry)
{
    int status = cgm_gemm_multiply(stage->device, &stage->stream, &stage->g, entry);
    if (status == CGM_OK)
        status = cgm_cuda_check(cudaStreamSynchronize(stage->stream.handle),
                                "the first run of a product", stage->device->index);
    if (status == CGM_OK)
        cgm_gemm_codes_add(stage->device->codes, entry);
    return status;
}

/* ---- trials --------------------------------------------------------------------------------- */

static int make_noise(const struct stage *stage)
{
    const struct cgm_kernel_matrix *const matrices[] = {&stage->g.a, &stage->g.b, &stage->g.out};
    int status = CGM_OK;
    for (size_t i = 0; i < 3 && status == CGM_OK; i++)
        status = cgm_cuda_check(cgm_kernel_noise_launch(matrices[i], stage->stream.handle), "noise",
                                stage->device->index);
    return status;
}

static int time_run(struct stage *stage, const struct cgm_gemm_entry *entry, float *ret_ms)
{
    uint32_t device = stage->device->index;
    cudaStream_t stream = stage->stream.handle;
    int status = cgm_cuda_check(cudaMemsetAsync(stage->flush, 0, FLUSH_BYTES, stream),
                                "cudaMemsetAsync", device);
    if (status == CGM_OK)
        status = cgm_cuda_check(cudaEventRecord(stage->begin, stream), "cudaEventRecord", device);
    if (status == CGM_OK)
        status = cgm_gemm_multiply(stage->device, &stage->stream, &stage->g, entry);
    if (status == CGM_OK)
        status = cgm_cuda_check(cudaEventRecord(stage->end, stream), "cudaEventRecord", device);
    if (status == CGM_OK)
        status = cgm_cuda_check(cudaEventSynchronize(stage->end), "a trial of a product", device);
    if (status == CGM_OK)
        status = cgm_cuda_check(cudaEventElapsedTime(ret_ms, stage->begin, stage->end),
                                "cudaEventElapsedTime", device);
    return status;
}

struct trial {
    const struct cgm_gemm_candidates *candidates;
    uint64_t begin_ns;
    uint32_t count;                /* those that run */
    float ms[CGM_GEMM_CANDIDATES]; /* the best run of each */
};

static bool is_long(const struct trial *trial)
{
    return cgm_cuda_now_ns() - trial->begin_ns > TRIAL_NS;
}

/* Loads the candidates' code. Some may not run: those before are good enough. */
static int load_candidates(struct stage *stage, struct cgm_gemm_entry *entry, struct trial *trial)
{
    int status = CGM_OK;
    while (trial->count < trial->candidates->count && (trial->count == 0 || !is_long(trial))) {
        entry->algorithm = trial->candidates->algorithm[trial->count];
        status = run_once(stage, entry);
        if (status != CGM_OK)
            break;
        trial->count++;
    }
    return trial->count > 0 ? CGM_OK : status;
}

/* In turn: clocks rise in the beginning, which would count against those that come first. */
static int time_candidates(struct stage *stage, struct cgm_gemm_entry *entry, struct trial *trial)
{
    int status = CGM_OK;
    for (int run = 0; run < RUNS && status == CGM_OK && (run == 0 || !is_long(trial)); run++)
        for (uint32_t i = 0; i < trial->count && status == CGM_OK; i++) {
            float ms = 0;
            entry->algorithm = trial->candidates->algorithm[i];
            status = time_run(stage, entry, &ms);
            trial->ms[i] = run == 0 || ms < trial->ms[i] ? ms : trial->ms[i];
        }
    return status;
}

static uint32_t best_of(const struct trial *trial)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < trial->count; i++)
        if (trial->ms[i] * (best == 0 ? GAIN_MIN : 1.0f) < trial->ms[best])
            best = i;
    return best;
}

static void log_choice(const struct stage *stage, const struct cgm_gemm_key *key, uint32_t chosen,
                       const float *ms, uint32_t tried)
{
    char times[128] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < tried && used < sizeof(times); i++)
        used += (size_t)snprintf(times + used, sizeof(times) - used, " %.1f", (double)ms[i] * 1e3);
    cgm_cuda_log(7, "device %u: product %llu x %llu x %llu %s: candidate %u of%s us",
                 stage->device->index, (ull)key->m, (ull)key->n, (ull)key->k,
                 cgm_type_name(CGM_TABLE_DTYPE, key->dtype), chosen, times);
}

static int try_candidates(struct stage *stage, struct cgm_gemm_entry *entry,
                          const struct cgm_gemm_candidates *candidates)
{
    struct trial trial = {.candidates = candidates, .begin_ns = cgm_cuda_now_ns()};
    int status = make_noise(stage);
    if (status == CGM_OK)
        status = load_candidates(stage, entry, &trial);
    if (status == CGM_OK)
        status = time_candidates(stage, entry, &trial);
    if (status != CGM_OK)
        return status;
    uint32_t best = best_of(&trial);
    entry->algorithm = candidates->algorithm[best];
    log_choice(stage, &entry->key, best, trial.ms, trial.count);
    return CGM_OK;
}

static int with_events(struct stage *stage, struct cgm_gemm_entry *entry,
                       const struct cgm_gemm_candidates *candidates)
{
    uint32_t device = stage->device->index;
    int status = cgm_cuda_check(cudaEventCreate(&stage->begin), "cudaEventCreate", device);
    if (status == CGM_OK)
        status = cgm_cuda_check(cudaEventCreate(&stage->end), "cudaEventCreate", device);
    if (status == CGM_OK)
        status = try_candidates(stage, entry, candidates);
    if (stage->begin)
        cudaEventDestroy(stage->begin);
    if (stage->end)
        cudaEventDestroy(stage->end);
    return status;
}

/* ---- choosing ------------------------------------------------------------------------------- */

/* The choice of another device of the same kind: equal products are the same code everywhere. */
static bool take_from_another(const struct cgm_backend *backend, const struct cgm_device *device,
                              struct cgm_gemm_entry *entry)
{
    bool found = false;
    for (uint32_t i = 0; i < backend->n_devices && !found; i++) {
        const struct cgm_device *other = &backend->devices[i];
        if (other == device || memcmp(other->kind, device->kind, sizeof(device->kind)) != 0)
            continue;
        const struct cgm_gemm_entry *known = cgm_gemm_table_lock(other->gemms, &entry->key);
        found = known && !known->plain;
        if (found)
            entry->algorithm = known->algorithm;
        cgm_gemm_table_unlock(other->gemms);
    }
    return found;
}

static void log_known(const struct cgm_device *device, const struct cgm_gemm_entry *entry,
                      const char *what, uint64_t number)
{
    cgm_cuda_log(7, "device %u: product %llu x %llu x %llu %s: %s %llu, loaded before",
                 device->index, (ull)entry->key.m, (ull)entry->key.n, (ull)entry->key.k,
                 cgm_type_name(CGM_TABLE_DTYPE, entry->key.dtype), what, (ull)number);
}

/* The best of what is there: what another device took, else what cuBLASLt would take, else what was
 * taken for the nearest number of rows. */
static int choose_known(struct cgm_queue *queue, struct cgm_gemm_entry *entry,
                        const struct cgm_gemm_candidates *candidates)
{
    struct cgm_device *device = queue->device;
    if (take_from_another(queue->backend, device, entry))
        return cgm_gemm_codes_has(device->codes, &entry->key, &entry->algorithm) ? CGM_OK
                                                                                 : CGM_NOT_FOUND;
    for (uint32_t i = 0; i < candidates->count; i++)
        if (cgm_gemm_codes_has(device->codes, &entry->key, &candidates->algorithm[i])) {
            entry->algorithm = candidates->algorithm[i];
            log_known(device, entry, "candidate", i);
            return CGM_OK;
        }
    uint64_t rows = cgm_gemm_codes_nearest(device->codes, device->chooser, entry);
    if (rows)
        log_known(device, entry, "as for rows", rows);
    return rows ? CGM_OK : CGM_NOT_FOUND;
}

/* Fewer rows than a plan's capacity are common, and cuBLASLt takes other code for them: it is
 * loaded now, so that no launch is held for it later. Whatever fails here is only slower then. */
static void load_for_fewer_rows(struct stage *stage, const struct cgm_gemm_key *key)
{
    uint64_t rows = key->m / FEWER;
    for (int i = 0; i < FEWER_TIMES && rows >= FEWER_MIN; i++, rows /= FEWER) {
        struct cgm_gemm_key fewer = *key;
        struct cgm_gemm_entry entry;
        struct cgm_gemm_candidates candidates;
        fewer.m = stage->g.out.rows = rows;
        *(stage->g.transa ? &stage->g.a.cols : &stage->g.a.rows) = rows;
        cgm_gemm_entry_init(&entry, stage->device->chooser, &fewer, &candidates);
        if (!entry.plain && !cgm_gemm_codes_has(stage->device->codes, &fewer, &entry.algorithm))
            run_once(stage, &entry);
        cgm_gemm_entry_fini(&entry);
    }
}

static int choose_held(struct cgm_queue *queue, struct cgm_gemm_entry *entry,
                       const struct cgm_gemm_candidates *candidates,
                       const struct cgm_kernel_gemm *g, enum cgm_prepare how)
{
    struct stage stage;
    double flops = 2.0 * (double)entry->key.m * (double)entry->key.n * (double)entry->key.k;
    bool is_taken = take_from_another(queue->backend, queue->device, entry);
    bool large = how == CGM_PREPARE_TRIALS && flops >= FLOPS_MIN;
    bool trials = large && !is_taken && candidates->count > 1;
    int status = stage_open(&stage, queue->device, g, trials);
    if (status == CGM_NO_MEMORY && trials)
        status = stage_open(&stage, queue->device, g, trials = false);
    if (status != CGM_OK)
        return status;
    status = trials ? with_events(&stage, entry, candidates) : run_once(&stage, entry);
    if (status == CGM_OK && large)
        load_for_fewer_rows(&stage, &entry->key);
    int closed = stage_close(&stage);
    return status == CGM_OK ? closed : status;
}

static bool is_prepared(struct cgm_gemm_table *table, const struct cgm_gemm_key *key)
{
    bool known = cgm_gemm_table_lock(table, key) != NULL;
    cgm_gemm_table_unlock(table);
    return known;
}

static int prepare(struct cgm_queue *queue, const struct cgm_gemm_key *key,
                   const struct cgm_kernel_gemm *g, enum cgm_prepare how)
{
    struct cgm_gemm_entry entry;
    struct cgm_gemm_candidates candidates;
    int status = CGM_OK;
    if (is_prepared(queue->device->gemms, key))
        return CGM_OK;
    cgm_gemm_entry_init(&entry, queue->device->chooser, key, &candidates);
    if (!entry.plain)
        status = how == CGM_PREPARE_KNOWN ? choose_known(queue, &entry, &candidates)
                                          : choose_held(queue, &entry, &candidates, g, how);
    if (status == CGM_OK)
        cgm_gemm_table_add(queue->device->gemms, &entry);
    else
        cgm_gemm_entry_fini(&entry);
    return status;
}

int cgm_cuda_prepare_gemm(struct cgm_queue *queue, const struct cgm_gemm *gemm,
                          enum cgm_prepare how)
{
    const struct cgm_kernel_gemm g = {.a = cgm_view_outline(&gemm->a),
                                      .b = cgm_view_outline(&gemm->b),
                                      .out = cgm_view_outline(&gemm->out),
                                      .bias = cgm_view_outline(&gemm->bias),
                                      .transa = gemm->transa,
                                      .transb = gemm->transb,
                                      .accumulate = gemm->accumulate};
    if (!g.a.data || !g.b.data || !g.out.data || !cgm_gemm_fits(&g) ||
        !cgm_gemm_spares_few(queue->device, gemm))
        return CGM_INVALID_ARGUMENT;
    cgm_device_use(queue->device->index);
    if (how == CGM_PREPARE_KNOWN && !queue->stream->workspace)
        return CGM_NOT_FOUND;
    int status = cgm_gemm_need_workspace(queue);
    if (status != CGM_OK || cgm_gemm_is_odd(&g))
        return status;
    const struct cgm_gemm_key key = cgm_gemm_key_of(queue->device, gemm, &g);
    return prepare(queue, &key, &g, how);
}
