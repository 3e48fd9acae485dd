/* A hash map from non-zero 64-bit ids to pointers. Owned by one thread. Lookups allocate nothing.
 */
#ifndef CGM_MAP_H
#define CGM_MAP_H

#include <stddef.h>
#include <stdint.h>

struct cgm_map_slot {
    uint64_t key; /* 0: free */
    void *value;
};

struct cgm_map {
    struct cgm_map_slot *slots;
    size_t count, capacity; /* capacity is 0 or a power of two */
};

void cgm_map_fini(struct cgm_map *map);
void *cgm_map_get(const struct cgm_map *map, uint64_t key); /* NULL: absent */
/* OK, EXISTS or NO_MEMORY; INVALID_ARGUMENT for a key of 0. */
int cgm_map_add(struct cgm_map *map, uint64_t key, void *value);
void *cgm_map_remove(struct cgm_map *map, uint64_t key); /* the value, or NULL */

/* Calls visit for every entry in no particular order; visit must not change the map. */
void cgm_map_each(const struct cgm_map *map,
                  void (*visit)(void *context, uint64_t key, void *value), void *context);

#endif
