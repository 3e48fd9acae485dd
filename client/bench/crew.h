/* The client processes of a run. The parent forks them before it has any thread, and then gives
 * orders: each is carried out by all workers, and the parent goes on when the last one is done. A
 * worker that fails or dies ends the run: the others are killed, and the reason is kept. */
#ifndef CGM_BENCH_CREW_H
#define CGM_BENCH_CREW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/bench/barrier.h"

#define CGM_CREW_MAX 64u
#define CGM_CREW_TEXT_BYTES 640u

struct cgm_failure {
    int status;
    char text[CGM_CREW_TEXT_BYTES];
};

/* In memory that parent and workers share. */
struct cgm_crew_board {
    _Atomic uint32_t order;        /* counts orders; workers sleep on it */
    uint32_t verb, argument;       /* of the current order; written before `order` */
    _Atomic uint32_t finished;     /* workers done with it; the parent sleeps on it */
    _Atomic uint32_t first_failed; /* worker + 1; 0: none */
    _Atomic uint64_t progress;     /* steps of the current order that worker 0 has done */
    struct cgm_barrier step;       /* of the workers alone */
    struct cgm_failure failures[CGM_CREW_MAX];
};

/* One worker's view. */
struct cgm_seat {
    struct cgm_crew_board *board;
    uint32_t worker, workers;
    uint32_t seen; /* the last order */
};

struct cgm_crew {
    struct cgm_crew_board *board;
    uint32_t workers, orders, last_verb;
    bool leaving;                      /* the last order was given: workers end by themselves */
    const char *noun;                  /* "rank" or "client", for messages */
    pid_t pids[CGM_CREW_MAX];          /* 0: reaped */
    uint64_t stopped_ms[CGM_CREW_MAX]; /* since when a signal has it stand still; 0: it does not */
    struct cgm_failure failure;        /* why the run is over; status 0: it is not */
    bool abandoned; /* a thread of cgm_crew_compute still runs: free nothing that it uses */
};

/* Zeroed memory that processes forked later share; NULL when there is none. Pages that are never
 * touched cost nothing. Freed with cgm_shared_free, which takes NULL too, or at exit. */
void *cgm_shared_alloc(size_t bytes);
void cgm_shared_free(void *memory, size_t bytes);

/* Carries out one order; returns only on success, fails with cgm_seat_fail. */
typedef void cgm_crew_obey(void *state, struct cgm_seat *seat, uint32_t verb, uint32_t argument);

/* Forks the workers. A worker calls obey(state, ...) for every order and exits after `last_verb`.
 */
int cgm_crew_start(struct cgm_crew *crew, uint32_t workers, const char *noun, uint32_t last_verb,
                   cgm_crew_obey *obey, void *state);

/* One order. `label`: of the progress line, NULL for none; `total`: its number of steps. Returns OK
 * or crew->failure.status. */
int cgm_crew_order(struct cgm_crew *crew, uint32_t verb, uint32_t argument, const char *label,
                   uint64_t total);

/* Runs function(context) on a thread of its own, while the parent watches workers and signals. When
 * it does not return OK, and crew->abandoned is set, the thread still runs and the caller must end
 * the process. */
int cgm_crew_compute(struct cgm_crew *crew, const char *label, void (*function)(void *context),
                     void *context);

/* Ends what is still there; when `in_peace`, workers that obeyed the last order are awaited. */
void cgm_crew_stop(struct cgm_crew *crew, bool in_peace);

/* Ends this worker's process, and with it the run. */
void cgm_seat_fail(struct cgm_seat *seat, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4), noreturn));

#endif
