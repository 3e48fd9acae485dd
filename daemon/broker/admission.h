/* Who may connect: the first thing that is looked at, before a connection costs anything. */
#ifndef CGM_ADMISSION_H
#define CGM_ADMISSION_H

#include <stddef.h>
#include <sys/socket.h>

struct cgm_broker;
struct cgm_charge;

/* Finds out which uid says nothing. */
void cgm_admission_init(struct cgm_broker *broker);

/* Tells who it is, and charges its uid for one session. QUOTA, NO_MEMORY, PERMISSION and so on with
 * a detail; then nothing is charged. */
int cgm_admission_check(struct cgm_broker *broker, int fd, struct ucred *ret_peer,
                        struct cgm_charge *ret_charge, char *ret_detail, size_t size);

/* Says why, in an Error event, and closes the fd. */
void cgm_admission_refuse(struct cgm_broker *broker, int fd, const struct ucred *peer, int status,
                          const char *detail);

/* A client for which there is no file descriptor; closes its fd. */
void cgm_admission_drop(void *owner, int fd);

/* A session has connected: it must say Hello within hello_timeout. */
void cgm_admission_await_hello(struct cgm_broker *broker);

#endif
