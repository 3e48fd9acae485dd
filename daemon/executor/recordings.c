#include "daemon/executor/recordings.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/executor/executor.h"
#include "daemon/executor/gang.h"
#include "daemon/executor/idle_imports.h"
#include "daemon/executor/plan.h"
#include "daemon/executor/quiet.h"
#include "daemon/executor/recorded.h"
#include "proto/status.h"

#define SLOTS 8u
#define SIGHTINGS 16u
/* Making one holds all launches for a millisecond: the more a plan has had, the longer it launches
 * without making another. */
#define LAUNCHES_PER_RECORDING 8u
/* ... and of all plans together: for each time that making took, so many times it without any. */
#define PAUSE_PER_RECORDING 19u

/* Of a user's plans together, in operations; one is some hundred bytes here, and a node of a graph
 * on a device. */
#define OPERATIONS_PER_USER (256u << 10)
#define OPERATIONS_PER_RECORDING 16u /* what one takes without any */

/* What is recorded begins with this epoch. */
#define EPOCH 1u

struct operand_key {
    uint64_t memory, generation, offset_bytes, stride;
};

/* What two launches have in common that do the same on the same memory. */
struct key {
    uint64_t rows, ranks_mask, quiet;
    struct operand_key operands[][CGM_OPERAND_COUNT]; /* [world] */
};

struct slot {
    struct slot *next;   /* of those that are given up */
    uint64_t used_ns;    /* the round of the last launch with it */
    uint32_t operations; /* at most */
    struct key *key;
    uint32_t world;
    struct cgm_recorded ranks[]; /* [world] */
};

struct sighting {
    uint64_t hash, count;
};

struct cgm_recordings {
    uint32_t world;
    bool making, refused;
    uint64_t made, next_epoch; /* next_epoch: none is made before it */
    struct sighting sightings[SIGHTINGS];
    uint32_t n_sightings; /* counts on */
    struct slot *slots[SLOTS];
    uint64_t operations; /* of them all */
    struct key *key;     /* of the launch that is looked at */
};

/* ---- keys ----------------------------------------------------------------------------------- */

static size_t key_bytes(uint32_t world)
{
    return sizeof(struct key) + world * sizeof(struct operand_key[CGM_OPERAND_COUNT]);
}

static void key_write(struct key *key, const struct cgm_gang *gang)
{
    memset(key, 0, key_bytes(gang->comm->size));
    key->rows = gang->rows;
    key->quiet = gang->comm->n_flights == 0;
    for (uint32_t rank = 0; rank < gang->comm->size; rank++) {
        const struct cgm_job *job = gang->jobs[rank];
        key->ranks_mask |= (uint64_t)(job != NULL) << rank;
        for (int i = 0; job && i < CGM_OPERAND_COUNT; i++)
            if (job->memory[i])
                key->operands[rank][i] =
                    (struct operand_key){job->memory[i]->id, job->memory[i]->generation,
                                         job->view[i].offset_bytes, job->view[i].stride};
    }
}

/* FNV-1a over words: only to count, whoever can make two keys equal gains nothing. */
static uint64_t key_hash(const struct key *key, uint32_t world)
{
    const uint64_t *words = (const uint64_t *)(const void *)key;
    uint64_t hash = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < key_bytes(world) / sizeof(*words); i++)
        hash = (hash ^ words[i]) * 0x100000001b3ull;
    return hash;
}

static uint64_t count_sighting(struct cgm_recordings *recordings)
{
    uint64_t hash = key_hash(recordings->key, recordings->world);
    for (uint32_t i = 0; i < SIGHTINGS; i++)
        if (recordings->sightings[i].hash == hash)
            return ++recordings->sightings[i].count;
    recordings->sightings[recordings->n_sightings++ % SIGHTINGS] = (struct sighting){hash, 1};
    return 1;
}

/* ---- coming and going ----------------------------------------------------------------------- */

static struct cgm_recordings *recordings_new(uint32_t world)
{
    struct cgm_recordings *recordings = calloc(1, sizeof(*recordings));
    struct key *key = calloc(1, key_bytes(world));
    if (!recordings || !key) {
        free(recordings);
        free(key);
        return NULL;
    }
    recordings->world = world;
    recordings->key = key;
    return recordings;
}

static void slot_free(struct cgm_executor *executor, struct slot *slot)
{
    if (!slot)
        return;
    for (uint32_t rank = 0; rank < slot->world; rank++)
        cgm_recorded_free(executor->ops, &slot->ranks[rank]);
    atomic_fetch_sub(&executor->poller.recorded, slot->operations);
    free(slot->key);
    free(slot);
}

void cgm_recordings_free(struct cgm_executor *executor, struct cgm_recordings *recordings)
{
    if (!recordings)
        return;
    for (uint32_t i = 0; i < SLOTS; i++)
        slot_free(executor, recordings->slots[i]);
    free(recordings->key);
    free(recordings);
}

/* What a run takes is known from one with as many rows; a queue has no room for more than all. */
static uint32_t operations_of(const struct cgm_plan *plan, uint64_t rows)
{
    bool known = plan->room.operations > 0 && rows <= plan->room.rows;
    uint32_t each = known ? plan->room.operations : CGM_QUEUE_ROOM;
    return plan->comm->size * CGM_QUEUES_PER_RANK * (each + OPERATIONS_PER_RECORDING);
}

static struct slot *slot_new(struct cgm_plan *plan)
{
    const struct cgm_recordings *recordings = plan->recordings;
    uint32_t world = recordings->world;
    struct slot *slot = calloc(1, sizeof(*slot) + world * sizeof(slot->ranks[0]));
    struct key *key = malloc(key_bytes(world));
    if (!slot || !key) {
        free(slot);
        free(key);
        return NULL;
    }
    memcpy(key, recordings->key, key_bytes(world));
    slot->key = key;
    slot->world = world;
    slot->operations = operations_of(plan, key->rows);
    atomic_fetch_add(&plan->comm->poller->recorded, slot->operations);
    return slot;
}

/* ---- making, on the mapper ------------------------------------------------------------------ */

struct making {
    struct cgm_quiet quiet; /* first */
    struct cgm_plan *plan;  /* referenced */
    struct slot *slot;
    struct slot *given_up; /* for it; freed here */
    uint64_t left;         /* ranks that are not recorded yet */
    uint64_t took_ns;
    int status;
    struct cgm_launch launch;
    struct making_rank {
        struct cgm_memory *memory[CGM_OPERAND_COUNT]; /* referenced */
    } held[CGM_COMM_SIZE_MAX];
    struct cgm_view views[][CGM_OPERAND_COUNT]; /* [world] */
};

static void free_given_up(struct making *making)
{
    while (making->given_up) {
        struct slot *slot = making->given_up;
        making->given_up = slot->next;
        slot_free(making->quiet.poller->executor, slot);
    }
}

/* A rank a slice. */
static void making_run(struct cgm_quiet *quiet)
{
    struct making *making = (struct making *)quiet;
    uint32_t rank = (uint32_t)__builtin_ctzll(making->left);
    uint64_t begin_ns = cgm_now_ns();
    free_given_up(making);
    making->status = cgm_recorded_make(making->plan->algorithm, &making->launch, rank,
                                       &making->slot->ranks[rank]);
    making->left &= making->left - 1;
    making->took_ns += cgm_now_ns() - begin_ns;
    quiet->again = making->status == CGM_OK && making->left;
    if (making->status == CGM_OK)
        return;
    slot_free(quiet->poller->executor, making->slot);
    making->slot = NULL;
}

/* ---- around it, on the poller --------------------------------------------------------------- */

static void keep(struct cgm_recordings *recordings, struct slot *slot)
{
    uint32_t i = 0;
    while (recordings->slots[i])
        i++;
    recordings->slots[i] = slot;
    recordings->operations += slot->operations;
}

static void making_done(struct cgm_quiet *quiet)
{
    struct making *making = (struct making *)quiet;
    struct cgm_plan *plan = making->plan;
    struct cgm_recordings *recordings = plan->recordings;
    recordings->making = false;
    recordings->made++;
    plan->comm->poller->next_recording_ns = cgm_now_ns() + PAUSE_PER_RECORDING * making->took_ns;
    recordings->next_epoch = plan->epoch + recordings->made * LAUNCHES_PER_RECORDING;
    if (making->slot)
        keep(recordings, making->slot);
    if (making->status == CGM_NOT_SUPPORTED)
        recordings->refused = true;
    if (making->status != CGM_OK)
        cgm_executor_log(7, "plan %llu: a launch could not be recorded (%s)",
                         (unsigned long long)plan->id, cgm_status_text(making->status));
    for (uint32_t rank = 0; rank < plan->comm->size; rank++)
        for (int i = 0; i < CGM_OPERAND_COUNT; i++)
            if (making->held[rank].memory[i])
                cgm_memory_leave(plan->comm->poller->executor, making->held[rank].memory[i]);
    free(making);
    cgm_plan_unref(plan);
}

/* What was not used for the longest time is given up. */
struct oldest {
    uint32_t uid;
    uint64_t operations; /* of all that was looked at */
    struct cgm_recordings *recordings;
    struct slot **place; /* NULL: there is none */
};

static uint32_t look_for_oldest(struct oldest *oldest, struct cgm_recordings *recordings)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < SLOTS; i++) {
        struct slot **place = &recordings->slots[i];
        count += *place != NULL;
        if (!*place || (oldest->place && (*oldest->place)->used_ns <= (*place)->used_ns))
            continue;
        oldest->recordings = recordings;
        oldest->place = place;
    }
    oldest->operations += recordings->operations;
    return count;
}

static void look_into_plan(void *context, uint64_t id, void *value)
{
    struct oldest *oldest = context;
    struct cgm_plan *plan = value;
    (void)id;
    if (plan->uid == oldest->uid && plan->recordings)
        look_for_oldest(oldest, plan->recordings);
}

static void give_up(struct making *making, struct oldest *oldest)
{
    struct slot *slot = *oldest->place;
    *oldest->place = NULL;
    oldest->recordings->operations -= slot->operations;
    slot->next = making->given_up;
    making->given_up = slot;
}

static void make_room(struct making *making, struct cgm_poller *poller)
{
    struct oldest of_plan = {0};
    uint64_t begin_ns = cgm_now_ns();
    if (look_for_oldest(&of_plan, making->plan->recordings) == SLOTS)
        give_up(making, &of_plan);
    for (;;) {
        struct oldest of_user = {.uid = making->plan->uid};
        cgm_map_each(&poller->plans, look_into_plan, &of_user);
        if (!of_user.place || of_user.operations + making->slot->operations <= OPERATIONS_PER_USER)
            break;
        give_up(making, &of_user);
    }
    making->took_ns = cgm_now_ns() - begin_ns;
}

static void hold_operands(struct making *making, const struct cgm_gang *gang)
{
    for (uint32_t rank = 0; rank < gang->comm->size; rank++) {
        const struct cgm_job *job = gang->jobs[rank];
        if (!job)
            continue;
        making->left |= 1ull << rank;
        memcpy(making->views[rank], job->view, sizeof(job->view));
        for (int i = 0; i < CGM_OPERAND_COUNT; i++) {
            if (job->memory[i])
                cgm_memory_ref(job->memory[i]);
            making->held[rank].memory[i] = job->memory[i];
        }
    }
}

static bool begin(struct cgm_gang *gang)
{
    struct cgm_plan *plan = gang->plan;
    struct cgm_poller *poller = gang->comm->poller;
    struct making *making =
        calloc(1, sizeof(*making) + gang->comm->size * sizeof(making->views[0]));
    struct slot *slot = slot_new(plan);
    poller->counters.allocations++;
    if (!making || !slot) {
        free(making);
        slot_free(poller->executor, slot);
        return false;
    }
    making->quiet.run = making_run;
    making->quiet.done = making_done;
    making->plan = plan;
    making->slot = slot;
    make_room(making, poller);
    making->launch = (struct cgm_launch){
        .ops = poller->executor->ops,
        .spec = &plan->spec,
        .ranks = plan->ranks,
        .epoch = EPOCH,
        .rows = gang->rows,
        .accumulate = plan->spec.epilogue & CGM_EPILOGUE_ACCUMULATE,
        .quiet = slot->key->quiet,
        .apart = true,
        .operands = (const struct cgm_view(*)[CGM_OPERAND_COUNT])making->views,
    };
    hold_operands(making, gang);
    plan->recordings->making = true;
    cgm_plan_ref(plan);
    cgm_quiet_post(poller, &making->quiet);
    return true;
}

/* ---- finding -------------------------------------------------------------------------------- */

static bool wants_phases(const struct cgm_gang *gang)
{
    for (uint32_t rank = 0; rank < gang->comm->size; rank++)
        if (gang->jobs[rank] && gang->jobs[rank]->flags & CGM_ENTRY_WANT_PHASES)
            return true;
    return false;
}

static struct slot *find(const struct cgm_recordings *recordings)
{
    for (uint32_t i = 0; i < SLOTS; i++)
        if (recordings->slots[i] &&
            memcmp(recordings->slots[i]->key, recordings->key, key_bytes(recordings->world)) == 0)
            return recordings->slots[i];
    return NULL;
}

static bool is_outdated(const struct slot *slot, const struct cgm_gang *gang)
{
    const struct cgm_executor *executor = gang->comm->poller->executor;
    bool outdated = false;
    for (uint32_t rank = 0; rank < gang->comm->size; rank++)
        outdated |= cgm_recorded_is_outdated(&slot->ranks[rank], executor->ops, executor->backend);
    return outdated;
}

/* The plan's, made when they are first looked for. NULL: nothing of this launch is recorded. */
static struct cgm_recordings *recordings_of(const struct cgm_gang *gang)
{
    struct cgm_plan *plan = gang->plan;
    const struct cgm_executor *executor = gang->comm->poller->executor;
    if (executor->limits.graphs_from == 0 || !executor->ops->replay ||
        gang->opcode != CGM_OPCODE_RUN || wants_phases(gang))
        return NULL;
    if (!plan->recordings)
        plan->recordings = recordings_new(gang->comm->size);
    return plan->recordings && !plan->recordings->refused ? plan->recordings : NULL;
}

bool cgm_recordings_find(struct cgm_gang *gang, const struct cgm_recorded **ret_recorded)
{
    struct cgm_recordings *recordings = recordings_of(gang);
    struct cgm_poller *poller = gang->comm->poller;
    *ret_recorded = NULL;
    if (!recordings)
        return true;
    if (recordings->making)
        return false;
    key_write(recordings->key, gang);
    struct slot *slot = find(recordings);
    if (slot && is_outdated(slot, gang))
        return true;
    if (slot) {
        slot->used_ns = poller->round_ns;
        *ret_recorded = slot->ranks;
        return true;
    }
    bool often = count_sighting(recordings) >= poller->executor->limits.graphs_from;
    bool in_time =
        gang->plan->epoch >= recordings->next_epoch && cgm_now_ns() >= poller->next_recording_ns;
    return !often || !in_time || !begin(gang);
}
