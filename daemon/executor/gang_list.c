#include "daemon/executor/gang_list.h"

#include "daemon/executor/gang.h"
#include "daemon/executor/poller.h"

static void list_add(struct cgm_gang **first, struct cgm_gang *gang, enum cgm_gang_list list)
{
    gang->links[list] = (struct cgm_gang_link){NULL, *first};
    if (*first)
        (*first)->links[list].previous = gang;
    *first = gang;
}

static void list_append(struct cgm_gang **first, struct cgm_gang **last, struct cgm_gang *gang,
                        enum cgm_gang_list list)
{
    gang->links[list] = (struct cgm_gang_link){*last, NULL};
    *(*last ? &(*last)->links[list].next : first) = gang;
    *last = gang;
}

static void list_remove(struct cgm_gang **first, struct cgm_gang *gang, enum cgm_gang_list list)
{
    struct cgm_gang_link *link = &gang->links[list];
    if (link->previous)
        link->previous->links[list].next = link->next;
    else
        *first = link->next;
    if (link->next)
        link->next->links[list].previous = link->previous;
    *link = (struct cgm_gang_link){NULL, NULL};
}

void cgm_gang_list_enter(struct cgm_gang *gang)
{
    struct cgm_comm *comm = gang->comm;
    list_add(&comm->poller->gangs, gang, CGM_GANGS_ALL);
    list_add(&comm->gangs, gang, CGM_GANGS_OF_COMM);
}

void cgm_gang_list_leave(struct cgm_gang *gang)
{
    struct cgm_poller *poller = gang->comm->poller;
    cgm_gang_list_move(gang, false);
    if (poller->looked_at == gang)
        poller->looked_at = gang->links[CGM_GANGS_ALL].next;
    if (gang->comm->failing == gang)
        gang->comm->failing = gang->links[CGM_GANGS_OF_COMM].next;
    list_remove(&poller->gangs, gang, CGM_GANGS_ALL);
    list_remove(&gang->comm->gangs, gang, CGM_GANGS_OF_COMM);
}

void cgm_gang_list_move(struct cgm_gang *gang, bool moving)
{
    struct cgm_poller *poller = gang->comm->poller;
    if (gang->moving == moving)
        return;
    gang->moving = moving;
    if (moving) {
        list_append(&poller->moving, &poller->last_moving, gang, CGM_GANGS_MOVING);
        return;
    }
    if (poller->moving_at == gang)
        poller->moving_at = gang->links[CGM_GANGS_MOVING].next;
    if (poller->last_moving == gang)
        poller->last_moving = gang->links[CGM_GANGS_MOVING].previous;
    list_remove(&poller->moving, gang, CGM_GANGS_MOVING);
}
