/* A daemon of one worker of the suite: started, struck, looked at, and compared with what it was
 * before. Nothing here asserts: whoever calls decides what a failure is. */
#ifndef NODE_H
#define NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "proto/step.h"

#define NODE_KEPT 2u /* named buffers that everything must leave alone */
#define NODE_KEPT_BYTES 65536u

struct node {
    char folder[64];
    char socket[96];
    char steps_path[96];
    struct cgm_step_page *steps;
    pid_t broker;     /* 0: none runs */
    unsigned log_end; /* bytes of the log that earlier cases have written */
};

/* What a process has. */
struct node_load {
    long fds, threads, maps, resident_kib;
};

/* The folder and the page of steps. false: no room. */
bool node_init(struct node *node);
void node_fini(struct node *node);

/* Starts the daemon and waits until it takes clients and an executor serves; makes the kept
 * buffers. */
bool node_start(struct node *node);

/* Ends it with SIGTERM; true when it ended with status 0 and left no socket. */
bool node_stop(struct node *node);

/* After SIGKILL: reaps it and waits until its executor has ended, too. */
bool node_reap(struct node *node, pid_t executor);

/* The broker's child; 0: there is none now. */
pid_t node_executor(const struct node *node);
bool node_await_executor(const struct node *node, pid_t not_this_one);

/* True when the process stands still. */
bool process_is_stopped(pid_t pid);
bool process_is_gone(pid_t pid);
struct node_load process_load(pid_t pid);
void process_show_fds(pid_t pid); /* on stderr */

/* Destroys the buffers that lives of this tag may have left, as their names outlive them, and looks
 * at what is there then. true: nothing but the kept buffers, which have their bytes and were never
 * tainted. ret_why: what else there is. */
bool node_is_clean(const struct node *node, const char *tag, char *ret_why, size_t size);

/* Prints what the log has gained since the last call. */
void node_show_log(struct node *node, bool print);

/* Waits in short naps until the condition holds; false: it did not within seconds. */
#define NODE_AWAIT(seconds, condition)                                                             \
    ({                                                                                             \
        int naps_ = (seconds)*500;                                                                 \
        while (!(condition) && naps_-- > 0)                                                        \
            usleep(2000);                                                                          \
        naps_ >= 0;                                                                                \
    })

#endif
