/* Times and overlap of jobs, and the file in which rank 0 leaves them for the report. */
#ifndef MLP_FIGURES_H
#define MLP_FIGURES_H

#include "client/examples/mlp/mlp.h"

/* The run with the median time. completions has `count` of them, with phases. */
void mlp_figure_of(const struct commgemm_completion *completions, uint32_t count,
                   struct mlp_figure *ret_figure);

void mlp_figures_write(const struct mlp *mlp, const struct mlp_figure *figures);
void mlp_figures_read(const struct mlp *mlp, struct mlp_figure *ret_figures);

#endif
