#include "daemon/executor/rings.h"

#include <stdlib.h>

#include "daemon/executor/endpoint.h"
#include "daemon/executor/poller.h"
#include "proto/status.h"

#define CAPACITY_MIN 4u

/* ---- coming and going ----------------------------------------------------------------------- */

static struct cgm_ring_user *user_of(struct cgm_rings *rings, uint32_t uid)
{
    struct cgm_ring_user **end = &rings->first;
    for (; *end; end = &(*end)->next)
        if ((*end)->uid == uid)
            return *end;
    struct cgm_ring_user *user = calloc(1, sizeof(*user));
    if (!user)
        return NULL;
    user->uid = uid;
    rings->n_users++;
    *end = user;
    return user;
}

static void forget_if_empty(struct cgm_rings *rings, struct cgm_ring_user *user)
{
    struct cgm_ring_user **link = &rings->first;
    if (user->n_rings > 0)
        return;
    while (*link != user)
        link = &(*link)->next;
    *link = user->next;
    rings->n_users--;
    free(user->rings);
    free(user);
}

static int user_grow(struct cgm_ring_user *user)
{
    uint32_t capacity = user->capacity ? user->capacity * 2 : CAPACITY_MIN;
    struct cgm_endpoint **larger = realloc(user->rings, capacity * sizeof(struct cgm_endpoint *));
    if (!larger)
        return CGM_NO_MEMORY;
    user->rings = larger;
    user->capacity = capacity;
    return CGM_OK;
}

int cgm_rings_add(struct cgm_rings *rings, struct cgm_endpoint *endpoint)
{
    struct cgm_ring_user *user = user_of(rings, endpoint->uid);
    if (!user)
        return CGM_NO_MEMORY;
    if (user->n_rings == user->capacity && user_grow(user) != CGM_OK) {
        forget_if_empty(rings, user);
        return CGM_NO_MEMORY;
    }
    user->rings[user->n_rings++] = endpoint;
    rings->n_rings++;
    return CGM_OK;
}

bool cgm_rings_remove(struct cgm_rings *rings, const struct cgm_endpoint *endpoint)
{
    for (struct cgm_ring_user *user = rings->first; user; user = user->next)
        for (uint32_t i = 0; user->uid == endpoint->uid && i < user->n_rings; i++) {
            if (user->rings[i] != endpoint)
                continue;
            user->rings[i] = user->rings[--user->n_rings];
            rings->n_rings--;
            forget_if_empty(rings, user);
            return true;
        }
    return false;
}

/* ---- one round ------------------------------------------------------------------------------ */

static bool is_active(const struct cgm_ring_user *user, uint64_t now_ns)
{
    return user->took_ns != 0 && now_ns - user->took_ns < CGM_RINGS_LATELY_NS;
}

/* Who is alone keeps nobody waiting. */
static uint32_t looks_of(const struct cgm_rings *rings, bool active)
{
    if (rings->n_users == 1)
        return UINT32_MAX;
    return rings->n_active > active ? CGM_RINGS_LOOKS_SHARED : CGM_RINGS_LOOKS;
}

static uint32_t entries_for(uint32_t looks)
{
    uint32_t entries = looks / CGM_RINGS_LOOKS_PER_ENTRY;
    if (entries == 0)
        return 1;
    return entries < CGM_RINGS_ENTRIES_AT_ONCE ? entries : CGM_RINGS_ENTRIES_AT_ONCE;
}

/* Each ring at most once. While one is drained others may go, but it does not itself: the user
 * stays. */
static bool user_drain(struct cgm_ring_user *user, uint32_t looks, uint64_t now_ns)
{
    struct cgm_poller *poller = user->rings[0]->poller;
    bool busy = false;
    poller->effort = 0;
    for (uint32_t seen = 0; seen < user->n_rings && looks > 0 && !cgm_poller_is_tired(poller);
         seen++) {
        if (user->at >= user->n_rings)
            user->at = 0;
        uint32_t taken = cgm_endpoint_drain(user->rings[user->at++], entries_for(looks));
        uint32_t took = 1 + taken * CGM_RINGS_LOOKS_PER_ENTRY;
        looks -= took < looks ? took : looks;
        busy |= taken > 0;
    }
    if (busy)
        user->took_ns = now_ns;
    return busy;
}

bool cgm_rings_drain(struct cgm_rings *rings, uint64_t now_ns)
{
    bool busy = false;
    uint32_t n_active = 0;
    /* Whoever follows is looked for afterwards: users other than this one may go meanwhile. */
    for (struct cgm_ring_user *user = rings->first; user; user = user->next) {
        busy |= user_drain(user, looks_of(rings, is_active(user, now_ns)), now_ns);
        n_active += is_active(user, now_ns);
    }
    rings->n_active = n_active;
    return busy;
}

/* ---- all of them ---------------------------------------------------------------------------- */

static bool user_has_work(struct cgm_ring_user *user)
{
    for (uint32_t i = 0; i < user->n_rings; i++)
        if (cgm_endpoint_has_work(user->rings[i])) {
            user->at = i;
            return true;
        }
    return false;
}

bool cgm_rings_have_work(struct cgm_rings *rings)
{
    bool found = false;
    for (struct cgm_ring_user *user = rings->first; user && !found; user = user->next)
        found = user_has_work(user);
    return found;
}

void cgm_rings_ask_for_wakeup(struct cgm_rings *rings, uint32_t value)
{
    for (struct cgm_ring_user *user = rings->first; user; user = user->next)
        for (uint32_t i = 0; i < user->n_rings; i++)
            if (!cgm_endpoint_is_mute(user->rings[i]))
                atomic_store_explicit(&user->rings[i]->ring.header->sq_need_wakeup, value,
                                      memory_order_relaxed);
}

uint64_t cgm_rings_notify(struct cgm_rings *rings)
{
    uint64_t next_ns = 0;
    for (struct cgm_ring_user *user = rings->first; user; user = user->next)
        for (uint32_t i = 0; i < user->n_rings; i++) {
            uint64_t again_ns = cgm_completions_notify(user->rings[i]);
            if (again_ns && (next_ns == 0 || again_ns < next_ns))
                next_ns = again_ns;
        }
    return next_ns;
}
