/* What the broker must know when an executor has died without a word: one private memfd that the
 * broker creates and hands to the executor. The executor writes, the broker reads after the death;
 * no client ever sees it. The broker gives out the indices (BufferAlloc, BufferAdopt, CommAdd). */
#ifndef CGM_JOURNAL_H
#define CGM_JOURNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/ring.h"

#define CGM_JOURNAL_MAGIC 0x4c4e524a4d4743ull
#define CGM_JOURNAL_VERSION 4u
#define CGM_JOURNAL_BUFFERS 65536u
#define CGM_JOURNAL_COMMS 4096u

struct cgm_journal {
    uint64_t magic;
    uint32_t version, n_buffers, n_comms, reserved;
    /* Launched jobs that may be writing buffer i right now. Not 0 at death: the buffer is tainted.
     */
    _Atomic uint32_t writers[CGM_JOURNAL_BUFFERS];
    /* Of comm i: up to this number all have ended, and every rank has come for them; and the
     * highest that any rank has come for. They and comm_ended stay at death: the next executor goes
     * on. */
    _Atomic uint64_t comm_retired[CGM_JOURNAL_COMMS], comm_high[CGM_JOURNAL_COMMS];
    /* Jobs of all executors so far. What was accepted and neither done nor failed at death is lost,
     * and the broker counts it as failed. Launches count every rank. */
    _Atomic uint64_t jobs_accepted, jobs_launched, jobs_done, jobs_failed;
    /* The collective job that has ended well, and of which some ranks may not have been told yet;
     * 0: none. At death the others are told. */
    _Atomic uint64_t ending_comm, ending_number;
    /* The buffer or import that is mapped right now, where who has it can hold that up; 0: none. */
    _Atomic uint64_t mapping;
    /* How the numbers of comm i above comm_retired ended, by number (cgm_journal_end). Those that
     * did not are done again by who lost them. */
    _Atomic uint16_t comm_ended[CGM_JOURNAL_COMMS][CGM_COMM_WINDOW];
};

/* What stands in comm_ended for a number that ended with this status; it is never 0. */
static inline uint16_t cgm_journal_end(uint64_t number, int status)
{
    return (uint16_t)((number / CGM_COMM_WINDOW & 0xff) << 8 | (uint8_t)(1 - status));
}

/* Whether it stands there, and is of this number. */
static inline bool cgm_journal_has_ended(uint16_t ended, uint64_t number, int *ret_status)
{
    *ret_status = 1 - (ended & 0xff);
    return ended & 0xff && ended >> 8 == (number / CGM_COMM_WINDOW & 0xff);
}

/* For the one who writes a counter: cheaper than an atomic addition. */
static inline void cgm_journal_count(_Atomic uint64_t *counter, uint64_t more)
{
    uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, value + more, memory_order_relaxed);
}

#endif
