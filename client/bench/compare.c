#include "client/bench/compare.h"
#include "client/common/json_text.h"

#include <math.h>
#include <string.h>

#include "client/common/text_table.h"
#include "proto/types.h"

static bool does_whole(enum cgm_variant variant)
{
    return variant != CGM_VARIANT_GEMM && variant != CGM_VARIANT_COMM &&
           variant != CGM_VARIANT_BLAS;
}

static double quotient(double above, double below)
{
    return above > 0 && below > 0 ? above / below : NAN;
}

/* Of a job without a product the bytes alone; of one without communication the product. */
static double floor_of(const struct cgm_report *report, const struct cgm_link *link)
{
    const struct cgm_case *job = &report->bench->cases[CGM_VARIANT_JOB];
    double bytes = (double)cgm_case_sent_bytes(job);
    double gemm_ms = job->matrix[CGM_MATRIX_RHS].present ? report->ms[CGM_VARIANT_GEMM].median : 0;
    if ((job->matrix[CGM_MATRIX_RHS].present && gemm_ms == 0) ||
        (bytes > 0 && link->bytes_per_ms == 0))
        return NAN;
    double link_ms = bytes > 0 ? bytes / link->bytes_per_ms : 0;
    double floor_ms = gemm_ms > link_ms ? gemm_ms : link_ms;
    return floor_ms > 0 ? floor_ms : NAN;
}

static double error_of(const struct cgm_report *report, enum cgm_variant variant)
{
    const struct cgm_finding *finding = &report->validation->worst[cgm_comparison_of(variant)];
    bool made = report->validation->done && does_whole(variant) && finding->made;
    return made ? finding->no_number ? INFINITY : finding->ratio : NAN;
}

static void make_row(const struct cgm_report *report, enum cgm_variant variant, double floor_ms,
                     struct cgm_compared *ret_row)
{
    const struct cgm_bench_results *results = report->bench->results;
    const struct cgm_refusal *refusal = &results->refusals[variant];
    double ms = report->ms[variant].median;
    bool whole = does_whole(variant);
    *ret_row = (struct cgm_compared){
        .variant = variant,
        .algorithm =
            whole && !atomic_load(&refusal->teller) ? results->plans[variant].algorithm : -1,
        .whole = whole,
        .ms = report->ms[variant],
        .running_ms = cgm_bench_running_stats(report->bench, variant),
        .speedup = whole ? quotient(report->ms[CGM_VARIANT_SERIAL].median, ms) : NAN,
        .fraction = whole ? quotient(floor_ms, ms) : NAN,
        .error_ratio = error_of(report, variant),
    };
    if (atomic_load(&refusal->teller))
        memcpy(ret_row->refusal, refusal->why, sizeof(ret_row->refusal));
    else
        memcpy(ret_row->reason, results->plans[variant].reason, sizeof(ret_row->reason));
}

void cgm_compare_make(const struct cgm_report *report, const struct cgm_link *link,
                      struct cgm_compare *ret_comparison)
{
    struct cgm_compare *c = ret_comparison;
    memset(c, 0, sizeof(*c));
    c->link = *link;
    c->floor_ms = floor_of(report, link);
    for (int v = 0; v < CGM_VARIANT_COUNT; v++) {
        bool refused = atomic_load(&report->bench->results->refusals[v].teller);
        if (report->bench->results->wanted[v] || refused)
            make_row(report, (enum cgm_variant)v, c->floor_ms, &c->rows[c->count++]);
    }
}

/* An algorithm that was asked for by name, else the method. */
const char *cgm_compared_name(const struct cgm_compared *row, const struct cgm_bench_options *o)
{
    if (row->variant != CGM_VARIANT_JOB)
        return cgm_variant_name(row->variant);
    return o->algorithm != CGM_ALGO_AUTO ? "job" : cgm_type_name(CGM_TABLE_METHOD, o->method);
}

const struct cgm_compared *cgm_compare_best(const struct cgm_compare *c)
{
    const struct cgm_compared *best = NULL;
    for (uint32_t i = 0; i < c->count; i++) {
        const struct cgm_compared *row = &c->rows[i];
        if (row->whole && row->variant != CGM_VARIANT_JOB && row->ms.count &&
            (!best || row->ms.median < best->ms.median))
            best = row;
    }
    return best;
}

const struct cgm_compared *cgm_compare_find(const struct cgm_compare *c, enum cgm_variant variant)
{
    for (uint32_t i = 0; i < c->count; i++)
        if (c->rows[i].variant == variant)
            return &c->rows[i];
    return NULL;
}

/* ---- for people ---- */

static void add_ratio(struct cgm_text_table *table, double value)
{
    if (isnan(value))
        cgm_text_table_add(table, NULL);
    else
        cgm_text_table_addf(table, "%.2f", value);
}

static void print_row(const struct cgm_compared *row, const struct cgm_bench_options *o,
                      struct cgm_text_table *table)
{
    const double times[] = {row->ms.median, row->ms.min, row->ms.max, row->ms.p99,
                            row->running_ms.median};
    cgm_text_table_add(table, cgm_compared_name(row, o));
    cgm_text_table_add(table,
                       row->algorithm < 0 ? NULL : cgm_type_name(CGM_TABLE_ALGO, row->algorithm));
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
        if (times[i] > 0)
            cgm_text_table_addf(table, "%.4g", times[i]);
        else
            cgm_text_table_add(table, NULL);
    add_ratio(table, row->speedup);
    add_ratio(table, row->fraction);
    if (isnan(row->error_ratio))
        cgm_text_table_add(table, NULL);
    else
        cgm_text_table_addf(table, "%.3g", row->error_ratio);
}

static void print_rows(const struct cgm_compare *c, const struct cgm_bench_options *o, FILE *out)
{
    static const struct cgm_text_column columns[] = {
        {"MILLISECONDS", CGM_ALIGN_LEFT}, {"ALGORITHM", CGM_ALIGN_LEFT},
        {"MEDIAN", CGM_ALIGN_RIGHT},      {"MIN", CGM_ALIGN_RIGHT},
        {"MAX", CGM_ALIGN_RIGHT},         {"P99", CGM_ALIGN_RIGHT},
        {"RUNNING", CGM_ALIGN_RIGHT},     {"SPEEDUP", CGM_ALIGN_RIGHT},
        {"FLOOR/IT", CGM_ALIGN_RIGHT},    {"ERROR", CGM_ALIGN_RIGHT},
    };
    struct cgm_text_table *table =
        cgm_text_table_new(columns, sizeof(columns) / sizeof(columns[0]));
    for (uint32_t i = 0; table && i < c->count; i++)
        if (!c->rows[i].refusal[0])
            print_row(&c->rows[i], o, table);
    if (table)
        cgm_text_table_print(table, out);
    cgm_text_table_free(table);
}

void cgm_compare_print(const struct cgm_compare *c, const struct cgm_bench_options *options,
                       FILE *out)
{
    print_rows(c, options, out);
    for (uint32_t i = 0; i < c->count; i++)
        if (c->rows[i].refusal[0])
            fprintf(out, "%s: refused: %s\n", cgm_compared_name(&c->rows[i], options),
                    c->rows[i].refusal);
    fputs("speedup: over no_overlap; floor/it: the floor over the median; error: the largest, as a "
          "part of its bound",
          out);
    if (!isnan(c->floor_ms))
        fprintf(out, "; floor: %.4g ms", c->floor_ms);
    if (c->link.bytes_per_ms > 0)
        fprintf(out, ", links: %.4g GB/s (%s)", 1e-6 * c->link.bytes_per_ms, c->link.by);
    fputc('\n', out);
}

/* ---- for programs ---- */

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *median(const struct cgm_stats *stats)
{
    return number(stats->count ? stats->median : NAN);
}

static json_t *text(const char *value)
{
    return cgm_json_text(value && value[0] ? value : NULL);
}

static json_t *row_json(const struct cgm_compared *row, const struct cgm_bench_options *o)
{
    const char *algorithm =
        row->algorithm < 0 ? NULL : cgm_type_name(CGM_TABLE_ALGO, row->algorithm);
    bool there = row->ms.count > 0;
    return json_pack("{s:s, s:o, s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "variant",
                     cgm_compared_name(row, o), "algorithm", text(algorithm), "reason",
                     text(row->reason), "refused", text(row->refusal), "whole", row->whole, "ms",
                     median(&row->ms), "ms_min", number(there ? row->ms.min : NAN), "ms_max",
                     number(there ? row->ms.max : NAN), "ms_p99", number(there ? row->ms.p99 : NAN),
                     "running_ms", median(&row->running_ms), "speedup", number(row->speedup),
                     "floor_fraction", number(row->fraction), "max_error_ratio",
                     number(row->error_ratio));
}

int cgm_compare_add_json(const struct cgm_compare *c, const struct cgm_bench_options *options,
                         json_t *object)
{
    json_t *rows = json_array();
    const struct cgm_compared *job = cgm_compare_find(c, CGM_VARIANT_JOB);
    int bad = !rows;
    for (uint32_t i = 0; !bad && i < c->count; i++)
        bad = json_array_append_new(rows, row_json(&c->rows[i], options));
    return bad | json_object_set_new(object, "variants", rows) |
           json_object_set_new(object, "floor_ms", number(c->floor_ms)) |
           json_object_set_new(object, "floor_fraction", number(job ? job->fraction : NAN)) |
           json_object_set_new(
               object, "link_gb_per_s",
               number(c->link.bytes_per_ms > 0 ? 1e-6 * c->link.bytes_per_ms : NAN));
}
