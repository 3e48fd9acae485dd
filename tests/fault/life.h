/* A client's whole life, in a process of its own: one rank connects, makes buffers and an import,
 * joins, plans, runs a job, and takes everything down again. Before each stage it reports the gate
 * that it has come to and waits to be let on, so that a test can be with it at every one.
 *
 * A life does what the manual tells a client to do: where a call or a job ends with EXECUTOR_LOST
 * or NO_EXECUTOR, it waits for the executor and does the same again. Everything else is how it
 * ends. */
#ifndef LIFE_H
#define LIFE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* X(NAME, what the client does when it is let on) */
#define LIFE_GATES(X)                                                                              \
    X(CONNECT, "connect")                                                                          \
    X(BUFFERS, "create buffers")                                                                   \
    X(IMPORT, "import")                                                                            \
    X(JOIN, "join")                                                                                \
    X(PLAN, "create plan")                                                                         \
    X(SUBMIT, "submit")                                                                            \
    X(WAIT, "wait")                                                                                \
    X(CLOSE, "close")                                                                              \
    X(END, "end")

enum gate {
#define X(NAME, text) GATE_##NAME,
    LIFE_GATES(X)
#undef X
        GATE_COUNT
};

extern const char *const gate_names[GATE_COUNT];

struct life_options {
    const char *socket;
    const char *tag; /* of the comm's and the buffers' names */
    uint32_t rank;
    int algorithm, op;
    uint64_t seed;
    int join_timeout_ms;
    uint64_t deadline_ms; /* of the job */
    bool no_ring;
};

/* At GATE_END: how it ended. OK: everything went well and the output was right. */
struct life_report {
    int32_t gate;
    int32_t status;
    char detail[192]; /* which call failed, and what it said */
};

struct life {
    pid_t pid; /* 0: reaped */
    int fd;    /* reports come, one byte lets it on */
    uint32_t rank;
    struct life_report report; /* the last one; at its gate until it is let on */
    bool waits;                /* at that gate */
};

/* Forks it; it comes to its first gate. */
void life_begin(struct life *life, const struct life_options *options);

/* The next report; false: none within timeout_ms, or it is dead (pid 0). */
bool life_await(struct life *life, int timeout_ms);
void life_let_on(struct life *life);

/* Kills it if it is there, and reaps it. */
void life_end(struct life *life);

/* The names of its buffers, for those who clean up after it. */
void life_buffer_name(const char *tag, uint32_t rank, bool output, char *ret_name, size_t size);

#endif
