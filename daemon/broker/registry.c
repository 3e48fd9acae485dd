#include "daemon/broker/registry.h"

#include <stdlib.h>
#include <string.h>

#include "proto/status.h"

/* Index of the first slot whose id is at least `id`. */
static size_t lower_bound(const struct cgm_registry *registry, uint64_t id)
{
    size_t low = 0, high = registry->count;
    if (high > 0 && registry->slots[high - 1].id < id)
        return high;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (registry->slots[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int holds(const struct cgm_registry *registry, size_t at, uint64_t id)
{
    return at < registry->count && registry->slots[at].id == id;
}

static int grow(struct cgm_registry *registry)
{
    size_t capacity = registry->capacity ? registry->capacity * 2 : 4;
    void *slots = realloc(registry->slots, capacity * sizeof(*registry->slots));
    if (!slots)
        return CGM_NO_MEMORY;
    registry->slots = slots;
    registry->capacity = capacity;
    return CGM_OK;
}

int cgm_registry_add(struct cgm_registry *registry, uint64_t id, void *object)
{
    size_t at = lower_bound(registry, id);
    if (holds(registry, at, id))
        return CGM_EXISTS;
    if (registry->count == registry->capacity && grow(registry) != CGM_OK)
        return CGM_NO_MEMORY;
    memmove(&registry->slots[at + 1], &registry->slots[at],
            (registry->count - at) * sizeof(*registry->slots));
    registry->slots[at] = (struct cgm_registry_slot){id, object};
    registry->count++;
    return CGM_OK;
}

void *cgm_registry_find(const struct cgm_registry *registry, uint64_t id)
{
    size_t at = lower_bound(registry, id);
    return holds(registry, at, id) ? registry->slots[at].object : NULL;
}

void *cgm_registry_remove(struct cgm_registry *registry, uint64_t id)
{
    size_t at = lower_bound(registry, id);
    if (!holds(registry, at, id))
        return NULL;
    void *object = registry->slots[at].object;
    registry->count--;
    memmove(&registry->slots[at], &registry->slots[at + 1],
            (registry->count - at) * sizeof(*registry->slots));
    if (registry->count == 0)
        cgm_registry_fini(registry);
    return object;
}

void *cgm_registry_next(const struct cgm_registry *registry, uint64_t *cursor)
{
    size_t at = *cursor == UINT64_MAX ? registry->count : lower_bound(registry, *cursor + 1);
    if (at == registry->count)
        return NULL;
    *cursor = registry->slots[at].id;
    return registry->slots[at].object;
}

void cgm_registry_fini(struct cgm_registry *registry)
{
    free(registry->slots);
    memset(registry, 0, sizeof(*registry));
}
