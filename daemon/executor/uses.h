/* What jobs have to do with memory objects: of each comm and object the operands that are still to
 * be read, from their job's coming to its launch, and those that are being written, from the launch
 * until the job ends or fails. Whoever fails looks here for what it must not spoil (poison.h).
 * Owned by the poller. */
#ifndef CGM_USES_H
#define CGM_USES_H

#include <stdint.h>

struct cgm_comm;
struct cgm_job;
struct cgm_memory;
struct cgm_view;

#define CGM_USES_SLOTS 16384u

enum cgm_use_kind {
    CGM_USE_READ,       /* by jobs that have a number */
    CGM_USE_READ_ALONE, /* ... and by those that have none */
    CGM_USE_WRITTEN,
    CGM_USE_KINDS,
};

struct cgm_use {
    struct cgm_use *previous, *next; /* of the same comm, object and kind */
    struct cgm_use *other; /* the first one of others in the slot, where it is the first */
    struct cgm_job *job;   /* the operand is that of job->uses which it is */
    uint64_t begin, end;   /* its bytes lie from here on, and below */
    uint64_t low, high;    /* as they, of all behind it too, where it is the first */
};

/* A hash table of first ones: nothing is allocated for a use. */
struct cgm_uses {
    struct cgm_use *slots[CGM_USE_KINDS][CGM_USES_SLOTS];
};

/* An accepted job comes. */
void cgm_uses_wait(struct cgm_job *job);

/* It is launched. */
void cgm_uses_begin(struct cgm_job *job);

/* It ends, or fails; nothing where that was so before. */
void cgm_uses_end(struct cgm_job *job);

/* The last one that came; its next is the one before. NULL: there is none. */
const struct cgm_use *cgm_uses_last(const struct cgm_comm *comm, const struct cgm_memory *memory,
                                    enum cgm_use_kind kind);

/* The operand's bytes. */
const struct cgm_view *cgm_use_view(const struct cgm_use *use);

#endif
