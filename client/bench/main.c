/* commgemm-bench: measures and checks jobs of commgemmd. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "client/bench/bench.h"
#include "client/bench/noop.h"
#include "client/bench/options.h"
#include "client/bench/private_daemon.h"
#include "client/bench/report.h"
#include "client/bench/stop.h"
#include "client/bench/sweep.h"
#include "proto/standard_fds.h"
#include "proto/status.h"
#include "proto/types.h"

static int complain(int status, const char *detail)
{
    fflush(stdout);
    fprintf(stderr, "commgemm-bench: %s\n", detail[0] ? detail : cgm_status_text(status));
    if (status == CGM_NOT_RUNNING && !strstr(detail, "--private"))
        fprintf(stderr, "commgemm-bench: --private starts a daemon for this run\n");
    return (int)cgm_status_exit(status);
}

static int start_private(const struct cgm_bench_options *options, char *ret_detail,
                         struct cgm_private_daemon *ret_daemon)
{
    static const char *const backends[] = {
        [CGM_PRIVATE_AUTO] = "auto", [CGM_PRIVATE_CPU] = "cpu", [CGM_PRIVATE_CUDA] = "cuda"};
    if (options->private_daemon == CGM_PRIVATE_NONE)
        return CGM_OK;
    return cgm_private_daemon_start(backends[options->private_daemon], (uint32_t)options->world,
                                    options->set, ret_detail, ret_daemon);
}

static int run(const struct cgm_bench_options *options, char *ret_detail)
{
    struct cgm_private_daemon daemon = {0};
    cgm_stop_catch();
    int status = start_private(options, ret_detail, &daemon);
    if (status)
        return status;
    const char *socket = daemon.pid ? daemon.socket : options->socket;
    if (options->op == CGM_OP_NOOP)
        status = cgm_noop_run(options, socket, ret_detail);
    else if (options->compare || options->shapes_file)
        status = cgm_sweep_run(options, socket, ret_detail);
    else
        status = cgm_bench_run(options, socket, cgm_report_finish, NULL, ret_detail);
    bool its_fault = status == CGM_DAEMON_LOST || status == CGM_EXECUTOR_LOST ||
                     status == CGM_NO_EXECUTOR || status == CGM_NOT_RUNNING ||
                     status == CGM_TIMEOUT;
    if (its_fault)
        cgm_private_daemon_quote_log(&daemon, ret_detail);
    cgm_private_daemon_stop(&daemon);
    return status;
}

/* What the program says about itself, if it is asked. */
static bool print_itself(const struct cgm_bench_options *options)
{
    if (options->help)
        cgm_args_help(&cgm_bench_program, NULL, stdout);
    else if (options->manual)
        cgm_args_manual(&cgm_bench_program, stdout);
    else if (options->completion)
        cgm_args_completion(&cgm_bench_program, stdout);
    else if (options->version)
        printf("commgemm-bench %s\n", COMMGEMM_RELEASE);
    else
        return false;
    return true;
}

static int finish_output(void)
{
    return cgm_standard_output_ends_well("commgemm-bench") ? CGM_EXIT_OK : CGM_EXIT_FAILED;
}

int main(int argc, char **argv)
{
    struct cgm_bench_options options;
    char detail[CGM_BENCH_DETAIL_BYTES] = "";
    cgm_standard_fds_open();
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of its own */
    signal(SIGPIPE, SIG_IGN); /* and so is a reader that goes */
    int status = cgm_bench_options_parse(argc, argv, detail, &options);
    if (status)
        return complain(status, detail);
    if (print_itself(&options))
        return finish_output();
    if (options.note[0])
        fprintf(stderr, "commgemm-bench: %s\n", options.note);
    status = cgm_bench_options_probe_outputs(&options, detail);
    if (!status)
        status = run(&options, detail);
    return status ? complain(status, detail) : finish_output();
}
