/* A grouped bar chart as an SVG file: a group for each shape, in it a bar for each series. */
#ifndef CGM_BENCH_BAR_CHART_H
#define CGM_BENCH_BAR_CHART_H

#include <stddef.h>
#include <stdio.h>

struct cgm_bar_series {
    const char *name, *color;
};

struct cgm_bar_group {
    char name[64], below[64]; /* two lines under the bars */
};

struct cgm_bar_chart {
    const char *title, *subtitle;
    const char *axis;  /* what the height is, with its unit */
    const char *below; /* what a group is */
    const struct cgm_bar_series *series;
    size_t n_series;
    const struct cgm_bar_group *groups;
    size_t n_groups;
    const double *values;  /* [group][series]; NAN: no bar */
    const char *footer[2]; /* lines at the bottom; NULL: none */
};

/* The axis begins at 0 and reaches 1 at least, where a dark line is. */
void cgm_bar_chart_draw(const struct cgm_bar_chart *chart, FILE *out);

#endif
