/* The broker's socket to the executor, and the messages on it that are no replies to others: setup
 * and hello, events, the request to end. */
#ifndef CGM_BROKER_EXECUTOR_LINK_H
#define CGM_BROKER_EXECUTOR_LINK_H

struct cgm_broker;

/* Opens a socket whose other end is for the new process; the caller closes that. */
int cgm_executor_link_open(struct cgm_broker *broker, int *ret_far_end);

/* Sends setup and journal to the process that was started; replay follows its hello. */
int cgm_executor_link_set_up(struct cgm_broker *broker);

#endif
