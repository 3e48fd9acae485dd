/* The defaults of every structure that a caller fills. */
#include <string.h>

#include "client/include/commgemm.h"
#include "client/lib/client.h"

#define DEFAULT_SPIN_NS 20000u

/* As much of the defaults as fits; what the library does not know is 0. */
static void set_up(void *ret_struct, size_t size, void *defaults, size_t known)
{
    memcpy(defaults, &size, sizeof(size)); /* struct_size is the first */
    memset(ret_struct, 0, size);
    memcpy(ret_struct, defaults, size < known ? size : known);
}

void commgemm_connect_options_init_sized(struct commgemm_connect_options *ret_options,
                                         size_t struct_size)
{
    struct commgemm_connect_options defaults = {.ring_entries = CGM_RING_ENTRIES_DEFAULT,
                                                .spin_ns = DEFAULT_SPIN_NS};
    set_up(ret_options, struct_size, &defaults, sizeof(defaults));
}

void commgemm_join_options_init_sized(struct commgemm_join_options *ret_options, size_t struct_size)
{
    struct commgemm_join_options defaults = {.struct_size = 0};
    set_up(ret_options, struct_size, &defaults, sizeof(defaults));
}

void commgemm_plan_options_init_sized(struct commgemm_plan_options *ret_options, size_t struct_size)
{
    struct commgemm_plan_options defaults = {.method = COMMGEMM_METHOD_AUTO,
                                             .algorithm = COMMGEMM_ALGO_AUTO,
                                             .out_dtype = -1,
                                             .comm_type = -1,
                                             .buffer_dtype = -1,
                                             .set_sm_margin = -1,
                                             .use_ce = -1};
    set_up(ret_options, struct_size, &defaults, sizeof(defaults));
}

void commgemm_job_init_sized(struct commgemm_job *ret_job, size_t struct_size)
{
    struct commgemm_job defaults = {.kind = COMMGEMM_JOB_RUN, .chunk = COMMGEMM_WHOLE_BUFFER};
    set_up(ret_job, struct_size, &defaults, sizeof(defaults));
}
