#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/chaos/round.h"
#include "tests/send_signal.h"

static bool is_alive(const struct chaos_client *client)
{
    return client->pid != 0;
}

/* ---- each kind --------------------------------------------------------------------------------
 */

static bool kill_client(struct chaos_round *round, struct chaos_fault *fault)
{
    struct chaos_client *client = &round->board->client[fault->client];
    if (is_alive(client)) {
        atomic_store(&client->lost, true);
        send_signal(client->pid, SIGKILL);
    }
    return true;
}

static bool stop_client(struct chaos_round *round, struct chaos_fault *fault)
{
    if (is_alive(&round->board->client[fault->client]))
        send_signal(round->board->client[fault->client].pid, SIGSTOP);
    return true;
}

static bool go_client(struct chaos_round *round, struct chaos_fault *fault)
{
    if (is_alive(&round->board->client[fault->client]))
        send_signal(round->board->client[fault->client].pid, SIGCONT);
    return true;
}

static bool kick_client(struct chaos_round *round, struct chaos_fault *fault)
{
    struct chaos_client *client = &round->board->client[fault->client];
    struct commgemm_killed killed;
    uint64_t session = atomic_load(&client->session);
    if (!is_alive(client) || !session)
        return true;
    atomic_store(&client->lost, true);
    atomic_store(&client->kicked, true);
    int status = commgemm_kill_session(round->server->eye, session, &killed);
    if (status == COMMGEMM_OK || status == COMMGEMM_NOT_FOUND) /* it had died already */
        return true;
    printf("chaos: ending session %llu: %s: %s\n", (unsigned long long)session,
           commgemm_status_name(status), commgemm_last_error());
    return false;
}

static bool settle_executor(struct chaos_round *round)
{
    uint32_t kills = atomic_load(&round->board->kills);
    if (kills == round->kills_settled)
        return true;
    if (!chaos_server_await_executor(round->server,
                                     round->server->deaths + kills - round->kills_settled))
        return false;
    round->kills_settled = kills;
    return true;
}

static bool kill_executor(struct chaos_round *round, struct chaos_fault *fault)
{
    (void)fault;
    if (atomic_load(&round->board->kills) != round->kills_settled)
        return true; /* it is dead */
    atomic_fetch_add(&round->board->kills, 1);
    chaos_server_signal_executor(round->server, SIGKILL);
    return true;
}

static bool stop_executor(struct chaos_round *round, struct chaos_fault *fault)
{
    (void)fault;
    chaos_server_signal_executor(round->server, SIGSTOP);
    return true;
}

static bool go_executor(struct chaos_round *round, struct chaos_fault *fault)
{
    (void)fault;
    chaos_server_signal_executor(round->server, SIGCONT);
    return true;
}

static bool kill_daemon(struct chaos_round *round, struct chaos_fault *fault)
{
    (void)fault;
    atomic_store(&round->board->daemon_killed, true);
    round->over = true;
    chaos_server_signal_executor(round->server, SIGCONT);
    send_signal(round->server->daemon.pid, SIGKILL);
    return true;
}

static bool stop_daemon(struct chaos_round *round, struct chaos_fault *fault)
{
    (void)fault;
    send_signal(round->server->daemon.pid, SIGSTOP);
    return true;
}

static bool go_daemon(struct chaos_round *round, struct chaos_fault *fault)
{
    (void)fault;
    send_signal(round->server->daemon.pid, SIGCONT);
    return true;
}

static bool drain(struct chaos_round *round, struct chaos_fault *fault)
{
    (void)fault;
    atomic_store(&round->board->drained, true);
    if (commgemm_drain(round->server->eye, 0) == COMMGEMM_OK)
        return true;
    printf("chaos: drain: %s\n", commgemm_last_error());
    return false;
}

static bool undrain(struct chaos_round *round, struct chaos_fault *fault)
{
    (void)fault;
    if (commgemm_drain(round->server->eye, 1) == COMMGEMM_OK)
        return true;
    printf("chaos: drain --undo: %s\n", commgemm_last_error());
    return false;
}

static const struct {
    const char *name;
    bool (*begin)(struct chaos_round *round, struct chaos_fault *fault);
    bool (*end)(struct chaos_round *round, struct chaos_fault *fault);
} kinds[CHAOS_FAULT_KINDS] = {
    [CHAOS_KILL_CLIENT] = {"clients killed", kill_client, NULL},
    [CHAOS_STOP_CLIENT] = {"clients stopped", stop_client, go_client},
    [CHAOS_KICK_CLIENT] = {"sessions ended", kick_client, NULL},
    [CHAOS_KILL_EXECUTOR] = {"executors killed", kill_executor, NULL},
    [CHAOS_STOP_EXECUTOR] = {"executors stopped", stop_executor, go_executor},
    [CHAOS_KILL_DAEMON] = {"daemons killed", kill_daemon, NULL},
    [CHAOS_STOP_DAEMON] = {"daemons stopped", stop_daemon, go_daemon},
    [CHAOS_DRAIN] = {"drains", drain, undrain},
};

const char *chaos_fault_name(enum chaos_fault_kind kind)
{
    return kinds[kind].name;
}

/* ---- when -------------------------------------------------------------------------------------
 */

/* The coordinator asks the daemon only while that runs: nobody else could wake it again. */
static bool asks_daemon(enum chaos_fault_kind kind)
{
    return kind == CHAOS_KICK_CLIENT || kind == CHAOS_DRAIN;
}

static bool end_stops_of_daemon(struct chaos_round *round);

/* Of a dead daemon there is nothing to end; clients that are stopped must go on to notice. */
static bool end(struct chaos_round *round, uint32_t at)
{
    struct chaos_fault *fault = &round->board->script.fault[at];
    round->ends_ns[at] = 0;
    if (round->over && fault->kind != CHAOS_STOP_CLIENT)
        return true;
    if (asks_daemon(fault->kind) && !end_stops_of_daemon(round))
        return false;
    return kinds[fault->kind].end(round, fault);
}

static bool end_stops_of_daemon(struct chaos_round *round)
{
    for (uint32_t i = 0; i < round->board->script.n_faults; i++)
        if (round->ends_ns[i] && round->board->script.fault[i].kind == CHAOS_STOP_DAEMON &&
            !end(round, i))
            return false;
    return true;
}

static bool begin(struct chaos_round *round, uint32_t at, uint64_t now_ns)
{
    struct chaos_fault *fault = &round->board->script.fault[at];
    round->done[at] = true;
    if (asks_daemon(fault->kind) && !end_stops_of_daemon(round))
        return false;
    if (!kinds[fault->kind].begin(round, fault))
        return false;
    round->totals->faults[fault->kind]++;
    if (kinds[fault->kind].end)
        round->ends_ns[at] = now_ns + fault->lasts_us * 1000ull;
    return true;
}

bool chaos_faults_step(struct chaos_round *round)
{
    struct chaos_script *script = &round->board->script;
    uint64_t now_ns = chaos_now_ns();
    for (uint32_t i = 0; i < script->n_faults && !round->over; i++) {
        const struct chaos_fault *fault = &script->fault[i];
        bool due = !round->done[i] && fault->stage == round->stage &&
                   now_ns - round->began_ns >= fault->delay_us * 1000ull;
        if (due && !begin(round, i, now_ns))
            return false;
    }
    for (uint32_t i = 0; i < script->n_faults; i++)
        if (round->ends_ns[i] && now_ns >= round->ends_ns[i] && !end(round, i))
            return false;
    return true;
}

bool chaos_faults_settle(struct chaos_round *round)
{
    if (!end_stops_of_daemon(round))
        return false;
    for (uint32_t i = 0; i < round->board->script.n_faults; i++)
        if (round->ends_ns[i] && !end(round, i))
            return false;
    return round->over || settle_executor(round);
}
