/* What the user buffers of plans hold: of each chunk whether it is what the last job that was to
 * fill it should have left there. Jobs read these buffers without naming a generation, so it is
 * here that stale data is found. Owned by the poller.
 *
 * A copy_in, and a job that reads its own rank's user buffer, leaves its result there or gathers
 * there, stand in the line of that buffer from their submission on: a copy_in is launched after all
 * before it, and when those that leave something where it copies to have ended; a reader when every
 * copy_in before it has ended, and those that left something where it reads. So it knows at its
 * launch how all of them ended. What one did that failed before it was launched holds for those
 * behind it in the line, and not before it. What clients write by their own mappings nobody sees:
 * it is taken for right, but once a chunk is unsound only when they vouch for it. */
#ifndef CGM_CONTENTS_H
#define CGM_CONTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cgm_gang;
struct cgm_job;
struct cgm_memory;
struct cgm_spec;

/* Chunks that a job left unsound, from a place in the line on. */
struct cgm_void {
    struct cgm_void *next;
    uint64_t mask, ticket;
    int why;
};

#define CGM_FILLS_KEPT 4

/* A job that filled a chunk, and how many rows of it; rows 0: none. */
struct cgm_fill {
    uint64_t ticket, rows;
};

/* Ends are noticed in any order: tickets, of the session that has the rank, say which job was last.
 */
struct cgm_chunk {
    uint64_t rows;        /* of the product: as many of the chunk's are sound; the plan's m: all */
    uint64_t void_ticket; /* of the last job that left it unsound */
    struct cgm_fill fills[CGM_FILLS_KEPT]; /* behind that; none of as few rows as a later one */
    uint32_t fillers;                      /* launched jobs that write it, copy_ins apart */
    int why; /* rows below m: what the job ended with, EXECUTOR_LOST for a new buffer, OK where
                another one gathered there */
};

struct cgm_contents {
    struct cgm_job *first, *last; /* the line, by the jobs' next and previous */
    struct cgm_void *behind;      /* the last one */
    uint32_t n_chunks;
    uint64_t rows; /* the plan's m */
    struct cgm_chunk chunk[];
};

/* Of a user buffer that is all zeroes. lost: there was another one before, with an executor that
 * ended: nothing is sound. NULL: out of memory. Any thread. */
struct cgm_contents *cgm_contents_new(const struct cgm_spec *spec, bool lost);
void cgm_contents_free(struct cgm_contents *contents); /* NULL is allowed */

/* Whether it reads or fills its plan's user buffers without naming them. */
bool cgm_contents_are_unnamed(const struct cgm_job *job);

/* A checked job comes; before it is given to a gang. */
void cgm_contents_on_submit(struct cgm_job *job);

/* A gang is launched: its jobs no longer wait. */
void cgm_contents_on_launch(struct cgm_gang *gang);

/* A job ends, also one that was refused, as far as its plan is known. */
void cgm_contents_on_end(struct cgm_job *job, int status);

/* True while a job before it fills what the gang reads, or, for a copy_in, is to be launched. */
bool cgm_contents_are_awaited(const struct cgm_gang *gang);

/* OK, or TAINTED and which rank's chunk would be read that is not sound, and why it is not. */
int cgm_contents_check(const struct cgm_gang *gang, char *ret_detail, size_t detail_bytes);

/* Whether these bytes of the object are sound; true of all but user buffers. */
bool cgm_contents_are_sound(const struct cgm_memory *memory, uint64_t offset, uint64_t bytes);

/* Its client says that he has written all of it. */
void cgm_contents_vouch(struct cgm_contents *contents);

#endif
