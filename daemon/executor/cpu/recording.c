/* A recording: the records of a queue, to be copied into it again and again. */
#include <stdlib.h>
#include <string.h>

#include "daemon/executor/cpu/queue.h"
#include "proto/status.h"

#define RECORDS_AT_FIRST 16u

struct cgm_recording {
    struct cgm_record *records;
    uint32_t count, capacity;
    int status;               /* the first failure; nothing is kept from there on */
    struct cgm_record unkept; /* where records go that find no room */
};

static bool make_room(struct cgm_recording *recording)
{
    uint32_t capacity = recording->capacity ? recording->capacity * 2 : RECORDS_AT_FIRST;
    if (recording->count < recording->capacity)
        return true;
    struct cgm_record *records = realloc(recording->records, capacity * sizeof(*records));
    if (!records)
        return false;
    recording->records = records;
    recording->capacity = capacity;
    return true;
}

struct cgm_record *cgm_recording_reserve(struct cgm_recording *recording)
{
    if (recording->status == CGM_OK && recording->count >= CGM_QUEUE_ROOM)
        recording->status = CGM_NOT_SUPPORTED;
    if (recording->status == CGM_OK && !make_room(recording))
        recording->status = CGM_NO_MEMORY;
    return recording->status == CGM_OK ? &recording->records[recording->count] : &recording->unkept;
}

void cgm_recording_push(struct cgm_recording *recording)
{
    recording->count += recording->status == CGM_OK;
}

int cgm_cpu_record_begin(struct cgm_queue *queue, struct cgm_queue **ret_stand_in)
{
    struct cgm_queue *stand_in = aligned_alloc(_Alignof(struct cgm_queue), sizeof(*stand_in));
    struct cgm_recording *recording = calloc(1, sizeof(*recording));
    if (!stand_in || !recording) {
        free(stand_in);
        free(recording);
        return CGM_NO_MEMORY;
    }
    memset(stand_in, 0, offsetof(struct cgm_queue, records));
    stand_in->backend = queue->backend;
    stand_in->device = queue->device;
    stand_in->recording = recording;
    *ret_stand_in = stand_in;
    return CGM_OK;
}

int cgm_cpu_record_end(struct cgm_queue *stand_in, struct cgm_recording **ret_recording)
{
    struct cgm_recording *recording = stand_in->recording;
    int status = recording->status;
    free(stand_in);
    if (status == CGM_OK)
        *ret_recording = recording;
    else
        cgm_cpu_recording_free(recording);
    return status;
}

static bool has_flag(const struct cgm_record *record)
{
    return record->kind == CGM_RECORD_SIGNAL || record->kind == CGM_RECORD_WAIT;
}

int cgm_cpu_replay(struct cgm_queue *queue, struct cgm_recording *recording, uint64_t raise)
{
    for (uint32_t i = 0; i < recording->count; i++) {
        const struct cgm_record *kept = &recording->records[i];
        struct cgm_record *record = cgm_queue_reserve(queue, kept->kind);
        struct cgm_run *run = record->run;
        *record = *kept;
        record->run = run;
        if (has_flag(record))
            record->of.flag.value += raise;
        cgm_queue_push(queue);
    }
    return CGM_OK;
}

void cgm_cpu_recording_free(struct cgm_recording *recording)
{
    free(recording->records);
    free(recording);
}
