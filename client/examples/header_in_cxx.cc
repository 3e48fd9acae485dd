// Compiles when commgemm.h is a C++ header too: every structure, constants as ints, C linkage.
#include <commgemm.h>

static int (*const functions[])(commgemm_client *, uint64_t) = {
    commgemm_comm_leave, commgemm_buffer_close, commgemm_import_release, commgemm_plan_destroy,
    commgemm_cancel,
};

int main()
{
    commgemm_client *client = nullptr;
    commgemm_connect_options connect;
    commgemm_plan_options plan;
    commgemm_join_options join;
    commgemm_job job;
    commgemm_buffer buffer = {};
    commgemm_completion completion = {};
    commgemm_connect_options_init(&connect);
    commgemm_plan_options_init(&plan);
    commgemm_join_options_init(&join);
    commgemm_job_init(&job);
    plan.op = COMMGEMM_OP_GEMM;
    job.lhs = commgemm_operand_at(&buffer, 0);
    if (commgemm_connect(&connect, &client) != COMMGEMM_OK)
        return 1;
    commgemm_completion_fini(&completion);
    commgemm_disconnect(client);
    return functions[0] == nullptr;
}
