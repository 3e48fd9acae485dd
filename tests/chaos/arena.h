/* Memory of a client that jobs find their operands in: a buffer of the daemon or memory of the
 * client's own. A shadow has what must be in it: whatever no job wrote must stay as it was. */
#ifndef CHAOS_ARENA_H
#define CHAOS_ARENA_H

#include "client/bench/shards.h"
#include "kernels/random.h"
#include "tests/chaos/chaos.h"

struct chaos_arena {
    enum chaos_arena_kind kind;
    struct commgemm_buffer buffer; /* id and generation of an import too */
    char name[64];
    unsigned char *memory, *shadow;
    uint64_t used; /* of this batch */
    bool fresh;    /* nobody has put anything into it yet */
};

/* Where an operand lies. */
struct chaos_place {
    struct chaos_arena *arena; /* NULL: absent */
    uint64_t offset, stride;   /* stride in elements */
    bool written;              /* by the job */
};

/* Takes the memory; its object is made with chaos_arena_open. False when memory is short. */
bool chaos_arena_init(struct chaos_arena *arena, enum chaos_arena_kind kind);

/* Creates the buffer or import, the first time; afterwards looks at what became of it, and makes a
 * tainted one sound again. Status of the call that failed. */
int chaos_arena_open(struct chaos_arena *arena, commgemm_client *client);

/* Whether jobs may still name it by the generation that it was opened with. */
bool chaos_arena_is_current(const struct chaos_arena *arena, commgemm_client *client);

/* A new batch: numbers that nothing expects, everywhere where the last one was. */
void chaos_arena_reset(struct chaos_arena *arena, struct cgm_random *random);

/* A place for rank's part of the matrix. False when there is none left. */
bool chaos_arena_place(struct chaos_arena *arena, const struct cgm_matrix *matrix, bool written,
                       struct cgm_random *random, struct chaos_place *ret_place);

/* The part into its place (dense -> strided), and out of it. */
void chaos_place_put(const struct chaos_place *place, const struct cgm_matrix *matrix,
                     const void *shard);
void chaos_place_get(const struct chaos_place *place, const struct cgm_matrix *matrix,
                     void *ret_shard);

/* The batch is laid out: to the devices with it. Status. */
int chaos_arena_push(struct chaos_arena *arena, commgemm_client *client);

/* The batch is done: back from the devices. Status. */
int chaos_arena_pull(struct chaos_arena *arena, commgemm_client *client);

/* What a job may have written is no longer compared: it takes the place's elements out. */
void chaos_arena_forgive(const struct chaos_place *place, const struct cgm_matrix *matrix);

/* The first byte that is not as it was; UINT64_MAX when all are. */
uint64_t chaos_arena_damage(const struct chaos_arena *arena);

struct commgemm_operand chaos_place_operand(const struct chaos_place *place, int dtype);

#endif
