#include "daemon/executor/comm.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/executor/endpoint.h"
#include "daemon/executor/gang.h"
#include "daemon/executor/plan.h"
#include "daemon/executor/window.h"
#include "proto/status.h"

typedef unsigned long long ull;

void cgm_comm_ref(struct cgm_comm *comm)
{
    comm->users++;
}

/* ---- coming, on the mapper and then on the poller ------------------------------------------- */

static void comm_free(struct cgm_comm *comm)
{
    cgm_gang_free_all(comm);
    cgm_flight_free_all(comm);
    free(comm->tombs);
    free(comm->window);
    free(comm);
}

static bool free_queues_slice(struct cgm_request *request)
{
    struct cgm_comm *comm = request->object;
    return cgm_queue_sets_free(request->executor, &comm->sets);
}

/* A queue may have done the last thing it was given before the device's thread is back from giving
 * it: that one must be through before the queue goes. */
static void free_queues(struct cgm_request *request, void (*then)(struct cgm_request *request))
{
    const struct cgm_comm *comm = request->object;
    for (uint32_t device = 0; device < request->executor->n_devices; device++)
        cgm_worker_flush(&request->executor->devices[device]);
    cgm_request_in_slices(request, comm->uid, free_queues_slice, then);
}

static void comm_discarded_step(struct cgm_request *request)
{
    comm_free(request->object);
    cgm_request_fail(request, request->status, "comm: it cannot be registered: %s",
                     cgm_status_text(request->status));
}

static void comm_discard_step(struct cgm_request *request)
{
    free_queues(request, comm_discarded_step);
}

static void comm_register_step(struct cgm_request *request)
{
    struct cgm_comm *comm = request->object;
    request->status = cgm_map_add(&request->executor->poller.comms, comm->id, comm);
    if (request->status == CGM_OK)
        cgm_request_ok(request);
    else
        cgm_request_to_mapper(request, comm->uid, comm_discard_step);
}

static bool make_queues_slice(struct cgm_request *request)
{
    struct cgm_comm *comm = request->object;
    struct cgm_queue_set *first;
    bool more;
    request->status = cgm_queue_set_get(request->executor, &comm->sets, comm->devices, comm->size,
                                        0, 0, &more, &first);
    return more;
}

static void comm_without_queues_step(struct cgm_request *request)
{
    comm_free(request->object);
    cgm_request_fail(request, request->status, "comm: its queues cannot be made%s",
                     request->status == CGM_NO_MEMORY ? CGM_QUEUES_NEED : "");
}

static void queues_made_step(struct cgm_request *request)
{
    if (request->status == CGM_OK)
        cgm_request_to_poller(request, comm_register_step);
    else
        free_queues(request, comm_without_queues_step);
}

static bool comm_request_is_right(const Cgm__CommAdd *m, uint32_t n_devices)
{
    if (m->n_sessions == 0 || m->n_sessions > CGM_COMM_SIZE_MAX || m->n_devices != m->n_sessions ||
        m->journal >= CGM_JOURNAL_COMMS)
        return false;
    for (size_t i = 0; i < m->n_devices; i++)
        if (m->devices[i] >= n_devices)
            return false;
    return true;
}

/* The device that has more of the comm's queues than it can run side by side, or -1. */
static int crowded_device(const Cgm__CommAdd *m, uint32_t queues_max)
{
    for (size_t i = 0; queues_max > 0 && i < m->n_devices; i++) {
        uint32_t queues = 0;
        for (size_t j = 0; j < m->n_devices; j++)
            queues += m->devices[j] == m->devices[i] ? CGM_QUEUES_PER_RANK : 0;
        if (queues > queues_max)
            return (int)m->devices[i];
    }
    return -1;
}

/* Two ranks whose devices do not reach each other's memory; false: there are none. */
static bool find_parted(const struct cgm_executor *executor, const Cgm__CommAdd *m,
                        uint32_t *ret_rank, uint32_t *ret_other)
{
    for (uint32_t i = 0; executor->ops->reaches && i < m->n_devices; i++)
        for (uint32_t j = 0; j < m->n_devices; j++) {
            if (executor->ops->reaches(executor->backend, m->devices[i], m->devices[j]))
                continue;
            *ret_rank = i;
            *ret_other = j;
            return true;
        }
    return false;
}

static bool devices_are_shared(const struct cgm_comm *comm)
{
    for (uint32_t a = 0; a < comm->size; a++)
        for (uint32_t b = 0; b < a; b++)
            if (comm->devices[a] == comm->devices[b])
                return true;
    return false;
}

/* A rank that was lost to an executor before this one. */
static void note_lost_rank(struct cgm_comm *comm)
{
    for (uint32_t rank = 0; rank < comm->size && comm->dead_status == CGM_OK; rank++) {
        if (comm->sessions[rank] != 0)
            continue;
        comm->dead_status = CGM_PEER_LOST;
        cgm_detail(comm->dead_detail, sizeof(comm->dead_detail), 0,
                   "rank %u of comm %llu is gone: its session ended, or left the comm", rank,
                   (ull)comm->id);
    }
}

static struct cgm_comm *comm_new(const Cgm__CommAdd *m, struct cgm_poller *poller)
{
    struct cgm_comm *comm = calloc(1, sizeof(*comm));
    if (!comm)
        return NULL;
    comm->window = calloc(CGM_COMM_WINDOW, sizeof(*comm->window));
    if (!comm->window) {
        free(comm);
        return NULL;
    }
    comm->id = m->comm;
    comm->uid = m->uid;
    comm->poller = poller;
    comm->size = (uint32_t)m->n_sessions;
    comm->journal = m->journal;
    comm->join_timeout_ms = m->join_timeout_ns / 1000000;
    for (uint32_t i = 0; i < comm->size; i++) {
        comm->sessions[i] = m->sessions[i];
        comm->devices[i] = m->devices[i];
    }
    note_lost_rank(comm);
    comm->devices_shared = devices_are_shared(comm);
    if (cgm_window_begin(comm) == CGM_OK)
        return comm;
    comm_free(comm);
    return NULL;
}

void cgm_comm_on_add(struct cgm_request *request)
{
    const Cgm__CommAdd *m = (const Cgm__CommAdd *)request->message;
    struct cgm_executor *executor = request->executor;
    if (!comm_request_is_right(m, executor->n_devices)) {
        cgm_request_fail(request, CGM_INVALID_ARGUMENT,
                         "comm: 1 to %u ranks on devices 0 to %u are possible", CGM_COMM_SIZE_MAX,
                         executor->n_devices - 1);
        return;
    }
    int crowded = crowded_device(m, executor->ops->queues_max);
    if (crowded >= 0) {
        cgm_request_fail(request, CGM_NOT_SUPPORTED,
                         "comm: device %d has more than the %u ranks that it can run side by side",
                         crowded, executor->ops->queues_max / CGM_QUEUES_PER_RANK);
        return;
    }
    uint32_t rank, other;
    if (find_parted(executor, m, &rank, &other)) {
        cgm_request_fail(request, CGM_NOT_SUPPORTED,
                         "comm: device %u of rank %u cannot access the memory of device %u of rank "
                         "%u; put the ranks on one device, or on such as have peer access",
                         m->devices[rank], rank, m->devices[other], other);
        return;
    }
    struct cgm_comm *comm = comm_new(m, &executor->poller);
    if (!comm) {
        cgm_request_fail(request, CGM_NO_MEMORY, "comm: out of memory");
        return;
    }
    request->object = comm;
    cgm_request_in_slices(request, comm->uid, make_queues_slice, queues_made_step);
}

/* ---- going ---------------------------------------------------------------------------------- */

static void comm_freed_step(struct cgm_request *request)
{
    comm_free(request->object);
    cgm_request_ok(request);
}

static void comm_free_step(struct cgm_request *request)
{
    free_queues(request, comm_freed_step);
}

static struct cgm_comm *comm_of_parting(struct cgm_quiet *quiet)
{
    return (struct cgm_comm *)(void *)((char *)quiet - offsetof(struct cgm_comm, parting));
}

static void parting_run(struct cgm_quiet *quiet)
{
    struct cgm_comm *comm = comm_of_parting(quiet);
    comm->removal->executor->ops->group_free(comm->group);
}

static void parting_done(struct cgm_quiet *quiet)
{
    struct cgm_comm *comm = comm_of_parting(quiet);
    comm->removal->object = comm;
    cgm_request_to_mapper(comm->removal, comm->uid, comm_free_step);
}

/* A group is freed while launches are held, as it is made. Without users nobody else looks at the
 * comm any more. */
static void comm_free_if_unused(struct cgm_comm *comm)
{
    if (comm->users > 0 || !comm->removal)
        return;
    comm->parting.run = parting_run;
    comm->parting.done = parting_done;
    if (comm->group)
        cgm_quiet_post(comm->poller, &comm->parting);
    else
        parting_done(&comm->parting);
}

void cgm_comm_unref(struct cgm_comm *comm)
{
    comm->users--;
    comm_free_if_unused(comm);
}

static struct cgm_comm *comm_of_loss(struct cgm_loss *loss)
{
    return (struct cgm_comm *)(void *)((char *)loss - offsetof(struct cgm_comm, loss));
}

static bool loss_piece(struct cgm_loss *loss)
{
    return cgm_gang_fail_lost(comm_of_loss(loss));
}

static void loss_done(struct cgm_loss *loss)
{
    cgm_comm_unref(comm_of_loss(loss));
}

/* The first reason stays the one that later submissions are told. */
static void comm_die(struct cgm_comm *comm, uint64_t ranks, int status, const char *detail)
{
    if (comm->dead_status == CGM_OK) {
        comm->dead_status = status;
        cgm_detail(comm->dead_detail, sizeof(comm->dead_detail), 0, "%s", detail);
    }
    comm->lost_ranks |= ranks;
    comm->failing = comm->gangs;
    if (!comm->failing)
        return;
    if (!comm->loss.listed)
        cgm_comm_ref(comm);
    comm->loss.piece = loss_piece;
    comm->loss.done = loss_done;
    cgm_losses_add(comm->poller, &comm->loss);
}

void cgm_comm_give_up(struct cgm_comm *comm, const char *detail)
{
    comm_die(comm, 0, CGM_PEER_LOST, detail);
}

void cgm_comm_on_remove(struct cgm_request *request)
{
    const Cgm__CommRemove *m = (const Cgm__CommRemove *)request->message;
    struct cgm_comm *comm = cgm_map_remove(&request->executor->poller.comms, m->comm);
    if (!comm) {
        cgm_request_fail(request, CGM_NOT_FOUND, "comm: %llu is not here", (ull)m->comm);
        return;
    }
    comm_die(comm, UINT64_MAX, m->status, m->detail ? m->detail : "the comm was removed");
    comm->removal = request;
    atomic_store(&comm->removed, true);
    comm_free_if_unused(comm);
}

static void ranks_lost(struct cgm_comm *comm, uint64_t session, const char *how)
{
    char detail[CGM_CQE_DETAIL];
    uint64_t ranks = 0;
    for (uint32_t rank = 0; rank < comm->size; rank++)
        ranks |= (uint64_t)(comm->sessions[rank] == session) << rank;
    if (ranks == 0)
        return;
    cgm_detail(detail, sizeof(detail), 0, "rank %u of comm %llu is gone: its session %llu %s",
               (unsigned)__builtin_ctzll(ranks), (ull)comm->id, (ull)session, how);
    comm_die(comm, ranks, CGM_PEER_LOST, detail);
}

void cgm_comm_session_lost(struct cgm_comm *comm, uint64_t session)
{
    ranks_lost(comm, session, "ended");
}

void cgm_comm_on_rank_left(struct cgm_request *request)
{
    const Cgm__CommRankLeft *m = (const Cgm__CommRankLeft *)request->message;
    struct cgm_comm *comm = cgm_map_get(&request->executor->poller.comms, m->comm);
    if (comm)
        ranks_lost(comm, m->session, "left the comm");
    cgm_request_ok(request);
}
