/* What clients take back: jobs that are in flight, and entries that still lie in the ring, which
 * are taken back when they have their turn. On the poller. */
#ifndef CGM_CANCELS_H
#define CGM_CANCELS_H

struct cgm_endpoint;
struct cgm_request;

/* The broker's request. */
void cgm_cancels_on_request(struct cgm_request *request);

/* Cancels what need not wait for its turn any more. */
void cgm_cancels_step(struct cgm_endpoint *endpoint);

#endif
