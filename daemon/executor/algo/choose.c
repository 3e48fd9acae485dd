#include "daemon/executor/algorithm.h"

#include <stdio.h>
#include <string.h>

#include "proto/status.h"

struct choice {
    const struct cgm_spec *spec;
    char *text;
    size_t size;
};

static const char *op_name(const struct choice *choice)
{
    return cgm_type_name(CGM_TABLE_OP, choice->spec->op);
}

static bool does_op(const struct cgm_algorithm *algorithm, int op)
{
    return algorithm->ops & 1u << op;
}

void cgm_parameter_list(uint32_t parameters, char *ret_text, size_t size)
{
    size_t used = 0;
    ret_text[0] = '\0';
    for (int i = 0; i < CGM_PARAMETER_COUNT && used < size; i++)
        if (parameters >> i & 1)
            used += (size_t)snprintf(ret_text + used, size - used, "%s%s", used ? ", " : "",
                                     cgm_parameter_name(i));
}

/* Without a collective nothing is copied, without a product nothing leaves SMs to others; and a
 * number of SMs is for one of the two. */
static uint32_t acting_parameters(const struct cgm_algorithm *algorithm,
                                  const struct cgm_spec *spec)
{
    uint32_t acting = algorithm->parameters;
    bool has_product = spec->k > 0, spares = has_product && spec->set_sm_margin;
    if (!cgm_op_is_collective(spec->op))
        acting &= ~(1u << CGM_PARAMETER_USE_CE); /* whoever stores uses no engine as it is */
    if (!has_product)
        acting &= ~(1u << CGM_PARAMETER_SET_SM_MARGIN);
    bool copies = cgm_op_is_collective(spec->op) && !algorithm->stores;
    if (!(copies && !spec->use_ce) && !spares)
        acting &= ~(1u << CGM_PARAMETER_NUM_COMM_SM);
    return acting;
}

/* A comm of one rank has nothing to communicate; what is asked for is there for larger ones. */
static uint32_t ignored_parameters(const struct cgm_algorithm *algorithm,
                                   const struct cgm_spec *spec)
{
    return spec->asked & ~(spec->world > 1 ? acting_parameters(algorithm, spec)
                                           : algorithm->parameters | CGM_PARAMETERS_OF_DEVICES);
}

/* With atomic_gemm those that are atomic alone. */
static bool agrees(const struct cgm_algorithm *algorithm, const struct cgm_spec *spec)
{
    return does_op(algorithm, spec->op) && (algorithm->atomic || !spec->atomic_gemm);
}

/* Whatever the values are. */
static bool heeds_all(const struct cgm_algorithm *algorithm, const struct cgm_spec *spec)
{
    return agrees(algorithm, spec) && ignored_parameters(algorithm, spec) == 0;
}

static int check_of(const struct cgm_algorithm *algorithm, const struct cgm_spec *spec)
{
    char unused[CGM_CQE_DETAIL];
    return algorithm->check ? algorithm->check(spec, unused, sizeof unused) : CGM_OK;
}

static bool allows(const struct cgm_algorithm *algorithm, const struct cgm_spec *spec)
{
    return check_of(algorithm, spec) == CGM_OK;
}

/* But for values that are out of its bounds, which it names. */
static bool may_be_named(const struct cgm_algorithm *algorithm, const struct cgm_spec *spec)
{
    return heeds_all(algorithm, spec) && check_of(algorithm, spec) != CGM_NOT_SUPPORTED;
}

/* Whether auto may take it when it was measured. */
static bool may_be_tried(const struct cgm_algorithm *algorithm, const struct cgm_spec *spec)
{
    return heeds_all(algorithm, spec) && allows(algorithm, spec);
}

/* Whether auto may take it unmeasured. */
static bool is_candidate(const struct cgm_algorithm *algorithm, const struct cgm_spec *spec)
{
    return algorithm->atomic == spec->atomic_gemm && may_be_tried(algorithm, spec);
}

/* Words of a reason: as many as there is room for, and how many more there are. */
struct list {
    char *text;
    size_t size, used;
    uint32_t count, written;
};

#define LIST_BYTES 60
#define MORE_BYTES sizeof(" and 99 more")

static void list_add(struct list *list, const char *word)
{
    bool fits = list->used + sizeof(", ") + strlen(word) + MORE_BYTES <= list->size;
    if (list->written != list->count++ || !fits)
        return;
    list->used += (size_t)snprintf(list->text + list->used, list->size - list->used, "%s%s",
                                   list->written++ ? ", " : "", word);
}

static uint32_t list_end(struct list *list)
{
    if (list->written < list->count)
        snprintf(list->text + list->used, list->size - list->used, " and %u more",
                 list->count - list->written);
    return list->count;
}

/* The names of all algorithms of the operation, or of auto's candidates; returns how many. */
static uint32_t list_names(const struct cgm_spec *spec, bool candidates, char ret_text[LIST_BYTES])
{
    struct list list = {.text = ret_text, .size = LIST_BYTES};
    ret_text[0] = '\0';
    for (size_t i = 0; i < cgm_algorithm_count; i++)
        if (candidates ? is_candidate(cgm_algorithms[i], spec)
                       : does_op(cgm_algorithms[i], spec->op))
            list_add(&list, cgm_algorithms[i]->name);
    return list_end(&list);
}

/* Those that fit; returns how many. */
static uint32_t list_methods(const struct cgm_spec *spec,
                             bool (*fits)(const struct cgm_algorithm *, const struct cgm_spec *),
                             char *ret_text, size_t size)
{
    struct list list = {.text = ret_text, .size = size};
    char word[64];
    ret_text[0] = '\0';
    for (size_t i = 0; i < cgm_algorithm_count; i++) {
        if (!fits(cgm_algorithms[i], spec))
            continue;
        snprintf(word, sizeof(word), "%s (method %s)", cgm_algorithms[i]->name,
                 cgm_type_name(CGM_TABLE_METHOD, cgm_algorithms[i]->method));
        list_add(&list, word);
    }
    return list_end(&list);
}

/* Whether something that does the operation makes use of one parameter. */
static bool is_used(const struct cgm_spec *spec, int parameter)
{
    for (size_t i = 0; i < cgm_algorithm_count; i++)
        if (agrees(cgm_algorithms[i], spec) &&
            acting_parameters(cgm_algorithms[i], spec) >> parameter & 1)
            return true;
    return false;
}

/* What makes a number of SMs act. */
static const char *way_to_use_sms(const struct cgm_algorithm *algorithm,
                                  const struct cgm_spec *spec)
{
    struct cgm_spec without = *spec;
    without.use_ce = false;
    if (algorithm->stores || !cgm_op_is_collective(spec->op) || !allows(algorithm, &without))
        return "give set_sm_margin 1 too, or leave it out";
    return spec->k > 0 ? "give use_ce 0 or set_sm_margin 1 too, or leave it out"
                       : "give use_ce 0 too, or leave it out";
}

static int check_parameters(const struct choice *choice, const struct cgm_algorithm *algorithm)
{
    uint32_t ignored = ignored_parameters(algorithm, choice->spec);
    if (ignored == 0)
        return CGM_OK;
    int parameter = __builtin_ctz(ignored);
    const struct cgm_spec *spec = choice->spec;
    char list[64]; /* with the words around it as long as a reason */
    if (parameter == CGM_PARAMETER_NUM_COMM_SM && algorithm->parameters >> parameter & 1)
        return cgm_detail(choice->text, choice->size, CGM_NOT_SUPPORTED,
                          "num_comm_sm is not the default, and %s uses none of these SMs here; %s",
                          algorithm->name, way_to_use_sms(algorithm, spec));
    if (list_methods(spec, may_be_tried, list, sizeof list) ||
        list_methods(spec, may_be_named, list, sizeof list))
        return cgm_detail(choice->text, choice->size, CGM_NOT_SUPPORTED,
                          "%s is not the default, and %s makes no use of it; use %s",
                          cgm_parameter_name(parameter), algorithm->name, list);
    const char *atomic = spec->atomic_gemm ? " with atomic_gemm" : "";
    if (!is_used(spec, parameter))
        return cgm_detail(
            choice->text, choice->size, CGM_NOT_SUPPORTED,
            "%s is not the default, and nothing that does %s%s makes use of it; leave "
            "it out",
            cgm_parameter_name(parameter), op_name(choice), atomic);
    cgm_parameter_list(spec->asked, list, sizeof list);
    return cgm_detail(choice->text, choice->size, CGM_NOT_SUPPORTED,
                      "nothing that does %s%s makes use of all of %s, which are not the default; "
                      "leave some out",
                      op_name(choice), atomic, list);
}

static int check_agreement(const struct choice *choice, const struct cgm_algorithm *algorithm)
{
    const struct cgm_spec *spec = choice->spec;
    if (spec->method != CGM_METHOD_AUTO && spec->method != algorithm->method)
        return cgm_detail(
            choice->text, choice->size, CGM_INVALID_ARGUMENT,
            "algorithm %s belongs to method %s, but method is %s; name one of the two",
            algorithm->name, cgm_type_name(CGM_TABLE_METHOD, algorithm->method),
            cgm_type_name(CGM_TABLE_METHOD, spec->method));
    if (spec->atomic_gemm && !algorithm->atomic)
        return cgm_detail(choice->text, choice->size, CGM_INVALID_ARGUMENT,
                          "algorithm %s needs atomic_gemm false, but it is true", algorithm->name);
    return CGM_OK;
}

static int check_support(const struct choice *choice, const struct cgm_algorithm *algorithm,
                         int number)
{
    char list[LIST_BYTES];
    list_names(choice->spec, false, list);
    if (!algorithm)
        return cgm_detail(choice->text, choice->size, CGM_NOT_SUPPORTED,
                          "algorithm %s is not in this release; %s can be done by %s",
                          cgm_type_name(CGM_TABLE_ALGO, number), op_name(choice), list);
    if (!does_op(algorithm, choice->spec->op))
        return cgm_detail(choice->text, choice->size, CGM_NOT_SUPPORTED,
                          "algorithm %s does not do %s, which can be done by %s", algorithm->name,
                          op_name(choice), list);
    int status = check_agreement(choice, algorithm);
    if (status == CGM_OK)
        status = check_parameters(choice, algorithm);
    if (status == CGM_OK && algorithm->check)
        status = algorithm->check(choice->spec, choice->text, choice->size);
    return status;
}

static int choose_named(const struct choice *choice, const struct cgm_algorithm **ret_algorithm)
{
    int number = choice->spec->algorithm;
    const struct cgm_algorithm *algorithm = cgm_algorithm_find(number);
    int status = check_support(choice, algorithm, number);
    if (status != CGM_OK)
        return status;
    snprintf(choice->text, choice->size, "%s: named in the plan", algorithm->name);
    *ret_algorithm = algorithm;
    return CGM_OK;
}

static int choose_by_method(const struct choice *choice, const struct cgm_algorithm **ret_algorithm)
{
    const struct cgm_spec *spec = choice->spec;
    int number = cgm_operation_algorithm(spec->op, spec->method, spec->atomic_gemm);
    const struct cgm_algorithm *algorithm = cgm_algorithm_find(number);
    int status = check_support(choice, algorithm, number);
    if (status != CGM_OK)
        return status;
    snprintf(choice->text, choice->size, "%s: method %s of %s", algorithm->name,
             cgm_type_name(CGM_TABLE_METHOD, spec->method), op_name(choice));
    *ret_algorithm = algorithm;
    return CGM_OK;
}

static const struct cgm_algorithm *cheapest(const struct cgm_spec *spec)
{
    const struct cgm_algorithm *best = NULL;
    for (size_t i = 0; i < cgm_algorithm_count; i++)
        if (is_candidate(cgm_algorithms[i], spec) &&
            (!best || cgm_algorithms[i]->estimate(spec) < best->estimate(spec)))
            best = cgm_algorithms[i];
    return best;
}

/* A value that is out of bounds for whoever heeds it is to blame, and not what it is a value of. */
static int refuse_auto(const struct choice *choice)
{
    const struct cgm_spec *spec = choice->spec;
    char list[LIST_BYTES], asked[64], why[CGM_CQE_DETAIL];
    for (size_t i = 0; i < cgm_algorithm_count; i++)
        if (heeds_all(cgm_algorithms[i], spec) && cgm_algorithms[i]->check &&
            cgm_algorithms[i]->check(spec, why, sizeof why) == CGM_INVALID_ARGUMENT)
            return cgm_detail(choice->text, choice->size, CGM_INVALID_ARGUMENT, "%s: %s",
                              cgm_algorithms[i]->name, why);
    list_names(spec, false, list);
    cgm_parameter_list(spec->asked, asked, sizeof asked);
    return cgm_detail(choice->text, choice->size, CGM_NOT_SUPPORTED,
                      "auto: no algorithm does %s with%s%s%s; without that it can be done by %s",
                      op_name(choice), spec->atomic_gemm ? " atomic_gemm" : "",
                      spec->atomic_gemm && asked[0] ? " and "
                      : asked[0]                    ? " "
                                                    : "",
                      asked, list);
}

static int choose_auto(const struct choice *choice, const struct cgm_algorithm **ret_algorithm)
{
    const struct cgm_spec *spec = choice->spec;
    const struct cgm_algorithm *serial = cgm_algorithm_find(CGM_ALGO_NO_OVERLAP);
    const struct cgm_algorithm *best = cheapest(spec);
    char list[LIST_BYTES];
    uint32_t count = list_names(spec, true, list);
    if (!best)
        return refuse_auto(choice);
    if (count == 1) {
        *ret_algorithm = best;
        snprintf(choice->text, choice->size, "auto: %s is the only algorithm that does this", list);
    } else if (spec->world == 1 && is_candidate(serial, spec)) {
        *ret_algorithm = serial;
        snprintf(choice->text, choice->size, "auto: %s, one rank has nothing to overlap",
                 serial->name);
    } else {
        *ret_algorithm = best;
        snprintf(choice->text, choice->size, "auto: %s, estimated cheapest of %s", best->name,
                 list);
    }
    return CGM_OK;
}

/* Serial is the one that the others are compared with. */
static bool comes_before(const struct cgm_algorithm *a, const struct cgm_algorithm *b,
                         const struct cgm_spec *spec)
{
    if (a->number == CGM_ALGO_NO_OVERLAP || b->number == CGM_ALGO_NO_OVERLAP)
        return a->number == CGM_ALGO_NO_OVERLAP;
    return a->estimate(spec) < b->estimate(spec);
}

uint32_t cgm_algorithm_candidates(const struct cgm_spec *spec, uint32_t max,
                                  const struct cgm_algorithm **ret_algorithms)
{
    uint32_t count = 0;
    if (spec->algorithm != CGM_ALGO_AUTO || spec->method != CGM_METHOD_AUTO || spec->world == 1)
        return 0;
    for (size_t i = 0; i < cgm_algorithm_count && count < max; i++) {
        uint32_t at = count;
        if (!may_be_tried(cgm_algorithms[i], spec))
            continue;
        for (; at > 0 && comes_before(cgm_algorithms[i], ret_algorithms[at - 1], spec); at--)
            ret_algorithms[at] = ret_algorithms[at - 1];
        ret_algorithms[at] = cgm_algorithms[i];
        count++;
    }
    return count;
}

int cgm_algorithm_choose(const struct cgm_spec *spec, char *ret_reason, size_t reason_bytes,
                         const struct cgm_algorithm **ret_algorithm)
{
    struct choice choice = {spec, ret_reason, reason_bytes};
    if (spec->algorithm != CGM_ALGO_AUTO)
        return choose_named(&choice, ret_algorithm);
    if (spec->method != CGM_METHOD_AUTO)
        return choose_by_method(&choice, ret_algorithm);
    return choose_auto(&choice, ret_algorithm);
}
