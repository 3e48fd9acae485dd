#include "tests/fault/siege_report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "client/bench/stats.h"

#define ROWS_MAX 20
#define VISITS_MAX 512

/* Of each visit. X(SYMBOL, head of its column, decimals) */
#define FIGURES(X)                                                                                 \
    X(MEDIAN, "median us", 0)                                                                      \
    X(P99, "p99 us", 0)                                                                            \
    X(OF_ALONE, "x alone", 1)                                                                      \
    X(OF_SPINNER, "x spinner", 1)                                                                  \
    X(DAEMON, "daemon", 2)                                                                         \
    X(EXECUTOR, "executor", 2)                                                                     \
    X(HONEST, "honest", 2)                                                                         \
    X(OTHER, "other", 2)

enum figure {
#define X(SYMBOL, head, decimals) SYMBOL,
    FIGURES(X)
#undef X
        N_FIGURES,
};

static const struct {
    const char *head;
    int decimals;
} columns[N_FIGURES] = {
#define X(SYMBOL, head, decimals) {head, decimals},
    FIGURES(X)
#undef X
};

static struct row {
    const char *name;
    size_t visits, answers;
    double seen[N_FIGURES][VISITS_MAX];
    double *answers_us; /* of all visits */
} rows[ROWS_MAX];

static struct row *row_of(const char *name)
{
    struct row *row = rows;
    while (row->name && strcmp(row->name, name) != 0)
        row++;
    assert_true(row < rows + ROWS_MAX - 1); /* the last one has no name */
    row->name = name;
    return row;
}

/* 0: there was nothing yet to compare with. */
static double ratio(double us, double of_us)
{
    return of_us > 0 ? us / of_us : 0;
}

static void keep_answers(struct row *row, const struct siege_visit *visit)
{
    if (visit->answers == 0)
        return;
    row->answers_us =
        realloc(row->answers_us, (row->answers + visit->answers) * sizeof(*row->answers_us));
    assert_non_null(row->answers_us);
    memcpy(row->answers_us + row->answers, visit->answers_us,
           visit->answers * sizeof(*row->answers_us));
    row->answers += visit->answers;
}

static void remember(const struct siege_visit *visit, const struct cgm_stats *jobs)
{
    struct row *row = row_of(visit->name);
    const double seen[N_FIGURES] = {
        [MEDIAN] = jobs->median,
        [P99] = jobs->p99,
        [OF_ALONE] = ratio(jobs->p99, visit->alone_us),
        [OF_SPINNER] = ratio(jobs->p99, visit->spinner_us),
        [DAEMON] = visit->processors[SIEGE_DAEMON],
        [EXECUTOR] = visit->processors[SIEGE_EXECUTOR],
        [HONEST] = visit->processors[SIEGE_HONEST],
        [OTHER] = visit->processors[SIEGE_OTHER],
    };
    assert_true(row->visits < VISITS_MAX);
    for (int i = 0; i < N_FIGURES; i++)
        row->seen[i][row->visits] = seen[i];
    row->visits++;
    keep_answers(row, visit);
}

double siege_report_visit(const struct siege_visit *visit)
{
    struct cgm_stats jobs = cgm_stats_of(visit->jobs_us, visit->jobs);
    struct cgm_stats answers = cgm_stats_of(visit->answers_us, visit->answers);
    print_message("%-12s %6ju jobs, median %6.0f us, p99 %7.0f us", visit->name,
                  (uintmax_t)jobs.count, jobs.median, jobs.p99);
    if (visit->alone_us > 0)
        print_message(" (%.1f x alone", jobs.p99 / visit->alone_us);
    if (visit->alone_us > 0 && visit->spinner_us > 0)
        print_message(", %.1f x a spinner", jobs.p99 / visit->spinner_us);
    print_message("%s; %3ju times the status, median %5.1f ms, longest %6.1f ms\n",
                  visit->alone_us > 0 ? ")" : "", (uintmax_t)answers.count, answers.median / 1e3,
                  answers.max / 1e3);
    print_message("%-12s processors: daemon %.2f, executor %.2f, honest %.2f, other %.2f, "
                  "executor and honest wait for one: %.2f\n",
                  "", visit->processors[SIEGE_DAEMON], visit->processors[SIEGE_EXECUTOR],
                  visit->processors[SIEGE_HONEST], visit->processors[SIEGE_OTHER], visit->waited);
    remember(visit, &jobs);
    return jobs.p99;
}

void siege_report_table(void)
{
    print_message("%-12s %6s", "beside", "visits");
    for (int i = 0; i < N_FIGURES; i++)
        print_message(" %10s", columns[i].head);
    print_message(" %10s %10s %10s %10s\n", "answers", "median ms", "p99 ms", "longest ms");
    for (struct row *row = rows; row->name; row++) {
        print_message("%-12s %6zu", row->name, row->visits);
        for (int i = 0; i < N_FIGURES; i++)
            print_message(" %10.*f", columns[i].decimals,
                          cgm_stats_of(row->seen[i], row->visits).median);
        struct cgm_stats answers = cgm_stats_of(row->answers_us, row->answers);
        print_message(" %10zu %10.1f %10.1f %10.1f\n", row->answers, answers.median / 1e3,
                      answers.p99 / 1e3, answers.max / 1e3);
        free(row->answers_us);
        row->answers_us = NULL;
    }
}
