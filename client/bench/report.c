#include "client/bench/report.h"

#include <string.h>

#include "client/common/text_table.h"
#include "proto/status.h"
#include "proto/types.h"

/* One run is all there is when nothing was timed on purpose. */
static struct cgm_stats of_one_run(uint64_t ns)
{
    double ms = 1e-6 * (double)ns;
    return ns ? (struct cgm_stats){1, ms, ms, ms, ms} : (struct cgm_stats){0};
}

void cgm_report_make(const struct cgm_bench *bench, const struct cgm_validation *validation,
                     struct cgm_report *ret_report)
{
    struct cgm_report report = {.bench = bench, .validation = validation};
    struct cgm_stats *ms = report.ms;
    int op = bench->cases[CGM_VARIANT_JOB].sizes.op;
    bool measured = bench->results->iterations > 0;
    for (int v = 0; v < CGM_VARIANT_COUNT; v++)
        ms[v] = measured ? cgm_bench_stats(bench, (enum cgm_variant)v)
                         : of_one_run(validation->times_ns[v]);
    report.running_ms = cgm_bench_running_stats(bench, CGM_VARIANT_JOB);
    if (op == CGM_OP_GEMM)
        ms[CGM_VARIANT_GEMM] = ms[CGM_VARIANT_JOB];
    else if (!bench->cases[CGM_VARIANT_COMM].exists)
        ms[CGM_VARIANT_COMM] = ms[CGM_VARIANT_JOB];
    if (bench->results->plans[CGM_VARIANT_JOB].algorithm == CGM_ALGO_NO_OVERLAP &&
        !ms[CGM_VARIANT_SERIAL].count)
        ms[CGM_VARIANT_SERIAL] = ms[CGM_VARIANT_JOB];
    report.success = !validation->done || validation->right;
    *ret_report = report;
}

void cgm_report_print_header(const struct cgm_report *report, FILE *out)
{
    const struct cgm_bench *bench = report->bench;
    const struct cgm_plan_answer *plan = &bench->results->plans[CGM_VARIANT_JOB];
    const struct cgm_sizes *s = &bench->cases[CGM_VARIANT_JOB].sizes;
    fprintf(out, "%s, %u rank%s, m %llu, n %llu", cgm_type_name(CGM_TABLE_OP, s->op), s->world,
            s->world == 1 ? "" : "s", (unsigned long long)s->m, (unsigned long long)s->n);
    if (bench->cases[CGM_VARIANT_JOB].matrix[CGM_MATRIX_RHS].present)
        fprintf(out, ", k %llu", (unsigned long long)s->k);
    fprintf(out, ", %s", cgm_type_name(CGM_TABLE_DTYPE, s->dtype));
    if (s->out_dtype != s->dtype)
        fprintf(out, " to %s", cgm_type_name(CGM_TABLE_DTYPE, s->out_dtype));
    fprintf(out, ", backend %s, seed %llu\n", bench->results->backend,
            (unsigned long long)bench->options->seed);
    fprintf(out, "algorithm %s: %s\n", cgm_type_name(CGM_TABLE_ALGO, plan->algorithm),
            plan->reason);
}

static void print_times(const struct cgm_report *report, FILE *out)
{
    static const struct cgm_text_column columns[] = {
        {"MILLISECONDS", CGM_ALIGN_LEFT}, {"MEDIAN", CGM_ALIGN_RIGHT}, {"MIN", CGM_ALIGN_RIGHT},
        {"MAX", CGM_ALIGN_RIGHT},         {"P99", CGM_ALIGN_RIGHT},
    };
    struct cgm_text_table *table =
        cgm_text_table_new(columns, sizeof(columns) / sizeof(columns[0]));
    if (!table)
        return;
    for (int v = 0; v < CGM_VARIANT_COUNT; v++) {
        const struct cgm_stats *ms = &report->ms[v];
        if (ms->count == 0)
            continue;
        cgm_text_table_add(table, cgm_variant_name((enum cgm_variant)v));
        cgm_text_table_addf(table, "%.4g", ms->median);
        cgm_text_table_addf(table, "%.4g", ms->min);
        cgm_text_table_addf(table, "%.4g", ms->max);
        cgm_text_table_addf(table, "%.4g", ms->p99);
    }
    cgm_text_table_print(table, out);
    cgm_text_table_free(table);
    if (report->bench->results->iterations)
        fprintf(out, "%llu run%s each, in turn, after %llu to warm up\n",
                (unsigned long long)report->bench->results->iterations,
                report->bench->results->iterations == 1 ? "" : "s",
                (unsigned long long)report->bench->results->warmups);
}

void cgm_report_print_validation(const struct cgm_report *report, bool only_wrong, FILE *out)
{
    const struct cgm_validation *validation = report->validation;
    char line[256], what[64];
    if (!validation->done)
        return;
    for (int i = 0; i < CGM_COMPARE_COUNT; i++) {
        const struct cgm_finding *finding = &validation->worst[i];
        if (!finding->made || (only_wrong && cgm_finding_is_right(finding)))
            continue;
        cgm_finding_text(finding, line, sizeof(line));
        fprintf(out, "%s: %s, largest error is %.3g of the bound (%s: %s)\n",
                cgm_comparison_text((enum cgm_comparison)i, what, sizeof(what)),
                cgm_finding_is_right(finding) ? "right" : "WRONG", finding->ratio,
                validation->set[i], line);
    }
    fprintf(out, "%llu elements checked: %s\n", (unsigned long long)validation->checked,
            validation->right ? "success" : "FAILURE");
}

void cgm_report_print(const struct cgm_report *report, FILE *out)
{
    const struct cgm_stats *job = &report->ms[CGM_VARIANT_JOB];
    const struct cgm_case *c = &report->bench->cases[CGM_VARIANT_JOB];
    cgm_report_print_header(report, out);
    if (job->count)
        print_times(report, out);
    if (job->count && c->matrix[CGM_MATRIX_RHS].present)
        fprintf(out, "%.4g TFLOP/s (2 m n k over the median)\n",
                2e-9 * (double)c->sizes.m * (double)c->sizes.n * (double)c->sizes.k / job->median);
    cgm_report_print_validation(report, false, out);
}

FILE *cgm_report_stream(const struct cgm_bench_options *options)
{
    return options->output_file && !strcmp(options->output_file, "-") ? stderr : stdout;
}

int cgm_report_finish(void *context, const struct cgm_report *report, char *ret_detail)
{
    const struct cgm_bench_options *options = report->bench->options;
    (void)context;
    cgm_report_print(report, cgm_report_stream(options));
    json_t *object = cgm_report_json(report);
    if (!object) {
        snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "no memory for the report");
        return CGM_NO_MEMORY;
    }
    int status = cgm_report_write(options, object, ret_detail);
    json_decref(object);
    return status;
}
