/* The processes that use CUDA through MPS, as its control program tells them: who they are, and
 * how one of them is ended without harm to the others. */
#ifndef CGM_MPS_CLIENTS_H
#define CGM_MPS_CLIENTS_H

#include <sys/types.h>

#include "proto/messages.h"

struct cgm_broker;

struct cgm_mps_client {
    pid_t server, pid;
};

/* Of the first so many; there are at most 60 a server. */
#define CGM_MPS_CLIENTS_MAX 256u

/* note: "" or what failed; then the list is incomplete. */
typedef void cgm_mps_clients_fn(void *context, const struct cgm_mps_client *clients, unsigned count,
                                const char *note);

/* Lists the clients of every server. `done` is called once, from the loop or from here. */
void cgm_mps_list_clients(struct cgm_broker *broker, cgm_mps_clients_fn *done, void *context);

typedef void cgm_mps_terminated_fn(void *context, enum cgm_mps_part part, const char *note);

/* Terminates the process at its server, if it is a client of one; the process itself is left alone.
 * part: NO_CLIENT, TERMINATED, or FAILED with a note. */
void cgm_mps_terminate(struct cgm_broker *broker, pid_t pid, cgm_mps_terminated_fn *done,
                       void *context);

#endif
