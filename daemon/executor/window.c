#include "daemon/executor/window.h"

#include "daemon/executor/comm.h"
#include "daemon/executor/gang.h"
#include "daemon/executor/gang_list.h"

struct cgm_gang **cgm_window_slot(struct cgm_comm *comm, uint64_t number)
{
    return &comm->window[number & (CGM_COMM_WINDOW - 1)];
}

void cgm_window_advance(struct cgm_comm *comm)
{
    struct cgm_gang *gang;
    while ((gang = *cgm_window_slot(comm, comm->launched + 1)) && gang->state >= CGM_GANG_RUNNING)
        comm->launched++;
    if (gang && cgm_gang_may_launch(gang))
        cgm_gang_list_move(gang, true);
    while ((gang = *cgm_window_slot(comm, comm->retired + 1)) && gang->state == CGM_GANG_ENDED &&
           gang->n_came == gang->n_expected) {
        *cgm_window_slot(comm, ++comm->retired) = NULL;
        gang->next_free = comm->free_gangs;
        comm->free_gangs = gang;
    }
}

void cgm_window_skip(struct cgm_comm *comm, uint64_t number)
{
    while (comm->launched + 1 < number && !*cgm_window_slot(comm, comm->launched + 1))
        comm->launched++;
    while (comm->retired < comm->launched && !*cgm_window_slot(comm, comm->retired + 1))
        comm->retired++;
    cgm_window_advance(comm);
}
