#include "daemon/executor/variant.h"

#include "proto/status.h"

/* What is tried of a parameter, in this order. Where parameters say how data is sent, the others
 * are as by default for that. */
static const struct {
    enum cgm_parameter parameter;
    uint32_t value;
} choices[] = {
    {CGM_PARAMETER_NUM_SPLITS, 2},   {CGM_PARAMETER_NUM_SPLITS, 4},
    {CGM_PARAMETER_NUM_SPLITS, 8},   {CGM_PARAMETER_NUM_SPLITS, 16},
    {CGM_PARAMETER_AGGREGATE_AG, 1}, {CGM_PARAMETER_RS_OVERLAP_FIRST_GEMM, 1},
    {CGM_PARAMETER_USE_CE, 1},       {CGM_PARAMETER_USE_CE, 0},
};
#define CHOICE_COUNT (sizeof(choices) / sizeof(choices[0]))
_Static_assert(CHOICE_COUNT <= CGM_VARIANTS_MAX, "an algorithm may have all of them");

static bool is_given(const struct cgm_spec *spec, enum cgm_parameter parameter)
{
    return spec->given >> parameter & 1;
}

static uint32_t value_of(const struct cgm_spec *spec, enum cgm_parameter parameter)
{
    switch (parameter) {
    case CGM_PARAMETER_NUM_SPLITS:
        return spec->num_splits;
    case CGM_PARAMETER_AGGREGATE_AG:
        return spec->aggregate_ag;
    case CGM_PARAMETER_RS_OVERLAP_FIRST_GEMM:
        return spec->rs_overlap_first_gemm;
    case CGM_PARAMETER_USE_CE:
        return spec->use_ce;
    default:
        return 0; /* of those alone that are chosen from */
    }
}

static void set_value(struct cgm_spec *spec, enum cgm_parameter parameter, uint32_t value)
{
    switch (parameter) {
    case CGM_PARAMETER_NUM_SPLITS:
        spec->num_splits = value;
        break;
    case CGM_PARAMETER_AGGREGATE_AG:
        spec->aggregate_ag = value;
        break;
    case CGM_PARAMETER_RS_OVERLAP_FIRST_GEMM:
        spec->rs_overlap_first_gemm = value;
        break;
    case CGM_PARAMETER_USE_CE:
        spec->use_ce = value;
        if (!value && !is_given(spec, CGM_PARAMETER_NUM_COMM_SM))
            spec->num_comm_sm = CGM_COMM_SMS;
        break;
    default:
        break;
    }
    spec->asked |= 1u << parameter;
}

void cgm_spec_take(struct cgm_spec *spec, const struct cgm_candidate *candidate)
{
    enum cgm_parameter parameter;
    uint32_t value;
    if (!is_given(spec, CGM_PARAMETER_NUM_SPLITS))
        spec->num_splits = cgm_spec_splits(spec, candidate->algorithm->method);
    if (cgm_variant_get(candidate->variant, &parameter, &value))
        set_value(spec, parameter, value);
}

static bool is_by_library(const struct cgm_algorithm *algorithm, const struct cgm_spec *spec,
                          const struct cgm_means *means)
{
    return means->library && algorithm->group_ops >> spec->op & 1;
}

static bool is_possible(const struct cgm_algorithm *algorithm, const struct cgm_spec *spec,
                        const struct cgm_means *means, enum cgm_parameter parameter, uint32_t value)
{
    char unused[CGM_CQE_DETAIL];
    struct cgm_spec as_is = *spec, varied = *spec;
    struct cgm_candidate candidate = {.algorithm = algorithm};
    bool copying = parameter == CGM_PARAMETER_USE_CE;
    if (is_given(spec, parameter) || !(algorithm->parameters >> parameter & 1) ||
        (copying && (algorithm->stores || !means->copies_by_sms)))
        return false;
    cgm_spec_take(&as_is, &candidate);
    candidate.variant = cgm_variant_of(parameter, value);
    cgm_spec_take(&varied, &candidate);
    bool differs =
        value_of(&as_is, parameter) != value || (copying && is_by_library(algorithm, spec, means));
    return differs &&
           (!algorithm->check || algorithm->check(&varied, unused, sizeof(unused)) == CGM_OK);
}

uint32_t cgm_algorithm_variants(const struct cgm_algorithm *algorithm, const struct cgm_spec *spec,
                                const struct cgm_means *means,
                                cgm_variant ret_variants[CGM_VARIANTS_MAX])
{
    uint32_t n = 0;
    for (size_t i = 0; i < CHOICE_COUNT; i++)
        if (is_possible(algorithm, spec, means, choices[i].parameter, choices[i].value))
            ret_variants[n++] = cgm_variant_of(choices[i].parameter, choices[i].value);
    return n;
}
