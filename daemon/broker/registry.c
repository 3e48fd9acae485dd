#include "daemon/broker/registry.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/status.h"

#define HOLES_MIN 16u /* fewer are not worth closing */

/* Index of the first slot in use, hole or not, whose id is at least `id`. */
static size_t lower_bound(const struct cgm_registry *registry, uint64_t id)
{
    size_t low = registry->first, high = registry->end;
    if (high > low && registry->slots[high - 1].id < id)
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

static bool holds(const struct cgm_registry *registry, size_t at, uint64_t id)
{
    return at < registry->end && registry->slots[at].id == id && registry->slots[at].object;
}

static void close_holes(struct cgm_registry *registry)
{
    size_t to = 0;
    for (size_t from = registry->first; from < registry->end; from++)
        if (registry->slots[from].object)
            registry->slots[to++] = registry->slots[from];
    registry->first = 0;
    registry->end = to;
}

/* Room behind the last slot. Closing holes pays only when it makes much of it. */
static int make_room(struct cgm_registry *registry)
{
    if (registry->end < registry->capacity)
        return CGM_OK;
    if (registry->count < registry->capacity / 2) {
        close_holes(registry);
        return CGM_OK;
    }
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
    assert(object);
    if (holds(registry, lower_bound(registry, id), id))
        return CGM_EXISTS;
    if (make_room(registry) != CGM_OK)
        return CGM_NO_MEMORY;
    size_t at = lower_bound(registry, id);
    if (at == registry->end || registry->slots[at].object) {
        memmove(&registry->slots[at + 1], &registry->slots[at],
                (registry->end - at) * sizeof(*registry->slots));
        registry->end++;
    }
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
    registry->slots[at].object = NULL;
    if (--registry->count == 0) {
        cgm_registry_fini(registry);
        return object;
    }
    while (!registry->slots[registry->first].object)
        registry->first++;
    while (!registry->slots[registry->end - 1].object)
        registry->end--;
    if (registry->end - registry->first > 2 * registry->count + HOLES_MIN)
        close_holes(registry);
    return object;
}

void *cgm_registry_next(const struct cgm_registry *registry, uint64_t *cursor)
{
    size_t at = *cursor == UINT64_MAX ? registry->end : lower_bound(registry, *cursor + 1);
    while (at < registry->end && !registry->slots[at].object)
        at++;
    if (at == registry->end)
        return NULL;
    *cursor = registry->slots[at].id;
    return registry->slots[at].object;
}

void cgm_registry_fini(struct cgm_registry *registry)
{
    free(registry->slots);
    memset(registry, 0, sizeof(*registry));
}
