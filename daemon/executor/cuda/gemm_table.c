#include "daemon/executor/cuda/gemm_table.h"

#include <stdlib.h>
#include <string.h>

#include "proto/types.h"

#define SLOTS 2048u /* a power of two */
#define ENTRIES 1024u

struct cgm_gemm_table {
    pthread_mutex_t lock;
    struct cgm_gemm_entry entries[ENTRIES];
    uint32_t n_entries, oldest;
    uint32_t slots[SLOTS]; /* index of an entry + 1; 0: free */
};

struct cgm_gemm_table *cgm_gemm_table_new(void)
{
    struct cgm_gemm_table *table = calloc(1, sizeof(*table));
    if (table)
        pthread_mutex_init(&table->lock, NULL);
    return table;
}

/* ---- one entry ------------------------------------------------------------------------------ */

static cudaDataType_t data_type(int dtype)
{
    static const cudaDataType_t types[] = {[CGM_DTYPE_FP32] = CUDA_R_32F,
                                           [CGM_DTYPE_FP16] = CUDA_R_16F,
                                           [CGM_DTYPE_BF16] = CUDA_R_16BF,
                                           [CGM_DTYPE_INT8] = CUDA_R_8I,
                                           [CGM_DTYPE_INT32] = CUDA_R_32I};
    return types[dtype];
}

void cgm_gemm_entry_fini(struct cgm_gemm_entry *entry)
{
    if (entry->product)
        cgm_blas.MatmulDescDestroy(entry->product);
    if (entry->a)
        cgm_blas.MatrixLayoutDestroy(entry->a);
    if (entry->b)
        cgm_blas.MatrixLayoutDestroy(entry->b);
    if (entry->out)
        cgm_blas.MatrixLayoutDestroy(entry->out);
    *entry = (struct cgm_gemm_entry){0};
}

static bool describe_product(struct cgm_gemm_entry *entry)
{
    const struct cgm_gemm_key *key = &entry->key;
    cublasOperation_t op_a = key->transa ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t op_b = key->transb ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = key->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    cudaDataType_t bias = data_type(key->out_dtype);
    int32_t sms = (int32_t)key->sms;
    /* Rows here are columns there: out^T = op(b)^T op(a)^T, so b comes first. */
    const struct {
        cublasLtMatmulDescAttributes_t attribute;
        const void *value;
        size_t bytes;
    } attributes[] = {
        {CUBLASLT_MATMUL_DESC_TRANSA, &op_b, sizeof(op_b)},
        {CUBLASLT_MATMUL_DESC_TRANSB, &op_a, sizeof(op_a)},
        {CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)},
        {CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &sms, sizeof(sms)},
        {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias, sizeof(bias)}, /* last: not without one */
    };
    size_t count = sizeof(attributes) / sizeof(attributes[0]) - (key->bias ? 0 : 1);
    bool integers = key->dtype == CGM_DTYPE_INT8;
    cublasComputeType_t compute = integers    ? CUBLAS_COMPUTE_32I
                                  : key->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                              : CUBLAS_COMPUTE_32F;
    if (cgm_blas.MatmulDescCreate(&entry->product, compute, integers ? CUDA_R_32I : CUDA_R_32F) !=
        CUBLAS_STATUS_SUCCESS)
        return false;
    for (size_t i = 0; i < count; i++)
        if (cgm_blas.MatmulDescSetAttribute(entry->product, attributes[i].attribute,
                                            attributes[i].value,
                                            attributes[i].bytes) != CUBLAS_STATUS_SUCCESS)
            return false;
    return true;
}

/* A row-major rows x cols matrix is a column-major cols x rows one. */
static bool describe_matrix(cublasLtMatrixLayout_t *ret_layout, int dtype, uint64_t rows,
                            uint64_t cols, uint64_t stride)
{
    return cgm_blas.MatrixLayoutCreate(ret_layout, data_type(dtype), cols, rows, (int64_t)stride) ==
           CUBLAS_STATUS_SUCCESS;
}

static bool describe(struct cgm_gemm_entry *entry)
{
    const struct cgm_gemm_key *key = &entry->key;
    return describe_product(entry) &&
           describe_matrix(&entry->a, key->dtype, key->transa ? key->k : key->m,
                           key->transa ? key->m : key->k, key->a_stride) &&
           describe_matrix(&entry->b, key->dtype, key->transb ? key->n : key->k,
                           key->transb ? key->k : key->n, key->b_stride) &&
           describe_matrix(&entry->out, key->out_dtype, key->m, key->n, key->out_stride);
}

static bool prefer(cublasLtMatmulPreference_t preference, const struct cgm_gemm_key *key)
{
    uint64_t workspace = CGM_GEMM_WORKSPACE_BYTES;
    uint32_t a = key->b_align, b = key->a_align, out = key->out_align;
    /* Partial sums stay fp32: a result is rounded once. */
    uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        const void *value;
        size_t bytes;
    } attributes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace)},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction, sizeof(reduction)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &a, sizeof(a)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &b, sizeof(b)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &out, sizeof(out)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &out, sizeof(out)},
    };
    for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++)
        if (cgm_blas.MatmulPreferenceSetAttribute(preference, attributes[i].attribute,
                                                  attributes[i].value,
                                                  attributes[i].bytes) != CUBLAS_STATUS_SUCCESS)
            return false;
    return true;
}

static uint32_t find(const struct cgm_gemm_entry *entry, cublasLtHandle_t handle,
                     cublasLtMatmulHeuristicResult_t *ret_results)
{
    cublasLtMatmulPreference_t preference;
    int found = 0;
    if (cgm_blas.MatmulPreferenceCreate(&preference) != CUBLAS_STATUS_SUCCESS)
        return 0;
    if (!prefer(preference, &entry->key) ||
        cgm_blas.MatmulAlgoGetHeuristic(handle, entry->product, entry->b, entry->a, entry->out,
                                        entry->out, preference, CGM_GEMM_CANDIDATES, ret_results,
                                        &found) != CUBLAS_STATUS_SUCCESS)
        found = 0;
    cgm_blas.MatmulPreferenceDestroy(preference);
    return (uint32_t)found;
}

/* cuBLASLt names candidates for products of int8 that it then refuses, or that end with a
 * misaligned access: it gets those that its documentation promises ("IMMA kernels"). */
static bool is_for_library(const struct cgm_gemm_key *key)
{
    return key->dtype != CGM_DTYPE_INT8 ||
           (!key->transa && key->transb && key->n % 16 == 0 && key->k % 16 == 0 &&
            key->a_align == 16 && key->b_align == 16 && key->out_align == 16);
}

void cgm_gemm_entry_init(struct cgm_gemm_entry *entry, cublasLtHandle_t handle,
                         const struct cgm_gemm_key *key, struct cgm_gemm_candidates *ret_candidates)
{
    cublasLtMatmulHeuristicResult_t results[CGM_GEMM_CANDIDATES];
    *entry = (struct cgm_gemm_entry){.key = *key};
    ret_candidates->count = 0;
    uint32_t found = is_for_library(key) && describe(entry) ? find(entry, handle, results) : 0;
    for (uint32_t i = 0; i < found; i++)
        if (results[i].state == CUBLAS_STATUS_SUCCESS)
            ret_candidates->algorithm[ret_candidates->count++] = results[i].algo;
    entry->plain = ret_candidates->count == 0;
    if (!entry->plain)
        entry->algorithm = ret_candidates->algorithm[0];
}

/* ---- the table ------------------------------------------------------------------------------ */

void cgm_gemm_table_free(struct cgm_gemm_table *table)
{
    if (!table)
        return;
    for (uint32_t i = 0; i < table->n_entries; i++)
        cgm_gemm_entry_fini(&table->entries[i]);
    pthread_mutex_destroy(&table->lock);
    free(table);
}

/* FNV-1a, eight bytes at a time. */
static uint32_t hash(const struct cgm_gemm_key *key)
{
    uint64_t words[sizeof(*key) / 8], sum = 0xcbf29ce484222325ull;
    _Static_assert(sizeof(*key) % 8 == 0, "whole words");
    memcpy(words, key, sizeof(*key));
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        sum = (sum ^ words[i]) * 0x100000001b3ull;
    return (uint32_t)(sum ^ sum >> 32);
}

/* The slot of a key: where it is, or the free one where it belongs. */
static uint32_t *slot_of(struct cgm_gemm_table *table, const struct cgm_gemm_key *key)
{
    uint32_t at = hash(key) & (SLOTS - 1);
    while (table->slots[at] &&
           memcmp(&table->entries[table->slots[at] - 1].key, key, sizeof(*key)) != 0)
        at = (at + 1) & (SLOTS - 1);
    return &table->slots[at];
}

/* Half of the slots stay free. Taking one away would leave a hole in others' way: all are set anew.
 */
static uint32_t take_entry(struct cgm_gemm_table *table)
{
    if (table->n_entries < ENTRIES)
        return table->n_entries++;
    uint32_t index = table->oldest;
    table->oldest = (index + 1) % ENTRIES;
    cgm_gemm_entry_fini(&table->entries[index]);
    memset(table->slots, 0, sizeof(table->slots));
    for (uint32_t i = 0; i < ENTRIES; i++)
        if (i != index)
            *slot_of(table, &table->entries[i].key) = i + 1;
    return index;
}

void cgm_gemm_table_add(struct cgm_gemm_table *table, struct cgm_gemm_entry *entry)
{
    pthread_mutex_lock(&table->lock);
    if (*slot_of(table, &entry->key)) {
        cgm_gemm_entry_fini(entry);
    } else {
        uint32_t index = take_entry(table);
        table->entries[index] = *entry;
        *slot_of(table, &entry->key) = index + 1;
    }
    pthread_mutex_unlock(&table->lock);
}

struct cgm_gemm_entry *cgm_gemm_table_lock(struct cgm_gemm_table *table,
                                           const struct cgm_gemm_key *key)
{
    pthread_mutex_lock(&table->lock);
    uint32_t slot = *slot_of(table, key);
    return slot ? &table->entries[slot - 1] : NULL;
}

void cgm_gemm_table_unlock(struct cgm_gemm_table *table)
{
    pthread_mutex_unlock(&table->lock);
}
