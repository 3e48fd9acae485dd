/* Every algorithm of the table against the float64 reference: each operation, type, layout, world
 * and epilogue, with fresh random numbers. Algorithms and backend run as the executor runs them,
 * but without it. Every element must be within the reference's bound; nothing else may be written;
 * a second run, from a recording, must give the same bits; no_overlap must agree within the two
 * bounds. */
#include "tests/algo/beside.h"

#include <math.h>

#include "daemon/executor/algo/library.h"
#include "daemon/executor/operation_table.h"

/* One in so many configurations is tried, others each time; CGM_TEST_THIN=1 tries them all.
 * ThreadSanitizer makes a switch of threads slow, AddressSanitizer an allocation. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define THINNING 72u
#else
#define THINNING 6u
#endif

/* Set where a product is rounded before each addend. */
#ifndef CGM_TEST_ADDENDS_ROUND
#define CGM_TEST_ADDENDS_ROUND false
#endif

static double worst_ratio;
static uint64_t trials, launches_run, by_library, elements;

static void keep_first_run(struct trial *trial)
{
    for (uint32_t i = 0; i < trial->count; i++)
        for (uint32_t rank = 0; rank < trial->spec.world; rank++)
            memcpy(trial->jobs[i].after[rank], trial->jobs[i].again[rank],
                   trial->jobs[i].used[rank] + GUARD_BYTES);
}

/* ---- judging ----------------------------------------------------------------------------------
 */

static void judge(const struct trial *trial, const struct cgm_verdict *verdict, double limit,
                  const char *what, uint32_t index, uint32_t rank)
{
    elements += verdict->checked;
    if (verdict->ratio / limit > worst_ratio)
        worst_ratio = verdict->ratio / limit;
    if (verdict->ratio <= limit && verdict->no_number == 0)
        return;
    describe(trial->config, &trial->spec);
    fail_msg("launch %u of %u, rows %llu, rank %u, %s: ratio %g at (%llu, %llu): %g, expected %g "
             "+- %g; %llu are no number",
             index, trial->count, (unsigned long long)trial->jobs[index].rows, rank, what,
             verdict->ratio, (unsigned long long)verdict->row, (unsigned long long)verdict->col,
             verdict->found, verdict->expected, verdict->bound,
             (unsigned long long)verdict->no_number);
}

static struct cgm_reference_found found_of(const struct cgm_view *view, const unsigned char *arena,
                                           uint64_t row, uint64_t col)
{
    return (struct cgm_reference_found){.data = arena + view->offset_bytes,
                                        .format = view->dtype,
                                        .row = row,
                                        .col = col,
                                        .rows = view->rows,
                                        .cols = view->cols,
                                        .stride = view->stride};
}

static void add_product(struct cgm_reference *reference, const struct part *lhs,
                        const struct part *rhs)
{
    struct cgm_reference_product product = {.a = lhs->values,
                                            .b = rhs->values,
                                            .a_stride = lhs->stride,
                                            .b_stride = rhs->stride,
                                            .depth = lhs->cols};
    assert_int_equal(cgm_reference_add_product(reference, &product), 0);
}

/* Whether out is the product itself, not a sum of partial products. */
static bool is_direct(const struct trial *trial)
{
    return !layouts[trial->layout].partials ||
           (trial->spec.world == 1 && trial->config->algorithm->number == CGM_ALGO_NO_OVERLAP);
}

static bool rounds_partials(const struct trial *trial)
{
    return !is_direct(trial) && trial->spec.buffer_dtype == trial->spec.out_dtype;
}

static bool adds_bias(const struct config *config)
{
    return config->bias && !config->grad;
}

static bool rounds_before_addends(const struct trial *trial)
{
    return CGM_TEST_ADDENDS_ROUND && is_product(trial) && is_direct(trial) &&
           (adds_bias(trial->config) || trial->config->accumulate);
}

/* Whether a library adds the partial results, in their own type. */
static bool library_sums(const struct trial *trial, uint32_t index)
{
    const struct cgm_spec *spec = &trial->spec;
    return spec->op != CGM_OP_AG && spec->op != CGM_OP_AG_GEMM && !is_bulk(spec->op) &&
           (trial->config->algorithm->group_ops & 1u << spec->op) && trial->config->by_library &&
           cgm_library_takes(&trial->launches[index].launch);
}

/* A library rounds at every step: the last one is that of out, unless addends follow. */
static void allow_library_rounding(const struct trial *trial, const struct job *job,
                                   struct cgm_reference *reference)
{
    bool addends = adds_bias(trial->config) || trial->config->accumulate;
    reference->partial_rounding = trial->spec.world - 1.0 + addends;
    for (uint32_t r = 0; !is_product(trial) && r < trial->spec.world; r++)
        for (uint64_t i = 0; i < job->rows * trial->spec.n; i++)
            reference->partials[i] += fabs((double)job->lhs.values[r][i]);
}

/* The result before GELU or its derivative: all of it; for matrices that each rank has of its own,
 * that of `rank`. */
static void linear_reference_of(const struct trial *trial, const struct job *job, uint32_t rank,
                                struct cgm_reference *ret_reference)
{
    const struct cgm_spec *spec = &trial->spec;
    uint32_t w = spec->world;
    enum sharing lhs = job->lhs.sharing;
    bool library =
        library_sums(trial, (uint32_t)(job - trial->jobs)) && spec->buffer_dtype != CGM_DTYPE_FP32;
    bool partials = library || rounds_partials(trial) || rounds_before_addends(trial);
    assert_int_equal(cgm_reference_init(ret_reference, job->rows, spec->n, partials), 0);
    bool each = spec->op != CGM_OP_GEMM && !is_bulk(spec->op) && (lhs == BY_COLS || lhs == OWN);
    struct matrix whole_lhs = job->lhs, whole_rhs = job->rhs;
    whole_lhs.sharing = lhs == BY_ROWS ? WHOLE : lhs;
    whole_rhs.sharing = job->rhs.sharing == BY_COLS ? WHOLE : job->rhs.sharing;
    for (uint32_t r = each ? 0 : rank; r < (each ? w : rank + 1); r++) {
        struct part a = matrix_part(&whole_lhs, w, r), b = matrix_part(&whole_rhs, w, r);
        if (is_product(trial))
            add_product(ret_reference, &a, &b);
        else
            cgm_reference_add_matrix(ret_reference, a.values, a.stride);
    }
    uint32_t own = job->out.sharing == OWN ? rank : 0;
    if (trial->config->accumulate)
        cgm_reference_add_matrix(ret_reference, job->out.values[own], spec->n);
    if (adds_bias(trial->config))
        cgm_reference_add_bias(ret_reference, job->bias.values[own]);
    if (library)
        allow_library_rounding(trial, job, ret_reference);
    if (rounds_before_addends(trial) && trial->config->accumulate && adds_bias(trial->config))
        cgm_reference_round_before_both(ret_reference, job->out.values[own], spec->n,
                                        job->bias.values[own]);
}

static void reference_of(const struct trial *trial, const struct job *job, uint32_t rank,
                         struct cgm_reference *ret_reference)
{
    uint32_t own = job->out.sharing == OWN ? rank : 0;
    linear_reference_of(trial, job, rank, ret_reference);
    if (trial->config->gelu && trial->config->grad)
        assert_int_equal(
            cgm_reference_dgelu(ret_reference, job->gelu_input.values[own], trial->spec.n), 0);
    else if (trial->config->gelu)
        cgm_reference_gelu(ret_reference);
}

static void judge_pre_gelu(const struct trial *trial, uint32_t index, uint32_t rank)
{
    const struct job *job = &trial->jobs[index];
    const struct cgm_view *view = &trial->launches[index].operands[rank][CGM_OPERAND_PRE_GELU_OUT];
    struct part part = matrix_part(&job->out, trial->spec.world, rank);
    struct cgm_reference_found found = found_of(view, job->after[rank], part.row, part.col);
    struct cgm_reference reference;
    struct cgm_verdict verdict = {0};
    linear_reference_of(trial, job, rank, &reference);
    cgm_reference_check(&reference, &found, &verdict);
    judge(trial, &verdict, 1, "pre_gelu_out", index, rank);
    cgm_reference_fini(&reference);
}

/* The sums of the whole of lhs over k, one below the other. */
static void lhs_sums(const struct job *job, uint32_t rank, struct cgm_reference *ret_reference)
{
    uint64_t depth = job->lhs.cols;
    float *ones = must_alloc(depth * sizeof(float));
    for (uint64_t i = 0; i < depth; i++)
        ones[i] = 1;
    struct matrix whole = job->lhs;
    whole.sharing = job->lhs.sharing == OWN ? OWN : WHOLE;
    struct part lhs = matrix_part(&whole, 1, rank), unit = {.values = ones, .stride = 1};
    assert_int_equal(cgm_reference_init(ret_reference, job->rows, 1, false), 0);
    add_product(ret_reference, &lhs, &unit);
    free(ones);
}

static void judge_gradient(const struct trial *trial, uint32_t index, uint32_t rank)
{
    const struct job *job = &trial->jobs[index];
    const struct cgm_view *view = &trial->launches[index].operands[rank][CGM_OPERAND_BIAS_GRAD];
    struct cgm_reference_found found = found_of(view, job->after[rank], 0, 0);
    struct cgm_reference reference, sums;
    struct cgm_verdict verdict = {0};
    if (trial->config->gelu) {
        struct part part = matrix_part(&job->out, trial->spec.world, rank);
        struct cgm_reference_window window = {part.row, part.col, part.rows, part.cols};
        reference_of(trial, job, rank, &reference);
        assert_int_equal(cgm_reference_init_sum(&sums, &reference, &window, view->dtype), 0);
        cgm_reference_fini(&reference);
    } else {
        lhs_sums(job, rank, &sums);
        found.rows = view->cols;
        found.cols = found.stride = 1;
    }
    cgm_reference_check(&sums, &found, &verdict);
    judge(trial, &verdict, 1, "bias_grad", index, rank);
    cgm_reference_fini(&sums);
}

static void judge_aux(const struct trial *trial, uint32_t index, uint32_t rank)
{
    const struct job *job = &trial->jobs[index];
    const struct cgm_view *view = &trial->launches[index].operands[rank][CGM_OPERAND_AUX_OUT];
    struct matrix whole = job->lhs;
    whole.sharing = WHOLE;
    struct part part = matrix_part(&whole, trial->spec.world, 0);
    size_t bytes = job->used[rank];
    unsigned char *expected = must_alloc(bytes);
    memcpy(expected, job->after[rank], bytes);
    part_store(&part, trial->spec.transa, view, expected);
    if (memcmp(expected, job->after[rank], bytes) != 0) {
        describe(trial->config, &trial->spec);
        fail_msg("launch %u, rank %u: aux_out is not the gathered lhs", index, rank);
    }
    free(expected);
}

static void explain_operands(const struct rig_launch *launch, uint32_t rank)
{
    for (int operand = 0; operand < CGM_OPERAND_COUNT; operand++) {
        const struct cgm_view *view = &launch->operands[rank][operand];
        if (view->mem)
            print_error("operand %d at %llu: %llu rows of %llu, %llu apart, %s; ", operand,
                        (unsigned long long)view->offset_bytes, (unsigned long long)view->rows,
                        (unsigned long long)view->cols, (unsigned long long)view->stride,
                        cgm_type_name(CGM_TABLE_DTYPE, view->dtype));
    }
}

/* Outside of what the job writes, the arena is what it was. */
static void judge_rest(const struct trial *trial, uint32_t index, uint32_t rank)
{
    const struct job *job = &trial->jobs[index];
    unsigned char *expected = must_alloc(job->used[rank] + GUARD_BYTES);
    memcpy(expected, job->before[rank], job->used[rank] + GUARD_BYTES);
    for (int operand = 0; operand < CGM_OPERAND_COUNT; operand++) {
        const struct cgm_view *view = &trial->launches[index].operands[rank][operand];
        if (!view->mem || !(CGM_OPERANDS_WRITTEN & 1u << operand))
            continue;
        size_t bytes = cgm_dtype_bytes(view->dtype);
        for (uint64_t row = 0; row < view->rows; row++) {
            size_t at = view->offset_bytes + row * view->stride * bytes;
            memcpy(expected + at, job->after[rank] + at, view->cols * bytes);
        }
    }
    if (memcmp(expected, job->after[rank], job->used[rank] + GUARD_BYTES) != 0) {
        size_t at = 0;
        while (expected[at] == job->after[rank][at])
            at++;
        describe(trial->config, &trial->spec);
        explain_operands(&trial->launches[index], rank);
        fail_msg("launch %u of %u, rank %u: byte %zu of %zu, outside of the outputs, was %02x and "
                 "is %02x",
                 index, trial->count, rank, at, (size_t)job->used[rank], job->before[rank][at],
                 job->after[rank][at]);
    }
    free(expected);
}

/* rs and ar: fp32 sums in rank order, rounded once, to the bit. */
static void judge_order(const struct trial *trial, uint32_t index, uint32_t rank)
{
    const struct job *job = &trial->jobs[index];
    struct part part = matrix_part(&job->out, trial->spec.world, rank);
    const struct cgm_view *out = &trial->launches[index].operands[rank][CGM_OPERAND_OUT];
    size_t bytes = cgm_dtype_bytes(out->dtype);
    unsigned char expected[sizeof(float)];
    for (uint64_t i = 0; i < out->rows; i++)
        for (uint64_t j = 0; j < out->cols; j++) {
            uint64_t element = (part.row + i) * job->lhs.cols + j;
            float sum = job->lhs.values[0][element];
            for (uint32_t r = 1; r < trial->spec.world; r++)
                sum += job->lhs.values[r][element];
            cgm_format_store(out->dtype, &sum, 1, expected);
            assert_memory_equal(job->after[rank] + out->offset_bytes +
                                    (i * out->stride + j) * bytes,
                                expected, bytes);
        }
}

static void judge_out(const struct trial *trial, uint32_t index, uint32_t rank)
{
    const struct job *job = &trial->jobs[index];
    struct cgm_reference reference;
    struct cgm_verdict verdict = {0};
    struct part part = matrix_part(&job->out, trial->spec.world, rank);
    const struct cgm_view *out = &trial->launches[index].operands[rank][CGM_OPERAND_OUT];
    struct cgm_reference_found found = found_of(out, job->after[rank], part.row, part.col);
    reference_of(trial, job, rank, &reference);
    cgm_reference_check(&reference, &found, &verdict);
    judge(trial, &verdict, 1, "out", index, rank);
    if (trial->spec.op == CGM_OP_AG && verdict.ratio != 0)
        fail_msg("ag is not exact");
    cgm_reference_fini(&reference);
}

static void judge_rank(const struct trial *trial, uint32_t index, uint32_t rank)
{
    int op = trial->spec.op;
    judge_rest(trial, index, rank);
    if (op == CGM_OP_A2AV) {
        judge_exchange(trial, index, rank);
        return;
    }
    judge_out(trial, index, rank);
    if ((op == CGM_OP_RS || op == CGM_OP_AR) && !library_sums(trial, index))
        judge_order(trial, index, rank);
    const struct cgm_view *operands = trial->launches[index].operands[rank];
    if (is_bulk(op))
        judge_moved(trial, index, rank, cgm_library_takes(&trial->launches[index].launch));
    else if (operands[CGM_OPERAND_AUX_OUT].mem)
        judge_aux(trial, index, rank);
    if (operands[CGM_OPERAND_PRE_GELU_OUT].mem)
        judge_pre_gelu(trial, index, rank);
    if (operands[CGM_OPERAND_BIAS_GRAD].mem)
        judge_gradient(trial, index, rank);
}

static void judge_job(const struct trial *trial, uint32_t index)
{
    for (uint32_t rank = 0; rank < trial->spec.world; rank++)
        judge_rank(trial, index, rank);
}

/* Adds one element of the job, which no_overlap found to be `serial`, to the verdict. */
static void compare_element(const struct cgm_reference *reference, uint64_t row, uint64_t col,
                            const struct cgm_view *out, const float values[2],
                            struct cgm_verdict *verdict)
{
    double found = (double)values[0], serial = (double)values[1];
    double bound = cgm_reference_bound(reference, row, col, out->dtype);
    double ratio = found == serial ? 0 : fabs(found - serial) / bound;
    verdict->no_number += isnan(found) || isnan(serial);
    if (verdict->checked++ == 0 || !(ratio <= verdict->ratio)) {
        verdict->ratio = ratio;
        verdict->row = row, verdict->col = col;
        verdict->found = found, verdict->expected = serial, verdict->bound = bound;
    }
}

/* With what no_overlap found, whose arenas are in job->again. Either may be off by the reference's
 * bound, so they may differ by twice that. */
static void judge_against_serial(const struct trial *trial, uint32_t index)
{
    const struct job *job = &trial->jobs[index];
    for (uint32_t rank = 0; rank < trial->spec.world; rank++) {
        struct cgm_reference reference;
        struct cgm_verdict verdict = {0};
        struct part part = matrix_part(&job->out, trial->spec.world, rank);
        const struct cgm_view *out = &trial->launches[index].operands[rank][CGM_OPERAND_OUT];
        size_t bytes = cgm_dtype_bytes(out->dtype);
        reference_of(trial, job, rank, &reference);
        for (uint64_t i = 0; i < out->rows; i++)
            for (uint64_t j = 0; j < out->cols; j++) {
                size_t at = out->offset_bytes + (i * out->stride + j) * bytes;
                float values[2];
                cgm_format_load(out->dtype, job->after[rank] + at, 1, &values[0]);
                cgm_format_load(out->dtype, job->again[rank] + at, 1, &values[1]);
                compare_element(&reference, part.row + i, part.col + j, out, values, &verdict);
            }
        judge(trial, &verdict, 2, "out against no_overlap", index, rank);
        cgm_reference_fini(&reference);
    }
}

static void judge_repeat(const struct trial *trial, uint32_t index)
{
    const struct job *job = &trial->jobs[index];
    for (uint32_t rank = 0; rank < trial->spec.world; rank++)
        if (memcmp(job->after[rank], job->again[rank], job->used[rank] + GUARD_BYTES) != 0) {
            describe(trial->config, &trial->spec);
            fail_msg("launch %u, rank %u: the second run differs from the first", index, rank);
        }
}

static void try_config(struct rig *rig, const struct config *config)
{
    struct trial trial = {.config = config, .rig = rig};
    trial_plan(&trial);
    bool in_buffer = config->in_place || (is_bulk(config->op) && !config->aux);
    trial.count = in_buffer ? 1 : 1 + (uint32_t)pick(RIG_LAUNCHES);
    for (uint32_t i = 0; i < trial.count; i++)
        job_init(&trial, i);
    trial_run(&trial, &trial.spec, config->algorithm);
    keep_first_run(&trial);
    for (uint32_t i = 0; i < trial.count; i++) {
        judge_job(&trial, i);
        by_library += cgm_library_takes(&trial.launches[i].launch);
    }
    rig->replays = true;
    trial_run(&trial, &trial.spec, config->algorithm);
    rig->replays = false;
    for (uint32_t i = 0; i < trial.count; i++)
        judge_repeat(&trial, i);
    if (config->algorithm->number != CGM_ALGO_NO_OVERLAP) {
        trial_run(&trial, &trial.serial, cgm_algorithm_find(CGM_ALGO_NO_OVERLAP));
        for (uint32_t i = 0; i < trial.count; i++)
            judge_against_serial(&trial, i);
    }
    for (uint32_t i = 0; i < trial.count; i++)
        job_fini(&trial.jobs[i], trial.spec.world);
    trials++;
    launches_run += trial.count;
}

/* ---- all configurations -----------------------------------------------------------------------
 */

/* Bits of a configuration's number. */
enum {
    TRANSA = 1,
    TRANSB = 2,
    BIAS = 4,
    ACCUMULATE = 8,
    AUX = 16,
    AGGREGATE = 32,
    GELU = 64,
    GRAD = 128,
    BITS_END = 256
};

static uint32_t bits_allowed(const struct cgm_algorithm *algorithm, int op, int dtype)
{
    uint32_t bits = 0;
    if (layouts[layout_of(op)].rhs != NOTHING)
        bits |= TRANSA | TRANSB | BIAS | GELU | GRAD | AUX;
    if (op == CGM_OP_GEMM || op == CGM_OP_AG_GEMM || op == CGM_OP_GEMM_RS || is_bulk(op))
        bits |= ACCUMULATE;
    if (algorithm->number == CGM_ALGO_SPLIT_PIPELINED_AG_P2P)
        bits |= AGGREGATE;
    if (dtype == CGM_DTYPE_INT8)
        bits &= ~(uint32_t)(BIAS | ACCUMULATE | GELU | GRAD);
    return bits;
}

/* Which go together; a configuration without optional outputs comes once. */
static bool bits_agree(int op, uint32_t bits)
{
    bool whole_lhs = op == CGM_OP_GEMM || op == CGM_OP_GEMM_AS || is_bulk(op);
    if (bits & GELU && bits & ACCUMULATE)
        return false;
    if (bits & GRAD && !(bits & GELU) && (!(bits & BIAS) || !whole_lhs))
        return false;
    return !(bits & AUX) || op == CGM_OP_AG_GEMM || (bits & GELU && !(bits & GRAD));
}

static bool takes_type(int op, size_t type)
{
    const struct cgm_operation_row *row = cgm_operation_row(op);
    size_t layout = layout_of(op);
    bool product = layouts[layout].rhs != NOTHING;
    bool same = types[type].dtype == types[type].out_dtype;
    if (type >= TYPES_ALL)
        return row->integers & 1u << types[type].dtype && same != product;
    if (!product)
        return type < TYPES_SAME;
    return type < (layouts[layout].partials ? TYPES_ALL : TYPES_PLAIN);
}

static void try_bits(struct rig *rig, struct config *config, uint32_t one_in)
{
    uint32_t allowed = bits_allowed(config->algorithm, config->op, config->dtype);
    for (uint32_t bits = 0; bits < BITS_END; bits++) {
        if ((bits & ~allowed) || !bits_agree(config->op, bits) || pick(one_in) != 0)
            continue;
        config->transa = bits & TRANSA;
        config->transb = bits & TRANSB;
        config->bias = bits & BIAS;
        config->accumulate = bits & ACCUMULATE;
        config->gelu = bits & GELU;
        config->grad = bits & GRAD;
        config->aux = bits & AUX;
        config->aggregate = bits & AGGREGATE;
        config->by_plan = pick(2);
        config->by_library =
            ops->group_new && (config->algorithm->group_ops & 1u << config->op) && pick(2);
        config->dense = config->by_library && pick(4);
        config->in_place =
            (config->op == CGM_OP_AG_GEMM && pick(4) == 0) || (is_bulk(config->op) && pick(2));
        pick_rest(config);
        try_config(rig, config);
    }
}

/* One in one_in of all configurations of the table's algorithms. */
static void try_all(struct rig *rig, uint32_t one_in)
{
    for (size_t a = 0; a < cgm_algorithm_count; a++)
        for (int op = 0; op < 32; op++)
            for (size_t t = 0; cgm_algorithms[a]->ops & 1u << op && t < TYPES; t++)
                for (size_t w = 0; takes_type(op, t) && w < WORLDS; w++) {
                    struct config config = {.algorithm = cgm_algorithms[a],
                                            .op = op,
                                            .dtype = types[t].dtype,
                                            .out_dtype = types[t].out_dtype,
                                            .buffer_dtype = types[t].buffer_dtype,
                                            .world = worlds[w]};
                    try_bits(rig, &config, one_in);
                }
}

static void run_sweep(uint32_t devices, uint32_t delay_us, uint32_t one_in)
{
    trials = launches_run = by_library = elements = 0;
    worst_ratio = 0;
    struct rig *rig = rig_open(devices, delay_us);
    const char *thin = getenv("CGM_TEST_THIN"); /* runs one in so many */
    try_all(rig, one_in * (thin ? (uint32_t)atoi(thin) : THINNING));
    uint64_t replayed = rig->n_replayed;
    rig_close(rig);
    print_message("%llu trials, %llu launches, %llu of them by a library, %llu recorded, %llu "
                  "elements, worst ratio %.3f\n",
                  (unsigned long long)trials, (unsigned long long)launches_run,
                  (unsigned long long)by_library, (unsigned long long)replayed,
                  (unsigned long long)elements, worst_ratio);
}

static void test_every_configuration(void **state)
{
    (void)state;
    run_sweep(4, 0, 1);
}

static void test_one_device(void **state)
{
    (void)state;
    run_sweep(1, 0, 10);
}

static void test_a_device_for_each_rank(void **state)
{
    (void)state;
    run_sweep(8, 0, 10);
}

static void test_random_delays(void **state)
{
    (void)state;
    run_sweep(3, 300, 20);
}

int main(void)
{
    seed_trials();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_configuration),
        cmocka_unit_test(test_one_device),
        cmocka_unit_test(test_a_device_for_each_rank),
        cmocka_unit_test(test_random_delays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
