/* A commgemmd of the test's own, with the fake executor unless the test says otherwise. Every wait
 * is bounded; a daemon dies with its test. */
#ifndef CGM_BROKER_FIXTURE_H
#define CGM_BROKER_FIXTURE_H

#include "tests/daemon/raw_client.h"
#include "tests/daemon/waiting.h"

/* Among the settings: the CPU's executor instead of the fake one. */
#define REAL_EXECUTOR "executor=" CGM_BIN_DIR "/commgemm-executor-cpu"

struct daemon {
    char folder[64];
    char socket[96];
    pid_t pid;        /* 0: none */
    bool own_session; /* of processes, as a service has it: the system shares out its time anew */
    bool contained;   /* in a user namespace that knows root alone */
    void (*bequeath)(void); /* what its starter leaves to it, done last; NULL: nothing */
};

/* Makes the folder; starts nothing. */
void daemon_init(struct daemon *daemon);

/* Starts it with more --set values, a NULL-terminated list, and waits until it takes clients. */
void daemon_start(struct daemon *daemon, ...);

/* The same without waiting. */
void daemon_launch(struct daemon *daemon, const char *const *settings);

/* What daemon_start does after daemon_launch. */
void daemon_wait_for_socket(const struct daemon *daemon);

/* Ends it with SIGTERM; it must end with status 0. Removes the folder. */
void daemon_stop(struct daemon *daemon);

/* Waits for its end; the exit status, or 1000 + signal. */
int daemon_wait(struct daemon *daemon);

/* It may have at most so many file descriptors from now on. */
void daemon_limit_fds(const struct daemon *daemon, unsigned most);

/* Whether a line of its log has both. */
bool daemon_log_has(const struct daemon *daemon, const char *level, const char *text);

/* The lines of its log that have the text. */
unsigned daemon_log_count(const struct daemon *daemon, const char *text);

/* Until it has no more entries in "fd" or "task" of /proc: what has ended stands there a little
 * longer. */
void daemon_wait_for_at_most(const struct daemon *daemon, const char *folder, unsigned most);

/* cmocka set-up and tear-down: *state is a running struct daemon. */
int daemon_set_up(void **state);
int daemon_tear_down(void **state);

/* Faults of the fake executor. */
void fake_fault(const struct daemon *daemon, const char *kind, const char *message,
                const char *text);
void fake_heal(const struct daemon *daemon, const char *kind, const char *message);
/* Waits until the fake executor has noted a line that begins with this; copies it. */
void fake_wait_line(const struct daemon *daemon, const char *begin, char *ret_line, size_t size);
bool fake_has_line(const struct daemon *daemon, const char *begin);
unsigned fake_count_lines(const struct daemon *daemon, const char *begin);
void fake_forget_lines(const struct daemon *daemon);

#endif
