/* Enqueueing takes a device's thread microseconds for every operation: the first push and the first
 * product must not stand behind operations that are needed later. What is enqueued is written down
 * here instead of run. */
#include "daemon/executor/rehearse.h"
#include "tests/algo/trial.h"

#define WORLD 4u
#define SIDE 256u
#define RANK 1u
#define FLAGS 80u

/* 'p': a push, 'g': a product, in the order of enqueueing. */
static char order[1024];
static size_t length;

static int note(char what)
{
    assert_true(length < sizeof(order) - 1);
    order[length++] = what;
    order[length] = '\0';
    return CGM_OK;
}

static int note_copy(struct cgm_queue *queue, const struct cgm_copy *copy)
{
    (void)queue;
    return copy->label.peer != RANK ? note('p') : CGM_OK;
}

static int note_gemm(struct cgm_queue *queue, const struct cgm_gemm *gemm)
{
    (void)queue;
    (void)gemm;
    return note('g');
}

static int note_flagged(struct cgm_queue *queue, const struct cgm_flagged_gemm *flagged)
{
    (void)queue;
    (void)flagged;
    return note('g');
}

static int check_signals(struct cgm_queue *queue, const struct cgm_flag_value *signals,
                         uint32_t count)
{
    (void)queue;
    (void)signals;
    assert_in_range(count, 1, CGM_FLAGS_AT_ONCE);
    return CGM_OK;
}

static int check_waits(struct cgm_queue *queue, const struct cgm_wait *waits, uint32_t count)
{
    (void)queue;
    (void)waits;
    assert_in_range(count, 2, CGM_FLAGS_AT_ONCE);
    return CGM_OK;
}

/* Nothing looks into them. */
static struct cgm_mem *const somewhere = (struct cgm_mem *)(void *)order;
static struct cgm_flag *flags[FLAGS];

static void lay_out(const struct cgm_spec *spec, struct cgm_view (*views)[CGM_OPERAND_COUNT])
{
    struct cgm_shape shape;
    memset(views, 0, WORLD * sizeof(views[0]));
    for (uint32_t rank = 0; rank < WORLD; rank++)
        for (int i = 0; i < CGM_OPERAND_COUNT; i++)
            if (cgm_operation_operand(spec, rank, spec->m, i, &shape) == CGM_REQUIRED)
                views[rank][i] = (struct cgm_view){somewhere,  0,          shape.rows,
                                                   shape.cols, shape.cols, shape.dtype};
}

static void enqueue(const struct config *config)
{
    struct cgm_backend_ops noting = {0};
    cgm_rehearse_skip(&noting);
    noting.copy = note_copy;
    noting.gemm = note_gemm;
    noting.flagged_gemm = note_flagged;
    noting.wait_all = check_waits;
    noting.signal_all = check_signals;
    const uint64_t sizes[3] = {SIDE, SIDE, SIDE};
    struct cgm_plan_rank ranks[WORLD];
    struct cgm_view views[WORLD][CGM_OPERAND_COUNT];
    struct cgm_spec spec;
    set_spec(config, (int)config->algorithm->number, sizes, &spec);
    lay_out(&spec, views);
    for (uint32_t rank = 0; rank < WORLD; rank++)
        ranks[rank] = (struct cgm_plan_rank){
            .device = rank, .user = somewhere, .scratch = somewhere, .flags = flags};
    struct cgm_run run = {.status = CGM_OK};
    struct cgm_launch launch = {.ops = &noting,
                                .spec = &spec,
                                .ranks = ranks,
                                .epoch = 1,
                                .rows = spec.m,
                                .operands = (const struct cgm_view(*)[CGM_OPERAND_COUNT])views,
                                .run = &run};
    length = 0;
    assert_int_equal(cgm_launch_enqueue(config->algorithm, &launch, RANK), CGM_OK);
}

/* A push before the first product where something can be pushed at once; else a second product
 * before the first push, to be worked on while that is enqueued. */
static void judge(const struct config *config)
{
    size_t pushes = strspn(order, "p"), products = strspn(order, "g");
    if (pushes <= 1 && products <= 2)
        return;
    fail_msg("%s, %s: enqueued are %s", config->algorithm->name,
             cgm_type_name(CGM_TABLE_OP, config->op), order);
}

static void test_first_push_and_product(void **state)
{
    (void)state;
    for (size_t i = 0; i < cgm_algorithm_count; i++)
        for (int op = 0; op < 32; op++) {
            struct config config = {.algorithm = cgm_algorithms[i],
                                    .op = op,
                                    .dtype = CGM_DTYPE_FP32,
                                    .out_dtype = CGM_DTYPE_FP32,
                                    .buffer_dtype = -1,
                                    .world = WORLD,
                                    .moved = {SIDE, SIDE}};
            if (!(config.algorithm->ops & 1u << op) ||
                config.algorithm->method == CGM_METHOD_NONE ||
                layouts[layout_of(op)].rhs == NOTHING)
                continue;
            enqueue(&config);
            judge(&config);
        }
}

int main(void)
{
    seed_trials();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_first_push_and_product)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
