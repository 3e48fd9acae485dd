#include "client/bench/noop.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "commgemm.h"

#include "client/bench/report.h"
#include "client/bench/stats.h"
#include "client/bench/stop.h"
#include "client/bench/yardstick.h"
#include "client/bench/status_row.h"
#include "client/common/progress.h"
#include "client/common/text_table.h"
#include "proto/status.h"

#define ROUNDS 10u         /* and one before them to warm up */
#define ROUND_TRIPS 20000u /* in all rounds, unless --iters says otherwise */
#define SLEEPERS_SHARE 50u /* one in so many of them with both sides asleep */
#define PAUSE_US 500u      /* long enough for the poller to go to sleep */
#define IN_FLIGHT 64u
#define THROUGHPUT_NS 200e6 /* of one round */
#define CLOCK_EVERY 256u    /* jobs between two looks at the clock */
#define WAIT_MS 10000
#define SPIN_FOREVER_NS 1000000000u

enum series {
    SERIES_POLLING,
    SERIES_SLEEPING,
    SERIES_SOCKET,
    SERIES_SOCKET_SLEEPING,
    SERIES_RAW_POLL,
    SERIES_COUNT,
};

struct noop {
    const struct cgm_bench_options *options;
    const char *socket;
    char *detail;
    struct cgm_yardstick yardstick;
    uint64_t round_trips, sleepers; /* of one round */
    double *samples[SERIES_COUNT];
    uint64_t counts[SERIES_COUNT];
    double rates[ROUNDS];
    uint64_t jobs;
    json_int_t allocations, syscalls; /* of the executor during the throughput runs; -1: unknown */
    char backend[16], gpus[CGM_GPUS_BYTES];
    struct cgm_stats stats[SERIES_COUNT];
};

static int fail(struct noop *noop, int status, const char *what)
{
    const char *why = commgemm_last_error();
    snprintf(noop->detail, CGM_BENCH_DETAIL_BYTES, "noop: %s: %s%s%s", what,
             commgemm_strerror(status), why[0] ? ": " : "", why);
    return status;
}

static int connect_to(struct noop *noop, uint64_t spin_ns, commgemm_client **ret_client)
{
    struct commgemm_connect_options options;
    struct commgemm_info info;
    commgemm_connect_options_init(&options);
    options.socket = noop->socket;
    options.name = "commgemm-bench";
    options.no_ring = noop->options->no_ring;
    options.spin_ns = spin_ns;
    int status = commgemm_connect(&options, ret_client);
    if (status)
        return fail(noop, status, "connect");
    status = commgemm_wait_executor(*ret_client, WAIT_MS);
    if (!status)
        status = commgemm_get_info(*ret_client, &info);
    if (status) {
        fail(noop, status, "executor");
        commgemm_disconnect(*ret_client);
        return status;
    }
    snprintf(noop->backend, sizeof(noop->backend), "%s", info.backend);
    cgm_machine_gpus(*ret_client, noop->gpus, sizeof(noop->gpus));
    return CGM_OK;
}

/* ---- one job after the other ---- */

static int round_trip(struct noop *noop, commgemm_client *client, const struct commgemm_job *job)
{
    struct commgemm_completion completion;
    uint64_t ticket;
    int status = commgemm_submit(client, job, &ticket);
    if (status)
        return fail(noop, status, "submit");
    status = commgemm_wait(client, ticket, WAIT_MS, &completion);
    if (status)
        return fail(noop, status, "wait");
    if (completion.status)
        return fail(noop, completion.status, completion.detail);
    return CGM_OK;
}

static int round_trips(struct noop *noop, uint64_t spin_ns, uint64_t count, uint64_t pause_us,
                       double *ret_ns)
{
    commgemm_client *client;
    struct commgemm_job job;
    int status = connect_to(noop, spin_ns, &client);
    if (status)
        return status;
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_NOOP;
    status = round_trip(noop, client, &job); /* wakes what sleeps */
    for (uint64_t i = 0; !status && i < count; i++) {
        if (pause_us)
            cgm_pause_us(pause_us);
        double begin_ns = cgm_now_ns();
        status = round_trip(noop, client, &job);
        ret_ns[i] = cgm_now_ns() - begin_ns;
    }
    commgemm_disconnect(client);
    return status;
}

/* ---- many in flight ---- */

/* A counter of the daemon's status; -1 when it has none. */
static json_int_t counter(commgemm_client *client, const char *key)
{
    json_t *row = cgm_status_row(client), *number = json_object_get(row, key);
    json_int_t value = json_is_integer(number) ? json_integer_value(number) : -1;
    json_decref(row);
    return value;
}

static int reap(struct noop *noop, commgemm_client *client, uint64_t *in_flight)
{
    struct commgemm_completion completions[IN_FLIGHT];
    uint32_t count = 0;
    int status = commgemm_reap(client, completions, IN_FLIGHT, &count);
    if (status)
        return fail(noop, status, "reap");
    for (uint32_t i = 0; i < count; i++)
        if (completions[i].status)
            return fail(noop, completions[i].status, completions[i].detail);
    *in_flight -= count;
    return CGM_OK;
}

/* Keeps IN_FLIGHT jobs in flight for THROUGHPUT_NS. */
static int stream(struct noop *noop, commgemm_client *client, uint64_t *ret_jobs, double *ret_ns)
{
    struct commgemm_job job;
    uint64_t jobs = 0, in_flight = 0, ticket, next_look = CLOCK_EVERY;
    double begin_ns = cgm_now_ns();
    int status = CGM_OK;
    bool more = true;
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_NOOP;
    while (!status && (more || in_flight)) {
        for (; more && !status && in_flight < IN_FLIGHT; in_flight++, jobs++)
            if ((status = commgemm_submit(client, &job, &ticket)))
                fail(noop, status, "submit");
        if (!status)
            status = reap(noop, client, &in_flight);
        if (jobs >= next_look) {
            next_look = jobs + CLOCK_EVERY;
            more = more && cgm_now_ns() - begin_ns < THROUGHPUT_NS;
        }
    }
    *ret_jobs = jobs;
    *ret_ns = cgm_now_ns() - begin_ns;
    return status;
}

static int throughput(struct noop *noop, uint32_t round)
{
    commgemm_client *client;
    uint64_t jobs;
    double ns;
    int status = connect_to(noop, SPIN_FOREVER_NS, &client);
    if (status)
        return status;
    json_int_t allocations = counter(client, "allocations"), syscalls = counter(client, "syscalls");
    status = stream(noop, client, &jobs, &ns);
    json_int_t allocations_now = counter(client, "allocations");
    json_int_t syscalls_now = counter(client, "syscalls");
    commgemm_disconnect(client);
    if (status || round == 0)
        return status;
    noop->rates[round - 1] = (double)jobs / ns * 1e9;
    noop->jobs += jobs;
    noop->allocations = allocations < 0 || noop->allocations < 0
                            ? -1
                            : noop->allocations + allocations_now - allocations;
    noop->syscalls =
        syscalls < 0 || noop->syscalls < 0 ? -1 : noop->syscalls + syscalls_now - syscalls;
    return CGM_OK;
}

/* ---- the rounds ---- */

/* The warm-up round's samples are overwritten by the first one's. */
static double *room(struct noop *noop, enum series series)
{
    return noop->samples[series] + noop->counts[series];
}

static int yardsticks(struct noop *noop)
{
    const struct cgm_yardstick *y = &noop->yardstick;
    if (cgm_yardstick_poll(y, noop->round_trips, room(noop, SERIES_RAW_POLL)) &&
        cgm_yardstick_socket(y, noop->sleepers, 0, room(noop, SERIES_SOCKET)) &&
        cgm_yardstick_socket(y, noop->sleepers, PAUSE_US, room(noop, SERIES_SOCKET_SLEEPING)))
        return CGM_OK;
    snprintf(noop->detail, CGM_BENCH_DETAIL_BYTES, "noop: the partner of a ping-pong is gone");
    return CGM_INTERNAL;
}

static int one_round(struct noop *noop, uint32_t round)
{
    int status = yardsticks(noop);
    if (!status)
        status =
            round_trips(noop, SPIN_FOREVER_NS, noop->round_trips, 0, room(noop, SERIES_POLLING));
    if (!status)
        status = round_trips(noop, 0, noop->sleepers, PAUSE_US, room(noop, SERIES_SLEEPING));
    if (!status)
        status = throughput(noop, round);
    if (status || round == 0)
        return status;
    for (int i = 0; i < SERIES_COUNT; i++)
        noop->counts[i] +=
            i == SERIES_POLLING || i == SERIES_RAW_POLL ? noop->round_trips : noop->sleepers;
    return CGM_OK;
}

static int all_rounds(struct noop *noop)
{
    struct cgm_progress progress;
    int status = CGM_OK;
    cgm_progress_init(&progress, stderr, "measuring", ROUNDS + 1);
    for (uint32_t round = 0; !status && round <= ROUNDS; round++) {
        status = one_round(noop, round);
        cgm_progress_update(&progress, round + 1);
        if (!status && cgm_stop_signal()) {
            snprintf(noop->detail, CGM_BENCH_DETAIL_BYTES, "ended by signal %d", cgm_stop_signal());
            status = CGM_CANCELLED;
        }
    }
    cgm_progress_fini(&progress);
    return status;
}

/* ---- the report ---- */

static const char *const series_names[SERIES_COUNT] = {
    "noop, both sides polling", "noop, both sides asleep", "Unix socket, back to back",
    "Unix socket, both sides asleep", "shared memory, bare polling"};
static const char *const series_keys[SERIES_COUNT] = {
    "roundtrip_us", "sleeping_roundtrip_us", "socket_us", "socket_sleeping_us", "raw_poll_us"};

/* Three digits, and never an exponent. */
static void add_us(struct cgm_text_table *table, double us)
{
    if (us < 100)
        cgm_text_table_addf(table, "%.3g", us);
    else
        cgm_text_table_addf(table, "%.0f", us);
}

static void print(const struct noop *noop, const struct cgm_stats *rate, FILE *out)
{
    static const struct cgm_text_column columns[] = {
        {"ROUND TRIP IN MICROSECONDS", CGM_ALIGN_LEFT},
        {"P50", CGM_ALIGN_RIGHT},
        {"P99", CGM_ALIGN_RIGHT},
        {"MIN", CGM_ALIGN_RIGHT},
        {"SAMPLES", CGM_ALIGN_RIGHT},
    };
    struct cgm_text_table *table =
        cgm_text_table_new(columns, sizeof(columns) / sizeof(columns[0]));
    for (int i = 0; table && i < SERIES_COUNT; i++) {
        cgm_text_table_add(table, series_names[i]);
        add_us(table, noop->stats[i].median);
        add_us(table, noop->stats[i].p99);
        add_us(table, noop->stats[i].min);
        cgm_text_table_addf(table, "%llu", (unsigned long long)noop->stats[i].count);
    }
    if (table)
        cgm_text_table_print(table, out);
    cgm_text_table_free(table);
    fprintf(out, "noop, backend %s: %.4g million jobs/s with %u in flight (%.4g to %.4g)\n",
            noop->backend, 1e-6 * rate->median, IN_FLIGHT, 1e-6 * rate->min, 1e-6 * rate->max);
    fprintf(out, "polling round trip / bare polling: %.3g; asleep / socket asleep: %.3g\n",
            noop->stats[SERIES_POLLING].median / noop->stats[SERIES_RAW_POLL].median,
            noop->stats[SERIES_SLEEPING].median / noop->stats[SERIES_SOCKET_SLEEPING].median);
    if (noop->allocations >= 0 && noop->syscalls >= 0)
        fprintf(out, "executor during %llu jobs: %lld allocations, %lld system calls\n",
                (unsigned long long)noop->jobs, (long long)noop->allocations,
                (long long)noop->syscalls);
}

/* The keys that every report has; a noop has no plan, no result and no GEMM. */
static int set_absent(json_t *object)
{
    static const char *const keys[] = {
        "reason",         "world_size",        "max_error_ratio", "ms",        "ms_min",   "ms_max",
        "ms_p99",         "gemm_ms",           "comm_ms",         "serial_ms", "floor_ms", "tflops",
        "floor_fraction", "overlap_efficiency"};
    int bad = 0;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        bad |= json_object_set_new(object, keys[i], json_null());
    return bad;
}

static json_t *to_json(const struct noop *noop, const struct cgm_stats *rate)
{
    json_t *object = json_object();
    char key[64];
    int bad = !object || json_object_set_new(object, "backend", json_string(noop->backend)) ||
              json_object_set_new(object, "op", json_string("noop")) ||
              json_object_set_new(object, "success", json_true());
    for (int i = 0; !bad && i < SERIES_COUNT; i++) {
        snprintf(key, sizeof(key), "%s_p50", series_keys[i]);
        bad = json_object_set_new(object, key, json_real(noop->stats[i].median));
        snprintf(key, sizeof(key), "%s_p99", series_keys[i]);
        bad = bad || json_object_set_new(object, key, json_real(noop->stats[i].p99));
    }
    json_t *allocations = noop->allocations < 0 ? json_null() : json_integer(noop->allocations);
    json_t *syscalls = noop->syscalls < 0 ? json_null() : json_integer(noop->syscalls);
    bad = bad || json_object_set_new(object, "jobs_per_s", json_real(rate->median));
    bad = bad || json_object_set_new(object, "jobs", json_integer((json_int_t)noop->jobs));
    bad = bad || json_object_set_new(object, "executor_allocations", allocations);
    bad = bad || json_object_set_new(object, "executor_syscalls", syscalls);
    bad = bad || set_absent(object) ||
          cgm_machine_add_json(noop->gpus, noop->options->command, object) ||
          cgm_report_add_arguments(noop->options, object);
    if (!bad)
        return object;
    json_decref(object);
    return NULL;
}

static int report(struct noop *noop)
{
    const char *path = noop->options->output_file;
    for (int i = 0; i < SERIES_COUNT; i++) {
        for (uint64_t k = 0; k < noop->counts[i]; k++)
            noop->samples[i][k] *= 1e-3;
        noop->stats[i] = cgm_stats_of(noop->samples[i], noop->counts[i]);
    }
    struct cgm_stats rate = cgm_stats_of(noop->rates, ROUNDS);
    print(noop, &rate, path && !strcmp(path, "-") ? stderr : stdout);
    json_t *object = to_json(noop, &rate);
    if (!object) {
        snprintf(noop->detail, CGM_BENCH_DETAIL_BYTES, "no memory for the report");
        return CGM_NO_MEMORY;
    }
    int status = cgm_report_write(noop->options, object, noop->detail);
    json_decref(object);
    return status;
}

int cgm_noop_run(const struct cgm_bench_options *options, const char *socket, char *ret_detail)
{
    struct noop noop = {.options = options, .socket = socket, .detail = ret_detail};
    uint64_t total = options->iters_given ? options->iters : ROUND_TRIPS;
    bool there = true;
    noop.round_trips = (total + ROUNDS - 1) / ROUNDS;
    noop.sleepers = (noop.round_trips + SLEEPERS_SHARE - 1) / SLEEPERS_SHARE;
    for (int i = 0; i < SERIES_COUNT; i++)
        there =
            (noop.samples[i] = calloc((ROUNDS + 1) * noop.round_trips, sizeof(double))) && there;
    snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "noop: no memory or processes to compare with");
    int status = there ? cgm_yardstick_start(&noop.yardstick) : CGM_NO_MEMORY;
    if (!status)
        status = all_rounds(&noop);
    if (!status)
        status = report(&noop);
    if (there)
        cgm_yardstick_stop(&noop.yardstick);
    for (int i = 0; i < SERIES_COUNT; i++)
        free(noop.samples[i]);
    return status;
}
