#include "daemon/broker/ghost.h"

#include "daemon/broker/broker.h"
#include "daemon/broker/peer.h"
#include "daemon/broker/session.h"

#define LOOK_MS 1000u

static void on_timer(uv_timer_t *timer)
{
    struct cgm_broker *broker = timer->data;
    struct cgm_session *session;
    uint64_t at = 0;
    while ((session = cgm_registry_next(&broker->sessions, &at)))
        if (!session->connection.paused && !cgm_session_owes_reading(session))
            continue;
        else if (cgm_peer_look(session->connection.fd, session->pid) == CGM_PEER_ENDED)
            cgm_session_end(session, "its process has gone, and its requests have to wait");
        else
            cgm_ghost_watch(broker);
}

void cgm_ghost_watch(struct cgm_broker *broker)
{
    if (!broker->ending && !uv_is_active((uv_handle_t *)&broker->ghost_timer))
        uv_timer_start(&broker->ghost_timer, on_timer, LOOK_MS, 0);
}
