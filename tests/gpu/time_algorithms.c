/* How long algorithms take inside the executor, without its poller: launches behind each other on
 * every device, variants in turn, median of rounds; also enqueued from recordings, which are
 * graphs, where an algorithm can be. Nothing is checked here.
 *
 *     test_gpu_time [ranks [phases|- [OP]]]
 *
 * floor: the longer of the product alone and the bytes that a rank sends at LINK_GBS. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/executor/algorithm.h"
#include "daemon/executor/cuda/cuda.h"
#include "daemon/executor/cuda/queue.h"
#include "daemon/executor/recorded.h"
#include "daemon/executor/rehearse.h"
#include "kernels/number_format.h"
#include "kernels/random.h"
#include "proto/status.h"

#define RANKS_MAX 8u
#define FLAGS_MAX 80u
#define LAUNCHES 20u
#define ROUNDS 7u
#define LINK_GBS 365.0
#define ALIGN 256u
#define PHASES_MAX 400u
#define BLOCK (8u << 20) /* elements */

static const struct cgm_backend_ops *const ops = &cgm_backend_cuda;

struct shape {
    int op;
    uint64_t m, n, k; /* on one rank, as in the table of peers */
};

struct plan {
    struct cgm_spec spec;
    const struct cgm_algorithm *algorithm;
    struct cgm_plan_rank ranks[RANKS_MAX];
    struct cgm_flag *flags[RANKS_MAX][FLAGS_MAX], *done[RANKS_MAX];
    struct cgm_mem *operands[RANKS_MAX];
    struct cgm_view views[RANKS_MAX][CGM_OPERAND_COUNT];
    struct cgm_recorded recorded[RANKS_MAX];
    bool is_recorded;
    uint64_t epoch;
    double us[ROUNDS];
};

static struct cgm_backend *backend;
static uint32_t world;
static bool want_phases;
static struct cgm_queue *compute[RANKS_MAX], *comm[RANKS_MAX];
static struct cgm_group *group; /* NULL: there is none */

/* What is timed: the product alone; collective and product one after the other, with copies and
 * with the device's library; and overlapped in several ways. */
enum variant { PRODUCT, COPIES, LIBRARY, OVERLAPPED, VARIANTS = OVERLAPPED + 4 };

static const struct {
    int op, algorithms[VARIANTS - OVERLAPPED]; /* 0: no more */
} overlapping[] = {
    {CGM_OP_AG_GEMM,
     {CGM_ALGO_SPLIT_PIPELINED_AG_P2P, CGM_ALGO_ATOMIC_GEMM_AG_P2P, CGM_ALGO_FUSED_AG}},
    {CGM_OP_GEMM_RS,
     {CGM_ALGO_SPLIT_PIPELINED_RS_P2P, CGM_ALGO_ATOMIC_GEMM_RS_P2P, CGM_ALGO_ATOMIC_GEMM_RS,
      CGM_ALGO_FUSED_RS}},
    {CGM_OP_GEMM_AR, {CGM_ALGO_ONE_SHOT_AR, CGM_ALGO_TWO_SHOT_AR, CGM_ALGO_FUSED_AR}},
    {CGM_OP_GEMM_AS, {CGM_ALGO_SPLIT_AS, CGM_ALGO_FUSED_AS, CGM_ALGO_ATOMIC_GEMM_AS}},
};

static bool shards_columns(int op)
{
    return op == CGM_OP_AG_GEMM || op == CGM_OP_GEMM_AS;
}

static bool shards_depth(int op)
{
    return op == CGM_OP_GEMM_RS || op == CGM_OP_GEMM_AR;
}

static const int *overlapping_algorithms(int op)
{
    size_t i = 0;
    while (overlapping[i].op != op)
        i++;
    return overlapping[i].algorithms;
}

static void must(int status, const char *what)
{
    if (status != CGM_OK) {
        fprintf(stderr, "%s: %s\n", what, cgm_status_text(status));
        exit(1);
    }
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* Zeros would be faster than numbers. */
static void fill(struct cgm_mem *mem)
{
    static uint16_t numbers[BLOCK];
    if (numbers[0] == 0) {
        struct cgm_random rng;
        static float values[BLOCK];
        cgm_random_init(&rng, cgm_random_seed());
        cgm_random_fill(&rng, CGM_FILL_NORMAL, values, BLOCK);
        cgm_format_store(CGM_DTYPE_BF16, values, BLOCK, numbers);
    }
    cgm_device_use(mem->device);
    for (uint64_t at = 0; at < mem->bytes; at += sizeof(numbers)) {
        uint64_t left = mem->bytes - at;
        must(cudaMemcpy(mem->at[mem->device] + at, numbers,
                        left < sizeof(numbers) ? left : sizeof(numbers), cudaMemcpyDefault),
             "fill");
    }
    must(cudaDeviceSynchronize(), "fill");
}

static void lay_out(struct plan *plan, uint32_t rank)
{
    struct cgm_shape shape;
    uint64_t at = 0;
    for (int i = 0; i < CGM_OPERAND_COUNT; i++) {
        if (cgm_operation_operand(&plan->spec, 0, plan->spec.m, i, &shape) != CGM_REQUIRED)
            continue;
        plan->views[rank][i] =
            (struct cgm_view){NULL, at, shape.rows, shape.cols, shape.cols, shape.dtype};
        at += (shape.rows * shape.cols * cgm_dtype_bytes(shape.dtype) + ALIGN - 1) / ALIGN * ALIGN;
    }
    must(ops->mem_alloc(backend, rank, at, 0, &plan->operands[rank]), "operands");
    fill(plan->operands[rank]);
    for (int i = 0; i < CGM_OPERAND_COUNT; i++)
        if (plan->views[rank][i].rows)
            plan->views[rank][i].mem = plan->operands[rank];
}

static void make_rank(struct plan *plan, uint32_t rank, bool by_library)
{
    struct cgm_plan_rank *r = &plan->ranks[rank];
    struct cgm_shape user = cgm_operation_user_buffer(&plan->spec);
    uint64_t scratch =
        plan->algorithm->scratch_bytes ? plan->algorithm->scratch_bytes(&plan->spec) : 0;
    uint32_t flags = plan->algorithm->flags ? plan->algorithm->flags(&plan->spec) : 0;
    *r = (struct cgm_plan_rank){.device = rank,
                                .compute = compute[rank],
                                .comm = comm[rank],
                                .flags = plan->flags[rank],
                                .group = by_library ? group : NULL};
    must(ops->mem_alloc(backend, rank, user.rows * user.cols * cgm_dtype_bytes(user.dtype), 0,
                        &r->user),
         "user buffer");
    if (scratch)
        must(ops->mem_alloc(backend, rank, scratch, 0, &r->scratch), "scratch");
    for (uint32_t i = 0; i < flags; i++)
        must(ops->flag_new(backend, rank, CGM_FLAG_DEVICE, &plan->flags[rank][i]), "flag");
    must(ops->flag_new(backend, rank, CGM_FLAG_HOST, &plan->done[rank]), "flag");
    lay_out(plan, rank);
}

static void make(struct plan *plan, const struct shape *shape, int algorithm, bool by_library)
{
    Cgm__PlanCreate ask = CGM__PLAN_CREATE__INIT;
    char detail[256];
    ask.op = (uint32_t)shape->op;
    ask.method = CGM_METHOD_AUTO;
    ask.comm_type = shape->op == CGM_OP_AG_GEMM   ? CGM_COMM_TYPE_AG
                    : shape->op == CGM_OP_GEMM_RS ? CGM_COMM_TYPE_RS
                                                  : CGM_COMM_TYPE_NONE;
    ask.has_algorithm = 1;
    ask.algorithm = (uint32_t)algorithm;
    ask.m = shape->m;
    ask.n = shards_columns(shape->op) ? shape->n * world : shape->n;
    ask.k = shards_depth(shape->op) ? shape->k * world : shape->k;
    ask.dtype = CGM_DTYPE_BF16;
    if (cgm_spec_init(&ask, world, false, detail, sizeof(detail), &plan->spec) != CGM_OK ||
        cgm_algorithm_choose(&plan->spec, detail, sizeof(detail), &plan->algorithm) != CGM_OK) {
        fprintf(stderr, "%s\n", detail);
        exit(1);
    }
    for (uint32_t rank = 0; rank < world; rank++)
        make_rank(plan, rank, by_library);
}

static void unmake(struct plan *plan)
{
    for (uint32_t rank = 0; rank < world; rank++) {
        cgm_recorded_free(ops, &plan->recorded[rank]);
        ops->mem_free(plan->operands[rank]);
        ops->mem_free(plan->ranks[rank].user);
        if (plan->ranks[rank].scratch)
            ops->mem_free(plan->ranks[rank].scratch);
        for (uint32_t i = 0; i < FLAGS_MAX && plan->flags[rank][i]; i++)
            ops->flag_free(plan->flags[rank][i]);
        ops->flag_free(plan->done[rank]);
    }
}

static struct cgm_launch launch_of(struct plan *plan, struct cgm_run *run, uint64_t epoch)
{
    return (struct cgm_launch){
        .ops = ops,
        .spec = &plan->spec,
        .ranks = plan->ranks,
        .epoch = epoch,
        .rows = plan->spec.m,
        .operands = (const struct cgm_view(*)[CGM_OPERAND_COUNT])plan->views,
        .run = run,
    };
}

struct worker {
    pthread_t thread;
    struct plan *plan;
    struct cgm_run *run;
    uint32_t rank, launches;
    bool replays;
    struct gate *gate;
};

/* Whoever waits here polls: a thread's awakening would be part of the time. */
struct gate {
    _Atomic uint32_t arrived;
    _Atomic bool open;
};

/* The first calls of a thread take longer by tens of microseconds: the executor's threads have them
 * behind them. */
static void make_first_calls(uint32_t rank)
{
    cgm_device_use(rank);
    (void)cudaStreamQuery(compute[rank]->stream->handle);
    (void)cudaStreamQuery(comm[rank]->stream->handle);
}

static void *worker_main(void *argument)
{
    struct worker *w = argument;
    make_first_calls(w->rank);
    atomic_fetch_add(&w->gate->arrived, 1);
    while (!atomic_load(&w->gate->open))
        ;
    ops->set_run(compute[w->rank], w->run);
    ops->set_run(comm[w->rank], w->run);
    for (uint32_t i = 1; i <= w->launches; i++) {
        struct cgm_launch launch = launch_of(w->plan, w->run, w->plan->epoch + i);
        must(w->replays ? cgm_recorded_replay(&w->plan->recorded[w->rank], &launch, w->rank)
                        : w->plan->algorithm->enqueue(&launch, w->rank),
             "enqueue");
    }
    must(ops->signal(compute[w->rank], w->plan->done[w->rank], w->plan->epoch + w->launches),
         "signal");
    return NULL;
}

/* Of one rank, without the first launches. */
static void print_phases(struct cgm_run *run)
{
    ops->finish_phases(backend, run);
    for (uint32_t i = 0; i < run->n_phases && i < run->phases_max; i++) {
        const struct cgm_phase *p = &run->phases[i];
        if (p->rank == 1)
            printf("    %s %-7s chunk %u peer %u: %8.1f to %8.1f, %.1f us\n",
                   p->queue ? "comm   " : "compute", cgm_type_name(CGM_TABLE_PHASE, p->kind),
                   p->chunk, p->peer_or_zero, (double)p->begin_ns / 1e3, (double)p->end_ns / 1e3,
                   (double)(p->end_ns - p->begin_ns) / 1e3);
    }
}

static double run_round(struct plan *plan, uint32_t launches, bool replays,
                        struct cgm_phase *phases)
{
    struct worker workers[RANKS_MAX];
    struct cgm_run run = {.begin_ns = (uint64_t)(now_us() * 1e3),
                          .phases = phases,
                          .phases_max = phases ? PHASES_MAX : 0};
    struct gate gate = {0};
    for (uint32_t r = 0; r < world; r++) {
        workers[r] = (struct worker){.plan = plan,
                                     .run = &run,
                                     .rank = r,
                                     .launches = launches,
                                     .replays = replays,
                                     .gate = &gate};
        pthread_create(&workers[r].thread, NULL, worker_main, &workers[r]);
    }
    while (atomic_load(&gate.arrived) < world)
        ;
    run.begin_ns = (uint64_t)(now_us() * 1e3);
    double begin = now_us();
    atomic_store(&gate.open, true);
    for (uint32_t r = 0; r < world; r++)
        while (ops->flag_read(plan->done[r]) < plan->epoch + launches)
            ;
    double us = (now_us() - begin) / launches;
    for (uint32_t r = 0; r < world; r++)
        pthread_join(workers[r].thread, NULL);
    if (phases)
        print_phases(&run);
    plan->epoch += launches;
    return us;
}

static int by_value(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof(*values), by_value);
    return values[ROUNDS / 2];
}

/* The variants of an operation; how many. */
static int make_variants(const struct shape *shape, struct plan *plans)
{
    const struct shape alone = {CGM_OP_GEMM, shape->m, shape->n, shape->k};
    const int *algorithms = overlapping_algorithms(shape->op);
    int count = OVERLAPPED;
    make(&plans[PRODUCT], &alone, CGM_ALGO_NO_OVERLAP, false);
    make(&plans[COPIES], shape, CGM_ALGO_NO_OVERLAP, false);
    make(&plans[LIBRARY], shape, CGM_ALGO_NO_OVERLAP, true);
    for (int i = 0; count < VARIANTS && algorithms[i]; i++)
        make(&plans[count++], shape, algorithms[i], false);
    return count;
}

static double bytes_sent(const struct shape *shape)
{
    double share = (double)(world - 1) / world * (double)shape->m * 2;
    switch (shape->op) {
    case CGM_OP_AG_GEMM:
        return share * (double)shape->k;
    case CGM_OP_GEMM_AR:
        return share * 2 * (double)shape->n;
    case CGM_OP_GEMM_AS:
        return share * (double)shape->n * world;
    default:
        return share * (double)shape->n;
    }
}

static const char *names_of(const struct plan *plans, int variant)
{
    static const char *const names[] = {"product", "no_overlap", "no_overlap, library"};
    return variant < OVERLAPPED ? names[variant] : plans[variant].algorithm->name;
}

/* Of launches behind each other, and of one at a time, from the first call to the last flag. */
struct times {
    double us[VARIANTS], single[VARIANTS], replayed[VARIANTS], replayed_single[VARIANTS];
};

static void print_times(const struct shape *shape, const struct plan *plans,
                        const struct times *times, int count)
{
    const double *us = times->us, *single = times->single;
    double sent = bytes_sent(shape), link = sent / LINK_GBS / 1e3,
           floor = us[PRODUCT] > link ? us[PRODUCT] : link;
    printf("%-7s M %5llu N %5llu K %5llu: product %.0f us (%.0f TFLOP/s), link %.0f, no_overlap "
           "%.0f, with %s %.0f; one at a time: product %.0f, no_overlap %.0f\n",
           cgm_type_name(CGM_TABLE_OP, shape->op), (unsigned long long)shape->m,
           (unsigned long long)shape->n, (unsigned long long)shape->k, us[PRODUCT],
           2.0 * (double)shape->m * (double)shape->n * (double)shape->k / us[PRODUCT] / 1e6, link,
           us[COPIES], group ? "the library" : "copies again", us[LIBRARY], single[PRODUCT],
           single[COPIES] < single[LIBRARY] ? single[COPIES] : single[LIBRARY]);
    for (int v = 0; v < count; v++) {
        printf("    %-22s %6.0f us, floor fraction %.2f; one at a time %.0f", names_of(plans, v),
               us[v], floor / us[v], single[v]);
        if (plans[v].is_recorded)
            printf("; as graphs %.0f, one at a time %.0f", times->replayed[v],
                   times->replayed_single[v]);
        printf("\n");
    }
}

/* Launches that others lie before: their handshakes are recorded too. */
static void record(struct plan *plan)
{
    int status = CGM_OK;
    for (uint32_t r = 0; r < world && status == CGM_OK; r++) {
        struct cgm_launch launch = launch_of(plan, NULL, 0);
        status = cgm_recorded_make(plan->algorithm, &launch, r, &plan->recorded[r]);
    }
    plan->is_recorded = status == CGM_OK;
    if (status != CGM_OK && status != CGM_NOT_SUPPORTED)
        must(status, "recording");
}

static void time_variants(struct plan *plans, int count, uint32_t launches, bool replays,
                          double *ret_us)
{
    for (uint32_t round = 0; round < ROUNDS; round++)
        for (int v = 0; v < count; v++)
            if (!replays || plans[v].is_recorded)
                plans[v].us[round] = run_round(&plans[v], launches, replays, NULL);
    for (int v = 0; v < count; v++)
        ret_us[v] = median(plans[v].us);
}

static void time_shape(const struct shape *shape)
{
    static struct plan plans[VARIANTS];
    struct times times;
    memset(plans, 0, sizeof(plans));
    int count = make_variants(shape, plans);
    for (int v = 0; v < count; v++)
        for (uint32_t r = 0; r < world; r++) {
            struct cgm_launch launch = launch_of(&plans[v], NULL, 1);
            must(cgm_rehearse(plans[v].algorithm, &launch, r, CGM_PREPARE_TRIALS, 0),
                 "preparation");
        }
    for (int v = 0; v < count; v++)
        record(&plans[v]);
    time_variants(plans, count, LAUNCHES, false, times.us);
    time_variants(plans, count, LAUNCHES, true, times.replayed);
    time_variants(plans, count, 1, false, times.single);
    time_variants(plans, count, 1, true, times.replayed_single);
    print_times(shape, plans, &times, count);
    for (int v = OVERLAPPED; v < count && want_phases; v++) {
        static struct cgm_phase phases[PHASES_MAX];
        printf("%s\n", plans[v].algorithm->name);
        run_round(&plans[v], 1, false, phases);
        run_round(&plans[v], 1, false, phases);
    }
    for (int v = 0; v < count; v++)
        unmake(&plans[v]);
}

/* ---- what a call costs the thread that makes it -----------------------------------------------
 */

#define CALLS 200u

/* A thread of each device calls at the same time, as at a launch. */
struct caller {
    pthread_t thread;
    uint32_t rank;
    struct gate *gate;
    struct plan *plan;
    struct cgm_run run;
    struct cgm_flag *flag;
    double us[4]; /* signal, wait, copy, product */
};

static int call(struct caller *caller, int kind, uint64_t number)
{
    const struct cgm_label label = {0};
    const struct cgm_view *v = caller->plan->views[caller->rank];
    const struct cgm_gemm gemm = {
        .a = v[CGM_OPERAND_LHS], .b = v[CGM_OPERAND_RHS], .out = v[CGM_OPERAND_OUT]};
    struct cgm_copy copy = {.src = v[CGM_OPERAND_LHS], .dst = v[CGM_OPERAND_LHS]};
    copy.dst.mem = caller->plan->operands[(caller->rank + 1) % world];
    switch (kind) {
    case 0:
        return ops->signal(compute[caller->rank], caller->flag, number);
    case 1:
        return ops->wait(compute[caller->rank], caller->flag, number, &label);
    case 2:
        return ops->copy(compute[caller->rank], &copy);
    default:
        return ops->gemm(compute[caller->rank], &gemm);
    }
}

static void *caller_main(void *argument)
{
    struct caller *caller = argument;
    make_first_calls(caller->rank);
    ops->set_run(compute[caller->rank], &caller->run);
    atomic_fetch_add(&caller->gate->arrived, 1);
    while (!atomic_load(&caller->gate->open))
        ;
    for (int kind = 0; kind < 4; kind++) {
        double begin = now_us();
        for (uint32_t i = 1; i <= CALLS; i++)
            must(call(caller, kind, i), "call");
        caller->us[kind] = (now_us() - begin) / CALLS;
    }
    return NULL;
}

static void time_calls(uint32_t threads)
{
    static struct plan plan;
    static struct caller callers[RANKS_MAX];
    const struct shape small = {CGM_OP_GEMM, 128, 2560, 2048};
    struct gate gate = {0};
    memset(&plan, 0, sizeof(plan));
    make(&plan, &small, CGM_ALGO_NO_OVERLAP, false);
    for (uint32_t r = 0; r < threads; r++) {
        struct cgm_launch launch = launch_of(&plan, NULL, 1);
        must(cgm_rehearse(plan.algorithm, &launch, r, CGM_PREPARE_TRIALS, 0), "preparation");
        callers[r] = (struct caller){.rank = r, .gate = &gate, .plan = &plan};
        callers[r].run.begin_ns = (uint64_t)(now_us() * 1e3);
        must(ops->flag_new(backend, r, CGM_FLAG_DEVICE, &callers[r].flag), "flag");
        pthread_create(&callers[r].thread, NULL, caller_main, &callers[r]);
    }
    while (atomic_load(&gate.arrived) < threads)
        ;
    atomic_store(&gate.open, true);
    for (uint32_t r = 0; r < threads; r++)
        pthread_join(callers[r].thread, NULL);
    for (uint32_t r = 0; r < threads; r++) {
        cgm_device_use(r);
        must(cudaDeviceSynchronize(), "calls");
        ops->flag_free(callers[r].flag);
    }
    const double *us = callers[0].us;
    printf(
        "calls of %u threads at a time: signal %.1f us, wait %.1f us, copy %.1f us, product %.1f "
        "us\n",
        threads, us[0], us[1], us[2], us[3]);
    unmake(&plan);
}

static void make_group(void)
{
    uint32_t devices[RANKS_MAX];
    char text[256];
    for (uint32_t r = 0; r < world; r++)
        devices[r] = r;
    double begin = now_us();
    if (world > 1)
        ops->group_new(backend, devices, world, text, sizeof(text), &group);
    if (world > 1)
        printf("%s (%.1f s)\n", text, (now_us() - begin) / 1e6);
}

int main(int argc, char **argv)
{
    static const struct shape shapes[] = {
        {CGM_OP_AG_GEMM, 8192, 2560, 8192},  {CGM_OP_AG_GEMM, 8192, 14336, 8192},
        {CGM_OP_AG_GEMM, 2048, 14336, 8192}, {CGM_OP_AG_GEMM, 512, 14336, 8192},
        {CGM_OP_GEMM_RS, 8192, 8192, 7168},  {CGM_OP_GEMM_RS, 8192, 8192, 2048},
        {CGM_OP_GEMM_RS, 2048, 8192, 7168},  {CGM_OP_GEMM_RS, 512, 8192, 7168},
        {CGM_OP_GEMM_AR, 4864, 4096, 2064},  {CGM_OP_GEMM_AS, 4864, 1024, 8256},
    };
    const struct cgm_backend_options options = {.devices = argc > 1 ? (uint32_t)atoi(argv[1]) : 0};
    char detail[256] = "";
    want_phases = argc > 2 && strcmp(argv[2], "phases") == 0;
    if (ops->open(&options, detail, sizeof(detail), &backend) != CGM_OK) {
        fprintf(stderr, "%s\n", detail);
        return 77;
    }
    world = ops->device_count(backend);
    world = world < RANKS_MAX ? world : RANKS_MAX;
    for (uint32_t r = 0; r < world; r++) {
        must(ops->queue_new(backend, r, 0, 0, &compute[r]), "queue");
        must(ops->queue_new(backend, r, 0, 1, &comm[r]), "queue");
    }
    make_group();
    time_calls(1);
    time_calls(world);
    printf("%u ranks, bf16, %u launches a round, median of %u\n", world, LAUNCHES, ROUNDS);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        if (argc < 4 || strcmp(argv[3], cgm_type_name(CGM_TABLE_OP, shapes[i].op)) == 0)
            time_shape(&shapes[i]);
    return 0;
}
