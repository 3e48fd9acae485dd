/* A PlanCreate as the executor gets it: cgm_spec_init refuses it with words, or the plan has shapes
 * that fit together and an algorithm or a reason against every one. Byte 0: the comm's size; byte
 * 1, lowest bit: ranks share devices; the rest: the packed request. */
#include <string.h>

#include "daemon/executor/algorithm.h"
#include "proto/status.h"
#include "tests/fuzz/fuzz.h"

#define PREFIX_BYTES 2u

static void check_shapes(const struct cgm_spec *spec, uint64_t rows)
{
    struct cgm_shape shape;
    for (uint32_t at = 0; at < spec->world * (uint32_t)CGM_OPERAND_COUNT; at++) {
        uint32_t rank = at / CGM_OPERAND_COUNT;
        if (cgm_operation_operand(spec, rank, rows, at % CGM_OPERAND_COUNT, &shape) == CGM_ABSENT)
            continue;
        FUZZ_CHECK(shape.rows > 0 && shape.cols > 0 && cgm_dtype_bytes(shape.dtype) > 0);
    }
}

static void use_spec(const struct cgm_spec *spec)
{
    char text[192];
    const struct cgm_algorithm *algorithm = NULL;
    struct cgm_shape user = cgm_operation_user_buffer(spec);
    FUZZ_CHECK(cgm_dtype_bytes(user.dtype) > 0);
    if (cgm_operation_check_rows(spec, spec->m, text, sizeof(text)) == CGM_OK)
        check_shapes(spec, spec->m);
    FUZZ_CHECK(cgm_operation_check_rows(spec, spec->m + 1, text, sizeof(text)) != CGM_OK);
    text[0] = '\0';
    int status = cgm_algorithm_choose(spec, text, sizeof(text), &algorithm);
    FUZZ_CHECK(text[0] != '\0' && strlen(text) < sizeof(text));
    if (status != CGM_OK)
        return;
    if (algorithm->scratch_bytes)
        algorithm->scratch_bytes(spec);
    if (algorithm->flags)
        algorithm->flags(spec);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char detail[192] = "";
    struct cgm_spec spec;
    if (size < PREFIX_BYTES)
        return -1;
    Cgm__PlanCreate *request =
        cgm__plan_create__unpack(NULL, size - PREFIX_BYTES, data + PREFIX_BYTES);
    if (!request)
        return 0;
    uint32_t world = 1 + data[0] % CGM_COMM_SIZE_MAX;
    int status = cgm_spec_init(request, world, data[1] & 1, detail, sizeof(detail), &spec);
    FUZZ_CHECK(status == CGM_OK || detail[0] != '\0');
    if (status == CGM_OK)
        use_spec(&spec);
    cgm__plan_create__free_unpacked(request, NULL);
    return 0;
}
