#include "daemon/executor/field.h"

#include "daemon/executor/executor.h"
#include "daemon/executor/plan.h"

static bool copies_by_sms(const struct cgm_plan *plan)
{
    const struct cgm_executor *executor = plan->comm->poller->executor;
    for (uint32_t rank = 0; rank < plan->spec.world; rank++)
        if (executor->info[plan->comm->devices[rank]].sms == 0)
            return false;
    return true;
}

static bool has_library(const struct cgm_plan *plan)
{
    return plan->comm->poller->executor->ops->group_new && !plan->comm->devices_shared;
}

/* Serial alone is a choice when it has variants. */
static bool is_choice(const struct cgm_field *field, const struct cgm_spec *spec)
{
    cgm_variant unused[CGM_VARIANTS_MAX];
    return field->n > 1 ||
           (field->n == 1 && field->algorithms[0]->number == CGM_ALGO_NO_OVERLAP &&
            cgm_algorithm_variants(field->algorithms[0], spec, &field->means, unused) > 0);
}

struct cgm_field cgm_field_of(const struct cgm_plan *plan,
                              const struct cgm_algorithm *ret_algorithms[CGM_TUNED_MAX])
{
    uint32_t n = cgm_algorithm_candidates(&plan->spec, CGM_TUNED_MAX, ret_algorithms);
    struct cgm_field field = {ret_algorithms, n, {copies_by_sms(plan), has_library(plan)}};
    if (!is_choice(&field, &plan->spec))
        field.n = 0;
    return field;
}

static bool has_variant(const struct cgm_field *field, const struct cgm_algorithm *algorithm,
                        const struct cgm_spec *spec, cgm_variant variant)
{
    cgm_variant variants[CGM_VARIANTS_MAX];
    uint32_t n = cgm_algorithm_variants(algorithm, spec, &field->means, variants);
    while (n > 0)
        if (variants[--n] == variant)
            return true;
    return variant == 0;
}

/* NULL: it is of none of the field. */
static const struct cgm_algorithm *find_candidate(const struct cgm_field *field,
                                                  const struct cgm_spec *spec, uint32_t number,
                                                  cgm_variant variant)
{
    for (uint32_t i = 0; i < field->n; i++)
        if ((uint32_t)field->algorithms[i]->number == number &&
            has_variant(field, field->algorithms[i], spec, variant))
            return field->algorithms[i];
    return NULL;
}

static bool is_complete(const Cgm__PlanAdd *m)
{
    return m->n_tried > 0 && m->n_tried <= CGM_TUNED_MAX && m->n_tried_ns == m->n_tried &&
           m->n_tried_variant == m->n_tried && m->tried_ns[0] > 0;
}

bool cgm_field_recall(const struct cgm_field *field, const struct cgm_spec *spec,
                      const Cgm__PlanAdd *m, struct cgm_tuned *ret_tuned)
{
    struct cgm_tuned tuned = {.n = (uint32_t)m->n_tried, .at_s = m->tried_at};
    if (!is_complete(m))
        return false;
    for (uint32_t i = 0; i < tuned.n; i++) {
        struct cgm_candidate candidate = {
            find_candidate(field, spec, m->tried[i], m->tried_variant[i]), m->tried_variant[i]};
        if (!candidate.algorithm)
            return false;
        tuned.tried[i] = (struct cgm_tried){candidate, m->tried_ns[i]};
        for (uint32_t j = 0; j < i; j++)
            if (tuned.tried[j].candidate.algorithm == candidate.algorithm &&
                tuned.tried[j].candidate.variant == candidate.variant)
                return false;
    }
    *ret_tuned = tuned;
    return true;
}
