#include "daemon/executor/spec_check.h"

#include "daemon/executor/algorithm.h"
#include "proto/status.h"

#define PRIORITY_MIN (-5)
#define PRIORITY_MAX 5

static const struct {
    const char *name;
    size_t request, spec;
    bool is_signed;
    int64_t min, max;
} knobs[] = {
    {"num_splits", CGM_CHECK_REQUEST(num_splits), CGM_CHECK_SPEC(num_splits), false, 0, 64},
    {"num_max_streams", CGM_CHECK_REQUEST(num_max_streams), CGM_CHECK_SPEC(num_max_streams), false,
     0, 16},
    {"comm_cga_size", CGM_CHECK_REQUEST(comm_cga_size), CGM_CHECK_SPEC(comm_cga_size), false, 0,
     16},
    {"num_comm_sm", CGM_CHECK_REQUEST(num_comm_sm), CGM_CHECK_SPEC(num_comm_sm), false, 0, 256},
    {"gemm_priority", CGM_CHECK_REQUEST(gemm_priority), CGM_CHECK_SPEC(gemm_priority), true,
     PRIORITY_MIN, PRIORITY_MAX},
    {"comm_priority", CGM_CHECK_REQUEST(comm_priority), CGM_CHECK_SPEC(comm_priority), true,
     PRIORITY_MIN, PRIORITY_MAX},
};

int cgm_check_knobs(struct cgm_check *check)
{
    for (size_t i = 0; i < sizeof(knobs) / sizeof(knobs[0]); i++) {
        uint32_t raw = cgm_check_load(check, knobs[i].request);
        int64_t value = knobs[i].is_signed ? (int64_t)(int32_t)raw : (int64_t)raw;
        if (value < knobs[i].min || value > knobs[i].max)
            return cgm_check_refuse(
                check, CGM_INVALID_ARGUMENT, "%s is %lld; the limits are %lld and %lld",
                knobs[i].name, (long long)value, (long long)knobs[i].min, (long long)knobs[i].max);
        cgm_check_store(check, knobs[i].spec, (int32_t)value);
    }
    return CGM_OK;
}

int cgm_check_tp_size(struct cgm_check *check)
{
    uint32_t value = check->request->tp_size;
    if (value != 0 && value != check->spec->world)
        return cgm_check_refuse(check, CGM_INVALID_ARGUMENT, "tp_size is %u; the comm has %u ranks",
                                value, check->spec->world);
    check->spec->tp_size = check->spec->world;
    return CGM_OK;
}

int cgm_check_switches(struct cgm_check *check)
{
    struct cgm_spec *spec = check->spec;
    spec->aggregate_ag = check->request->aggregate_ag;
    spec->rs_overlap_first_gemm = check->request->rs_overlap_first_gemm;
    if (spec->aggregate_ag && spec->op != CGM_OP_AG_GEMM)
        return cgm_check_refuse(check, CGM_INVALID_ARGUMENT,
                                "aggregate_ag is set; it goes with ag_gemm, not %s",
                                cgm_check_op_name(check));
    if (spec->rs_overlap_first_gemm && spec->op != CGM_OP_GEMM_RS)
        return cgm_check_refuse(check, CGM_INVALID_ARGUMENT,
                                "rs_overlap_first_gemm is set; it goes with gemm_rs, not %s",
                                cgm_check_op_name(check));
    return CGM_OK;
}

int cgm_check_tf32(struct cgm_check *check)
{
    struct cgm_spec *spec = check->spec;
    spec->allow_tf32 = check->request->allow_tf32;
    if (spec->allow_tf32 && (!check->row->product || spec->dtype != CGM_DTYPE_FP32))
        return cgm_check_refuse(
            check, CGM_INVALID_ARGUMENT,
            "allow_tf32 is set; it goes with products of fp32, not with %s of %s",
            cgm_check_op_name(check), cgm_check_dtype_name(spec->dtype));
    return CGM_OK;
}

static void fill_default(struct cgm_spec *spec, enum cgm_parameter parameter, uint32_t value,
                         uint32_t *field)
{
    if (*field == 0)
        *field = value;
    if (*field != value)
        spec->asked |= 1u << parameter;
}

static void fill_switch(struct cgm_spec *spec, enum cgm_parameter parameter, bool given, bool asked,
                        bool value, bool *field)
{
    *field = given ? asked : value;
    if (*field != value)
        spec->asked |= 1u << parameter;
}

/* Those whose default is nothing. */
static int ask_of_others(struct cgm_spec *spec)
{
    const bool asked[CGM_PARAMETER_COUNT] = {
        [CGM_PARAMETER_GEMM_PRIORITY] = spec->gemm_priority != 0,
        [CGM_PARAMETER_COMM_PRIORITY] = spec->comm_priority != 0,
        [CGM_PARAMETER_RS_OVERLAP_FIRST_GEMM] = spec->rs_overlap_first_gemm,
        [CGM_PARAMETER_AGGREGATE_AG] = spec->aggregate_ag,
    };
    for (int i = 0; i < CGM_PARAMETER_COUNT; i++)
        spec->asked |= asked[i] ? 1u << i : 0;
    return CGM_OK;
}

#define PUSH_BYTES (4ull << 20) /* smaller pushes take longer for a byte */

/* Pieces of a rank's columns, which go to every peer. */
static uint32_t splits_to_all(const struct cgm_spec *spec)
{
    uint64_t bytes = spec->m * (spec->n / spec->world) * cgm_dtype_bytes(spec->out_dtype);
    uint64_t pieces = bytes / PUSH_BYTES;
    return pieces < 2 ? 2 : pieces < 4 ? (uint32_t)pieces : 4;
}

uint32_t cgm_spec_splits(const struct cgm_spec *spec, int method)
{
    if (spec->op == CGM_OP_GEMM_AS)
        return splits_to_all(spec);
    return method == CGM_METHOD_RING_EXCHANGE || method == CGM_METHOD_AUTO ? spec->world : 4;
}

bool cgm_spec_wants_copies(const struct cgm_spec *spec)
{
    return (spec->given | spec->asked) >> CGM_PARAMETER_USE_CE & 1;
}

/* A named algorithm is cut as its method is. */
static uint32_t default_splits(const struct cgm_spec *spec)
{
    const struct cgm_algorithm *named = cgm_algorithm_find(spec->algorithm);
    return cgm_spec_splits(spec, named ? named->method : spec->method);
}

/* Zero is nothing given where a zero means the default. */
static uint32_t given_parameters(const Cgm__PlanCreate *request)
{
    const bool given[CGM_PARAMETER_COUNT] = {
        [CGM_PARAMETER_NUM_SPLITS] = request->num_splits != 0,
        [CGM_PARAMETER_NUM_MAX_STREAMS] = request->num_max_streams != 0,
        [CGM_PARAMETER_COMM_CGA_SIZE] = request->comm_cga_size != 0,
        [CGM_PARAMETER_NUM_COMM_SM] = request->num_comm_sm != 0,
        [CGM_PARAMETER_GEMM_PRIORITY] = request->has_gemm_priority,
        [CGM_PARAMETER_COMM_PRIORITY] = request->has_comm_priority,
        [CGM_PARAMETER_SET_SM_MARGIN] = request->has_set_sm_margin,
        [CGM_PARAMETER_USE_CE] = request->has_use_ce,
        [CGM_PARAMETER_RS_OVERLAP_FIRST_GEMM] = request->has_rs_overlap_first_gemm,
        [CGM_PARAMETER_AGGREGATE_AG] = request->has_aggregate_ag,
    };
    uint32_t bits = 0;
    for (int i = 0; i < CGM_PARAMETER_COUNT; i++)
        bits |= given[i] ? 1u << i : 0;
    return bits;
}

int cgm_check_fill_defaults(struct cgm_check *check)
{
    struct cgm_spec *spec = check->spec;
    const Cgm__PlanCreate *request = check->request;
    bool exchange = spec->method == CGM_METHOD_RING_EXCHANGE || spec->method == CGM_METHOD_AUTO;
    spec->given = given_parameters(request);
    fill_switch(spec, CGM_PARAMETER_USE_CE, request->has_use_ce, request->use_ce, exchange,
                &spec->use_ce);
    fill_switch(
        spec, CGM_PARAMETER_SET_SM_MARGIN, request->has_set_sm_margin, request->set_sm_margin,
        !exchange && spec->method != CGM_METHOD_NONE && check->row->product, &spec->set_sm_margin);
    fill_default(spec, CGM_PARAMETER_NUM_SPLITS, default_splits(spec), &spec->num_splits);
    fill_default(spec, CGM_PARAMETER_NUM_MAX_STREAMS, 3, &spec->num_max_streams);
    if (spec->num_max_streams == 1) /* what there is */
        spec->asked &= ~(1u << CGM_PARAMETER_NUM_MAX_STREAMS);
    fill_default(spec, CGM_PARAMETER_COMM_CGA_SIZE, exchange ? 1 : 2, &spec->comm_cga_size);
    fill_default(spec, CGM_PARAMETER_NUM_COMM_SM, exchange && spec->use_ce ? 1 : CGM_COMM_SMS,
                 &spec->num_comm_sm);
    return ask_of_others(spec);
}
