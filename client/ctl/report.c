#include <stdio.h>

#include "client/ctl/ctl.h"
#include "proto/printable.h"
#include "proto/status.h"

int cgm_ctl_fail(const struct cgm_ctl *ctl, int status, const char *detail, const char *fix)
{
    char text[1024] = "";

    if (detail != NULL && detail[0] != '\0')
        snprintf(text, sizeof(text), ": %s", detail);
    cgm_printable(text); /* words of the command line are in it */
    fflush(stdout);
    fprintf(stderr, "%s: %s: %s%s\n", cgm_ctl_program.name, ctl->verb, cgm_status_text(status),
            text);
    if (fix == NULL)
        fix = cgm_status_fix(status);
    if (fix[0] != '\0')
        fprintf(stderr, "try: %s\n", fix);
    return (int)cgm_status_exit(status);
}

int cgm_ctl_fail_call(const struct cgm_ctl *ctl, int status)
{
    return cgm_ctl_fail(ctl, status, commgemm_last_error(), NULL);
}

int cgm_ctl_try_connect(const struct cgm_ctl *ctl, commgemm_client **ret_client)
{
    struct commgemm_connect_options options;

    commgemm_connect_options_init(&options);
    options.socket = ctl->socket;
    options.name = cgm_ctl_program.name;
    options.no_ring = 1;
    return commgemm_connect(&options, ret_client);
}

int cgm_ctl_connect(const struct cgm_ctl *ctl, commgemm_client **ret_client)
{
    int status = cgm_ctl_try_connect(ctl, ret_client);

    if (status == CGM_OK)
        return 0;
    return cgm_ctl_fail(ctl, status, commgemm_last_error(),
                        status == CGM_PERMISSION
                            ? "join the socket's group, or set socket_mode or socket_group in "
                              "commgemmd.conf"
                            : NULL);
}

int cgm_ctl_query(const struct cgm_ctl *ctl, const char *what, char **ret_json)
{
    commgemm_client *client;

    int result = cgm_ctl_connect(ctl, &client);
    if (result != 0)
        return result;
    int status = commgemm_query(client, what, ret_json);
    result = status == CGM_OK ? 0 : cgm_ctl_fail_call(ctl, status);
    commgemm_disconnect(client);
    return result;
}
