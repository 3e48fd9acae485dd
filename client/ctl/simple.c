/* The verbs of a few lines. */
#include <stdio.h>
#include <string.h>

#include "client/ctl/ctl.h"
#include "client/ctl/rows.h"
#include "proto/packet.h"
#include "proto/status.h"

/* {"version":1,"drain":[{"draining":true}]} */
static int print_draining(const struct cgm_ctl *ctl)
{
    int status = cgm_rows_print("drain", json_pack("[{s:b}]", "draining", !ctl->undo));

    return status == CGM_OK ? 0 : cgm_ctl_fail(ctl, status, NULL, NULL);
}

int cgm_ctl_drain(void *settings, int n_words, char **words)
{
    const struct cgm_ctl *ctl = settings;
    commgemm_client *client;

    (void)n_words;
    (void)words;
    int result = cgm_ctl_connect(ctl, &client);
    if (result != 0)
        return result;
    int status = commgemm_drain(client, ctl->undo);
    if (status != CGM_OK)
        result =
            cgm_ctl_fail(ctl, status, commgemm_last_error(),
                         status == CGM_PERMISSION ? "run it as the daemon's user or root" : NULL);
    commgemm_disconnect(client);
    if (result == 0 && ctl->json)
        result = print_draining(ctl);
    return result;
}

int cgm_ctl_help(void *settings, int n_words, char **words)
{
    char name[128], detail[160];

    if (n_words == 0) {
        cgm_args_help(&cgm_ctl_program, NULL, stdout);
        return 0;
    }
    snprintf(name, sizeof(name), "%s%s%s", words[0], n_words > 1 ? " " : "",
             n_words > 1 ? words[1] : "");
    for (size_t i = 0; i < cgm_ctl_program.n_verbs; i++) {
        if (strcmp(cgm_ctl_program.verbs[i].name, name) == 0) {
            cgm_args_help(&cgm_ctl_program, &cgm_ctl_program.verbs[i], stdout);
            return 0;
        }
    }
    snprintf(detail, sizeof(detail), "\"%s\" is no verb", name);
    return cgm_ctl_fail(settings, CGM_INVALID_ARGUMENT, detail, "commgemmctl help");
}

int cgm_ctl_version(void *settings, int n_words, char **words)
{
    (void)settings;
    (void)n_words;
    (void)words;
    printf("%s %s (library %s, protocol %u to %u)\n", cgm_ctl_program.name, COMMGEMM_RELEASE,
           commgemm_version(), CGM_PROTOCOL_MIN, CGM_PROTOCOL_MAX);
    return 0;
}

int cgm_ctl_completion(void *settings, int n_words, char **words)
{
    const struct cgm_ctl *ctl = settings;
    char detail[256];

    (void)n_words;
    if (strcmp(words[0], "bash") != 0) {
        snprintf(detail, sizeof(detail), "the shell is \"%s\"; it must be bash", words[0]);
        return cgm_ctl_fail(ctl, CGM_INVALID_ARGUMENT, detail, "commgemmctl completion bash");
    }
    cgm_args_completion(&cgm_ctl_program, stdout);
    return 0;
}

int cgm_ctl_manual(void *settings, int n_words, char **words)
{
    (void)settings;
    (void)n_words;
    (void)words;
    cgm_args_manual(&cgm_ctl_program, stdout);
    return 0;
}
