#include <errno.h>
#include <math.h>
#include <string.h>

#include "client/bench/report.h"
#include "client/bench/output_file.h"
#include "client/common/json_text.h"
#include "proto/status.h"
#include "proto/types.h"

static json_t *number_or_null(double value, bool there)
{
    return there && isfinite(value) ? json_real(value) : json_null();
}

static int set(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value);
}

static int set_stats(json_t *object, const char *key, const struct cgm_stats *stats)
{
    return set(object, key, number_or_null(stats->median, stats->count > 0));
}

static int set_identity(json_t *object, const struct cgm_report *report)
{
    const struct cgm_bench_results *results = report->bench->results;
    const struct cgm_plan_answer *plan = &results->plans[CGM_VARIANT_JOB];
    const struct cgm_bench_options *o = report->bench->options;
    const struct cgm_sizes *sizes = &report->bench->cases[CGM_VARIANT_JOB].sizes;
    return set(object, "backend", cgm_json_text(results->backend)) |
           set(object, "op", cgm_json_text(cgm_type_name(CGM_TABLE_OP, sizes->op))) |
           set(object, "method", cgm_json_text(cgm_type_name(CGM_TABLE_METHOD, o->method))) |
           set(object, "algorithm", cgm_json_text(cgm_type_name(CGM_TABLE_ALGO, plan->algorithm))) |
           set(object, "reason", cgm_json_text(plan->reason)) |
           set(object, "world_size", json_integer(sizes->world)) |
           set(object, "m", json_integer((json_int_t)report->bench->cases[0].capacity)) |
           set(object, "n", json_integer((json_int_t)sizes->n)) |
           set(object, "k", json_integer((json_int_t)sizes->k)) |
           set(object, "rows", json_integer((json_int_t)sizes->m)) |
           set(object, "datatype", cgm_json_text(cgm_type_name(CGM_TABLE_DTYPE, sizes->dtype))) |
           set(object, "out_datatype",
               cgm_json_text(cgm_type_name(CGM_TABLE_DTYPE, sizes->out_dtype)));
}

static int set_validation(json_t *object, const struct cgm_report *report)
{
    static const char *const keys[CGM_COMPARE_ALGORITHM] = {"max_error_ratio", "serial_error_ratio",
                                                            "serial_difference_ratio"};
    const struct cgm_validation *validation = report->validation;
    char line[256];
    int bad = set(object, "success", json_boolean(report->success)) |
              set(object, "validated", json_boolean(validation->done));
    for (int i = 0; i < CGM_COMPARE_ALGORITHM; i++)
        bad |= set(object, keys[i],
                   number_or_null(validation->worst[i].ratio, validation->worst[i].made));
    if (validation->worst[CGM_COMPARE_JOB].made) {
        cgm_finding_text(&validation->worst[CGM_COMPARE_JOB], line, sizeof(line));
        bad |= set(object, "max_error_at", json_string(line));
    }
    return bad;
}

/* Overlap efficiency as Flux has it; the CPU backend has no floor and nothing that overlaps for
 * free, and the rate that a floor needs is not measured here. */
static int set_fractions(json_t *object, const struct cgm_report *report)
{
    const struct cgm_stats *ms = report->ms;
    double slack = ms[CGM_VARIANT_SERIAL].median - ms[CGM_VARIANT_GEMM].median;
    bool there = strcmp(report->bench->results->backend, "cpu") != 0 && slack > 0 &&
                 ms[CGM_VARIANT_SERIAL].count && ms[CGM_VARIANT_GEMM].count;
    double efficiency =
        there ? 1 - (ms[CGM_VARIANT_JOB].median - ms[CGM_VARIANT_GEMM].median) / slack : 0;
    return set(object, "floor_ms", json_null()) | set(object, "floor_fraction", json_null()) |
           set(object, "overlap_efficiency", number_or_null(efficiency, there));
}

/* The product's, and what one rank multiplies; null without a product. */
static int set_sizes(json_t *object, const struct cgm_report *report)
{
    const struct cgm_case *cases = report->bench->cases;
    const struct cgm_sizes *whole = &cases[CGM_VARIANT_JOB].sizes;
    const struct cgm_sizes *own =
        cases[CGM_VARIANT_GEMM].exists ? &cases[CGM_VARIANT_GEMM].sizes : whole;
    const struct {
        const char *global, *local;
        uint64_t whole, own;
    } sizes[] = {{"global_m", "local_m", whole->m, own->m},
                 {"global_n", "local_n", whole->n, own->n},
                 {"global_k", "local_k", whole->k, own->k}};
    bool product = cases[CGM_VARIANT_JOB].matrix[CGM_MATRIX_RHS].present;
    int bad = 0;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        bad |= set(object, sizes[i].global, json_integer((json_int_t)sizes[i].whole)) |
               set(object, sizes[i].local,
                   product ? json_integer((json_int_t)sizes[i].own) : json_null());
    return bad;
}

static int set_times(json_t *object, const struct cgm_report *report)
{
    const struct cgm_stats *ms = report->ms, *job = &ms[CGM_VARIANT_JOB];
    const struct cgm_sizes *s = &report->bench->cases[CGM_VARIANT_JOB].sizes;
    bool there = job->count > 0;
    bool product = report->bench->cases[CGM_VARIANT_JOB].matrix[CGM_MATRIX_RHS].present;
    double flop = 2.0 * (double)s->m * (double)s->n * (double)s->k;
    return set_stats(object, "ms", job) | set(object, "ms_min", number_or_null(job->min, there)) |
           set(object, "ms_max", number_or_null(job->max, there)) |
           set(object, "ms_p99", number_or_null(job->p99, there)) |
           set_stats(object, "gemm_ms", &ms[CGM_VARIANT_GEMM]) |
           set_stats(object, "comm_ms", &ms[CGM_VARIANT_COMM]) |
           set_stats(object, "communication_ms", &ms[CGM_VARIANT_COMM]) |
           set_stats(object, "serial_ms", &ms[CGM_VARIANT_SERIAL]) |
           set_stats(object, "openblas_ms", &ms[CGM_VARIANT_BLAS]) |
           set_stats(object, "running_ms", &report->running_ms) | set_fractions(object, report) |
           set(object, "tflops", number_or_null(flop / job->median * 1e-9, there && product)) |
           set(object, "iters", json_integer((json_int_t)report->bench->results->iterations)) |
           set(object, "warmup", json_integer((json_int_t)report->bench->results->warmups));
}

json_t *cgm_report_json(const struct cgm_report *report)
{
    json_t *object = json_object();
    if (object && !set_identity(object, report) && !set_sizes(object, report) &&
        !set_validation(object, report) && !set_times(object, report) &&
        !cgm_machine_add_json(report->bench->results->gpus, report->bench->options->command,
                              object) &&
        !cgm_report_add_arguments(report->bench->options, object))
        return object;
    json_decref(object);
    return NULL;
}

/* ---- arguments ---- */

/* The word at a position of "no|auto|cpu". */
static json_t *choice(const char *choices, int position)
{
    for (; position > 0 && strchr(choices, '|'); position--)
        choices = strchr(choices, '|') + 1;
    return json_stringn(choices, strcspn(choices, "|"));
}

static json_t *argument_value(const struct cgm_bench_options *options,
                              const struct cgm_option *option)
{
    const void *field = (const char *)options + option->offset;
    switch (option->kind) {
    case CGM_ARG_FLAG:
        return json_boolean(*(const bool *)field);
    case CGM_ARG_TEXT:
    case CGM_ARG_PATH:
        return cgm_json_text(*(const char *const *)field);
    case CGM_ARG_INT:
        return json_integer((json_int_t) * (const int64_t *)field);
    case CGM_ARG_UINT:
    case CGM_ARG_BYTES:
        return json_integer((json_int_t) * (const uint64_t *)field);
    case CGM_ARG_REAL:
        return json_real(*(const double *)field);
    case CGM_ARG_MODE:
        return json_integer((json_int_t) * (const uint32_t *)field);
    case CGM_ARG_CHOICE:
        return choice(option->choices, *(const int *)field);
    case CGM_ARG_TYPE:
        return cgm_json_text(
            cgm_type_name((enum cgm_type_table)option->table, *(const int *)field));
    }
    return json_null();
}

static int add_argument(const struct cgm_bench_options *options, const struct cgm_option *option,
                        json_t *object)
{
    char key[64];
    snprintf(key, sizeof(key), "%s", option->name);
    for (char *at = strchr(key, '-'); at; at = strchr(at, '-'))
        *at = '_';
    if (option->hidden || json_object_get(object, key))
        return 0;
    return set(object, key, argument_value(options, option));
}

int cgm_report_add_arguments(const struct cgm_bench_options *options, json_t *object)
{
    const struct cgm_program *program = &cgm_bench_program;
    int bad = 0;
    for (size_t t = 0; t < program->n_tables; t++)
        for (size_t i = 0; i < program->tables[t].count; i++)
            bad |= add_argument(options, &program->tables[t].options[i], object);
    return bad;
}

int cgm_report_write(const struct cgm_bench_options *options, json_t *object, char *ret_detail)
{
    const char *path = options->output_file;
    if (!path)
        return CGM_OK;
    bool standard = !strcmp(path, "-");
    struct cgm_output out = {.stream = stdout};
    if (!standard)
        out = cgm_output_open(path);
    bool failed = !out.stream ||
                  json_dumpf(object, out.stream, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) ||
                  fputc('\n', out.stream) < 0 || fflush(out.stream);
    if (!standard)
        return cgm_output_finish(&out, failed, "output-file", path, ret_detail);
    if (!failed)
        return CGM_OK;
    snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "--output-file -: cannot write: %s",
             strerror(errno));
    return CGM_IO;
}
