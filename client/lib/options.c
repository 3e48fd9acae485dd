/* The defaults of every structure that a caller fills. */
#include <string.h>

#include "client/include/commgemm.h"
#include "client/lib/client.h"

#define DEFAULT_SPIN_NS 20000u

void commgemm_connect_options_init(struct commgemm_connect_options *ret_options)
{
    memset(ret_options, 0, sizeof(*ret_options));
    ret_options->struct_size = sizeof(*ret_options);
    ret_options->ring_entries = CGM_RING_ENTRIES_DEFAULT;
    ret_options->spin_ns = DEFAULT_SPIN_NS;
}

void commgemm_join_options_init(struct commgemm_join_options *ret_options)
{
    memset(ret_options, 0, sizeof(*ret_options));
    ret_options->struct_size = sizeof(*ret_options);
}

void commgemm_plan_options_init(struct commgemm_plan_options *ret_options)
{
    memset(ret_options, 0, sizeof(*ret_options));
    ret_options->struct_size = sizeof(*ret_options);
    ret_options->method = COMMGEMM_METHOD_AUTO;
    ret_options->algorithm = COMMGEMM_ALGO_AUTO;
    ret_options->out_dtype = -1;
    ret_options->comm_type = -1;
    ret_options->buffer_dtype = -1;
    ret_options->set_sm_margin = -1;
    ret_options->use_ce = -1;
}

void commgemm_job_init(struct commgemm_job *ret_job)
{
    memset(ret_job, 0, sizeof(*ret_job));
    ret_job->struct_size = sizeof(*ret_job);
    ret_job->kind = COMMGEMM_JOB_RUN;
    ret_job->chunk = COMMGEMM_WHOLE_BUFFER;
}
