#include "tests/chaos/round.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/bench/barrier.h"
#include "tests/send_signal.h"

#define STEP_US 150u
#define RECOVERIES 20u

/* ---- clients ----------------------------------------------------------------------------------
 */

static bool start_clients(struct chaos_round *round)
{
    struct chaos_board *board = round->board;
    fflush(NULL);
    for (uint32_t i = 0; i < board->script.n_clients; i++) {
        pid_t pid = fork();
        if (pid == 0)
            chaos_client_main(board, i);
        if (pid < 0) {
            perror("chaos: fork");
            return false;
        }
        board->client[i].pid = pid;
    }
    return true;
}

static bool ended_as_it_may(struct chaos_round *round, struct chaos_client *client, int end)
{
    bool killed = WIFSIGNALED(end) && WTERMSIG(end) == SIGKILL && atomic_load(&client->lost);
    bool left = WIFEXITED(end) && WEXITSTATUS(end) == 0 &&
                (round->board->verb == CHAOS_LEAVE || atomic_load(&client->gone));
    return killed || left;
}

static void keep_counts(struct chaos_round *round, const struct chaos_client *client)
{
    round->totals->checked += client->checked;
    if (client->worst > round->totals->worst)
        round->totals->worst = client->worst;
}

/* Takes the clients that have ended. */
static bool reap(struct chaos_round *round)
{
    for (uint32_t i = 0; i < round->board->script.n_clients; i++) {
        struct chaos_client *client = &round->board->client[i];
        int end;
        if (!client->pid || waitpid(client->pid, &end, WNOHANG) != client->pid)
            continue;
        client->pid = 0;
        keep_counts(round, client);
        if (ended_as_it_may(round, client, end))
            continue;
        printf("chaos: client %u ended with %s %d while it was %s\n", i,
               WIFEXITED(end) ? "status" : "signal",
               WIFEXITED(end) ? WEXITSTATUS(end) : WTERMSIG(end), client->step);
        return false;
    }
    return true;
}

static void end_clients(struct chaos_round *round)
{
    for (uint32_t i = 0; i < round->board->script.n_clients; i++) {
        struct chaos_client *client = &round->board->client[i];
        if (!client->pid)
            continue;
        send_signal(client->pid, SIGKILL);
        while (waitpid(client->pid, NULL, 0) < 0 && errno == EINTR)
            ;
        client->pid = 0;
    }
}

/* ---- orders -----------------------------------------------------------------------------------
 */

static bool nobody_failed(const struct chaos_board *board)
{
    for (uint32_t i = 0; i < board->script.n_clients; i++)
        if (atomic_load(&board->client[i].failed)) {
            printf("chaos: client %u: %s\n", i, board->client[i].failure);
            return false;
        }
    return true;
}

static bool everybody_arrived(const struct chaos_board *board, uint32_t order)
{
    for (uint32_t i = 0; i < board->script.n_clients; i++)
        if (board->client[i].pid &&
            (board->verb == CHAOS_LEAVE || atomic_load(&board->client[i].arrived) != order))
            return false;
    return true;
}

static bool is_hung(struct chaos_round *round)
{
    if (chaos_now_ns() - round->began_ns < round->limit_s * 1000000000ull)
        return false;
    round->hung = true;
    printf("chaos: hung: an order is not carried out within %u s\n", round->limit_s);
    return true;
}

/* Executors that found a job hung and ended by themselves count like those that were killed. */
static void count_own_ends(struct chaos_round *round)
{
    struct chaos_board *board = round->board;
    if (!board->hang || round->over)
        return;
    uint64_t known = round->server->deaths + atomic_load(&board->kills) - round->kills_settled;
    uint64_t deaths = chaos_server_number(round->server, "executor_deaths");
    if (deaths > known)
        atomic_fetch_add(&board->kills, (uint32_t)(deaths - known));
}

static bool order(struct chaos_round *round, enum chaos_verb verb, uint32_t argument)
{
    struct chaos_board *board = round->board;
    board->verb = verb;
    board->argument = argument;
    board->settled = round->kills_settled;
    round->stage = verb < CHAOS_RECOVER ? chaos_stage(verb, argument) : UINT32_MAX;
    round->began_ns = chaos_now_ns();
    uint32_t number = atomic_fetch_add(&board->order, 1) + 1;
    cgm_futex_wake(&board->order);
    while (!everybody_arrived(board, number)) {
        if (!chaos_faults_step(round) || !nobody_failed(board) || !reap(round) || is_hung(round))
            return false;
        chaos_sleep_us(STEP_US);
    }
    count_own_ends(round);
    return true;
}

/* ---- the course of a round --------------------------------------------------------------------
 */

/* After the executor's death all clients see that there is a new one, and comms fall into step. */
static bool recover(struct chaos_round *round, uint32_t *kills)
{
    for (uint32_t i = 0; i < RECOVERIES; i++) {
        if (!chaos_faults_settle(round))
            return false;
        if (round->over || round->kills_settled == *kills)
            return true;
        *kills = round->kills_settled;
        if (!order(round, CHAOS_RECOVER, 0) || !chaos_faults_settle(round) ||
            !chaos_judge_sync(round, round->kills_settled != *kills))
            return false;
    }
    printf("chaos: no end of recoveries\n");
    return false;
}

static bool run_batches(struct chaos_round *round)
{
    const struct chaos_script *script = &round->board->script;
    uint32_t kills = 0;
    for (uint32_t i = 0; i < script->n_batches && !round->over; i++) {
        if (!recover(round, &kills) || round->over)
            return round->over;
        if (!order(round, CHAOS_BATCH, i) || !chaos_judge_batch(round, i, kills))
            return false;
    }
    return recover(round, &kills);
}

static bool run_orders(struct chaos_round *round)
{
    return order(round, CHAOS_CONNECT, 0) && order(round, CHAOS_JOIN, 0) &&
           chaos_judge_joins(round) && order(round, CHAOS_PLAN, 0) && chaos_judge_plans(round) &&
           run_batches(round) && order(round, CHAOS_LEAVE, 0);
}

/* What a dead client left behind by name. */
static void destroy_arenas(struct chaos_round *round)
{
    for (uint32_t i = 0; i < round->board->script.n_clients; i++)
        for (uint32_t k = 0; atomic_load(&round->board->client[i].lost) && k < CHAOS_ARENAS; k++) {
            char name[64];
            snprintf(name, sizeof(name), "chaos.arena.%u.%u", i, k);
            commgemm_buffer_destroy(round->server->eye, name);
        }
}

static bool look_after(struct chaos_round *round)
{
    if (round->over)
        return true;
    destroy_arenas(round);
    return chaos_kept_check(round->server, round->board) && chaos_server_is_clean(round->server);
}

static void reset_board(struct chaos_board *board)
{
    memset(board->client, 0, sizeof(board->client));
    memset(board->usable, 0, sizeof(board->usable));
    for (uint32_t i = 0; i < CHAOS_COMMS; i++)
        atomic_store(&board->high[i], 0);
    atomic_store(&board->order, 0);
    atomic_store(&board->kills, 0);
    atomic_store(&board->daemon_killed, false);
    atomic_store(&board->drained, false);
    for (uint32_t i = 0; i < CHAOS_BATCHES * CHAOS_JOBS * CHAOS_WORLD; i++)
        atomic_store(&(&board->result[0][0][0])[i].status, CHAOS_UNKNOWN);
}

bool chaos_round_run(struct chaos_round *round)
{
    struct chaos_board *board = round->board;
    reset_board(board);
    bool right = start_clients(round) && chaos_server_look(round->server);
    if (right && !round->server->has_base)
        right = chaos_kept_create(round->server, board);
    right = right && run_orders(round) && look_after(round);
    if (!right)
        chaos_diagnose(round->server, board, round->hung);
    end_clients(round);
    for (uint32_t i = 0; i < board->script.n_clients; i++)
        round->totals->suicides +=
            board->script.client[i].die_at &&
            atomic_load(&board->client[i].point) >= board->script.client[i].die_at;
    round->totals->clients += board->script.n_clients;
    round->totals->rounds++;
    chaos_server_close_eye(round->server);
    return right;
}
