/* A daemon whose processes have a limit of address space: its executor computes with fewer threads
 * at a time, or says why it does not start; no product waits for address space. */
#include "tests/daemon/enter.h"

#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "tests/backend.h"
#include "tests/fault/product.h"

#define MIB (1ull << 20)
#define WORLD PRODUCT_WORLD
#define OP COMMGEMM_OP_GEMM_RS
#define COMMS 8u /* whose jobs run at the same time */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* One rank's. */
struct part {
    struct commgemm_buffer lhs, rhs, out;
    struct buffer_view lhs_view, rhs_view, out_view;
    uint64_t ticket;
};

/* Both ranks of a comm of its own, and what they multiply. */
struct pair {
    commgemm_client *client;
    uint64_t plan, seed;
    struct part parts[WORLD];
};

static int limited = RLIMIT_AS;
static rlim_t limit_bytes, stack_bytes; /* 0: as the test's own */

static void bequeath_limit(void)
{
    struct rlimit limit = {limit_bytes, limit_bytes}, stack = {stack_bytes, stack_bytes};
    setrlimit(limited, &limit);
    if (stack_bytes)
        setrlimit(RLIMIT_STACK, &stack);
}

static void start_with(struct daemon *daemon, uint64_t bytes)
{
    if (SANITIZED) {
        print_message("sanitizers need more address space than there is memory\n");
        skip();
    }
    daemon_init(daemon);
    daemon->bequeath = bequeath_limit;
    limit_bytes = bytes;
    daemon_start(daemon, REAL_EXECUTOR, "backend=cpu", "job_timeout=20", NULL);
}

static void check(int status)
{
    if (status != COMMGEMM_OK)
        fail_msg("%s", commgemm_last_error());
}

/* ---- a pair -----------------------------------------------------------------------------------
 */

static void get_buffer(struct pair *pair, struct commgemm_buffer *ret_buffer,
                       struct buffer_view *ret_view)
{
    check(commgemm_buffer_create(pair->client, NULL, PRODUCT_BYTES_MAX, 0, 0, 0, ret_buffer));
    check(buffer_view_open(pair->client, ret_buffer, ret_view));
}

static void part_open(struct pair *pair, uint32_t rank)
{
    struct part *part = &pair->parts[rank];
    get_buffer(pair, &part->lhs, &part->lhs_view);
    get_buffer(pair, &part->rhs, &part->rhs_view);
    get_buffer(pair, &part->out, &part->out_view);
    product_lhs(OP, pair->seed, rank, part->lhs_view.memory);
    product_rhs(OP, pair->seed, rank, part->rhs_view.memory);
}

static void part_close(struct part *part)
{
    buffer_view_close(&part->lhs_view);
    buffer_view_close(&part->rhs_view);
    buffer_view_close(&part->out_view);
}

static void pair_open(struct pair *pair, const struct daemon *daemon, unsigned number)
{
    static const uint32_t ranks[WORLD] = {0, 1};
    struct commgemm_join_options join;
    struct commgemm_plan_options options;
    struct commgemm_plan plan;
    char name[32];
    snprintf(name, sizeof(name), "pair-%u", number);
    *pair = (struct pair){.client = enter(daemon), .seed = (uint64_t)time(NULL) + number};
    commgemm_join_options_init(&join);
    join.name = name;
    join.size = join.n_ranks = WORLD;
    join.create = 1;
    join.ranks = ranks;
    commgemm_plan_options_init(&options);
    options.op = OP;
    options.m = PRODUCT_M;
    options.n = PRODUCT_N;
    options.k = PRODUCT_K;
    check(commgemm_comm_join(pair->client, &join, &options.comm));
    check(commgemm_plan_create(pair->client, &options, &plan));
    pair->plan = plan.id;
    for (uint32_t rank = 0; rank < WORLD; rank++)
        part_open(pair, rank);
}

static void pair_close(struct pair *pair)
{
    for (uint32_t rank = 0; rank < WORLD; rank++)
        part_close(&pair->parts[rank]);
    commgemm_disconnect(pair->client);
}

static void submit(struct pair *pair)
{
    struct commgemm_job job;
    commgemm_job_init(&job);
    job.plan = pair->plan;
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        struct part *part = &pair->parts[rank];
        job.rank = rank;
        job.lhs = commgemm_operand_at(&part->lhs, 0);
        job.rhs = commgemm_operand_at(&part->rhs, 0);
        job.out = commgemm_operand_at(&part->out, 0);
        check(commgemm_submit(pair->client, &job, &part->ticket));
    }
}

static void expect_product(struct pair *pair)
{
    struct commgemm_completion done;
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        struct part *part = &pair->parts[rank];
        check(commgemm_wait(pair->client, part->ticket, WAIT_S * 1000, &done));
        if (done.status)
            fail_msg("rank %u: %s", rank, done.detail);
        if (!product_is_right(OP, pair->seed, rank, part->out_view.memory))
            fail_msg("rank %u: wrong, seed %llu", rank, (unsigned long long)pair->seed);
    }
}

/* ---- tests ------------------------------------------------------------------------------------
 */

static void test_fewer_threads_compute(void **state)
{
    static struct pair pairs[COMMS];
    struct daemon daemon;
    (void)state;
    start_with(&daemon, 1536 * MIB);
    for (unsigned i = 0; i < COMMS; i++)
        pair_open(&pairs[i], &daemon, i);
    for (unsigned i = 0; i < COMMS; i++)
        submit(&pairs[i]);
    for (unsigned i = 0; i < COMMS; i++)
        expect_product(&pairs[i]);
    for (unsigned i = 0; i < COMMS; i++)
        pair_close(&pairs[i]);
    assert_true(daemon_log_has(&daemon, "warning", "threads compute at a time"));
    assert_true(daemon_log_has(&daemon, "warning", "1536 MiB"));
    daemon_stop(&daemon);
}

/* Returns when the status says why there is no executor. */
static void await_missing(struct client *client, const char *words)
{
    struct timespec begin;
    char why[512] = "";
    clock_gettime(CLOCK_MONOTONIC, &begin);
    while (!strstr(why, words)) {
        if (is_over(&begin))
            fail_msg("the status says: %s", why);
        nap();
        query_value(client, CGM_QUERY_STATUS, NULL, NULL, "executor_missing", why, sizeof(why));
    }
}

static void expect_refusal(uint64_t bytes, const char *words)
{
    struct daemon daemon;
    struct client client;
    start_with(&daemon, bytes);
    client_open(&client, &daemon);
    await_missing(&client, words);
    assert_int_equal(status_number(&client, "executor_life"), 0);
    client_close(&client);
    assert_true(daemon_log_has(&daemon, "error", words));
    daemon_stop(&daemon);
}

static void test_too_little_to_compute(void **state)
{
    (void)state;
    expect_refusal(364 * MIB, "too little address space to compute");
}

static void test_too_little_data_to_compute(void **state)
{
    (void)state;
    limited = RLIMIT_DATA;
    expect_refusal(364 * MIB, "ulimit -d or LimitDATA, is 364 MiB");
    limited = RLIMIT_AS;
}

static void test_too_little_to_load(void **state)
{
    (void)state;
    expect_refusal(264 * MIB, "address space cannot be had");
}

/* There is room to compute, and for the stacks of some threads. */
static void test_too_little_for_threads(void **state)
{
    (void)state;
    stack_bytes = 256 * MIB;
    expect_refusal(1536 * MIB, "threads or memory to begin with cannot be had");
    stack_bytes = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fewer_threads_compute),
        cmocka_unit_test(test_too_little_to_compute),
        cmocka_unit_test(test_too_little_data_to_compute),
        cmocka_unit_test(test_too_little_to_load),
        cmocka_unit_test(test_too_little_for_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
