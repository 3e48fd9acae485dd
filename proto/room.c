#include "proto/room.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "proto/cgroup.h"
#include "proto/status.h"
#include "proto/system.h"

/* So much of the node's memory, and of a limit, is left to others. */
#define RESERVED_PART 16u

enum { UNKNOWN, BEING_WRITTEN, KNOWN };

/* Found once, by whoever asks first: the file of all mounts may be long. NULL: not to be found now.
 * It is never waited for: whoever comes meanwhile, also in a process forked then, finds his own. */
static const struct cgm_cgroup_tree *tree_find(struct cgm_cgroup_tree *own)
{
    static struct cgm_cgroup_tree kept;
    static _Atomic int state;
    int unknown = UNKNOWN;
    /* Pairs with the release below. */
    if (atomic_load_explicit(&state, memory_order_acquire) == KNOWN)
        return &kept;
    if (cgm_cgroup_find("", own) != CGM_OK)
        return NULL;
    if (atomic_compare_exchange_strong(&state, &unknown, BEING_WRITTEN)) {
        kept = *own;
        atomic_store_explicit(&state, KNOWN, memory_order_release);
    }
    return own;
}

static uint64_t kept_of(uint64_t limit, uint64_t own_bytes)
{
    uint64_t part = limit / RESERVED_PART;
    if (part < own_bytes)
        part = own_bytes;
    return part < limit / 2 ? part : limit / 2;
}

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

uint64_t cgm_room_left(const struct cgm_room *room)
{
    return minus(room->available_bytes, room->reserved_bytes);
}

/* False: it limits nothing. */
static bool room_of_group(const struct cgm_cgroup *group, uint64_t own_bytes, uint64_t enough,
                          struct cgm_room *ret_room)
{
    struct cgm_room room = {0};
    uint64_t used;
    if (!cgm_cgroup_limit(group, &room.total_bytes, &room.file) || !cgm_cgroup_used(group, &used))
        return false;
    room.reserved_bytes = kept_of(room.total_bytes, own_bytes);
    room.available_bytes = minus(room.total_bytes, used);
    /* It is in a file that costs more to read. */
    if (cgm_room_left(&room) < enough)
        room.available_bytes = minus(room.total_bytes, minus(used, cgm_cgroup_reclaimable(group)));
    cgm_cgroup_name(group, room.group, sizeof(room.group));
    *ret_room = room;
    return true;
}

void cgm_room_narrow(const struct cgm_cgroup_tree *tree, uint64_t own_bytes, uint64_t enough,
                     struct cgm_room *room)
{
    struct cgm_cgroup group;
    struct cgm_room other;
    bool more = cgm_cgroup_own(tree, &group);
    for (; more; more = cgm_cgroup_up(&group))
        if (room_of_group(&group, own_bytes, enough, &other) &&
            cgm_room_left(&other) < cgm_room_left(room))
            *room = other;
}

static int find(uint64_t own_bytes, uint64_t enough, struct cgm_room *ret_room)
{
    struct cgm_room room = {0};
    struct cgm_cgroup_tree found;
    int status = cgm_system_memory(&room.total_bytes, &room.available_bytes);
    if (status != CGM_OK)
        return status;
    room.reserved_bytes = room.total_bytes / RESERVED_PART;
    const struct cgm_cgroup_tree *tree = tree_find(&found);
    if (tree)
        cgm_room_narrow(tree, own_bytes, enough, &room);
    *ret_room = room;
    return CGM_OK;
}

int cgm_room_find(uint64_t own_bytes, struct cgm_room *ret_room)
{
    return find(own_bytes, UINT64_MAX, ret_room);
}

int cgm_room_check(uint64_t bytes, uint64_t own_bytes)
{
    struct cgm_room room;
    int status = find(own_bytes, bytes, &room);
    if (status != CGM_OK)
        return status;
    return bytes > cgm_room_left(&room) ? CGM_NO_MEMORY : CGM_OK;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static bool has(const struct cgm_room *room, uint64_t bytes, uint64_t own_bytes)
{
    return room->available_bytes >= bytes + less(own_bytes, room->total_bytes / 2);
}

bool cgm_room_spares(uint64_t bytes, uint64_t own_bytes)
{
    struct cgm_room room = {0};
    struct cgm_cgroup_tree found;
    struct cgm_cgroup group;
    if (cgm_system_memory(&room.total_bytes, &room.available_bytes) != CGM_OK)
        return true;
    const struct cgm_cgroup_tree *tree = tree_find(&found);
    bool spares = has(&room, bytes, own_bytes), more = tree && cgm_cgroup_own(tree, &group);
    for (; spares && more; more = cgm_cgroup_up(&group))
        spares = !room_of_group(&group, 0, UINT64_MAX, &room) || has(&room, bytes, own_bytes);
    return spares;
}

uint64_t cgm_room_limit(void)
{
    uint64_t least, available, limit;
    struct cgm_cgroup_tree found;
    struct cgm_cgroup group;
    const char *file;
    if (cgm_system_memory(&least, &available) != CGM_OK)
        return UINT64_MAX;
    const struct cgm_cgroup_tree *tree = tree_find(&found);
    bool more = tree && cgm_cgroup_own(tree, &group);
    for (; more; more = cgm_cgroup_up(&group))
        if (cgm_cgroup_limit(&group, &limit, &file))
            least = less(least, limit);
    return least;
}

void cgm_room_words(const struct cgm_room *room, char *ret_text, size_t size)
{
    unsigned long long left = cgm_room_left(room), total = room->total_bytes,
                       kept = room->reserved_bytes;
    if (room->file)
        snprintf(ret_text, size,
                 "%llu bytes are left of %llu, the limit of control group %s (%s), beside %llu "
                 "that are kept",
                 left, total, room->group, room->file, kept);
    else
        snprintf(ret_text, size,
                 "%llu bytes are left of this node's %llu, beside %llu that are kept", left, total,
                 kept);
}
