/* Steps: named points in the life of a connection and of a job at which a test stops the broker or
 * the executor, to do harm at that very moment.
 *
 * The test makes a file of one struct cgm_step_page and names it in the configuration (test_steps);
 * broker and executor map it. To arm a step it stores the number of passages to let through into
 * `skip`, then the step into `armed`. The process that comes there disarms it, stores its pid and
 * stops itself with SIGSTOP; with SIGCONT it goes on. Without test_steps a step costs a look at a
 * pointer. */
#ifndef CGM_STEP_H
#define CGM_STEP_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* X(number, PLACE, what happens there, whose numbers its values are) */
#define CGM_STEP_PLACES(X)                                                                         \
    X(1, CLIENT_REQUEST, "the broker has this request of a client", MESSAGE)                       \
    X(2, EXECUTOR_REQUEST, "the executor has this request of the broker", MESSAGE)                 \
    X(3, EXECUTOR_ANSWER, "the executor is about to answer this request", MESSAGE)                 \
    X(4, BROKER_ANSWERED, "the broker has the answer to this request", MESSAGE)                    \
    X(5, BROKER, "", BROKER_STEP)                                                                  \
    X(6, JOB, "", JOB_STEP)                                                                        \
    X(7, PHASE, "a queue of the CPU backend begins this kind of operation", PHASE)

/* X(number, NAME, what happens there) */
#define CGM_BROKER_STEPS(X)                                                                        \
    X(1, ACCEPT, "a client has connected")                                                         \
    X(2, SESSION_END, "a session ends, everything of it is still there")                           \
    X(3, EXECUTOR_START, "an executor's process exists and has no message")                        \
    X(4, EXECUTOR_LOST, "an executor is lost, nobody knows yet")                                   \
    X(5, REPLAYED, "an executor has everything of its predecessor, the clients no rings")

#define CGM_JOB_STEPS(X)                                                                           \
    X(1, COPY, "an entry was copied, it is still in the ring")                                     \
    X(2, MATCH, "a rank's job joins those of the others")                                          \
    X(3, READY, "every rank has submitted")                                                        \
    X(4, LAUNCH, "all streams have come, no write is noted")                                       \
    X(5, ENQUEUE, "a device's thread begins with its part")                                        \
    X(6, DONE, "every queue is through, nobody knows yet")                                         \
    X(7, END, "the job is over, nothing says so")                                                  \
    X(8, COMPLETE, "a rank's done slot is set, it has no completion")                              \
    X(9, REAP, "the rank has its completion and was not woken")

enum cgm_step_place {
#define X(number, NAME, text, values) CGM_STEP_##NAME = (number),
    CGM_STEP_PLACES(X)
#undef X
};

enum {
#define X(number, NAME, text) CGM_BROKER_STEP_##NAME = (number),
    CGM_BROKER_STEPS(X)
#undef X
};

enum {
#define X(number, NAME, text) CGM_JOB_STEP_##NAME = (number),
    CGM_JOB_STEPS(X)
#undef X
};

struct cgm_step_page {
    _Atomic uint32_t armed; /* place << 16 | value; 0: none */
    _Atomic uint32_t skip;
    _Atomic int32_t pid;     /* who stopped; the test sets it to 0 */
    _Atomic uint32_t phases; /* bits 1 << kind that were passed; the test clears them */
};

extern struct cgm_step_page *cgm_step_page; /* NULL: nobody tests */

/* Maps the file. OK, or IO. Before there are threads. */
int cgm_step_open(const char *path);

/* The slow part of cgm_step. */
void cgm_step_stop(uint32_t step);

static inline void cgm_step(enum cgm_step_place place, unsigned value)
{
    uint32_t step = (uint32_t)place << 16 | value;
    if (!cgm_step_page)
        return;
    if (place == CGM_STEP_PHASE)
        atomic_fetch_or(&cgm_step_page->phases, 1u << value);
    if (atomic_load(&cgm_step_page->armed) == step)
        cgm_step_stop(step);
}

#endif
