/* What test_siege saw, beside whom: a line or two for each visit, and a table of all in the end. */
#ifndef SIEGE_REPORT_H
#define SIEGE_REPORT_H

#include <stddef.h>

enum siege_party { SIEGE_DAEMON, SIEGE_EXECUTOR, SIEGE_HONEST, SIEGE_OTHER, SIEGE_PARTIES };

/* Some time beside somebody. Its arrays are sorted. */
struct siege_visit {
    const char *name; /* of whom; it is kept */
    double *jobs_us, *answers_us;
    size_t jobs, answers;
    double alone_us, spinner_us; /* p99 of a job beside nobody, beside a spinner; 0: not known */
    double processors[SIEGE_PARTIES]; /* that were used */
    double waited;                    /* how many threads wanted one: of executor and honest */
};

/* Prints and remembers it. Its p99 of a job. */
double siege_report_visit(const struct siege_visit *visit);

/* One row for each name: medians of its visits, and the answers of all of them together. */
void siege_report_table(void);

#endif
