/* One job: from the operands of a rank to its completion. */
#include <limits.h>
#include <time.h>

#include "client/bench/worker.h"
#include "proto/status.h"

const struct cgm_tensor *cgm_worker_tensors(const struct cgm_worker_rank *rank,
                                            enum cgm_variant variant)
{
    return rank->tensors[cgm_variant_shares(variant) ? CGM_VARIANT_JOB : variant];
}

static struct commgemm_operand operand_of(const struct cgm_tensor *tensor)
{
    return (struct commgemm_operand){.id = tensor->id, .generation = tensor->generation};
}

static void describe(const struct cgm_worker *worker, const struct cgm_worker_rank *rank,
                     enum cgm_variant variant, struct commgemm_job *ret_job)
{
    const struct cgm_case *c = &worker->bench->cases[variant];
    const struct cgm_tensor *tensor = cgm_worker_tensors(rank, variant);
    commgemm_job_init(ret_job);
    ret_job->plan = worker->plans[variant];
    ret_job->rank = rank->rank;
    ret_job->rows = c->sizes.m;
    ret_job->accumulate = c->accumulate;
    ret_job->lhs = operand_of(&tensor[CGM_MATRIX_LHS]);
    ret_job->rhs = operand_of(&tensor[CGM_MATRIX_RHS]);
    ret_job->bias = operand_of(&tensor[CGM_MATRIX_BIAS]);
    ret_job->out = operand_of(&tensor[CGM_MATRIX_OUT]);
    ret_job->aux_in = operand_of(&tensor[CGM_MATRIX_AUX_IN]);
    ret_job->aux_out = operand_of(&tensor[CGM_MATRIX_AUX]);
    ret_job->gelu_input = operand_of(&tensor[CGM_MATRIX_GELU_INPUT]);
    ret_job->pre_gelu_out = operand_of(&tensor[CGM_MATRIX_PRE_GELU]);
    ret_job->bias_grad = operand_of(&tensor[CGM_MATRIX_BIAS_GRAD]);
}

static void give_up(const struct cgm_worker *worker, const struct cgm_worker_rank *rank,
                    enum cgm_variant variant, int status, const char *detail)
    __attribute__((noreturn));

static void give_up(const struct cgm_worker *worker, const struct cgm_worker_rank *rank,
                    enum cgm_variant variant, int status, const char *detail)
{
    cgm_seat_fail(worker->seat, status, "rank %u, %s: %s%s%s", rank->rank,
                  cgm_variant_name(variant), commgemm_strerror(status), detail[0] ? ": " : "",
                  detail);
}

static uint64_t submit(const struct cgm_worker *worker, const struct cgm_worker_rank *rank,
                       enum cgm_variant variant, bool want_phases)
{
    struct commgemm_job job;
    uint64_t ticket;
    describe(worker, rank, variant, &job);
    job.want_phases = want_phases;
    int status = commgemm_submit(worker->client, &job, &ticket);
    if (status)
        give_up(worker, rank, variant, status, commgemm_last_error());
    return ticket;
}

static void keep_phases(const struct commgemm_completion *completion, struct cgm_trace *ret_trace)
{
    ret_trace->count = 0;
    ret_trace->lost = completion->phases_lost;
    for (uint32_t i = 0; i < completion->n_phases; i++)
        if (ret_trace->count < CGM_PHASES_PER_JOB)
            ret_trace->phases[ret_trace->count++] = completion->phases[i];
}

static void await(const struct cgm_worker *worker, const struct cgm_worker_rank *rank,
                  enum cgm_variant variant, uint64_t ticket, struct cgm_trace *ret_trace,
                  uint64_t *ret_running_ns)
{
    struct commgemm_completion completion;
    uint64_t limit_s = worker->bench->options->timeout_s;
    int limit_ms = limit_s > INT_MAX / 1000 ? INT_MAX : (int)limit_s * 1000;
    int status = commgemm_wait(worker->client, ticket, limit_ms, &completion);
    if (status == CGM_TIMEOUT)
        cgm_seat_fail(worker->seat, status, "rank %u, %s: not done within --timeout %llu s",
                      rank->rank, cgm_variant_name(variant), (unsigned long long)limit_s);
    if (status)
        give_up(worker, rank, variant, status, commgemm_last_error());
    if (completion.status)
        give_up(worker, rank, variant, completion.status, completion.detail);
    if (ret_trace)
        keep_phases(&completion, ret_trace);
    *ret_running_ns = completion.running_ns;
    commgemm_completion_fini(&completion);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void cgm_worker_run(const struct cgm_worker *worker, enum cgm_variant variant,
                    struct cgm_trace *ret_traces, struct cgm_sample *ret_sample)
{
    uint64_t tickets[CGM_CREW_MAX], running_ns = 0, longest_ns = 0;
    uint64_t begin_ns = now_ns();
    for (uint32_t i = 0; i < worker->n_ranks; i++)
        if (variant == CGM_VARIANT_BLAS)
            cgm_worker_blas(worker, &worker->ranks[i]);
        else
            tickets[i] = submit(worker, &worker->ranks[i], variant, ret_traces != NULL);
    for (uint32_t i = 0; variant != CGM_VARIANT_BLAS && i < worker->n_ranks; i++) {
        const struct cgm_worker_rank *rank = &worker->ranks[i];
        await(worker, rank, variant, tickets[i], ret_traces ? &ret_traces[rank->rank] : NULL,
              &running_ns);
        if (running_ns > longest_ns)
            longest_ns = running_ns;
    }
    *ret_sample = (struct cgm_sample){begin_ns, now_ns(), longest_ns};
}
