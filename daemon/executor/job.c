#include "daemon/executor/job.h"

#include "daemon/executor/endpoint.h"
#include "daemon/executor/plan.h"
#include "daemon/executor/poller.h"

const char *cgm_job_name(const struct cgm_job *job)
{
    static const char *const names[] = {[CGM_OPCODE_NOOP] = "noop",
                                        [CGM_OPCODE_COPY_IN] = "copy_in",
                                        [CGM_OPCODE_BARRIER] = "barrier"};
    return job->opcode == CGM_OPCODE_RUN ? cgm_type_name(CGM_TABLE_OP, job->plan->spec.op)
                                         : names[job->opcode];
}

static void each_written(struct cgm_job *job, void (*note)(struct cgm_executor *executor,
                                                           const struct cgm_memory *memory))
{
    for (int i = 0; i < CGM_OPERAND_COUNT; i++)
        if (CGM_OPERANDS_WRITTEN >> i & 1 && job->memory[i])
            note(job->endpoint->poller->executor, job->memory[i]);
}

void cgm_job_taint(struct cgm_job *job)
{
    for (int i = 0; i < CGM_OPERAND_COUNT; i++)
        if (CGM_OPERANDS_WRITTEN >> i & 1 && job->memory[i])
            cgm_memory_taint(job->endpoint->poller->executor, job->memory[i]);
}

void cgm_job_begin_writes(struct cgm_job *job)
{
    each_written(job, cgm_memory_begin_write);
    job->writes = true;
}

void cgm_job_end_writes(struct cgm_job *job)
{
    if (job->writes)
        each_written(job, cgm_memory_end_write);
    job->writes = false;
}
