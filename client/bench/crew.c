#include "client/bench/crew.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/bench/stop.h"
#include "client/common/progress.h"
#include "proto/status.h"

#define LOOK_MS 20          /* how often a waiting parent looks at workers and signals */
#define STANDSTILL_MS 10000 /* how long a worker may be stopped: the others wait for it */
#define LAST_WORDS_MS 300   /* how long after a first death others may still say why */

void *cgm_shared_alloc(size_t bytes)
{
    void *memory = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void cgm_shared_free(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes ? bytes : 1);
}

/* ---- the worker's side ---- */

void cgm_seat_fail(struct cgm_seat *seat, int status, const char *format, ...)
{
    struct cgm_failure *failure = &seat->board->failures[seat->worker];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure->text, sizeof(failure->text), format, arguments);
    va_end(arguments);
    failure->status = status;
    uint32_t none = 0;
    atomic_compare_exchange_strong(&seat->board->first_failed, &none, seat->worker + 1);
    _exit(cgm_status_exit(status));
}

static void serve(struct cgm_seat *seat, uint32_t last_verb, cgm_crew_obey *obey, void *state)
{
    for (;;) {
        uint32_t order;
        /* Pairs with the release in cgm_crew_order: verb and argument are there. */
        while ((order = atomic_load_explicit(&seat->board->order, memory_order_acquire)) ==
               seat->seen)
            cgm_futex_wait(&seat->board->order, seat->seen, -1);
        seat->seen = order;
        uint32_t verb = seat->board->verb;
        obey(state, seat, verb, seat->board->argument);
        atomic_fetch_add_explicit(&seat->board->finished, 1, memory_order_release);
        cgm_futex_wake(&seat->board->finished);
        if (verb == last_verb) {
            cgm_barrier_wait(&seat->board->step); /* the first to end is not taken for a death */
            exit(0);
        }
    }
}

static void become_worker(const struct cgm_crew *crew, uint32_t worker, pid_t parent,
                          uint32_t last_verb, cgm_crew_obey *obey, void *state)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    cgm_stop_forget();
    struct cgm_seat seat = {crew->board, worker, crew->workers, 0};
    serve(&seat, last_verb, obey, state);
}

/* ---- the parent's side ---- */

static int fail(struct cgm_crew *crew, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int fail(struct cgm_crew *crew, int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(crew->failure.text, sizeof(crew->failure.text), format, arguments);
    va_end(arguments);
    crew->failure.status = status;
    return status;
}

int cgm_crew_start(struct cgm_crew *crew, uint32_t workers, const char *noun, uint32_t last_verb,
                   cgm_crew_obey *obey, void *state)
{
    memset(crew, 0, sizeof(*crew));
    crew->workers = workers;
    crew->noun = noun;
    crew->last_verb = last_verb;
    crew->board = cgm_shared_alloc(sizeof(*crew->board));
    if (!crew->board)
        return fail(crew, CGM_NO_MEMORY, "no shared memory for the clients");
    cgm_barrier_init(&crew->board->step, workers);
    fflush(NULL);
    pid_t parent = getpid();
    for (uint32_t i = 0; i < workers; i++) {
        crew->pids[i] = fork();
        if (crew->pids[i] == 0)
            become_worker(crew, i, parent, last_verb, obey, state);
        if (crew->pids[i] < 0) {
            crew->pids[i] = 0;
            return fail(crew, CGM_NO_MEMORY, "cannot start the client of %s %u: %s", noun, i,
                        strerror(errno));
        }
    }
    return CGM_OK;
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void sleep_ms(long ms)
{
    struct timespec wait = {ms / 1000, ms % 1000 * 1000000l};
    nanosleep(&wait, NULL);
}

/* True when the worker has ended. One that is stopped, or goes on, is noted. */
static bool has_ended(struct cgm_crew *crew, uint32_t worker, int *ret_how)
{
    if (waitpid(crew->pids[worker], ret_how, WNOHANG | WUNTRACED | WCONTINUED) !=
        crew->pids[worker])
        return false;
    if (WIFSTOPPED(*ret_how))
        crew->stopped_ms[worker] = now_ms();
    if (WIFCONTINUED(*ret_how))
        crew->stopped_ms[worker] = 0;
    return WIFEXITED(*ret_how) || WIFSIGNALED(*ret_how);
}

/* Reaps workers that have ended. Returns how many are left; *ret_killed is set to the first one
 * that a signal ended, with its wait status. */
static uint32_t reap(struct cgm_crew *crew, uint32_t *ret_killed, int *ret_how)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < crew->workers; i++) {
        int how;
        if (crew->pids[i] == 0)
            continue;
        if (!has_ended(crew, i, &how)) {
            left++;
            continue;
        }
        if (WIFSIGNALED(how) && *ret_killed == UINT32_MAX) {
            *ret_killed = i;
            *ret_how = how;
        }
        crew->pids[i] = 0;
    }
    return left;
}

/* A worker has ended before its time. Others may be about to say why; a signal is reason enough. */
static int explain(struct cgm_crew *crew, uint32_t killed, int how)
{
    uint64_t end = now_ms() + LAST_WORDS_MS;
    while (killed == UINT32_MAX && now_ms() < end && !atomic_load(&crew->board->first_failed) &&
           reap(crew, &killed, &how))
        sleep_ms(5);
    if (killed != UINT32_MAX)
        return fail(crew, CGM_PEER_LOST, "the client of %s %u was ended by signal %d (%s)",
                    crew->noun, killed, WTERMSIG(how), strsignal(WTERMSIG(how)));
    uint32_t first = atomic_load(&crew->board->first_failed);
    if (!first)
        return fail(crew, CGM_INTERNAL, "a client ended without a word");
    crew->failure = crew->board->failures[first - 1];
    return crew->failure.status;
}

static int look_for_standstill(struct cgm_crew *crew)
{
    for (uint32_t i = 0; i < crew->workers; i++)
        if (crew->stopped_ms[i] && now_ms() - crew->stopped_ms[i] > STANDSTILL_MS)
            return fail(crew, CGM_PEER_LOST,
                        "the client of %s %u, process %d, has been stopped by a signal for %d s",
                        crew->noun, i, (int)crew->pids[i], STANDSTILL_MS / 1000);
    return CGM_OK;
}

/* OK, or why the run is over. */
static int look(struct cgm_crew *crew)
{
    uint32_t killed = UINT32_MAX;
    int how = 0;
    if (cgm_stop_signal())
        return fail(crew, CGM_CANCELLED, "ended by signal %d (%s)", cgm_stop_signal(),
                    strsignal(cgm_stop_signal()));
    if (reap(crew, &killed, &how) == crew->workers)
        return look_for_standstill(crew);
    if (crew->leaving && atomic_load(&crew->board->finished) == crew->workers)
        return CGM_OK;
    return explain(crew, killed, how);
}

int cgm_crew_order(struct cgm_crew *crew, uint32_t verb, uint32_t argument, const char *label,
                   uint64_t total)
{
    struct cgm_crew_board *board = crew->board;
    struct cgm_progress progress;
    int status = CGM_OK;
    cgm_progress_init(&progress, stderr, label ? label : "", total);
    crew->leaving = verb == crew->last_verb;
    board->verb = verb;
    board->argument = argument;
    atomic_store(&board->progress, 0);
    atomic_store(&board->finished, 0);
    atomic_store_explicit(&board->order, ++crew->orders, memory_order_release);
    cgm_futex_wake(&board->order);
    for (;;) {
        uint32_t finished = atomic_load_explicit(&board->finished, memory_order_acquire);
        if (finished == crew->workers)
            break;
        cgm_futex_wait(&board->finished, finished, LOOK_MS);
        if ((status = look(crew)))
            break;
        if (label)
            cgm_progress_update(&progress, atomic_load(&board->progress));
    }
    cgm_progress_fini(&progress);
    return status;
}

struct computation {
    void (*function)(void *context);
    void *context;
    _Atomic uint32_t done;
};

static void *compute(void *argument)
{
    struct computation *computation = argument;
    computation->function(computation->context);
    atomic_store_explicit(&computation->done, 1, memory_order_release);
    cgm_futex_wake(&computation->done);
    return NULL;
}

int cgm_crew_compute(struct cgm_crew *crew, const char *label, void (*function)(void *context),
                     void *context)
{
    struct cgm_progress progress;
    struct computation *computation = calloc(1, sizeof(*computation));
    pthread_t thread;
    int status = CGM_OK;
    if (!computation)
        return fail(crew, CGM_NO_MEMORY, "no memory for a thread");
    computation->function = function;
    computation->context = context;
    if (pthread_create(&thread, NULL, compute, computation)) {
        free(computation);
        return fail(crew, CGM_NO_MEMORY, "cannot start a thread");
    }
    cgm_progress_init(&progress, stderr, label, 0);
    while (!status && !atomic_load_explicit(&computation->done, memory_order_acquire)) {
        cgm_futex_wait(&computation->done, 0, LOOK_MS);
        status = look(crew);
        cgm_progress_update(&progress, 0);
    }
    cgm_progress_fini(&progress);
    crew->abandoned = status != CGM_OK;
    if (crew->abandoned)
        return status;
    pthread_join(thread, NULL);
    free(computation);
    return CGM_OK;
}

void cgm_crew_stop(struct cgm_crew *crew, bool in_peace)
{
    for (uint32_t i = 0; i < crew->workers; i++)
        if (crew->pids[i] && !in_peace)
            kill(crew->pids[i], SIGKILL);
    for (uint32_t i = 0; i < crew->workers; i++)
        while (crew->pids[i] && waitpid(crew->pids[i], NULL, 0) < 0 && errno == EINTR)
            ;
    cgm_shared_free(crew->board, sizeof(*crew->board));
    crew->board = NULL;
    crew->workers = 0;
}
