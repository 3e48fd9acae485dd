/* What the broker must know when an executor has died without a word: one private memfd that the
 * broker creates and hands to the executor. The executor writes, the broker reads after the death;
 * no client ever sees it. The broker gives out the indices (BufferAlloc, BufferAdopt, CommAdd). */
#ifndef CGM_JOURNAL_H
#define CGM_JOURNAL_H

#include <stdatomic.h>
#include <stdint.h>

#define CGM_JOURNAL_MAGIC 0x4c4e524a4d4743ull
#define CGM_JOURNAL_VERSION 3u
#define CGM_JOURNAL_BUFFERS 65536u
#define CGM_JOURNAL_COMMS 4096u

struct cgm_journal {
    uint64_t magic;
    uint32_t version, n_buffers, n_comms, reserved;
    /* Launched jobs that may be writing buffer i right now. Not 0 at death: the buffer is tainted.
     */
    _Atomic uint32_t writers[CGM_JOURNAL_BUFFERS];
    /* Highest number that any rank submitted in comm i. At death all numbers up to it are burnt. */
    _Atomic uint64_t comm_high[CGM_JOURNAL_COMMS];
    /* Jobs of all executors so far. What was accepted and neither done nor failed at death is lost,
     * and the broker counts it as failed. Launches count every rank. */
    _Atomic uint64_t jobs_accepted, jobs_launched, jobs_done, jobs_failed;
    /* The collective job that has ended well, and of which some ranks may not have been told yet;
     * 0: none. At death the others are told. */
    _Atomic uint64_t ending_comm, ending_number;
    /* The buffer or import that is mapped right now, where who has it can hold that up; 0: none. */
    _Atomic uint64_t mapping;
};

/* For the one who writes a counter: cheaper than an atomic addition. */
static inline void cgm_journal_count(_Atomic uint64_t *counter, uint64_t more)
{
    uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, value + more, memory_order_relaxed);
}

#endif
