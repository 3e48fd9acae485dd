#include "client/bench/sweep.h"
#include "client/common/json_text.h"

#include <stdlib.h>
#include <string.h>

#include "proto/status.h"
#include "proto/types.h"

/* What is gathered to see what the links carry: long enough for their full rate, and where the
 * links are memory not longer than needed. Rows are each rank's. */
#define LINK_COLS 8192u
#define LINK_ROWS_CPU 64u
#define LINK_ROWS_GPU 2048u
#define LINK_GEMM 64u
#define LINK_ITERS 20u

/* ---- the links ---- */

struct probe {
    struct cgm_link link;
    char backend[16], gpus[CGM_GPUS_BYTES];
};

/* By pushes beside a small product, and by the collective alone. */
static int take_link(void *context, const struct cgm_report *report, char *ret_detail)
{
    struct probe *probe = context;
    const struct cgm_bench *bench = report->bench;
    const struct {
        enum cgm_variant variant;
        const char *by;
    } ways[] = {{CGM_VARIANT_JOB, "all-gather by bulk_overlap_ag"},
                {CGM_VARIANT_COMM, "all-gather by no_overlap"}};
    double bytes = (double)cgm_case_sent_bytes(&bench->cases[CGM_VARIANT_JOB]);
    (void)ret_detail;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        double ms = cgm_bench_running_stats(bench, ways[i].variant).median;
        if (ms > 0 && bytes / ms > probe->link.bytes_per_ms)
            probe->link = (struct cgm_link){bytes / ms, ways[i].by};
    }
    memcpy(probe->backend, bench->results->backend, sizeof(probe->backend));
    memcpy(probe->gpus, bench->results->gpus, sizeof(probe->gpus));
    return CGM_OK;
}

static struct cgm_bench_options link_options(const struct cgm_bench_options *from, uint64_t rows)
{
    struct cgm_bench_options o = {
        .op = CGM_OP_BULK_AG,
        .method = CGM_METHOD_BULK,
        .algorithm = CGM_ALGO_AUTO,
        .world = from->world,
        .m = LINK_GEMM,
        .n = LINK_GEMM,
        .k = LINK_GEMM,
        .dtype = CGM_DTYPE_BF16,
        .out_dtype = -1,
        .comm_type = -1,
        .buffer_dtype = -1,
        .buffer_shape = {rows * from->world, LINK_COLS},
        .use_ce = true,
        .benchmark = true,
        .iters = LINK_ITERS,
        .iters_given = true,
        .warmup = 5,
        .one_process = from->one_process,
        .no_ring = from->no_ring,
        .seed = from->seed,
        .timeout_s = from->timeout_s,
        .threads = from->threads,
    };
    return o;
}

/* The first, short one says which backend it is. */
static int measure_link(struct cgm_sweep *sweep, char *ret_detail)
{
    struct probe probe = {0};
    struct cgm_bench_options o = link_options(sweep->options, LINK_ROWS_CPU);
    int status = cgm_bench_run(&o, sweep->socket, take_link, &probe, ret_detail);
    if (!status && strcmp(probe.backend, "cpu") != 0) {
        probe.link = (struct cgm_link){0};
        o = link_options(sweep->options, LINK_ROWS_GPU);
        status = cgm_bench_run(&o, sweep->socket, take_link, &probe, ret_detail);
    }
    sweep->link = probe.link;
    memcpy(sweep->backend, probe.backend, sizeof(sweep->backend));
    memcpy(sweep->gpus, probe.gpus, sizeof(sweep->gpus));
    return status;
}

/* ---- the shapes ---- */

struct taking {
    const struct cgm_sweep *sweep;
    struct cgm_sweep_row *row;
};

static int take_row(void *context, const struct cgm_report *report, char *ret_detail)
{
    struct taking *taking = context;
    struct cgm_sweep_row *row = taking->row;
    FILE *out = cgm_report_stream(taking->sweep->options);
    cgm_compare_make(report, &taking->sweep->link, &row->comparison);
    row->object = cgm_report_json(report);
    if (!row->object || cgm_compare_add_json(&row->comparison, &row->options, row->object) ||
        json_object_set_new(row->object, "name", cgm_json_text(row->shape.name))) {
        snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "no memory for the report");
        return CGM_NO_MEMORY;
    }
    cgm_report_print_header(report, out);
    cgm_compare_print(&row->comparison, &row->options, out);
    cgm_report_print_validation(report, true, out);
    fputc('\n', out);
    fflush(out);
    return CGM_OK;
}

/* Whether other shapes may still be run. */
static bool concerns_shape(const struct cgm_sweep_row *row)
{
    int status = row->status;
    bool wrong_result = status == CGM_INTERNAL && row->object;
    return status == CGM_INVALID_ARGUMENT || status == CGM_NOT_SUPPORTED ||
           status == CGM_NO_MEMORY || status == CGM_QUOTA || wrong_result;
}

static void run_shape(struct cgm_sweep *sweep, const struct cgm_shape *shape)
{
    struct cgm_sweep_row *row = &sweep->rows[sweep->count++];
    struct taking taking = {sweep, row};
    row->shape = *shape;
    row->options = cgm_shape_options(shape, sweep->options);
    row->status = cgm_bench_run(&row->options, sweep->socket, take_row, &taking, row->detail);
}

static int run_shapes(struct cgm_sweep *sweep, char *ret_detail)
{
    int status = CGM_OK;
    for (size_t i = 0; i < sweep->shapes.count; i++) {
        struct cgm_sweep_row *row = &sweep->rows[i];
        run_shape(sweep, &sweep->shapes.all[i]);
        if (row->status && !status) {
            status = row->status;
            snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "%s: %.1100s", row->shape.name,
                     row->detail);
        }
        if (row->status && !concerns_shape(row))
            break;
    }
    return status;
}

static int take_shapes(struct cgm_sweep *sweep, char *ret_detail)
{
    const struct cgm_bench_options *o = sweep->options;
    int status = CGM_OK;
    if (o->shapes_file) {
        status = cgm_shapes_read(o->shapes_file, ret_detail, &sweep->shapes);
    } else if ((sweep->shapes.all = calloc(1, sizeof(*sweep->shapes.all)))) {
        sweep->shapes.all[0] = cgm_shape_of(o);
        sweep->shapes.count = 1;
    }
    if (!status)
        sweep->rows = calloc(sweep->shapes.count + 1, sizeof(*sweep->rows));
    if (status || (sweep->rows && sweep->shapes.all))
        return status;
    snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "no memory for the shapes");
    return CGM_NO_MEMORY;
}

static void fini(struct cgm_sweep *sweep)
{
    for (size_t i = 0; i < sweep->count; i++)
        json_decref(sweep->rows[i].object);
    free(sweep->rows);
    cgm_shapes_fini(&sweep->shapes);
}

int cgm_sweep_run(const struct cgm_bench_options *options, const char *socket, char *ret_detail)
{
    struct cgm_sweep sweep = {.options = options, .socket = socket};
    int status = take_shapes(&sweep, ret_detail);
    if (!status)
        status = measure_link(&sweep, ret_detail);
    if (!status) {
        char detail[CGM_BENCH_DETAIL_BYTES];
        status = run_shapes(&sweep, ret_detail);
        if (sweep.shapes.count > 1)
            cgm_sweep_print(&sweep, cgm_report_stream(options));
        int written = cgm_sweep_write(&sweep, detail);
        if (!status && written) {
            status = written;
            memcpy(ret_detail, detail, sizeof(detail));
        }
    }
    fini(&sweep);
    return status;
}
