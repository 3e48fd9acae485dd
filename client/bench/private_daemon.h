/* A daemon of the program's own: on a socket in a temporary folder, gone with the program, whatever
 * way that ends. */
#ifndef CGM_BENCH_PRIVATE_DAEMON_H
#define CGM_BENCH_PRIVATE_DAEMON_H

#include <stdint.h>
#include <sys/types.h>

struct cgm_private_daemon {
    pid_t pid; /* 0: none */
    char folder[64];
    char socket[96];
    char log[96];
};

/* Starts commgemmd (from $COMMGEMM_DAEMON, this program's own folder, or ../sbin beside it) and
 * waits until it answers. backend: "auto", "cpu", "cuda". set: NULL or "key=value,key=value".
 * ret_detail holds CGM_BENCH_DETAIL_BYTES. */
int cgm_private_daemon_start(const char *backend, uint32_t devices, const char *set,
                             char *ret_detail, struct cgm_private_daemon *ret_daemon);

/* Appends the last lines of its log to a detail, for when something went wrong. */
void cgm_private_daemon_quote_log(const struct cgm_private_daemon *daemon, char *detail);

/* Ends it and removes the folder. Safe on a zeroed one and twice. */
void cgm_private_daemon_stop(struct cgm_private_daemon *daemon);

#endif
