#include "daemon/executor/window.h"

#include <stdlib.h>

#include "daemon/executor/comm.h"
#include "daemon/executor/gang.h"
#include "daemon/executor/gang_list.h"

#define BURNT_KEPT 64u /* of a comm, with the words of their details */

struct cgm_gang **cgm_window_slot(struct cgm_comm *comm, uint64_t number)
{
    return &comm->window[number & (CGM_COMM_WINDOW - 1)];
}

struct cgm_tomb *cgm_window_tomb(struct cgm_comm *comm, uint64_t number)
{
    struct cgm_tomb *tomb = comm->tombs ? &comm->tombs[number & (CGM_COMM_WINDOW - 1)] : NULL;
    return tomb && tomb->n_came ? tomb : NULL;
}

bool cgm_window_is_left_by(const struct cgm_comm *comm, uint64_t number)
{
    return number > comm->retired && number - comm->retired >= CGM_COMM_WINDOW;
}

void cgm_window_keep_burnt(struct cgm_gang *gang)
{
    struct cgm_comm *comm = gang->comm;
    if (comm->n_burnt >= BURNT_KEPT && !comm->tombs)
        comm->tombs = calloc(CGM_COMM_WINDOW, sizeof(*comm->tombs));
    if (comm->n_burnt < BURNT_KEPT || !comm->tombs) {
        comm->n_burnt++;
        gang->is_burnt = true;
        return;
    }
    comm->tombs[gang->number & (CGM_COMM_WINDOW - 1)] =
        (struct cgm_tomb){.status = (int8_t)gang->status, .n_came = (uint8_t)gang->n_came};
    *cgm_window_slot(comm, gang->number) = NULL;
    free(gang);
}

static bool is_empty(struct cgm_comm *comm, uint64_t number)
{
    return !*cgm_window_slot(comm, number) && !cgm_window_tomb(comm, number);
}

static bool is_through(struct cgm_comm *comm, uint64_t number)
{
    const struct cgm_gang *gang = *cgm_window_slot(comm, number);
    return gang ? gang->state >= CGM_GANG_RUNNING : cgm_window_tomb(comm, number) != NULL;
}

/* It has ended, and every rank has come. */
static bool retire(struct cgm_comm *comm, uint64_t number)
{
    struct cgm_gang *gang = *cgm_window_slot(comm, number);
    struct cgm_tomb *tomb = cgm_window_tomb(comm, number);
    if (tomb && tomb->n_came == comm->size) {
        *tomb = (struct cgm_tomb){0};
        return true;
    }
    if (!gang || gang->state != CGM_GANG_ENDED || gang->n_came != gang->n_expected)
        return false;
    comm->n_burnt -= gang->is_burnt;
    *cgm_window_slot(comm, number) = NULL;
    gang->next_free = comm->free_gangs;
    comm->free_gangs = gang;
    return true;
}

void cgm_window_advance(struct cgm_comm *comm)
{
    while (is_through(comm, comm->launched + 1))
        comm->launched++;
    struct cgm_gang *gang = *cgm_window_slot(comm, comm->launched + 1);
    if (gang && cgm_gang_may_launch(gang))
        cgm_gang_list_move(gang, true);
    while (retire(comm, comm->retired + 1))
        comm->retired++;
}

void cgm_window_skip(struct cgm_comm *comm, uint64_t number)
{
    while (comm->launched + 1 < number && is_empty(comm, comm->launched + 1))
        comm->launched++;
    while (comm->retired < comm->launched && is_empty(comm, comm->retired + 1))
        comm->retired++;
    cgm_window_advance(comm);
}
