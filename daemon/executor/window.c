#include "daemon/executor/window.h"

#include <stdlib.h>

#include "daemon/executor/comm.h"
#include "daemon/executor/gang.h"
#include "daemon/executor/executor.h"
#include "daemon/executor/gang_list.h"
#include "proto/journal.h"
#include "proto/status.h"

#define BURNT_KEPT 64u /* of a comm, with the words of their details */

struct cgm_gang **cgm_window_slot(struct cgm_comm *comm, uint64_t number)
{
    return &comm->window[number & (CGM_COMM_WINDOW - 1)];
}

static struct cgm_tomb *tomb_of(struct cgm_comm *comm, uint64_t number)
{
    struct cgm_tomb *tomb = comm->tombs ? &comm->tombs[number & (CGM_COMM_WINDOW - 1)] : NULL;
    return tomb && tomb->is_there ? tomb : NULL;
}

/* ---- the journal ----------------------------------------------------------------------------- */

static _Atomic uint16_t *end_in_journal(const struct cgm_comm *comm, uint64_t number)
{
    struct cgm_journal *journal = comm->poller->executor->journal;
    return &journal->comm_ended[comm->journal][number & (CGM_COMM_WINDOW - 1)];
}

void cgm_window_note_end(struct cgm_comm *comm, uint64_t number, int status)
{
    atomic_store_explicit(end_in_journal(comm, number), cgm_journal_end(number, status),
                          memory_order_release);
}

static void note_retired(const struct cgm_comm *comm)
{
    struct cgm_journal *journal = comm->poller->executor->journal;
    atomic_store_explicit(&journal->comm_retired[comm->journal], comm->retired,
                          memory_order_release);
}

static int make_tomb(struct cgm_comm *comm, uint64_t number, int status)
{
    if (!comm->tombs)
        comm->tombs = calloc(CGM_COMM_WINDOW, sizeof(*comm->tombs));
    if (!comm->tombs)
        return CGM_NO_MEMORY;
    comm->tombs[number & (CGM_COMM_WINDOW - 1)] = (struct cgm_tomb){(uint8_t)-status, true};
    return CGM_OK;
}

int cgm_window_bury(struct cgm_comm *comm, uint64_t number, int status)
{
    cgm_window_note_end(comm, number, status);
    return make_tomb(comm, number, status);
}

int cgm_window_begin(struct cgm_comm *comm)
{
    struct cgm_journal *journal = comm->poller->executor->journal;
    uint64_t high = atomic_load(&journal->comm_high[comm->journal]);
    int ended, status = CGM_OK;
    comm->retired = comm->launched = atomic_load(&journal->comm_retired[comm->journal]);
    for (uint64_t i = 1; i < CGM_COMM_WINDOW && status == CGM_OK; i++) {
        uint64_t number = comm->retired + i;
        if (number > high)
            break;
        if (cgm_journal_has_ended(atomic_load(end_in_journal(comm, number)), number, &ended))
            status = make_tomb(comm, number, ended);
    }
    return status;
}

/* ---- what has ended -------------------------------------------------------------------------- */

bool cgm_window_is_left_by(const struct cgm_comm *comm, uint64_t number)
{
    return number > comm->retired && number - comm->retired >= CGM_COMM_WINDOW;
}

void cgm_window_keep_burnt(struct cgm_gang *gang)
{
    struct cgm_comm *comm = gang->comm;
    if (comm->n_burnt < BURNT_KEPT || make_tomb(comm, gang->number, gang->status) != CGM_OK) {
        comm->n_burnt++;
        gang->is_burnt = true;
        return;
    }
    *cgm_window_slot(comm, gang->number) = NULL;
    free(gang);
}

bool cgm_window_status(struct cgm_comm *comm, uint64_t number, int *ret_status)
{
    const struct cgm_tomb *tomb = number > comm->retired ? tomb_of(comm, number) : NULL;
    if (tomb)
        *ret_status = -(int)tomb->error;
    return tomb ||
           (number <= comm->retired && comm->retired - number < CGM_COMM_WINDOW &&
            cgm_journal_has_ended(atomic_load(end_in_journal(comm, number)), number, ret_status));
}

bool cgm_window_has_ended(struct cgm_comm *comm, uint64_t number)
{
    const struct cgm_gang *gang;
    if (number <= comm->retired)
        return true;
    gang = *cgm_window_slot(comm, number);
    return gang ? gang->state >= CGM_GANG_FAILING : tomb_of(comm, number) != NULL;
}

static bool is_empty(struct cgm_comm *comm, uint64_t number)
{
    return !*cgm_window_slot(comm, number) && !tomb_of(comm, number);
}

static bool is_through(struct cgm_comm *comm, uint64_t number)
{
    const struct cgm_gang *gang = *cgm_window_slot(comm, number);
    return gang ? gang->state >= CGM_GANG_RUNNING : tomb_of(comm, number) != NULL;
}

/* Whoever is has come for it, here or at an executor before this one. */
static bool all_are_past(const struct cgm_comm *comm, uint64_t number)
{
    uint32_t rank = 0;
    while (rank < comm->size && comm->last_number[rank] >= number)
        rank++;
    return rank == comm->size;
}

/* It has ended, and every rank has come. */
static bool retire(struct cgm_comm *comm, uint64_t number)
{
    struct cgm_gang *gang = *cgm_window_slot(comm, number);
    struct cgm_tomb *tomb = tomb_of(comm, number);
    if (tomb && all_are_past(comm, number)) {
        *tomb = (struct cgm_tomb){0};
        return true;
    }
    if (!gang || gang->state != CGM_GANG_ENDED ||
        (gang->n_came != gang->n_expected && !all_are_past(comm, number)))
        return false;
    comm->n_burnt -= gang->is_burnt;
    *cgm_window_slot(comm, number) = NULL;
    cgm_gang_give(gang);
    return true;
}

/* Nobody came for it before all came for a later one. */
static bool is_skipped(struct cgm_comm *comm, uint64_t number)
{
    return number <= comm->launched && is_empty(comm, number);
}

void cgm_window_advance(struct cgm_comm *comm)
{
    while (is_through(comm, comm->launched + 1))
        comm->launched++;
    struct cgm_gang *gang = *cgm_window_slot(comm, comm->launched + 1);
    if (gang && cgm_gang_may_launch(gang))
        cgm_gang_list_move(gang, true);
    while (retire(comm, comm->retired + 1) || is_skipped(comm, comm->retired + 1))
        comm->retired++;
    note_retired(comm);
}

void cgm_window_skip(struct cgm_comm *comm, uint64_t number)
{
    while (comm->launched + 1 < number &&
           (is_empty(comm, comm->launched + 1) || is_through(comm, comm->launched + 1)))
        comm->launched++;
    cgm_window_advance(comm);
}
