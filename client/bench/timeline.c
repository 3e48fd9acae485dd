#include "client/bench/timeline.h"

#include <stdlib.h>
#include <string.h>

#include "client/common/text_table.h"
#include "proto/types.h"

static int compare_u64(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int compare(const void *left, const void *right)
{
    const struct commgemm_phase *a = left, *b = right;
    const uint64_t keys[][2] = {
        {a->device, b->device}, {a->queue, b->queue}, {a->begin_ns, b->begin_ns},
        {a->end_ns, b->end_ns}, {a->rank, b->rank},   {(uint64_t)a->kind, (uint64_t)b->kind},
        {a->chunk, b->chunk},   {a->peer, b->peer},
    };
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (keys[i][0] != keys[i][1])
            return compare_u64(keys[i][0], keys[i][1]);
    return 0;
}

static void drop_repeated(struct cgm_timeline *timeline)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < timeline->count; i++)
        if (kept == 0 || compare(&timeline->phases[kept - 1], &timeline->phases[i]))
            timeline->phases[kept++] = timeline->phases[i];
    timeline->count = kept;
}

int cgm_timeline_make(const struct cgm_bench *bench, struct cgm_timeline *ret_timeline)
{
    struct cgm_timeline timeline = {0};
    uint32_t world = (uint32_t)bench->options->world, total = 0;
    for (uint32_t rank = 0; rank < world; rank++)
        total += bench->traces[rank].count;
    timeline.phases = calloc(total + 1, sizeof(*timeline.phases));
    if (!timeline.phases)
        return -1;
    for (uint32_t rank = 0; rank < world; rank++) {
        const struct cgm_trace *trace = &bench->traces[rank];
        memcpy(timeline.phases + timeline.count, trace->phases,
               trace->count * sizeof(*trace->phases));
        timeline.count += trace->count;
        if (trace->lost > timeline.lost)
            timeline.lost = trace->lost;
    }
    qsort(timeline.phases, timeline.count, sizeof(*timeline.phases), compare);
    drop_repeated(&timeline);
    for (uint32_t i = 0; i < timeline.count; i++)
        if (timeline.phases[i].end_ns > timeline.end_ns)
            timeline.end_ns = timeline.phases[i].end_ns;
    *ret_timeline = timeline;
    return 0;
}

void cgm_timeline_fini(struct cgm_timeline *timeline)
{
    free(timeline->phases);
    *timeline = (struct cgm_timeline){0};
}

void cgm_timeline_print(const struct cgm_timeline *timeline, FILE *out)
{
    static const struct cgm_text_column columns[] = {
        {"DEVICE", CGM_ALIGN_RIGHT},  {"QUEUE", CGM_ALIGN_LEFT},  {"RANK", CGM_ALIGN_RIGHT},
        {"PHASE", CGM_ALIGN_LEFT},    {"CHUNK", CGM_ALIGN_RIGHT}, {"PEER", CGM_ALIGN_RIGHT},
        {"FROM_US", CGM_ALIGN_RIGHT}, {"TO_US", CGM_ALIGN_RIGHT},
    };
    struct cgm_text_table *table =
        cgm_text_table_new(columns, sizeof(columns) / sizeof(columns[0]));
    for (uint32_t i = 0; table && i < timeline->count; i++) {
        const struct commgemm_phase *phase = &timeline->phases[i];
        cgm_text_table_addf(table, "%u", phase->device);
        cgm_text_table_add(table, phase->queue ? "communication" : "compute");
        cgm_text_table_addf(table, "%u", phase->rank);
        cgm_text_table_add(table, cgm_type_name(CGM_TABLE_PHASE, phase->kind));
        cgm_text_table_addf(table, "%u", phase->chunk);
        cgm_text_table_addf(table, "%u", phase->peer);
        cgm_text_table_addf(table, "%.1f", 1e-3 * (double)phase->begin_ns);
        cgm_text_table_addf(table, "%.1f", 1e-3 * (double)phase->end_ns);
    }
    if (table)
        cgm_text_table_print(table, out);
    cgm_text_table_free(table);
    if (timeline->lost)
        fprintf(out, "%u phases more were not recorded\n", timeline->lost);
}
