/* What may have become of each job, by what was done to whom. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/chaos/round.h"

/* Sets of statuses: bit -status. */
#define BIT(status) (1u << -(COMMGEMM_##status))
#define EXECUTOR_STATUSES (BIT(EXECUTOR_LOST) | BIT(NO_EXECUTOR) | BIT(STALE) | BIT(TAINTED))
/* Of a job that was not launched: then no rank's part of it was. */
#define UNLAUNCHED                                                                                 \
    (BIT(CANCELLED) | BIT(JOIN_TIMEOUT) | BIT(READY_TIMEOUT) | BIT(MISMATCH) | BIT(PEER_LOST) |    \
     BIT(INVALID_ARGUMENT) | BIT(STALE) | BIT(TAINTED) | BIT(NO_EXECUTOR))

bool chaos_comm_misses_peer(const struct chaos_board *board, uint32_t comm)
{
    const struct chaos_comm *script = &board->script.comm[comm];
    for (uint32_t rank = 0; rank < script->world; rank++) {
        const struct chaos_client *client = &board->client[script->client[rank]];
        if (atomic_load(&client->lost) || (comm == 0 && atomic_load(&client->left0)))
            return true;
    }
    return false;
}

static bool is_there(const struct chaos_board *board, uint32_t client)
{
    return board->client[client].pid && !atomic_load(&board->client[client].lost);
}

/* ---- joins and plans --------------------------------------------------------------------------
 */

bool chaos_judge_joins(struct chaos_round *round)
{
    const struct chaos_board *board = round->board;
    for (uint32_t i = 0; i < board->script.n_comms; i++) {
        uint32_t there = 0, joined = 0;
        for (uint32_t k = 0; k < board->script.n_clients; k++) {
            bool counts = chaos_has_rank(&board->script, i, k) && is_there(board, k);
            there += counts;
            joined += counts && board->client[k].joined[i];
        }
        round->used[i] = there > 0 && joined == there;
        if (joined != 0 && joined != there) {
            printf("chaos: %u of %u clients have joined comm %u\n", joined, there, i);
            return false;
        }
    }
    return true;
}

/* What the clients got that have the comm. Where first runs may take too long, one may have made
 * what another could not: such a plan is not used. */
static bool judge_plan(struct chaos_round *round, uint32_t comm, uint32_t plan, int *ret_status)
{
    const struct chaos_board *board = round->board;
    int seen = CHAOS_UNKNOWN;
    for (uint32_t k = 0; k < board->script.n_clients; k++) {
        int status = board->client[k].plan_status[comm][plan];
        if (!chaos_has_rank(&board->script, comm, k) || !is_there(board, k) ||
            status == COMMGEMM_PEER_LOST)
            continue;
        if (seen != CHAOS_UNKNOWN && seen != status && !board->hang) {
            printf("chaos: plan %u of comm %u: %s for client %u, %s for another\n", plan, comm,
                   commgemm_status_name(status), k, commgemm_status_name(seen));
            return false;
        }
        seen = seen != CHAOS_UNKNOWN && seen != COMMGEMM_OK ? seen : status;
    }
    *ret_status = seen;
    return true;
}

bool chaos_judge_plans(struct chaos_round *round)
{
    struct chaos_board *board = round->board;
    for (uint32_t i = 0; i < board->script.n_comms; i++)
        for (uint32_t p = 0; round->used[i] && p < board->script.comm[i].n_plans; p++) {
            int status;
            if (!judge_plan(round, i, p, &status))
                return false;
            board->usable[i][p] = status == COMMGEMM_OK;
            round->totals->plans += status == COMMGEMM_OK;
            round->totals->refused +=
                status == COMMGEMM_NOT_SUPPORTED || status == COMMGEMM_INVALID_ARGUMENT;
        }
    return true;
}

/* ---- jobs -------------------------------------------------------------------------------------
 */

static bool has_stream(const struct chaos_board *board, const struct chaos_job *job)
{
    const struct chaos_comm *comm = &board->script.comm[job->comm];
    for (uint32_t rank = 0; rank < comm->world; rank++)
        if (board->script.client[comm->client[rank]].streams)
            return true;
    return false;
}

/* What one rank may see. */
static uint32_t allowed(const struct chaos_round *round, const struct chaos_job *job, uint32_t rank,
                        bool executor_died)
{
    const struct chaos_board *board = round->board;
    bool offends = job->offender != CHAOS_NOBODY && (job->collective || job->offender == rank);
    bool mismatches = job->mismatcher != CHAOS_NOBODY;
    uint32_t set = offends || mismatches ? 0 : BIT(OK);
    set |= offends ? BIT(INVALID_ARGUMENT) : 0;
    set |= mismatches ? BIT(MISMATCH) : 0;
    if (job->canceller != CHAOS_NOBODY && (job->collective || job->canceller == rank))
        set |= BIT(CANCELLED);
    set |= job->deadline_ms ? BIT(JOIN_TIMEOUT) : 0;
    /* Its deadline also holds while it waits for jobs before it. */
    if (job->deadline_ms || (board->impatient && has_stream(board, job)))
        set |= BIT(READY_TIMEOUT);
    set |= chaos_comm_misses_peer(board, job->comm) ? BIT(PEER_LOST) : 0;
    /* Ranks may have given a job up with the old executor that others then cancel on the new one.
     */
    set |= executor_died ? EXECUTOR_STATUSES | BIT(CANCELLED) : 0;
    /* To make an aborted job's outputs NaN may take as long as the job. */
    set |= board->hang ? BIT(WATCHDOG) | BIT(TAINTED) : 0;
    return set;
}

static bool names_lost_rank(const struct chaos_board *board, const struct chaos_job *job,
                            const char *detail)
{
    const struct chaos_comm *comm = &board->script.comm[job->comm];
    const char *at = strstr(detail, "rank ");
    uint32_t rank = at ? (uint32_t)strtoul(at + 5, NULL, 10) : CHAOS_NOBODY;
    if (rank >= comm->world)
        return false;
    const struct chaos_client *client = &board->client[comm->client[rank]];
    return atomic_load(&client->lost) || (job->comm == 0 && atomic_load(&client->left0));
}

/* How a number or a job ended stays when its executor dies, and not always the words. */
static bool is_told_after_death(const struct chaos_result *result)
{
    return strstr(result->detail, "had ended with") != NULL;
}

static bool detail_is_right(const struct chaos_board *board, const struct chaos_job *job,
                            const struct chaos_result *result, bool executor_died)
{
    if (executor_died && is_told_after_death(result))
        return true;
    switch (atomic_load(&result->status)) {
    case COMMGEMM_PEER_LOST:
        return names_lost_rank(board, job, result->detail);
    case COMMGEMM_READY_TIMEOUT:
        return strstr(result->detail, "the stream of rank ") ||
               (job->deadline_ms && strstr(result->detail, "what its ranks submitted before it"));
    case COMMGEMM_JOIN_TIMEOUT:
        return !job->collective || strstr(result->detail, "did not submit job ");
    case COMMGEMM_MISMATCH:
        return strstr(result->detail, "rows") != NULL;
    case COMMGEMM_INVALID_ARGUMENT:
        return strstr(result->detail, "out") != NULL;
    default:
        return true;
    }
}

static bool wrong(const struct chaos_round *round, uint32_t batch, uint32_t at, uint32_t rank,
                  const char *why)
{
    const struct chaos_result *result = &round->board->result[batch][at][rank];
    const struct chaos_job *job = &round->board->script.job[batch][at];
    char about[400];
    chaos_job_text(&round->board->script, job, about, sizeof(about));
    printf("chaos: job %u.%u, plan %u of comm %u, rank %u (client %u): %s: %s; \"%s\"\nchaos: %s\n",
           batch, at, job->plan, job->comm, rank, round->board->script.comm[job->comm].client[rank],
           commgemm_status_name(atomic_load(&result->status)), why, result->detail, about);
    return false;
}

static void count(struct chaos_round *round, const struct chaos_job *job, uint32_t client,
                  int status)
{
    struct chaos_totals *totals = round->totals;
    int algorithm = round->board->client[client].plan_algorithm[job->comm][job->plan];
    totals->jobs[-status & 31]++;
    if (status == COMMGEMM_OK && algorithm >= 0 && algorithm < (int)CHAOS_ALGORITHMS)
        totals->by_algorithm[algorithm]++;
}

/* One job's parts on all ranks. Jobs start together or not at all. */
static bool judge_job(struct chaos_round *round, uint32_t batch, uint32_t at, bool executor_died)
{
    const struct chaos_board *board = round->board;
    const struct chaos_job *job = &board->script.job[batch][at];
    const struct chaos_comm *comm = &board->script.comm[job->comm];
    uint32_t seen = 0;
    for (uint32_t rank = 0; rank < comm->world; rank++) {
        const struct chaos_result *result = &board->result[batch][at][rank];
        const struct chaos_client *client = &board->client[comm->client[rank]];
        int status = atomic_load(&result->status);
        bool left = job->comm == 0 && atomic_load(&client->left0);
        bool planless = client->plan_status[job->comm][job->plan] == COMMGEMM_PEER_LOST;
        if (status == CHAOS_UNKNOWN &&
            (round->over || left || planless || atomic_load(&client->lost)))
            continue;
        if (status == CHAOS_UNKNOWN)
            return wrong(round, batch, at, rank, "nobody knows how it ended");
        count(round, job, comm->client[rank], status);
        if (!(allowed(round, job, rank, executor_died) >> -status & 1) && !round->over)
            return wrong(round, batch, at, rank, "nothing that was done allows it");
        /* The ring of a session that was ended may die between a job's status and its detail. */
        if (!atomic_load(&client->kicked) && !detail_is_right(board, job, result, executor_died))
            return wrong(round, batch, at, rank, "the detail does not say why");
        seen |= 1u << -status;
    }
    if (job->collective && seen & BIT(OK) && seen & UNLAUNCHED)
        return wrong(round, batch, at, 0, "launched on one rank and not on another");
    return true;
}

bool chaos_judge_batch(struct chaos_round *round, uint32_t batch, uint32_t kills)
{
    const struct chaos_script *script = &round->board->script;
    bool executor_died = atomic_load(&round->board->kills) != kills;
    for (uint32_t at = 0; at < script->n_jobs[batch]; at++) {
        const struct chaos_job *job = &script->job[batch][at];
        bool runs = round->used[job->comm] && round->board->usable[job->comm][job->plan] &&
                    script->comm[job->comm].shaped[job->plan];
        if (runs && !judge_job(round, batch, at, executor_died))
            return false;
    }
    return true;
}

bool chaos_judge_sync(struct chaos_round *round, bool disturbed)
{
    const struct chaos_board *board = round->board;
    for (uint32_t i = 0; i < board->script.n_comms; i++)
        for (uint32_t k = 0; round->used[i] && k < board->script.n_clients; k++) {
            int status = atomic_load(&board->client[k].synced[i]);
            bool fine = !is_there(board, k) || status == COMMGEMM_OK || disturbed || round->over ||
                        (status == COMMGEMM_PEER_LOST && chaos_comm_misses_peer(board, i));
            if (!fine) {
                printf("chaos: client %u does not fall into step in comm %u: %s\n", k, i,
                       commgemm_status_name(status));
                return false;
            }
        }
    return true;
}
