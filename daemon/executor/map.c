#include "daemon/executor/map.h"

#include <stdlib.h>

#include "proto/status.h"

#define CAPACITY_MIN 16

static size_t slot_of(const struct cgm_map *map, uint64_t key)
{
    return (size_t)((key * 0x9e3779b97f4a7c15ull) >> 32) & (map->capacity - 1);
}

void cgm_map_fini(struct cgm_map *map)
{
    free(map->slots);
    *map = (struct cgm_map){0};
}

/* The slot that holds the key, or the free one where it belongs. */
static struct cgm_map_slot *map_find(const struct cgm_map *map, uint64_t key)
{
    size_t i = slot_of(map, key);
    while (map->slots[i].key != 0 && map->slots[i].key != key)
        i = (i + 1) & (map->capacity - 1);
    return &map->slots[i];
}

void *cgm_map_get(const struct cgm_map *map, uint64_t key)
{
    if (map->count == 0 || key == 0)
        return NULL;
    return map_find(map, key)->value;
}

static int map_grow(struct cgm_map *map)
{
    struct cgm_map larger = {.capacity = map->capacity ? map->capacity * 2 : CAPACITY_MIN};
    larger.slots = calloc(larger.capacity, sizeof(*larger.slots));
    if (!larger.slots)
        return CGM_NO_MEMORY;
    for (size_t i = 0; i < map->capacity; i++)
        if (map->slots[i].key != 0)
            *map_find(&larger, map->slots[i].key) = map->slots[i];
    larger.count = map->count;
    free(map->slots);
    *map = larger;
    return CGM_OK;
}

int cgm_map_add(struct cgm_map *map, uint64_t key, void *value)
{
    if (key == 0)
        return CGM_INVALID_ARGUMENT;
    if (cgm_map_get(map, key))
        return CGM_EXISTS;
    if (map->count * 4 >= map->capacity * 3 && map_grow(map) != CGM_OK)
        return CGM_NO_MEMORY;
    *map_find(map, key) = (struct cgm_map_slot){key, value};
    map->count++;
    return CGM_OK;
}

void *cgm_map_remove(struct cgm_map *map, uint64_t key)
{
    if (map->count == 0 || key == 0)
        return NULL;
    struct cgm_map_slot *slot = map_find(map, key);
    void *value = slot->value;
    if (slot->key == 0)
        return NULL;
    *slot = (struct cgm_map_slot){0};
    map->count--;
    /* Whatever stands behind in the same run may have been pushed there by the removed entry. */
    size_t i = (size_t)(slot - map->slots);
    while (map->slots[i = (i + 1) & (map->capacity - 1)].key != 0) {
        struct cgm_map_slot moved = map->slots[i];
        map->slots[i] = (struct cgm_map_slot){0};
        *map_find(map, moved.key) = moved;
    }
    return value;
}

void cgm_map_each(const struct cgm_map *map,
                  void (*visit)(void *context, uint64_t key, void *value), void *context)
{
    for (size_t i = 0; i < map->capacity; i++)
        if (map->slots[i].key != 0)
            visit(context, map->slots[i].key, map->slots[i].value);
}
