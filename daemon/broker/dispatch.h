/* The one place where a client's message is checked: is it known, may it come now, does its object
 * exist, may this session use it. Each failure gets its own answer. */
#ifndef CGM_DISPATCH_H
#define CGM_DISPATCH_H

#include "proto/packet.h"

struct cgm_broker;
struct cgm_session;

/* Handles one packet of a session, which may end by that. */
void cgm_dispatch(struct cgm_session *session, struct cgm_packet *packet);

#endif
