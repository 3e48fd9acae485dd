/* Objects by id, in the order of their ids: a sorted array. Ids are counters almost everywhere, so
 * that adding means appending. Removing leaves a hole; holes are closed when there are more of them
 * than objects, so that thousands of objects go as fast as they came. Iteration by id stays right
 * when objects come and go meanwhile. */
#ifndef CGM_REGISTRY_H
#define CGM_REGISTRY_H

#include <stddef.h>
#include <stdint.h>

struct cgm_registry_slot {
    uint64_t id;  /* never 0 */
    void *object; /* NULL: a hole */
};

/* Zeroed: empty. */
struct cgm_registry {
    struct cgm_registry_slot *slots;
    size_t count;      /* objects */
    size_t first, end; /* of the slots that are in use; neither the first nor the last is a hole */
    size_t capacity;
};

/* OK, EXISTS or NO_MEMORY. The object is not NULL. */
int cgm_registry_add(struct cgm_registry *registry, uint64_t id, void *object);

/* NULL when there is none. */
void *cgm_registry_find(const struct cgm_registry *registry, uint64_t id);
void *cgm_registry_remove(struct cgm_registry *registry, uint64_t id);

/* The object with the smallest id above *cursor, which becomes that id; NULL at the end. Start with
 * a cursor of 0. */
void *cgm_registry_next(const struct cgm_registry *registry, uint64_t *cursor);

/* Frees the array, not the objects. */
void cgm_registry_fini(struct cgm_registry *registry);

#endif
