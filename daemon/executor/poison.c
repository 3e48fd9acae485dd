#include "daemon/executor/poison.h"

#include "daemon/executor/comm.h"
#include "daemon/executor/executor.h"
#include "daemon/executor/gang.h"
#include "daemon/executor/overlap.h"
#include "daemon/executor/plan.h"
#include "proto/status.h"

#define OUTPUTS_MAX (4u * CGM_COMM_SIZE_MAX)
_Static_assert(__builtin_popcount(CGM_OPERANDS_WRITTEN) == 4, "of each job");

/* That may be made NaN, as far as is known. */
struct output {
    struct cgm_memory *memory;
    const struct cgm_job *job;
    struct cgm_view *view; /* of the flight's */
    uint64_t begin, end;   /* as in struct cgm_use */
};

static struct output output_of(const struct cgm_job *job, int operand, struct cgm_view *view)
{
    struct output output = {job->memory[operand], job, view, view->offset_bytes, 0};
    cgm_view_end(view, &output.end);
    return output;
}

static uint32_t outputs_of(struct cgm_gang *gang, struct output *ret_outputs)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < gang->comm->size; rank++) {
        const struct cgm_job *job = gang->jobs[rank];
        for (int i = 0; job && i < CGM_OPERAND_COUNT; i++) {
            if (!(CGM_OPERANDS_WRITTEN >> i & 1) || !job->memory[i])
                continue;
            struct cgm_view *view = &cgm_flight_views(gang->flight, rank)[i];
            if (!gang->launch && job->memory[i]->contents)
                view->mem = NULL;
            else
                ret_outputs[count++] = output_of(job, i, view);
        }
    }
    return count;
}

/* Moves those that lie in the first one's object to the front; how many there are. */
static uint32_t bring_together(struct output *outputs, uint32_t count)
{
    uint32_t together = 1;
    for (uint32_t i = 1; i < count; i++) {
        struct output one = outputs[i];
        if (one.memory != outputs[0].memory)
            continue;
        outputs[i] = outputs[together];
        outputs[together++] = one;
    }
    return together;
}

/* Whether the job comes before this one, and will be launched. */
static bool will_read(const struct cgm_job *job, const struct cgm_job *before)
{
    return before->comm_number
               ? before->comm_number < job->behind
               : before->came < job->came && !(before->plan->comm->lost_ranks >> before->rank & 1);
}

/* Looks at what others have to do with one object, as long as it may. */
struct search {
    const struct cgm_gang *gang;
    struct output *outputs; /* in the object, that no use was found to share bytes with */
    uint32_t count;
    uint32_t effort, limit;
    bool given_up;
};

/* Some 5 ns each: a use comes from memory mostly, its bytes' limits are in one line with that, and
 * rows that lie in each other's gaps take two sums by Euclid's turns, shorter where they are
 * equally far apart. */
enum { EFFORT_USE = 8, EFFORT_LIMITS = 1, EFFORT_ROWS = 16, EFFORT_OTHER_ROWS = 200 };

static bool shares_bytes(struct search *search, const struct output *output,
                         const struct cgm_use *use)
{
    const struct cgm_view *view = cgm_use_view(use);
    bool alike = view->rows == 1 || output->view->rows == 1 ||
                 cgm_view_stride_bytes(view) == cgm_view_stride_bytes(output->view);
    search->effort += alike ? EFFORT_ROWS : EFFORT_OTHER_ROWS;
    return cgm_views_overlap(output->view, view);
}

static bool is_to_stay(struct search *search, const struct output *output,
                       const struct cgm_use *use, enum cgm_use_kind kind)
{
    search->effort += EFFORT_LIMITS;
    return use->begin < output->end && output->begin < use->end &&
           (kind == CGM_USE_WRITTEN || will_read(output->job, use->job)) &&
           shares_bytes(search, output, use);
}

static bool may_go_on(struct search *search)
{
    search->given_up = search->effort >= search->limit;
    return !search->given_up;
}

/* Takes out the outputs that share bytes with the use. */
static void spare_from(struct search *search, const struct cgm_use *use, enum cgm_use_kind kind)
{
    search->effort += EFFORT_USE;
    for (uint32_t i = 0; i < search->count && may_go_on(search);) {
        if (!is_to_stay(search, &search->outputs[i], use, kind)) {
            i++;
            continue;
        }
        search->outputs[i].view->mem = NULL;
        search->outputs[i] = search->outputs[--search->count];
    }
}

/* Whether one of the outputs lies where they are at all. */
static bool is_among(struct search *search, const struct cgm_use *first)
{
    uint32_t i = 0;
    while (i < search->count &&
           (first->low >= search->outputs[i].end || first->high <= search->outputs[i].begin))
        i++;
    search->effort += i * EFFORT_LIMITS;
    return i < search->count;
}

/* What was launched behind the gang comes first of what is being written, and none of that was seen
 * to end before it (flight.c). */
static void look_at(struct search *search, enum cgm_use_kind kind)
{
    const struct cgm_gang *gang = search->gang;
    const struct cgm_use *use = cgm_uses_last(gang->comm, search->outputs->memory, kind);
    if (!use || !is_among(search, use))
        return;
    for (; use && search->count > 0 && may_go_on(search); use = use->next) {
        if (kind == CGM_USE_WRITTEN && use->job->gang->launch <= gang->launch)
            return;
        spare_from(search, use, kind);
    }
}

static void search_for(struct search *search, uint32_t limit)
{
    search->given_up = false;
    search->effort = 0;
    search->limit = limit;
    if (search->gang->launch) {
        look_at(search, CGM_USE_WRITTEN);
        return;
    }
    if (search->gang->comm->dead_status == CGM_OK) /* else no number is launched any more */
        look_at(search, CGM_USE_READ);
    look_at(search, CGM_USE_READ_ALONE);
}

/* One for each object. */
static uint32_t searches_of(const struct cgm_gang *gang, struct output *outputs, uint32_t count,
                            struct search *ret_searches)
{
    uint32_t n = 0, together;
    for (uint32_t i = 0; i < count; i += together) {
        together = bring_together(&outputs[i], count - i);
        ret_searches[n++] = (struct search){gang, &outputs[i], together, 0, 0, true};
    }
    return n;
}

/* Those that were not done before may take up to `limit` each. How many are not done now. */
static uint32_t search_each(struct search *searches, uint32_t n, uint32_t limit,
                            uint32_t *ret_effort)
{
    uint32_t not_done = 0;
    *ret_effort = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!searches[i].given_up)
            continue;
        search_for(&searches[i], limit);
        *ret_effort += searches[i].effort;
        not_done += searches[i].given_up;
    }
    return not_done;
}

/* Those of which little has to be seen are done first: whoever has thousands of jobs in his objects
 * leaves enough for those of other ranks. Returns the effort. */
static uint32_t search_all(struct search *searches, uint32_t n, uint32_t most)
{
    uint32_t left = most, last = 0, not_done = n, effort;
    while (not_done > 0 && left / (2 * not_done) > last) {
        last = left / (2 * not_done);
        not_done = search_each(searches, n, last, &effort);
        left -= effort < left ? effort : left;
    }
    return most - left;
}

static void taint(const struct search *search)
{
    cgm_memory_taint(search->gang->comm->poller->executor, search->outputs->memory);
    for (uint32_t i = 0; i < search->count; i++)
        search->outputs[i].view->mem = NULL;
}

bool cgm_poison_spare(struct cgm_gang *gang)
{
    struct output outputs[OUTPUTS_MAX];
    struct search searches[OUTPUTS_MAX];
    uint32_t n = searches_of(gang, outputs, outputs_of(gang, outputs), searches);
    bool all = true;
    uint32_t most = CGM_POISON_EFFORT + CGM_POISON_EFFORT / 32 * gang->comm->size;
    gang->comm->poller->effort += search_all(searches, n, most);
    for (uint32_t i = 0; i < n; i++) {
        if (!searches[i].given_up)
            continue;
        taint(&searches[i]);
        all = false;
    }
    return all;
}
