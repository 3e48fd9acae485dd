#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/ctl.h"
#include "proto/standard_fds.h"
#include "proto/status.h"

static int fail_usage(struct cgm_ctl *ctl, const struct cgm_args *args)
{
    char fix[128];

    ctl->verb = args->verb != NULL ? args->verb->name : "command line";
    snprintf(fix, sizeof(fix), "%s%s%s --help", cgm_ctl_program.name, args->verb != NULL ? " " : "",
             args->verb != NULL ? args->verb->name : "");
    return cgm_ctl_fail(ctl, CGM_INVALID_ARGUMENT, args->detail, fix);
}

static int run(struct cgm_ctl *ctl, struct cgm_args *args)
{
    if (ctl->help) {
        cgm_args_help(&cgm_ctl_program, args->verb, stdout);
        return 0;
    }
    if (ctl->version)
        return cgm_ctl_version(ctl, 0, NULL);
    if (args->verb == NULL) {
        snprintf(args->detail, sizeof(args->detail), "a verb is missing");
        return fail_usage(ctl, args);
    }
    ctl->verb = args->verb->name;
    return args->verb->run(ctl, args->n_words, args->words);
}

/* What was printed has arrived, or the failure says so. */
static int finish_output(const struct cgm_ctl *ctl, int result)
{
    char detail[128];

    if (fflush(stdout) == 0 && !ferror(stdout))
        return result;
    snprintf(detail, sizeof(detail), "standard output: cannot write: %s", strerror(errno));
    return cgm_ctl_fail(ctl, CGM_IO, detail, NULL);
}

int main(int argc, char **argv)
{
    struct cgm_ctl ctl = {.verb = "command line", .device = -1, .signal = -1};
    struct cgm_args args;

    cgm_standard_fds_open();
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of its own */
    int status = cgm_args_parse(&cgm_ctl_program, argc, argv, &ctl, &args);
    if (status != CGM_OK)
        return fail_usage(&ctl, &args);
    return finish_output(&ctl, run(&ctl, &args));
}
