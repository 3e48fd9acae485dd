#include "proto/rota.h"

#include <stddef.h>

static void append_user(struct cgm_rota *rota, struct cgm_rota_entry *first)
{
    struct cgm_rota_entry **end = &rota->first;
    while (*end)
        end = &(*end)->next;
    first->next = NULL;
    *end = first;
}

void cgm_rota_add(struct cgm_rota *rota, struct cgm_rota_entry *entry)
{
    struct cgm_rota_entry *user = rota->first;
    entry->behind = NULL;
    while (user && user->uid != entry->uid)
        user = user->next;
    if (user) {
        user->last = user->last->behind = entry;
        return;
    }
    entry->last = entry;
    append_user(rota, entry);
}

void cgm_rota_move_on(struct cgm_rota *rota, bool through)
{
    struct cgm_rota_entry *had = rota->first, *goes_on = through ? had->behind : had;
    rota->first = had->next;
    if (!goes_on)
        return;
    goes_on->last = had->last;
    append_user(rota, goes_on);
}
