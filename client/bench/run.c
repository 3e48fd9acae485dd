/* The parent of a run: what is shared, the clients, the order of things. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "client/bench/bench.h"
#include "client/bench/inputs.h"
#include "client/bench/report.h"
#include "client/bench/timeline.h"
#include "client/bench/validate.h"
#include "client/bench/worker.h"
#include "proto/status.h"
#include "proto/types.h"

static bool needs_results(const struct cgm_bench_options *o)
{
    return o->validate || o->lhs_file;
}

static bool needs_timeline(const struct cgm_bench_options *o)
{
    return o->timeline || o->debug;
}

/* ---- shared memory ---- */

static bool share_matrices(struct cgm_bench *bench)
{
    const struct cgm_matrix *matrix = bench->cases[CGM_VARIANT_JOB].matrix;
    bool there = true;
    for (int i = 0; i < CGM_MATRIX_COUNT; i++) {
        bool output = cgm_matrix_is_output((enum cgm_matrix_name)i);
        bool input = !output || (i == CGM_MATRIX_OUT && bench->cases[CGM_VARIANT_JOB].accumulate);
        if (!matrix[i].present)
            continue;
        if (input)
            there = there && (bench->whole[i] = cgm_shared_alloc(cgm_matrix_bytes(&matrix[i])));
        if (output)
            there = there && (bench->shards[i] = cgm_shared_alloc(
                                  bench->options->world * cgm_matrix_shard_bytes(&matrix[i])));
    }
    return there;
}

static size_t samples_bytes(const struct cgm_bench *bench)
{
    return (size_t)CGM_VARIANT_COUNT * bench->workers * bench->options->iters *
           sizeof(*bench->samples);
}

static bool share(struct cgm_bench *bench)
{
    const struct cgm_bench_options *o = bench->options;
    bench->results = cgm_shared_alloc(sizeof(*bench->results));
    bench->samples = cgm_shared_alloc(samples_bytes(bench));
    bench->traces = cgm_shared_alloc(o->world * sizeof(*bench->traces));
    return bench->results && bench->samples && bench->traces && share_matrices(bench);
}

static void unshare(struct cgm_bench *bench)
{
    const struct cgm_matrix *matrix = bench->cases[CGM_VARIANT_JOB].matrix;
    uint64_t world = bench->options->world;
    cgm_shared_free(bench->results, sizeof(*bench->results));
    cgm_shared_free(bench->samples, samples_bytes(bench));
    cgm_shared_free(bench->traces, world * sizeof(*bench->traces));
    for (int i = 0; i < CGM_MATRIX_COUNT; i++) {
        cgm_shared_free(bench->whole[i], cgm_matrix_bytes(&matrix[i]));
        cgm_shared_free(bench->shards[i], world * cgm_matrix_shard_bytes(&matrix[i]));
    }
}

static void choose_variants(struct cgm_bench *bench)
{
    const struct cgm_bench_options *o = bench->options;
    bool *wanted = bench->results->wanted;
    for (int v = 0; v < CGM_VARIANT_COUNT; v++)
        wanted[v] = v < CGM_VARIANT_ALGORITHM && bench->cases[v].exists && o->benchmark;
    wanted[CGM_VARIANT_JOB] = true;
    wanted[CGM_VARIANT_SERIAL] =
        bench->cases[CGM_VARIANT_SERIAL].exists && (o->benchmark || o->validate);
}

/* ---- the parts of a run ---- */

struct run {
    struct cgm_bench bench;
    struct cgm_worker worker; /* each client fills its own copy */
    struct cgm_crew crew;
    struct cgm_input_files files;
    struct cgm_validation validation;
    struct cgm_report report;
    char *detail;
};

static void random_inputs(void *context)
{
    struct run *run = context;
    cgm_inputs_fill(&run->bench, CGM_FILL_NORMAL, run->bench.options->seed);
}

static int set_up(struct run *run)
{
    struct cgm_bench *bench = &run->bench;
    int status = cgm_crew_order(&run->crew, CGM_DO_SETUP, 0, "setting up", 0);
    if (status)
        return status;
    if (bench->results->plans[CGM_VARIANT_JOB].algorithm == CGM_ALGO_NO_OVERLAP &&
        !bench->options->compare)
        bench->results->wanted[CGM_VARIANT_SERIAL] = false;
    if (run->files.open[CGM_MATRIX_LHS])
        status = cgm_input_files_load(&run->files, bench, run->detail);
    else if (!bench->options->validate)
        status = cgm_crew_compute(&run->crew, "random inputs", random_inputs, run);
    return status;
}

/* Of the one job that was just run. */
static void keep_time(struct run *run)
{
    run->validation.times_ns[CGM_VARIANT_JOB] =
        cgm_bench_job_ns(run->bench.results->last, run->bench.workers, 1);
}

static int check(struct run *run)
{
    struct cgm_bench *bench = &run->bench;
    if (bench->options->validate)
        return cgm_validate(bench, &run->crew, &run->files, run->detail, &run->validation);
    int status = cgm_crew_order(&run->crew, CGM_DO_LOAD, 0, NULL, 0);
    if (!status && needs_results(bench->options)) {
        status = cgm_crew_order(&run->crew, CGM_DO_RUN, CGM_VARIANT_JOB, "running", 0);
        keep_time(run);
    }
    return status;
}

/* A validation leaves no_overlap's results behind when it compared with them. */
static int save(struct run *run)
{
    int status = CGM_OK;
    if (!run->bench.options->save_out && !run->bench.options->save_aux)
        return CGM_OK;
    if (run->bench.options->validate && run->bench.results->wanted[CGM_VARIANT_SERIAL])
        status = cgm_crew_order(&run->crew, CGM_DO_RUN, CGM_VARIANT_JOB, NULL, 0);
    return status ? status : cgm_results_save(&run->bench, run->detail);
}

static int measure(struct run *run)
{
    const struct cgm_bench_options *o = run->bench.options;
    if (!o->benchmark)
        return CGM_OK;
    return cgm_crew_order(&run->crew, CGM_DO_MEASURE, 0, "measuring", o->warmup + o->iters);
}

static int trace(struct run *run)
{
    const struct cgm_bench_options *o = run->bench.options;
    struct cgm_timeline timeline;
    if (!needs_timeline(o))
        return CGM_OK;
    int status = cgm_crew_order(&run->crew, CGM_DO_TRACE, 0, NULL, 0);
    if (status)
        return status;
    if (!run->validation.times_ns[CGM_VARIANT_JOB])
        keep_time(run);
    if (cgm_timeline_make(&run->bench, &timeline)) {
        snprintf(run->detail, CGM_BENCH_DETAIL_BYTES, "no memory for the timeline");
        return CGM_NO_MEMORY;
    }
    if (o->debug)
        cgm_timeline_print(&timeline, stderr);
    if (o->timeline)
        status = cgm_timeline_draw(&timeline, &run->bench, o->timeline, run->detail);
    cgm_timeline_fini(&timeline);
    return status;
}

static int give_orders(struct run *run)
{
    static int (*const parts[])(struct run *) = {set_up, check, save, measure, trace};
    int status = CGM_OK;
    for (size_t i = 0; !status && i < sizeof(parts) / sizeof(parts[0]); i++)
        status = parts[i](run);
    if (!status)
        status = cgm_crew_order(&run->crew, CGM_DO_LEAVE, 0, NULL, 0);
    return status;
}

static int start(struct run *run)
{
    struct cgm_bench *bench = &run->bench;
    cgm_cases_derive(bench->options, bench->cases);
    bench->workers = bench->options->one_process ? 1 : (uint32_t)bench->options->world;
    uint64_t unknown; /* to others, who could take the name before */
    if (getrandom(&unknown, sizeof(unknown), 0) != (ssize_t)sizeof(unknown))
        unknown = bench->options->seed;
    snprintf(bench->comm, sizeof(bench->comm), "commgemm-bench.%d.%016llx", (int)getpid(),
             (unsigned long long)unknown);
    if (!share(bench)) {
        snprintf(run->detail, CGM_BENCH_DETAIL_BYTES, "no memory for matrices of this size");
        return CGM_NO_MEMORY;
    }
    choose_variants(bench);
    run->worker.bench = bench;
    return cgm_crew_start(&run->crew, bench->workers,
                          bench->options->one_process ? "ranks from" : "rank", CGM_DO_LEAVE,
                          cgm_worker_obey, &run->worker);
}

/* A wrong result is what the run comes to, unless something else is. */
static void judge(struct run *run, int *status)
{
    if (*status || run->report.success)
        return;
    char line[256];
    const struct cgm_validation *v = &run->validation;
    int i = 0;
    while (i + 1 < CGM_COMPARE_COUNT && (!v->worst[i].made || cgm_finding_is_right(&v->worst[i])))
        i++;
    cgm_finding_text(&v->worst[i], line, sizeof(line));
    snprintf(run->detail, CGM_BENCH_DETAIL_BYTES, "--validate: wrong result: %s", line);
    *status = CGM_INTERNAL;
}

static int finish(struct run *run, cgm_bench_done *done, void *context)
{
    cgm_report_make(&run->bench, &run->validation, &run->report);
    int status = done(context, &run->report, run->detail);
    judge(run, &status);
    return status;
}

int cgm_bench_run(const struct cgm_bench_options *options, const char *socket, cgm_bench_done *done,
                  void *context, char *ret_detail)
{
    /* Not on the stack: a thread that is left behind may still use it. */
    static struct run run;
    static struct cgm_bench_options own;
    memset(&run, 0, sizeof(run));
    own = *options;
    run.detail = ret_detail;
    run.bench.options = &own;
    snprintf(run.bench.socket, sizeof(run.bench.socket), "%s", socket ? socket : "");
    int status = cgm_input_files_open(&own, ret_detail, &run.files);
    if (status)
        return status;
    status = start(&run);
    if (!status)
        status = give_orders(&run);
    if (run.crew.failure.status)
        snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "%s", run.crew.failure.text);
    cgm_crew_stop(&run.crew, status == CGM_OK);
    cgm_input_files_close(&run.files);
    if (!status)
        status = finish(&run, done, context);
    if (!run.crew.abandoned)
        unshare(&run.bench);
    return status;
}
