#include "daemon/executor/recorder.h"

#include <stddef.h>
#include <stdlib.h>

#include "daemon/executor/poller.h"
#include "proto/status.h"

struct cgm_recorder {
    uint32_t uid;
    uint64_t operations;
    struct cgm_recorder_entry *first, *last; /* not used for the longest time; used last */
};

static uint64_t key_of(uint32_t uid)
{
    return (uint64_t)uid + 1;
}

static void append(struct cgm_recorder *recorder, struct cgm_recorder_entry *entry)
{
    entry->recorder = recorder;
    entry->next = NULL;
    entry->previous = recorder->last;
    if (recorder->last)
        recorder->last->next = entry;
    else
        recorder->first = entry;
    recorder->last = entry;
}

static void unlink_entry(struct cgm_recorder_entry *entry)
{
    struct cgm_recorder *recorder = entry->recorder;
    if (entry->previous)
        entry->previous->next = entry->next;
    else
        recorder->first = entry->next;
    if (entry->next)
        entry->next->previous = entry->previous;
    else
        recorder->last = entry->previous;
}

int cgm_recorder_enter(struct cgm_poller *poller, uint32_t uid, struct cgm_recorder_entry *entry)
{
    struct cgm_recorder *recorder = cgm_map_get(&poller->recorders, key_of(uid));
    if (!recorder) {
        recorder = calloc(1, sizeof(*recorder));
        if (!recorder || cgm_map_add(&poller->recorders, key_of(uid), recorder) != CGM_OK) {
            free(recorder);
            return CGM_NO_MEMORY;
        }
        recorder->uid = uid;
    }
    recorder->operations += entry->operations;
    poller->recorded += entry->operations;
    append(recorder, entry);
    return CGM_OK;
}

void cgm_recorder_leave(struct cgm_poller *poller, struct cgm_recorder_entry *entry)
{
    struct cgm_recorder *recorder = entry->recorder;
    if (!recorder)
        return;
    unlink_entry(entry);
    entry->recorder = NULL;
    recorder->operations -= entry->operations;
    poller->recorded -= entry->operations;
    if (recorder->first)
        return;
    cgm_map_remove(&poller->recorders, key_of(recorder->uid));
    free(recorder);
}

void cgm_recorder_use(struct cgm_recorder_entry *entry)
{
    unlink_entry(entry);
    append(entry->recorder, entry);
}

bool cgm_recorder_fits(const struct cgm_recorder_entry *entry)
{
    return entry->recorder->operations <= CGM_RECORDED_MAX;
}

struct cgm_recorder_entry *cgm_recorder_excess(const struct cgm_recorder_entry *entry)
{
    struct cgm_recorder_entry *first = entry->recorder->first;
    return !cgm_recorder_fits(entry) && first->made ? first : NULL;
}
