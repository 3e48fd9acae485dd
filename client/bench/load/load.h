/* commgemm-load: what many sessions and many objects cost a daemon. Every part starts a daemon of
 * its own and prints its figures, one a line. */
#ifndef CGM_LOAD_H
#define CGM_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "client/bench/private_daemon.h"
#include "commgemm.h"

/* Of the daemon's or the executor's process. */
struct cgm_usage {
    uint64_t rss_kib, peak_kib, fds;
};

struct cgm_load_server {
    struct cgm_private_daemon daemon;
    int executor; /* pid */
};

/* All print what is wrong and return false. set: "key=value,..." or NULL. */
bool cgm_load_start(struct cgm_load_server *server, uint32_t devices, const char *set);
bool cgm_load_connect(const struct cgm_load_server *server, uint32_t entries,
                      commgemm_client **ret_client);
bool cgm_load_fail(const char *what);

/* Looks its executor up. */
bool cgm_load_find_executor(struct cgm_load_server *server, commgemm_client *client);

struct cgm_usage cgm_load_usage(int pid);

/* Waits until both processes have given back what they did not have `before`; then what they use.
 */
void cgm_load_settle(const struct cgm_load_server *server, const struct cgm_usage before[2],
                     struct cgm_usage ret_after[2]);
/* Whether nothing was kept that matters: no fd, and little memory. */
bool cgm_load_is_back(const struct cgm_usage before[2], const struct cgm_usage after[2]);
void cgm_load_print_usage(const char *after_what, const struct cgm_usage before[2],
                          const struct cgm_usage after[2]);

/* "text  value unit  (note)" */
void cgm_load_figure(const char *text, double value, const char *unit, const char *note);

uint64_t cgm_load_now_ns(void);

/* The parts. `count` as the command line says, or the part's own. */
bool cgm_load_crowd(uint64_t count);
bool cgm_load_sessions(uint64_t count);
bool cgm_load_buffers(uint64_t count);
bool cgm_load_restart(uint64_t count);

#endif
