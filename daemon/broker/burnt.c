#include "daemon/broker/burnt.h"

#include "daemon/broker/broker.h"
#include "daemon/broker/comm.h"
#include "daemon/broker/plan.h"
#include "daemon/broker/session.h"

void cgm_burnt_begin(struct cgm_broker *broker)
{
    uint64_t at = 0;
    struct cgm_comm *comm;
    while ((comm = cgm_registry_next(&broker->comms, &at)))
        comm->burnt_before = comm->burnt;
}

void cgm_burnt_note_taken(struct cgm_broker *broker)
{
    uint64_t at = 0;
    struct cgm_comm *comm;
    while ((comm = cgm_registry_next(&broker->comms, &at))) {
        uint64_t high = atomic_load(&broker->executor.journal->comm_high[comm->index]);
        if (comm->state != CGM_COMM_FORMING && high > comm->burnt)
            comm->burnt = high;
    }
}

/* Also of a plan that is gone: its jobs are not. */
static struct cgm_comm *comm_of(struct cgm_broker *broker, const struct cgm_entry *entry)
{
    const struct cgm_plan *plan = cgm_registry_find(&broker->plans, entry->plan);
    return cgm_registry_find(&broker->comms, plan ? plan->comm : entry->comm);
}

/* A client's word, but only of its own rank, and no further ahead than a ring reaches. */
static void note_entry(void *context, uint32_t slot, const struct cgm_entry *entry)
{
    const struct cgm_session *session = context;
    struct cgm_broker *broker = session->broker;
    struct cgm_comm *comm = entry->comm_number ? comm_of(broker, entry) : NULL;
    (void)slot;
    if (!comm || entry->rank >= comm->size || comm->sessions[entry->rank] != session->id)
        return;
    uint64_t high = atomic_load(&broker->executor.journal->comm_high[comm->index]);
    uint64_t before = comm->burnt_before;
    uint64_t furthest = (high > before ? high : before) + CGM_RING_ENTRIES_MAX;
    if (entry->comm_number > comm->burnt && entry->comm_number <= furthest)
        comm->burnt = entry->comm_number;
}

void cgm_burnt_note_submitted(struct cgm_session *session)
{
    cgm_ring_each_entry(&session->ring.map, note_entry, session);
}
