#include "daemon/executor/job.h"

#include "daemon/executor/endpoint.h"
#include "daemon/executor/poller.h"

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
