/* Who is still to read a memory object, and who writes it: operands of jobs of any comm, as readers
 * from their coming to their launch, in that order, and as writers from their launch until they end
 * or fail, the last launch first. Whoever fails looks here for what he must not spoil (poison.h).
 * Owned by the poller. */
#ifndef CGM_USES_H
#define CGM_USES_H

#include <stdint.h>

struct cgm_view;
struct cgm_job;
struct cgm_memory;

struct cgm_use {
    struct cgm_use *previous, *next;
    struct cgm_job *job; /* the operand is that of job->uses which it is */
    uint64_t begin, end; /* all of its bytes lie between: from here on, and below */
};

struct cgm_use_list {
    struct cgm_use *first, *last;
};

/* An accepted job comes. */
void cgm_uses_wait(struct cgm_job *job);

/* It is launched. */
void cgm_uses_begin(struct cgm_job *job);

/* It ends, or fails; nothing where that was so before. */
void cgm_uses_end(struct cgm_job *job);

/* The operand's bytes. */
const struct cgm_view *cgm_use_view(const struct cgm_use *use);

#endif
