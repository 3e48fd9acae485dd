/* What systemd wants to know and has to give. Without systemd every call does nothing. Nobody waits
 * for its reading: what there is no room for is owed, and sent with a later call. */
#ifndef CGM_NOTIFY_H
#define CGM_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

void cgm_notify_ready(void);
void cgm_notify_stopping(void);
void cgm_notify_watchdog(void); /* never owed: the next one is as good */
void cgm_notify_status(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Tries what is owed; true when nothing is any more. */
bool cgm_notify_settle(void);

/* How often to call cgm_notify_watchdog; 0: nobody watches. */
uint64_t cgm_notify_watchdog_ms(void);

bool cgm_notify_is_active(void);

/* The one SOCK_SEQPACKET socket that systemd listens on for us. *ret_fd is -1 when there is none.
 * INVALID_ARGUMENT for another number or kind of sockets. */
int cgm_notify_listen_fd(int *ret_fd, char *ret_detail, unsigned detail_bytes);

#endif
