#include "daemon/executor/wishes.h"

#include <stddef.h>

void cgm_wishes_init(struct cgm_wishes *wishes)
{
    pthread_mutex_init(&wishes->lock, NULL);
    wishes->first = NULL;
}

void cgm_wishes_add(struct cgm_wishes *wishes, uint64_t session, struct cgm_wish *wish)
{
    wish->session = session;
    wish->previous = NULL;
    atomic_store_explicit(&wish->over, false, memory_order_relaxed);
    pthread_mutex_lock(&wishes->lock);
    wish->next = wishes->first;
    if (wish->next)
        wish->next->previous = wish;
    wishes->first = wish;
    pthread_mutex_unlock(&wishes->lock);
}

void cgm_wishes_remove(struct cgm_wishes *wishes, struct cgm_wish *wish)
{
    pthread_mutex_lock(&wishes->lock);
    if (wish->previous)
        wish->previous->next = wish->next;
    else
        wishes->first = wish->next;
    if (wish->next)
        wish->next->previous = wish->previous;
    pthread_mutex_unlock(&wishes->lock);
}

void cgm_wishes_session_lost(struct cgm_wishes *wishes, uint64_t session)
{
    pthread_mutex_lock(&wishes->lock);
    for (struct cgm_wish *wish = wishes->first; wish; wish = wish->next)
        if (wish->session == session && session != 0)
            atomic_store_explicit(&wish->over, true, memory_order_relaxed);
    pthread_mutex_unlock(&wishes->lock);
}
