#include "client/bench/bar_chart.h"

#include <math.h>
#include <stdbool.h>

#include "client/bench/svg.h"

#define LEFT 64.0
#define RIGHT 24.0
#define TOP 84.0
#define PLOT_HEIGHT 360.0
#define BELOW 112.0
#define BAR 10.0
#define GROUP_LEAST 150.0
#define GAP 26.0
#define WIDTH_LEAST 800.0
#define LEGEND_COLUMN 190.0
#define LEGEND_ROW 18.0
#define STEP 0.1
#define INK "#1a202c"
#define PALE_INK "#4a5568"

/* What the sizes come to. */
struct layout {
    double width, bottom, pitch, top_value;
    size_t legend_columns;
};

static double highest(const struct cgm_bar_chart *chart)
{
    double top = 1;
    for (size_t i = 0; i < chart->n_groups * chart->n_series; i++)
        if (chart->values[i] > top)
            top = chart->values[i];
    return top;
}

static size_t count_bars(const struct cgm_bar_chart *chart, size_t group)
{
    size_t bars = 0;
    for (size_t i = 0; i < chart->n_series; i++)
        bars += !isnan(chart->values[group * chart->n_series + i]);
    return bars;
}

static size_t most_bars(const struct cgm_bar_chart *chart)
{
    size_t most = 0;
    for (size_t i = 0; i < chart->n_groups; i++)
        if (count_bars(chart, i) > most)
            most = count_bars(chart, i);
    return most;
}

static struct layout lay_out(const struct cgm_bar_chart *chart)
{
    struct layout l = {.pitch = fmax((double)most_bars(chart) * BAR + GAP, GROUP_LEAST)};
    l.width = fmax(LEFT + (double)chart->n_groups * l.pitch + RIGHT, WIDTH_LEAST);
    if (chart->n_groups)
        l.pitch = (l.width - LEFT - RIGHT) / (double)chart->n_groups; /* few fill it too */
    l.legend_columns = (size_t)((l.width - LEFT - RIGHT) / LEGEND_COLUMN);
    size_t legend_rows = (chart->n_series + l.legend_columns - 1) / l.legend_columns;
    l.bottom = TOP + (double)legend_rows * LEGEND_ROW + PLOT_HEIGHT;
    l.top_value = ceil(highest(chart) / STEP - 1e-9) * STEP;
    return l;
}

static void put_head(const struct cgm_bar_chart *chart, const struct layout *l, FILE *out)
{
    cgm_svg_begin(out, l->width, l->bottom + BELOW);
    fputs("<g font-size=\"16\">", out);
    cgm_svg_text(out, 16, 24, "start", INK, chart->title);
    fputs("</g>\n", out);
    cgm_svg_text(out, 16, 43, "start", PALE_INK, chart->subtitle);
    for (size_t i = 0; i < chart->n_series; i++) {
        size_t row = i / l->legend_columns, column = i % l->legend_columns;
        double x = LEFT + (double)column * LEGEND_COLUMN, y = 56 + (double)row * LEGEND_ROW;
        fprintf(out,
                "<rect x=\"%.0f\" y=\"%.0f\" width=\"12\" height=\"12\" rx=\"2\" fill=\"%s\"/>", x,
                y, chart->series[i].color);
        cgm_svg_text(out, x + 18, y + 10, "start", INK, chart->series[i].name);
    }
}

static void put_axis(const struct cgm_bar_chart *chart, const struct layout *l, FILE *out)
{
    double middle = l->bottom - PLOT_HEIGHT / 2;
    int steps = (int)lround(l->top_value / STEP);
    /* Many steps would be a grey field. */
    int stride = steps > 20 ? (steps + 19) / 20 : 1;
    for (int step = 0; step <= steps; step += stride) {
        double value = step * STEP, y = l->bottom - PLOT_HEIGHT * value / l->top_value;
        bool one = step == (int)lround(1 / STEP);
        char text[32];
        fprintf(out, "<line x1=\"%.0f\" y1=\"%.1f\" x2=\"%.0f\" y2=\"%.1f\" stroke=\"%s\"/>\n",
                LEFT, y, l->width - RIGHT, y, one ? INK : "#e2e8f0");
        snprintf(text, sizeof(text), "%.1f", value);
        cgm_svg_text(out, LEFT - 8, y + 4, "end", INK, text);
    }
    fprintf(out, "<g transform=\"rotate(-90 18 %.1f)\">", middle);
    cgm_svg_text(out, 18, middle, "middle", INK, chart->axis);
    fputs("</g>\n", out);
    cgm_svg_text(out, l->width / 2, l->bottom + 60, "middle", PALE_INK, chart->below);
}

/* Bars that are there stand side by side. */
static void put_group(const struct cgm_bar_chart *chart, const struct layout *l, size_t at,
                      FILE *out)
{
    const double *values = chart->values + at * chart->n_series;
    double middle = LEFT + ((double)at + 0.5) * l->pitch;
    double x = middle - (double)count_bars(chart, at) * BAR / 2;
    for (size_t i = 0; i < chart->n_series; i++) {
        double height = PLOT_HEIGHT * values[i] / l->top_value;
        if (isnan(values[i]))
            continue;
        fprintf(out,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.0f\" height=\"%.1f\" fill=\"%s\"><title>", x,
                l->bottom - height, BAR - 1, height, chart->series[i].color);
        cgm_svg_escape(out, chart->series[i].name);
        fputs(", ", out);
        cgm_svg_escape(out, chart->groups[at].name);
        fprintf(out, ": %.3f</title></rect>\n", values[i]);
        x += BAR;
    }
    cgm_svg_text(out, middle, l->bottom + 20, "middle", INK, chart->groups[at].name);
    cgm_svg_text(out, middle, l->bottom + 36, "middle", INK, chart->groups[at].below);
}

void cgm_bar_chart_draw(const struct cgm_bar_chart *chart, FILE *out)
{
    struct layout l = lay_out(chart);
    put_head(chart, &l, out);
    put_axis(chart, &l, out);
    for (size_t at = 0; at < chart->n_groups; at++)
        put_group(chart, &l, at, out);
    for (int i = 0; i < 2; i++)
        if (chart->footer[i])
            cgm_svg_text(out, 16, l.bottom + 84 + 18 * i, "start", PALE_INK, chart->footer[i]);
    cgm_svg_end(out);
}
