/* After the executor's death: the session has the new one, arenas are sound, comms in step. */
#include "tests/chaos/client.h"

#define SYNC_MS 5000
#define SYNC_TRIES 100u

/* Any job that this session can do alone: then it has the new executor. */
static void run_noop(struct client *c)
{
    struct commgemm_completion done;
    struct commgemm_job job;
    uint64_t ticket;
    int status;
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_NOOP;
    do {
        status = commgemm_submit(c->session, &job, &ticket);
        if (status == COMMGEMM_OK) {
            status = commgemm_wait(c->session, ticket, -1, &done);
            status = status == COMMGEMM_OK ? done.status : status;
        }
    } while (client_again(c, "a noop", status));
}

/* One rank's barriers, one after the other. */
struct barrier {
    bool here, over;
    uint32_t tries;
    int status;
    uint64_t ticket;
};

static void barrier_begin(struct client *c, uint64_t plan, uint32_t rank, struct barrier *barrier)
{
    struct commgemm_job job;
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_BARRIER;
    job.plan = plan;
    job.rank = rank;
    job.deadline_ms = SYNC_MS;
    while (client_again(c, "a barrier", commgemm_submit(c->session, &job, &barrier->ticket)))
        ;
}

/* Every rank comes to the same number then: behind what any of them has come to. */
static bool is_in_step(const struct client *c, uint32_t comm,
                       const struct commgemm_completion *done)
{
    return done->status == COMMGEMM_OK && done->comm_number >= atomic_load(&c->board->high[comm]);
}

/* True when it is over. The ranks are looked at in turn: one may wait for another to try again. */
static bool barrier_step(struct client *c, uint32_t comm, uint64_t plan, uint32_t rank,
                         struct barrier *barrier)
{
    struct commgemm_completion done;
    int status = commgemm_wait(c->session, barrier->ticket, 1, &done);
    if (status == COMMGEMM_TIMEOUT)
        return false;
    client_again(c, "commgemm_wait", status);
    barrier->status = done.status;
    barrier->over = is_in_step(c, comm, &done) || done.status == COMMGEMM_PEER_LOST ||
                    ++barrier->tries == SYNC_TRIES;
    if (!barrier->over)
        barrier_begin(c, plan, rank, barrier);
    return barrier->over;
}

/* A comm's ranks fall into step: those that were behind get what became of the others' jobs, and
 * those that lost some do not do them again. */
static int run_barrier(struct client *c, uint32_t comm, uint64_t plan)
{
    const struct chaos_comm *script = &c->script->comm[comm];
    struct barrier barrier[CHAOS_WORLD] = {0};
    uint32_t left = 0;
    int worst = COMMGEMM_OK;
    for (uint32_t rank = 0; rank < script->world; rank++)
        if ((barrier[rank].here = script->client[rank] == c->number)) {
            barrier_begin(c, plan, rank, &barrier[rank]);
            left++;
        }
    while (left)
        for (uint32_t rank = 0; rank < script->world; rank++)
            if (barrier[rank].here && !barrier[rank].over)
                left -= barrier_step(c, comm, plan, rank, &barrier[rank]);
    for (uint32_t rank = 0; rank < script->world; rank++)
        worst = barrier[rank].status != COMMGEMM_OK ? barrier[rank].status : worst;
    return worst;
}

void client_recover(struct client *c)
{
    client_point(c, "recovering");
    run_noop(c);
    for (uint32_t i = 0; i < c->n_arenas; i++) {
        int status;
        do
            status = chaos_arena_open(&c->arena[i], c->session);
        while (client_again(c, "opening an arena again", status));
    }
    for (uint32_t i = 0; i < c->script->n_comms; i++) {
        int result = COMMGEMM_OK;
        for (uint32_t k = 0; k < c->script->comm[i].n_plans; k++) {
            bool made = c->board->usable[i][k] && c->self->joined[i] && !c->left[i] &&
                        c->plan[i][k].id && c->self->plan_status[i][k] == COMMGEMM_OK;
            if (!made)
                continue;
            client_point(c, "awaiting the barrier of comm %u", i);
            result = run_barrier(c, i, c->plan[i][k].id);
            break;
        }
        atomic_store(&c->self->synced[i], result);
    }
}
