#include "daemon/executor/cuda/gemm_codes.h"

#include <stdlib.h>
#include <string.h>

#define CODES 512u

static const struct {
    cublasLtMatmulAlgoConfigAttributes_t attribute;
    size_t bytes;
} attributes[] = {
    {CUBLASLT_ALGO_CONFIG_ID, 4},
    {CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
    {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},
    {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4},
    {CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4},
    {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4},
    {CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},
    {CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2},
    {CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2},
};
enum { ATTRIBUTES = sizeof(attributes) / sizeof(attributes[0]), SPLITS = 2 };

struct code {
    struct cgm_gemm_key key; /* without rows and row distances */
    uint32_t config[ATTRIBUTES];
    uint64_t rows; /* of the product that it was run for last */
    cublasLtMatmulAlgo_t algorithm;
};

struct cgm_gemm_codes {
    uint32_t count; /* counts on */
    struct code codes[CODES];
};

struct cgm_gemm_codes *cgm_gemm_codes_new(void)
{
    return calloc(1, sizeof(struct cgm_gemm_codes));
}

void cgm_gemm_codes_free(struct cgm_gemm_codes *codes)
{
    free(codes);
}

static struct cgm_gemm_key without_rows(const struct cgm_gemm_key *key)
{
    struct cgm_gemm_key rest = *key;
    rest.m = rest.a_stride = rest.b_stride = rest.out_stride = 0;
    return rest;
}

/* False for what cannot be told apart, and for split products: what adds their parts up is further
 * code, which may depend on more. */
static bool configuration(const cublasLtMatmulAlgo_t *algorithm, uint32_t *ret_config)
{
    size_t written;
    memset(ret_config, 0, ATTRIBUTES * sizeof(*ret_config));
    for (size_t i = 0; i < ATTRIBUTES; i++)
        if (cgm_blas.MatmulAlgoConfigGetAttribute(algorithm, attributes[i].attribute,
                                                  &ret_config[i], attributes[i].bytes,
                                                  &written) != CUBLAS_STATUS_SUCCESS)
            return false;
    return ret_config[SPLITS] <= 1;
}

static uint32_t stored(const struct cgm_gemm_codes *codes)
{
    return codes->count < CODES ? codes->count : CODES;
}

static const struct code *find(const struct cgm_gemm_codes *codes, const struct cgm_gemm_key *key,
                               const uint32_t *config)
{
    struct cgm_gemm_key rest = without_rows(key);
    for (uint32_t i = 0; i < stored(codes); i++)
        if (memcmp(&codes->codes[i].key, &rest, sizeof(rest)) == 0 &&
            memcmp(codes->codes[i].config, config, sizeof(codes->codes[i].config)) == 0)
            return &codes->codes[i];
    return NULL;
}

void cgm_gemm_codes_add(struct cgm_gemm_codes *codes, const struct cgm_gemm_entry *entry)
{
    uint32_t config[ATTRIBUTES];
    if (entry->plain || !configuration(&entry->algorithm, config) ||
        find(codes, &entry->key, config))
        return;
    struct code *code = &codes->codes[codes->count++ % CODES];
    code->key = without_rows(&entry->key);
    memcpy(code->config, config, sizeof(config));
    code->rows = entry->key.m;
    code->algorithm = entry->algorithm;
}

bool cgm_gemm_codes_has(const struct cgm_gemm_codes *codes, const struct cgm_gemm_key *key,
                        const cublasLtMatmulAlgo_t *algorithm)
{
    uint32_t config[ATTRIBUTES];
    return configuration(algorithm, config) && find(codes, key, config);
}

static bool can_do(cublasLtHandle_t handle, const struct cgm_gemm_entry *entry,
                   const cublasLtMatmulAlgo_t *algorithm)
{
    cublasLtMatmulHeuristicResult_t result;
    memset(&result, 0, sizeof(result));
    return cgm_blas.MatmulAlgoCheck(handle, entry->product, entry->b, entry->a, entry->out,
                                    entry->out, algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
           result.state == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= CGM_GEMM_WORKSPACE_BYTES;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

uint64_t cgm_gemm_codes_nearest(const struct cgm_gemm_codes *codes, cublasLtHandle_t handle,
                                struct cgm_gemm_entry *entry)
{
    struct cgm_gemm_key rest = without_rows(&entry->key);
    const struct code *best = NULL;
    for (uint32_t i = 0; i < stored(codes); i++) {
        const struct code *code = &codes->codes[i];
        if (memcmp(&code->key, &rest, sizeof(rest)) == 0 &&
            (!best || distance(code->rows, entry->key.m) < distance(best->rows, entry->key.m)) &&
            can_do(handle, entry, &code->algorithm))
            best = code;
    }
    if (best)
        entry->algorithm = best->algorithm;
    return best ? best->rows : 0;
}
