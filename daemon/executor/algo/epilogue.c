/* What follows the linear part of every product, whatever the algorithm: bias and accumulation are
 * added by the algorithm itself, the rest is done here to a rank's finished out. So a GELU after a
 * reduction is applied once, to the sum, and nothing depends on how rows were divided into chunks.
 *
 * bias_grad follows TransformerEngine: with GELU's derivative the sum of out's rows (its
 * DGELU_BGRAD), without it the sum of op(lhs) over k (its BGRADB: lhs is the gradient that comes
 * in, as in the product for a weight's gradient). */
#include "daemon/executor/algo/emit.h"
#include "proto/status.h"

static int activate(const struct cgm_launch *launch, uint32_t rank)
{
    bool backward = launch->spec->epilogue & CGM_EPILOGUE_GRAD;
    struct cgm_activation activation = {
        .label = {.rank = (uint16_t)rank, .chunk = rank, .peer = rank},
        .kind = backward ? CGM_ACTIVATION_DGELU : CGM_ACTIVATION_GELU,
        .out = *cgm_launch_operand(launch, rank, CGM_OPERAND_OUT),
        .input = *cgm_launch_operand(launch, rank,
                                     backward ? CGM_OPERAND_GELU_INPUT : CGM_OPERAND_PRE_GELU_OUT),
    };
    return launch->ops->activate(launch->ranks[rank].compute, &activation);
}

static int sum_gradient(const struct cgm_launch *launch, uint32_t rank)
{
    const struct cgm_spec *spec = launch->spec;
    bool of_out = spec->epilogue & CGM_EPILOGUE_GELU;
    struct cgm_sum sum = {
        .label = {.rank = (uint16_t)rank, .chunk = rank, .peer = rank},
        .dst = *cgm_launch_operand(launch, rank, CGM_OPERAND_BIAS_GRAD),
        .src = *cgm_launch_operand(launch, rank, of_out ? CGM_OPERAND_OUT : CGM_OPERAND_LHS),
        .across = !of_out && !spec->transa,
    };
    return launch->ops->sum(launch->ranks[rank].compute, &sum);
}

int cgm_launch_enqueue(const struct cgm_algorithm *algorithm, const struct cgm_launch *launch,
                       uint32_t rank)
{
    int status = algorithm->enqueue(launch, rank);
    if (status == CGM_OK && launch->spec->epilogue & CGM_EPILOGUE_GELU)
        status = activate(launch, rank);
    if (status == CGM_OK && cgm_launch_operand(launch, rank, CGM_OPERAND_BIAS_GRAD)->mem)
        status = sum_gradient(launch, rank);
    return status;
}
