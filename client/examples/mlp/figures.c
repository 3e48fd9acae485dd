#include "client/examples/mlp/figures.h"

#include <stdio.h>
#include <stdlib.h>

#define FILE_NAME "figures"

static bool is_communication(int kind)
{
    return kind == COMMGEMM_PHASE_COPY || kind == COMMGEMM_PHASE_REDUCE ||
           kind == COMMGEMM_PHASE_COLLECTIVE;
}

static uint64_t common_ns(const struct commgemm_phase *a, const struct commgemm_phase *b)
{
    uint64_t begin = a->begin_ns > b->begin_ns ? a->begin_ns : b->begin_ns;
    uint64_t end = a->end_ns < b->end_ns ? a->end_ns : b->end_ns;
    return end > begin ? end - begin : 0;
}

/* How long the phase ran while its own device multiplied. */
static uint64_t hidden_ns(const struct commgemm_completion *job, const struct commgemm_phase *phase)
{
    uint64_t ns = 0;
    for (uint32_t i = 0; i < job->n_phases; i++)
        if (job->phases[i].kind == COMMGEMM_PHASE_GEMM && job->phases[i].device == phase->device)
            ns += common_ns(&job->phases[i], phase);
    return ns;
}

static double overlap_of(const struct commgemm_completion *job)
{
    uint64_t communication_ns = 0, both_ns = 0;
    for (uint32_t i = 0; i < job->n_phases; i++) {
        const struct commgemm_phase *phase = &job->phases[i];
        if (!is_communication(phase->kind))
            continue;
        communication_ns += phase->end_ns - phase->begin_ns;
        both_ns += hidden_ns(job, phase);
    }
    return communication_ns == 0 ? 0 : (double)both_ns / (double)communication_ns;
}

static int by_time(const void *left, const void *right)
{
    const struct commgemm_completion *a = *(const struct commgemm_completion *const *)left;
    const struct commgemm_completion *b = *(const struct commgemm_completion *const *)right;
    return (a->running_ns > b->running_ns) - (a->running_ns < b->running_ns);
}

void mlp_figure_of(const struct commgemm_completion *completions, uint32_t count,
                   struct mlp_figure *ret_figure)
{
    const struct commgemm_completion **sorted = calloc(count, sizeof(*sorted));
    if (!sorted)
        mlp_fail("out of memory");
    for (uint32_t i = 0; i < count; i++)
        sorted[i] = &completions[i];
    qsort(sorted, count, sizeof(*sorted), by_time);
    const struct commgemm_completion *median = sorted[count / 2];
    const char *algorithm = commgemm_algorithm_name(median->algorithm);
    snprintf(ret_figure->algorithm, sizeof(ret_figure->algorithm), "%s",
             algorithm ? algorithm : "unknown");
    ret_figure->ms = (double)median->running_ns * 1e-6;
    ret_figure->overlap = overlap_of(median);
    free(sorted);
}

void mlp_figures_write(const struct mlp *mlp, const struct mlp_figure *figures)
{
    char path[MLP_PATH_BYTES];
    mlp_path(mlp, FILE_NAME, -1, path);
    FILE *file = fopen(path, "w");
    if (!file)
        mlp_fail("cannot write %s", path);
    for (uint32_t i = 0; i < MLP_JOBS; i++)
        fprintf(file, "%s %.6f %.6f\n", figures[i].algorithm, figures[i].ms, figures[i].overlap);
    if (fclose(file) != 0)
        mlp_fail("cannot write %s", path);
}

void mlp_figures_read(const struct mlp *mlp, struct mlp_figure *ret_figures)
{
    char path[MLP_PATH_BYTES];
    mlp_path(mlp, FILE_NAME, -1, path);
    FILE *file = fopen(path, "r");
    if (!file)
        mlp_fail("cannot read %s", path);
    for (uint32_t i = 0; i < MLP_JOBS; i++)
        if (fscanf(file, "%63s %lf %lf", ret_figures[i].algorithm, &ret_figures[i].ms,
                   &ret_figures[i].overlap) != 3)
            mlp_fail("%s is incomplete", path);
    fclose(file);
}
