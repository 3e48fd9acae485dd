#include "client/bench/inputs.h"

#include "client/bench/parallel.h"
#include "kernels/number_format.h"
#include "proto/types.h"

#define BLOCK 16384u
/* The wide set in fp16 is moved down, so that no partial sum leaves the type's range. */
#define FP16_WIDE_SCALE (1.0f / 32)
/* Of integers: some reach the limits of int8, and no sum those of int32. */
#define INTEGER_SCALE 48.0f

struct filling {
    void *values;
    int dtype;
    enum cgm_fill fill;
    float scale;
    uint64_t seed;
};

/* Every block has its own generator: the numbers do not depend on the number of threads. */
static void fill_block(void *context, uint64_t block, uint64_t begin, uint64_t end)
{
    const struct filling *filling = context;
    struct cgm_random random;
    float values[BLOCK];
    cgm_random_init(&random, filling->seed ^ (block + 1) * 0x9e3779b97f4a7c15u);
    cgm_random_fill(&random, filling->fill, values, end - begin);
    for (uint64_t i = 0; i < end - begin; i++)
        values[i] *= filling->scale;
    cgm_format_store(filling->dtype, values, end - begin,
                     (char *)filling->values + begin * cgm_dtype_bytes(filling->dtype));
}

static void fill_matrix(const struct cgm_bench *bench, const struct cgm_matrix *matrix,
                        enum cgm_fill fill, uint64_t seed, void *ret_values)
{
    bool narrow = matrix->dtype == CGM_DTYPE_FP16 && fill == CGM_FILL_WIDE;
    bool integer = matrix->dtype == CGM_DTYPE_INT8 || matrix->dtype == CGM_DTYPE_INT32;
    float scale = narrow ? FP16_WIDE_SCALE : integer ? INTEGER_SCALE : 1;
    struct filling filling = {ret_values, matrix->dtype, integer ? CGM_FILL_NORMAL : fill, scale,
                              seed};
    cgm_parallel(bench->options->threads, matrix->rows * matrix->cols, BLOCK, fill_block, &filling);
}

void cgm_inputs_fill(const struct cgm_bench *bench, enum cgm_fill fill, uint64_t seed)
{
    const struct cgm_matrix *matrix = bench->cases[CGM_VARIANT_JOB].matrix;
    for (unsigned i = 0; i < CGM_MATRIX_COUNT; i++)
        if (bench->whole[i])
            fill_matrix(bench, &matrix[i], fill, seed * CGM_MATRIX_COUNT + i, bench->whole[i]);
}
