#include "daemon/executor/uses.h"

#include "daemon/executor/entry.h"
#include "daemon/executor/job.h"

static void list_prepend(struct cgm_use_list *list, struct cgm_use *use)
{
    use->previous = NULL;
    use->next = list->first;
    *(list->first ? &list->first->previous : &list->last) = use;
    list->first = use;
}

static void list_append(struct cgm_use_list *list, struct cgm_use *use)
{
    use->previous = list->last;
    use->next = NULL;
    *(list->last ? &list->last->next : &list->first) = use;
    list->last = use;
}

static void list_remove(struct cgm_use_list *list, const struct cgm_use *use)
{
    *(use->previous ? &use->previous->next : &list->first) = use->next;
    *(use->next ? &use->next->previous : &list->last) = use->previous;
}

static struct cgm_use *use_of(struct cgm_job *job, int operand)
{
    struct cgm_use *use = &job->uses[operand];
    use->job = job;
    use->begin = job->view[operand].offset_bytes;
    cgm_view_end(&job->view[operand], &use->end); /* it was checked when the job came */
    return use;
}

static void stop_reading(struct cgm_job *job)
{
    for (; job->reading; job->reading &= job->reading - 1) {
        int operand = __builtin_ctz(job->reading);
        list_remove(&job->memory[operand]->readers, &job->uses[operand]);
    }
}

static void stop_writing(struct cgm_job *job)
{
    for (; job->writing; job->writing &= job->writing - 1) {
        int operand = __builtin_ctz(job->writing);
        list_remove(&job->memory[operand]->writers, &job->uses[operand]);
    }
}

void cgm_uses_wait(struct cgm_job *job)
{
    for (int i = 0; i < CGM_OPERAND_COUNT; i++) {
        if (!job->memory[i] || !cgm_job_reads(job, i))
            continue;
        job->reading |= 1u << i;
        list_append(&job->memory[i]->readers, use_of(job, i));
    }
}

void cgm_uses_begin(struct cgm_job *job)
{
    stop_reading(job);
    for (int i = 0; i < CGM_OPERAND_COUNT; i++) {
        if (!job->memory[i] || !(CGM_OPERANDS_WRITTEN >> i & 1))
            continue;
        job->writing |= 1u << i;
        list_prepend(&job->memory[i]->writers, use_of(job, i));
    }
}

void cgm_uses_end(struct cgm_job *job)
{
    stop_reading(job);
    stop_writing(job);
}

const struct cgm_view *cgm_use_view(const struct cgm_use *use)
{
    return &use->job->view[use - use->job->uses];
}
