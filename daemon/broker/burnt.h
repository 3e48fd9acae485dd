/* Numbers of comms that no later job may have: they were submitted when an executor ended, and fail
 * on every rank, whether it had come for them or not. A comm has one, the highest. */
#ifndef CGM_BROKER_BURNT_H
#define CGM_BROKER_BURNT_H

struct cgm_broker;
struct cgm_session;

/* An executor has ended: before those that each session submitted. */
void cgm_burnt_begin(struct cgm_broker *broker);
/* Those that it had taken, as its journal says. */
void cgm_burnt_note_taken(struct cgm_broker *broker);
/* Those that a session submitted and no executor took. Its ring has been joined, and is dead
 * already. */
void cgm_burnt_note_submitted(struct cgm_session *session);

#endif
