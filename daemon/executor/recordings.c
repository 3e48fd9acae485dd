#include "daemon/executor/recordings.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/executor/executor.h"
#include "daemon/executor/gang.h"
#include "daemon/executor/idle_imports.h"
#include "daemon/executor/plan.h"
#include "daemon/executor/quiet.h"
#include "daemon/executor/recorded.h"
#include "daemon/executor/recorder.h"
#include "proto/status.h"

#define SLOTS 8u
#define SIGHTINGS 16u
/* Making one holds all launches for a millisecond: the more a plan has had, the longer it launches
 * without making another. */
#define LAUNCHES_PER_RECORDING 8u
/* ... and of all plans together: for each time that making took, so many times it without any. */
#define PAUSE_PER_RECORDING 19u

#define OPERATIONS_PER_RECORDING 16u /* what one takes without any */
/* So many others are given up at once: all launches wait until they are freed. */
#define GIVEN_UP_MAX 32u

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
    struct cgm_recorder_entry entry; /* first */
    struct slot *next;               /* of those that are given up */
    struct cgm_recordings *recordings;
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
    uint32_t n_sightings;      /* counts on */
    struct slot *slots[SLOTS]; /* those used last come first */
    struct key *key;           /* of the launch that is looked at */
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

/* On the mapper, like all that frees what is recorded; in no recorder any more. */
static void slot_free(const struct cgm_backend_ops *ops, struct slot *slot)
{
    if (!slot)
        return;
    for (uint32_t rank = 0; rank < slot->world; rank++)
        cgm_recorded_free(ops, &slot->ranks[rank]);
    free(slot->key);
    free(slot);
}

void cgm_recordings_leave(struct cgm_poller *poller, struct cgm_recordings *recordings)
{
    for (uint32_t i = 0; recordings && i < SLOTS; i++)
        if (recordings->slots[i])
            cgm_recorder_leave(poller, &recordings->slots[i]->entry);
}

void cgm_recordings_free(struct cgm_executor *executor, struct cgm_recordings *recordings)
{
    if (!recordings)
        return;
    for (uint32_t i = 0; i < SLOTS; i++)
        slot_free(executor->ops, recordings->slots[i]);
    free(recordings->key);
    free(recordings);
}

static bool room_is_known(const struct cgm_plan *plan, uint64_t rows)
{
    return plan->room.operations > 0 && rows <= plan->room.rows;
}

static struct slot *slot_new(struct cgm_plan *plan)
{
    struct cgm_recordings *recordings = plan->recordings;
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
    slot->recordings = recordings;
    slot->entry.operations =
        world * CGM_QUEUES_PER_RANK * (plan->room.operations + OPERATIONS_PER_RECORDING);
    if (cgm_recorder_enter(plan->comm->poller, plan->uid, &slot->entry) == CGM_OK)
        return slot;
    free(key);
    free(slot);
    return NULL;
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
        slot_free(making->launch.ops, slot);
    }
}

/* A rank. */
static void record(struct making *making)
{
    struct slot *slot = making->slot;
    uint32_t rank = (uint32_t)__builtin_ctzll(making->left);
    making->status =
        cgm_recorded_make(making->plan->algorithm, &making->launch, rank, &slot->ranks[rank]);
    making->left &= making->left - 1;
    for (rank = 0; making->status != CGM_OK && rank < slot->world; rank++)
        cgm_recorded_free(making->launch.ops, &slot->ranks[rank]);
}

/* A rank a slice. None is left where there is no room yet. */
static void making_run(struct cgm_quiet *quiet)
{
    struct making *making = (struct making *)quiet;
    uint64_t begin_ns = cgm_now_ns();
    free_given_up(making);
    if (making->left)
        record(making);
    making->took_ns += cgm_now_ns() - begin_ns;
    quiet->again = making->status == CGM_OK && making->left;
}

/* ---- around it, on the poller --------------------------------------------------------------- */

/* Of a launch that was not recorded, nothing is in it. */
static void slot_drop(struct cgm_poller *poller, struct slot *slot)
{
    cgm_recorder_leave(poller, &slot->entry);
    free(slot->key);
    free(slot);
}

static void put_first(struct cgm_recordings *recordings, struct slot *slot, uint32_t place)
{
    memmove(&recordings->slots[1], &recordings->slots[0], place * sizeof(slot));
    recordings->slots[0] = slot;
}

static void keep(struct cgm_recordings *recordings, struct slot *slot)
{
    uint32_t i = 0;
    while (recordings->slots[i])
        i++;
    slot->entry.made = true;
    put_first(recordings, slot, i);
}

static void making_done(struct cgm_quiet *quiet)
{
    struct making *making = (struct making *)quiet;
    struct cgm_plan *plan = making->plan;
    struct cgm_recordings *recordings = plan->recordings;
    recordings->making = false;
    recordings->made += making->slot != NULL;
    plan->comm->poller->next_recording_ns = cgm_now_ns() + PAUSE_PER_RECORDING * making->took_ns;
    recordings->next_epoch = plan->epoch + recordings->made * LAUNCHES_PER_RECORDING;
    if (making->slot && making->status == CGM_OK)
        keep(recordings, making->slot);
    else if (making->slot)
        slot_drop(plan->comm->poller, making->slot);
    if (making->status == CGM_NOT_SUPPORTED)
        recordings->refused = true;
    if (making->status != CGM_OK)
        cgm_executor_log(7, "plan %016llx: a launch could not be recorded (%s)",
                         (unsigned long long)plan->id, cgm_status_text(making->status));
    for (uint32_t rank = 0; rank < plan->comm->size; rank++)
        for (int i = 0; i < CGM_OPERAND_COUNT; i++)
            if (making->held[rank].memory[i])
                cgm_memory_leave(plan->comm->poller->executor, making->held[rank].memory[i]);
    free(making);
    cgm_plan_unref(plan);
}

static void give_up(struct making *making, struct slot *slot)
{
    struct cgm_recordings *recordings = slot->recordings;
    uint32_t i = 0;
    while (recordings->slots[i] != slot)
        i++;
    for (; i + 1 < SLOTS; i++)
        recordings->slots[i] = recordings->slots[i + 1];
    recordings->slots[SLOTS - 1] = NULL;
    cgm_recorder_leave(making->plan->comm->poller, &slot->entry);
    slot->next = making->given_up;
    making->given_up = slot;
}

/* What was not used for the longest time is given up: of the plan, then of the user. False: that is
 * not enough yet. */
static bool make_room(struct making *making)
{
    struct cgm_recordings *recordings = making->plan->recordings;
    struct cgm_recorder_entry *entry = &making->slot->entry, *excess;
    if (recordings->slots[SLOTS - 1])
        give_up(making, recordings->slots[SLOTS - 1]);
    for (uint32_t i = 0; i < GIVEN_UP_MAX && (excess = cgm_recorder_excess(entry)); i++)
        give_up(making, (struct slot *)excess); /* its first member */
    return cgm_recorder_fits(entry);
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
        if (slot)
            slot_drop(poller, slot);
        return false;
    }
    making->quiet.run = making_run;
    making->quiet.done = making_done;
    making->plan = plan;
    making->slot = slot;
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
    if (make_room(making)) {
        hold_operands(making, gang);
    } else {
        slot_drop(poller, slot);
        making->slot = NULL;
    }
    if (!making->slot && !making->given_up) {
        free(making);
        return false;
    }
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

static struct slot *find(struct cgm_recordings *recordings)
{
    for (uint32_t i = 0; i < SLOTS && recordings->slots[i]; i++) {
        struct slot *slot = recordings->slots[i];
        if (memcmp(slot->key, recordings->key, key_bytes(recordings->world)) != 0)
            continue;
        put_first(recordings, slot, i);
        cgm_recorder_use(&slot->entry);
        return slot;
    }
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
        *ret_recorded = slot->ranks;
        return true;
    }
    bool often = count_sighting(recordings) >= poller->executor->limits.graphs_from;
    bool in_time = room_is_known(gang->plan, gang->rows) &&
                   gang->plan->epoch >= recordings->next_epoch &&
                   cgm_now_ns() >= poller->next_recording_ns;
    return !often || !in_time || !begin(gang);
}
