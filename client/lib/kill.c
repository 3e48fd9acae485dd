#include <stdio.h>

#include "client/lib/client.h"

_Static_assert((int)COMMGEMM_MPS_OFF == (int)CGM_MPS_OFF &&
                   (int)COMMGEMM_MPS_NO_CLIENT == (int)CGM_MPS_NO_CLIENT &&
                   (int)COMMGEMM_MPS_TERMINATED == (int)CGM_MPS_TERMINATED &&
                   (int)COMMGEMM_MPS_FAILED == (int)CGM_MPS_FAILED,
               "one numbering");

int commgemm_kill_session(commgemm_client *client, uint64_t session,
                          struct commgemm_killed *ret_killed)
{
    Cgm__SessionKill request = CGM__SESSION_KILL__INIT;
    struct cgm_reply reply;
    int status = cgm_check_client(client);
    if (status == CGM_OK)
        status = cgm_check_pointer(ret_killed, "ret_killed");
    request.session = session;
    if (status == CGM_OK)
        status = cgm_client_call(client, CGM_MSG_SESSION_KILL, &request.base,
                                 CGM_MSG_SESSION_KILL_REPLY, &reply);
    if (status != CGM_OK)
        return status;
    const Cgm__SessionKillReply *answer = (const Cgm__SessionKillReply *)reply.message;
    *ret_killed = (struct commgemm_killed){.pid = answer->pid, .mps = (int)answer->mps};
    snprintf(ret_killed->note, sizeof(ret_killed->note), "%s", answer->note ? answer->note : "");
    cgm_reply_fini(&reply);
    return CGM_OK;
}
