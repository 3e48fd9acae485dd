/* The executor's side of one ring, as a thread. */
#ifndef FAKE_POLLER_H
#define FAKE_POLLER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/ring.h"

/* Ends the test with the place when a condition does not hold, also on other threads than cmocka's.
 */
#define must(condition) ((condition) ? (void)0 : fake_failed(__FILE__, __LINE__))
void fake_failed(const char *file, int line) __attribute__((noreturn));

struct fake_poller {
    struct cgm_ring ring;
    int ring_fd, wake_fd, client_end, executor_end;
    uint64_t life;
    uint64_t spin_ns;
    bool shuffle;
    pthread_t thread;
    atomic_bool stop, release;
    _Atomic uint64_t cancel; /* a ticket: that job ends with CANCELLED; 0 then */
    unsigned seed;
    uint32_t sq_head;
    _Atomic uint32_t cq_tail; /* also fake_forge_cqe's, while the thread is idle */
    uint64_t last_ticket;
    uint32_t *held; /* slots; the poller's own */
    uint32_t n_held;
    _Atomic uint64_t jobs;
    pthread_mutex_t lock; /* guards the two below */
    struct cgm_entry last_entry;
    char complaint[128];
};

/* Creates ring and fds and starts the thread. */
void fake_poller_start(struct fake_poller *poller, uint32_t entries, uint64_t life,
                       uint64_t spin_ns, bool shuffle);
/* Ends the thread; the ring stays mapped, the executor's end of the notify socket is closed. */
void fake_poller_stop(struct fake_poller *poller);
void fake_poller_free(struct fake_poller *poller);

#endif
