/* What is done to a finished matrix: GELU, its derivative, sums of rows and columns. */
#ifndef CGM_CPU_EPILOGUE_H
#define CGM_CPU_EPILOGUE_H

#include "daemon/executor/cpu/matrix.h"

struct cgm_matrix_activation {
    enum cgm_activation_kind kind;
    struct cgm_matrix out, input;
};

struct cgm_matrix_sum {
    struct cgm_matrix dst, src;
    bool across;
};

/* OK, or INVALID_ARGUMENT when shapes do not fit together or the kind is unknown. */
int cgm_activation_check(const struct cgm_matrix_activation *activation);
int cgm_sum_check(const struct cgm_matrix_sum *sum);

void cgm_matrix_activate(const struct cgm_matrix_activation *activation, struct cgm_seat *seat);
void cgm_matrix_sum(const struct cgm_matrix_sum *sum, struct cgm_seat *seat);

#endif
