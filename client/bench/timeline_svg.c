#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "client/bench/svg.h"
#include "client/bench/output_file.h"
#include "client/bench/timeline.h"
#include "proto/status.h"
#include "proto/types.h"

#define WIDTH 1200.0
#define LEFT 190.0
#define RIGHT 24.0
#define TOP 84.0
#define ROW 26.0
#define BELOW 90.0
#define BAR 20.0
#define TICKS 8.0

/* How a kind of phase looks; the legend has a line for each class. */
enum look { LOOK_GEMM, LOOK_COMMUNICATION, LOOK_WAIT, LOOK_COUNT };

static const struct {
    const char *label, *fill, *ink;
} looks[LOOK_COUNT] = {
    {"GEMM", "#2b6cb0", "#ffffff"},
    {"communication", "#dd6b20", "#ffffff"},
    {"waiting", "#e2e8f0", "#4a5568"},
};

static enum look look_of(int kind)
{
    static const enum look table[] = {
        [CGM_PHASE_GEMM] = LOOK_GEMM,
        [CGM_PHASE_COPY] = LOOK_COMMUNICATION,
        [CGM_PHASE_REDUCE] = LOOK_COMMUNICATION,
        [CGM_PHASE_COLLECTIVE] = LOOK_COMMUNICATION,
        [CGM_PHASE_WAIT] = LOOK_WAIT,
        [CGM_PHASE_FILL] = LOOK_COMMUNICATION,
        [CGM_PHASE_EPILOGUE] = LOOK_GEMM,
    };
    bool known = kind >= 0 && (size_t)kind < sizeof(table) / sizeof(table[0]);
    return known ? table[kind] : LOOK_WAIT;
}

struct picture {
    FILE *out;
    const struct cgm_timeline *timeline;
    double scale; /* pixels per nanosecond */
    uint32_t rows;
    double unit_ns; /* of the axis */
    const char *unit;
};

static bool same_row(const struct commgemm_phase *a, const struct commgemm_phase *b)
{
    return a->device == b->device && a->queue == b->queue;
}

static uint32_t count_rows(const struct cgm_timeline *timeline)
{
    uint32_t rows = 0;
    for (uint32_t i = 0; i < timeline->count; i++)
        if (i == 0 || !same_row(&timeline->phases[i - 1], &timeline->phases[i]))
            rows++;
    return rows;
}

/* 1, 2 or 5 times a power of ten. */
static double round_step(double step)
{
    double power = pow(10, floor(log10(step))), digit = step / power;
    return power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
}

static void put_head(const struct picture *picture, const struct cgm_bench *bench)
{
    const struct cgm_plan_answer *plan = &bench->results->plans[CGM_VARIANT_JOB];
    const struct cgm_sizes *s = &bench->cases[CGM_VARIANT_JOB].sizes;
    FILE *out = picture->out;
    double height = TOP + ROW * picture->rows + BELOW;
    cgm_svg_begin(out, WIDTH, height);
    fprintf(out,
            "<text x=\"16\" y=\"24\" font-size=\"16\" fill=\"#1a202c\">%s by %s: %.4g %s</text>\n",
            cgm_type_name(CGM_TABLE_OP, s->op), cgm_type_name(CGM_TABLE_ALGO, plan->algorithm),
            (double)picture->timeline->end_ns / picture->unit_ns, picture->unit);
    fprintf(out, "<text x=\"16\" y=\"42\" fill=\"#4a5568\">%u ranks, m %llu, n %llu", s->world,
            (unsigned long long)s->m, (unsigned long long)s->n);
    if (bench->cases[CGM_VARIANT_JOB].matrix[CGM_MATRIX_RHS].present)
        fprintf(out, ", k %llu", (unsigned long long)s->k);
    fprintf(out, ", %s, backend ", cgm_type_name(CGM_TABLE_DTYPE, s->dtype));
    cgm_svg_escape(out, bench->results->backend);
    fputs(". ", out);
    cgm_svg_escape(out, plan->reason);
    fputs("</text>\n", out);
}

/* Where and how it was made. */
static void put_footer(const struct picture *picture, const struct cgm_bench *bench)
{
    double y = TOP + ROW * picture->rows + 62;
    char machine[CGM_GPUS_BYTES + 160];
    cgm_machine_caption(bench->results->gpus, machine, sizeof(machine));
    cgm_svg_text(picture->out, 16, y, "start", "#4a5568", machine);
    cgm_svg_text(picture->out, 16, y + 18, "start", "#4a5568", bench->options->command);
}

static void put_legend(const struct picture *picture)
{
    double x = LEFT;
    for (int i = 0; i < LOOK_COUNT; i++) {
        fprintf(picture->out,
                "<rect x=\"%.0f\" y=\"54\" width=\"14\" height=\"14\" rx=\"2\" fill=\"%s\"/>"
                "<text x=\"%.0f\" y=\"66\" fill=\"#1a202c\">%s</text>\n",
                x, looks[i].fill, x + 20, looks[i].label);
        x += 60 + 7.5 * (double)strlen(looks[i].label);
    }
}

static void put_axis(const struct picture *picture)
{
    double bottom = TOP + ROW * picture->rows;
    double end = (double)picture->timeline->end_ns / picture->unit_ns;
    double step = round_step(end / TICKS);
    for (int tick = 0; tick * step <= end * 1.0001; tick++) {
        double at = tick * step;
        double x = LEFT + at * picture->unit_ns * picture->scale;
        fprintf(picture->out,
                "<line x1=\"%.1f\" y1=\"%.0f\" x2=\"%.1f\" y2=\"%.0f\" stroke=\"#cbd5e0\"/>"
                "<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\" fill=\"#4a5568\">%.6g</text>\n",
                x, TOP - 4, x, bottom + 6, x, bottom + 20, at);
    }
    fprintf(picture->out,
            "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"end\" fill=\"#4a5568\">%s since the launch"
            "</text>\n",
            WIDTH - RIGHT, bottom + 38, picture->unit);
}

static void put_row_label(const struct picture *picture, const struct commgemm_phase *phase,
                          uint32_t row)
{
    double y = TOP + ROW * row;
    if (row % 2 == 0)
        fprintf(picture->out,
                "<rect x=\"0\" y=\"%.0f\" width=\"%.0f\" height=\"%.0f\" fill=\"#f7fafc\"/>\n", y,
                WIDTH, ROW);
    fprintf(
        picture->out,
        "<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\" fill=\"#1a202c\">device %u %s</text>\n",
        LEFT - 10, y + ROW / 2 + 4, phase->device, phase->queue ? "communication" : "compute");
}

static void put_bar(const struct picture *picture, const struct commgemm_phase *phase, uint32_t row)
{
    const char *kind = cgm_type_name(CGM_TABLE_PHASE, phase->kind);
    enum look look = look_of(phase->kind);
    double x = LEFT + (double)phase->begin_ns * picture->scale;
    double width = (double)(phase->end_ns - phase->begin_ns) * picture->scale;
    double y = TOP + ROW * row + (ROW - BAR) / 2;
    fprintf(picture->out,
            "<g><title>%s, rank %u, chunk %u, peer %u: %.4g to %.4g %s</title>"
            "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.0f\" rx=\"2\" fill=\"%s\" "
            "stroke=\"#ffffff\" stroke-width=\"0.5\"/>",
            kind ? kind : "?", phase->rank, phase->chunk, phase->peer,
            (double)phase->begin_ns / picture->unit_ns, (double)phase->end_ns / picture->unit_ns,
            picture->unit, x, y, width < 1 ? 1 : width, BAR, looks[look].fill);
    if (width > 48)
        fprintf(picture->out,
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"11\" "
                "fill=\"%s\">%s %u</text>",
                x + width / 2, y + BAR / 2 + 4, looks[look].ink, kind ? kind : "?", phase->chunk);
    fputs("</g>\n", picture->out);
}

/* Rows and their bars; `bars` false: what lies under the axis lines. */
static void put_rows(const struct picture *picture, bool bars)
{
    const struct cgm_timeline *timeline = picture->timeline;
    uint32_t row = 0;
    for (uint32_t i = 0; i < timeline->count; i++) {
        bool first = i == 0 || !same_row(&timeline->phases[i - 1], &timeline->phases[i]);
        row += i > 0 && first;
        if (bars)
            put_bar(picture, &timeline->phases[i], row);
        else if (first)
            put_row_label(picture, &timeline->phases[i], row);
    }
}

int cgm_timeline_draw(const struct cgm_timeline *timeline, const struct cgm_bench *bench,
                      const char *path, char *ret_detail)
{
    bool long_one = timeline->end_ns > 10000000;
    struct cgm_output out = cgm_output_open(path);
    struct picture picture = {
        .out = out.stream,
        .timeline = timeline,
        .scale = (WIDTH - LEFT - RIGHT) / (double)(timeline->end_ns ? timeline->end_ns : 1),
        .rows = count_rows(timeline),
        .unit_ns = long_one ? 1e6 : 1e3,
        .unit = long_one ? "ms" : "us",
    };
    if (picture.out) {
        put_head(&picture, bench);
        put_legend(&picture);
        put_rows(&picture, false);
        if (timeline->count)
            put_axis(&picture);
        put_rows(&picture, true);
        put_footer(&picture, bench);
        cgm_svg_end(picture.out);
    }
    return cgm_output_finish(&out, false, "timeline", path, ret_detail);
}
