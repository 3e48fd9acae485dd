/* A file of shapes: every shape is within the limits, or the file is refused with its name. */
#include <stdio.h>
#include <string.h>

#include "client/bench/shapes.h"
#include "proto/types.h"
#include "tests/fuzz/fuzz.h"

static void check(const struct cgm_shape *shape)
{
    FUZZ_CHECK(shape->op != CGM_OP_NOOP && cgm_type_name(CGM_TABLE_OP, shape->op));
    FUZZ_CHECK(shape->dtype == -1 || cgm_type_name(CGM_TABLE_DTYPE, shape->dtype));
    FUZZ_CHECK(shape->layout >= -1 && shape->layout <= 3);
    FUZZ_CHECK(shape->m >= 1 && shape->m <= CGM_BENCH_SIZE_LIMIT);
    FUZZ_CHECK(shape->n >= 1 && shape->n <= CGM_BENCH_SIZE_LIMIT);
    FUZZ_CHECK(shape->k <= CGM_BENCH_SIZE_LIMIT && shape->name[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char detail[CGM_BENCH_DETAIL_BYTES] = "";
    struct cgm_shapes shapes;
    FILE *file = size ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;
    if (!file)
        return 0;
    if (cgm_shapes_parse(file, "x.shapes", detail, &shapes)) {
        FUZZ_CHECK(strstr(detail, "x.shapes"));
    } else {
        FUZZ_CHECK(shapes.count >= 1 && shapes.count <= CGM_SHAPES_MAX);
        for (size_t i = 0; i < shapes.count; i++)
            check(&shapes.all[i]);
        cgm_shapes_fini(&shapes);
    }
    fclose(file);
    return 0;
}
