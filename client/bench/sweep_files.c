/* What a sweep came to: a table, JSON, CSV, a picture. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/bench/bar_chart.h"
#include "client/bench/output_file.h"
#include "client/bench/sweep.h"
#include "client/common/json_text.h"
#include "client/common/text_table.h"
#include "proto/status.h"
#include "proto/types.h"

/* ---- the table ---- */

static const struct cgm_text_column table_columns[] = {
    {"SHAPE", CGM_ALIGN_LEFT},       {"OP", CGM_ALIGN_LEFT},    {"M", CGM_ALIGN_RIGHT},
    {"N", CGM_ALIGN_RIGHT},          {"K", CGM_ALIGN_RIGHT},    {"TYPE", CGM_ALIGN_LEFT},
    {"FLOOR MS", CGM_ALIGN_RIGHT},   {"GEMM", CGM_ALIGN_RIGHT}, {"COLLECTIVE", CGM_ALIGN_RIGHT},
    {"NO_OVERLAP", CGM_ALIGN_RIGHT}, {"JOB", CGM_ALIGN_RIGHT},  {"FLOOR/JOB", CGM_ALIGN_RIGHT},
    {"BY", CGM_ALIGN_LEFT},          {"BEST", CGM_ALIGN_LEFT},  {"FLOOR/BEST", CGM_ALIGN_RIGHT},
};

static void add_number(struct cgm_text_table *table, double value, const char *format)
    __attribute__((format(printf, 3, 0)));

static void add_number(struct cgm_text_table *table, double value, const char *format)
{
    char text[32];
    snprintf(text, sizeof(text), format, value);
    cgm_text_table_add(table, isnan(value) || value == 0 ? NULL : text);
}

static double median_of(const struct cgm_compare *c, enum cgm_variant variant)
{
    const struct cgm_compared *row = cgm_compare_find(c, variant);
    return row && row->ms.count ? row->ms.median : NAN;
}

static void add_results(struct cgm_text_table *table, const struct cgm_compare *c)
{
    static const enum cgm_variant times[] = {CGM_VARIANT_GEMM, CGM_VARIANT_COMM, CGM_VARIANT_SERIAL,
                                             CGM_VARIANT_JOB};
    const struct cgm_compared *job = cgm_compare_find(c, CGM_VARIANT_JOB);
    const struct cgm_compared *best = cgm_compare_best(c);
    add_number(table, c->floor_ms, "%.4g");
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
        add_number(table, median_of(c, times[i]), "%.4g");
    add_number(table, job ? job->fraction : NAN, "%.2f");
    cgm_text_table_add(table, job ? cgm_type_name(CGM_TABLE_ALGO, job->algorithm) : NULL);
    cgm_text_table_add(table, best ? cgm_variant_name(best->variant) : NULL);
    add_number(table, best ? best->fraction : NAN, "%.2f");
}

void cgm_sweep_print(const struct cgm_sweep *sweep, FILE *out)
{
    size_t columns = sizeof(table_columns) / sizeof(table_columns[0]);
    struct cgm_text_table *table = cgm_text_table_new(table_columns, columns);
    for (size_t i = 0; table && i < sweep->count; i++) {
        const struct cgm_sweep_row *row = &sweep->rows[i];
        cgm_text_table_add(table, row->shape.name);
        cgm_text_table_add(table, cgm_type_name(CGM_TABLE_OP, row->shape.op));
        cgm_text_table_addf(table, "%" PRIu64, row->shape.m);
        cgm_text_table_addf(table, "%" PRIu64, row->shape.n);
        cgm_text_table_addf(table, "%" PRIu64, row->shape.k);
        cgm_text_table_addf(table, "%s %s", cgm_type_name(CGM_TABLE_DTYPE, row->options.dtype),
                            cgm_layout_name(row->options.transa, row->options.transb));
        add_results(table, &row->comparison);
    }
    if (table)
        cgm_text_table_print(table, out);
    cgm_text_table_free(table);
    for (size_t i = 0; i < sweep->count; i++)
        if (sweep->rows[i].status)
            fprintf(out, "%s: %s\n", sweep->rows[i].shape.name, sweep->rows[i].detail);
}

/* ---- CSV: RFC 4180 ---- */

static void put_quoted(FILE *out, const char *text)
{
    fputc('"', out);
    for (; text && *text; text++)
        fprintf(out, *text == '"' ? "\"\"" : "%c", *text);
    fputc('"', out);
}

static void put_field(FILE *out, const char *text)
{
    fputc(',', out);
    put_quoted(out, text);
}

static void put_number(FILE *out, double value)
{
    if (isfinite(value))
        fprintf(out, ",%.9g", value);
    else
        fputc(',', out);
}

static void put_shape(FILE *out, const struct cgm_sweep *sweep, const struct cgm_sweep_row *row)
{
    const struct cgm_shape *s = &row->shape;
    if (strpbrk(s->name, ",\"\r\n"))
        put_quoted(out, s->name);
    else
        fputs(s->name, out);
    fprintf(out, ",%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%s,%s,%" PRIu64 ",%s",
            cgm_type_name(CGM_TABLE_OP, s->op), s->m, s->n, s->k,
            cgm_type_name(CGM_TABLE_DTYPE, row->options.dtype),
            cgm_layout_name(row->options.transa, row->options.transb), sweep->options->world,
            sweep->backend);
}

static void put_variant(FILE *out, const struct cgm_sweep *sweep, const struct cgm_sweep_row *row,
                        const struct cgm_compared *c)
{
    bool there = c->ms.count > 0;
    const double numbers[] = {there ? c->ms.median : NAN,
                              there ? c->ms.min : NAN,
                              there ? c->ms.max : NAN,
                              there ? c->ms.p99 : NAN,
                              c->running_ms.count ? c->running_ms.median : NAN,
                              c->speedup,
                              row->comparison.floor_ms,
                              c->fraction,
                              c->error_ratio};
    put_shape(out, sweep, row);
    fprintf(out, ",%s,%s", cgm_compared_name(c, &row->options),
            c->algorithm < 0 ? "" : cgm_type_name(CGM_TABLE_ALGO, c->algorithm));
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        put_number(out, numbers[i]);
    put_field(out, c->reason);
    put_field(out, c->refusal);
    fputc('\n', out);
}

static void put_csv(const struct cgm_sweep *sweep, FILE *out)
{
    fputs("name,op,m,n,k,datatype,layout,world_size,backend,variant,algorithm,ms,ms_min,ms_max,"
          "ms_p99,running_ms,speedup,floor_ms,floor_fraction,max_error_ratio,reason,refused\n",
          out);
    for (size_t i = 0; i < sweep->count; i++) {
        const struct cgm_sweep_row *row = &sweep->rows[i];
        for (uint32_t v = 0; v < row->comparison.count; v++)
            put_variant(out, sweep, row, &row->comparison.rows[v]);
        if (row->comparison.count)
            continue;
        put_shape(out, sweep, row);
        fputs(",,,,,,,,,,,,", out);
        put_field(out, row->detail);
        fputc('\n', out);
    }
}

/* ---- the picture ---- */

/* By variant; with many more algorithms colours come again. */
static const char *color_of(enum cgm_variant variant)
{
    static const char *const of_algorithms[] = {
        "#e53e3e", "#2f855a", "#68d391", "#3182ce", "#dd6b20", "#2c5282", "#d69e2e", "#805ad5",
        "#6b46c1", "#c53030", "#f56565", "#b83280", "#f687b3", "#319795", "#4fd1c5", "#975a16"};
    if (variant == CGM_VARIANT_JOB)
        return "#1a202c";
    if (variant < CGM_VARIANT_ALGORITHM)
        return "#a0aec0";
    return of_algorithms[(variant - CGM_VARIANT_ALGORITHM) %
                         (sizeof(of_algorithms) / sizeof(of_algorithms[0]))];
}

static bool has_fraction(const struct cgm_sweep *sweep, enum cgm_variant variant)
{
    for (size_t i = 0; i < sweep->count; i++) {
        const struct cgm_compared *row = cgm_compare_find(&sweep->rows[i].comparison, variant);
        if (row && !isnan(row->fraction))
            return true;
    }
    return false;
}

struct picture {
    struct cgm_bar_series series[CGM_VARIANT_COUNT];
    enum cgm_variant variants[CGM_VARIANT_COUNT];
    size_t n_series;
    struct cgm_bar_group *groups;
    double *values;
    char subtitle[256];
};

static void choose_series(const struct cgm_sweep *sweep, struct picture *picture)
{
    struct cgm_compared job = {.variant = CGM_VARIANT_JOB};
    for (int v = 0; v < CGM_VARIANT_COUNT; v++) {
        enum cgm_variant variant = (enum cgm_variant)v;
        if (!has_fraction(sweep, variant))
            continue;
        picture->variants[picture->n_series] = variant;
        picture->series[picture->n_series++] =
            (struct cgm_bar_series){v == CGM_VARIANT_JOB ? cgm_compared_name(&job, sweep->options)
                                                         : cgm_variant_name(variant),
                                    color_of(variant)};
    }
}

static void fill_group(const struct cgm_sweep_row *row, struct picture *picture, size_t at)
{
    struct cgm_bar_group *group = &picture->groups[at];
    snprintf(group->name, sizeof(group->name), "%s", row->shape.name);
    snprintf(group->below, sizeof(group->below), "%" PRIu64 " %" PRIu64 " %" PRIu64, row->shape.m,
             row->shape.n, row->shape.k);
    for (size_t s = 0; s < picture->n_series; s++) {
        const struct cgm_compared *found = cgm_compare_find(&row->comparison, picture->variants[s]);
        picture->values[at * picture->n_series + s] = found ? found->fraction : NAN;
    }
}

static void put_plot(const struct cgm_sweep *sweep, FILE *out)
{
    struct picture p = {.groups = calloc(sweep->count + 1, sizeof(*p.groups))};
    char machine[CGM_GPUS_BYTES + 160];
    cgm_machine_caption(sweep->gpus, machine, sizeof(machine));
    p.values = calloc(sweep->count * CGM_VARIANT_COUNT + 1, sizeof(*p.values));
    choose_series(sweep, &p);
    for (size_t i = 0; p.groups && p.values && i < sweep->count; i++)
        fill_group(&sweep->rows[i], &p, i);
    snprintf(p.subtitle, sizeof(p.subtitle),
             "%" PRIu64 " ranks, backend %s, links %.4g GB/s; 1 is the floor: the longer of "
             "the product alone and the bytes on the links",
             sweep->options->world, sweep->backend, 1e-6 * sweep->link.bytes_per_ms);
    struct cgm_bar_chart chart = {.title = "Floor fraction by shape",
                                  .subtitle = p.subtitle,
                                  .axis = "floor / time of the job",
                                  .below = "shape: name, m n k of the whole product",
                                  .series = p.series,
                                  .n_series = p.n_series,
                                  .groups = p.groups,
                                  .n_groups = sweep->count,
                                  .values = p.values,
                                  .footer = {machine, sweep->options->command}};
    if (p.groups && p.values)
        cgm_bar_chart_draw(&chart, out);
    free(p.groups);
    free(p.values);
}

/* ---- the files ---- */

static int write_file(const char *option, const char *path, const struct cgm_sweep *sweep,
                      void (*put)(const struct cgm_sweep *sweep, FILE *out), char *ret_detail)
{
    if (!path)
        return CGM_OK;
    struct cgm_output out = cgm_output_open(path);
    if (out.stream)
        put(sweep, out.stream);
    return cgm_output_finish(&out, false, option, path, ret_detail);
}

/* A shape that failed has what it is and why. */
static json_t *row_object(const struct cgm_sweep_row *row)
{
    if (row->object)
        return json_incref(row->object);
    return json_pack("{s:o, s:s, s:I, s:I, s:I, s:b, s:s, s:o}", "name",
                     cgm_json_text(row->shape.name), "op",
                     cgm_type_name(CGM_TABLE_OP, row->shape.op), "m", (json_int_t)row->shape.m, "n",
                     (json_int_t)row->shape.n, "k", (json_int_t)row->shape.k, "success", 0,
                     "status", cgm_status_name(row->status), "error", cgm_json_text(row->detail));
}

static json_t *sweep_object(const struct cgm_sweep *sweep)
{
    json_t *rows = json_array();
    bool success = true;
    int bad = !rows;
    if (!sweep->options->shapes_file && sweep->count == 1) {
        json_decref(rows);
        return row_object(&sweep->rows[0]);
    }
    for (size_t i = 0; !bad && i < sweep->count; i++) {
        success = success && sweep->rows[i].status == CGM_OK;
        bad = json_array_append_new(rows, row_object(&sweep->rows[i]));
    }
    json_t *object =
        json_pack("{s:i, s:s, s:I, s:b, s:f, s:o}", "version", 1, "backend", sweep->backend,
                  "world_size", (json_int_t)sweep->options->world, "success", success,
                  "link_gb_per_s", 1e-6 * sweep->link.bytes_per_ms, "rows", rows);
    if (object && !bad && !cgm_machine_add_json(sweep->gpus, sweep->options->command, object) &&
        !cgm_report_add_arguments(sweep->options, object))
        return object;
    json_decref(object);
    return NULL;
}

int cgm_sweep_write(const struct cgm_sweep *sweep, char *ret_detail)
{
    const struct cgm_bench_options *o = sweep->options;
    json_t *object = sweep_object(sweep);
    int status = CGM_NO_MEMORY;
    if (object)
        status = cgm_report_write(o, object, ret_detail);
    else
        snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "no memory for the report");
    json_decref(object);
    if (!status)
        status = write_file("csv", o->csv, sweep, put_csv, ret_detail);
    if (!status)
        status = write_file("plot", o->plot, sweep, put_plot, ret_detail);
    return status;
}
