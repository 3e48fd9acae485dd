/* The daemon under test, what it says about itself, and what the system says about its processes.
 */
#ifndef CHAOS_SERVER_H
#define CHAOS_SERVER_H

#include "client/bench/private_daemon.h"
#include "tests/chaos/chaos.h"

/* Of one process. */
struct chaos_usage {
    uint32_t fds, memories, threads; /* memories: mapped memfds */
};

struct chaos_server {
    struct cgm_private_daemon daemon;
    commgemm_client *eye; /* the coordinator's session, from after the fork until the round's end */
    pid_t executor;
    int executor_fd; /* a pidfd: the number may be another process's by the time of a signal */
    uint64_t deaths; /* of executors, as the daemon counts them */
    /* The least that daemon and executor ever used with nothing there but the kept buffers. */
    struct chaos_usage base[2];
    bool has_base;
};

/* All of them print what is wrong and return false. */
bool chaos_server_start(struct chaos_server *server, uint32_t devices, const char *set);
void chaos_server_stop(struct chaos_server *server);

bool chaos_server_look(struct chaos_server *server); /* opens the eye */
void chaos_server_close_eye(struct chaos_server *server);

/* A number of the daemon's status; 0 where it has none. */
uint64_t chaos_server_number(struct chaos_server *server, const char *key);

/* Whoever has ended since it was looked at gets none. */
void chaos_server_signal_executor(const struct chaos_server *server, int number);

/* Waits until the daemon has counted this many dead executors, and another one serves. */
bool chaos_server_await_executor(struct chaos_server *server, uint64_t deaths);

/* Waits until nothing is left but the eye and the kept buffers, and processes use what they used.
 */
bool chaos_server_is_clean(struct chaos_server *server);

bool chaos_kept_create(struct chaos_server *server, struct chaos_board *board);
/* Every byte is of the version that was written last, or of the one that was being written. */
bool chaos_kept_check(struct chaos_server *server, struct chaos_board *board);

/* What there is to see: processes and what the daemon lists; when it hung, every thread's place in
 * the kernel. To stdout. */
void chaos_diagnose(const struct chaos_server *server, const struct chaos_board *board, bool hung);

#endif
