/* commgemm-chaos: rounds of chaos against a daemon of its own, with the backend that
 * tests/backend.h says. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "client/bench/crew.h"
#include "client/bench/shards.h"
#include "daemon/executor/algorithm.h"
#include "kernels/random.h"
#include "tests/backend.h"
#include "tests/chaos/jumpers.h"
#include "tests/chaos/round.h"
#include "tests/rounds.h"

#define SERVER_ROUNDS 60u /* at most, of one daemon */
#define SERVER_KILLS 2u   /* then the daemon waits for longer and longer before it starts one */

struct settings {
    struct rounds rounds;
    uint64_t clients, limit_s;
};

static const struct cgm_option options[] = {
    {.name = "clients",
     .kind = CGM_ARG_UINT,
     .value = "N",
     CGM_FIELD(struct settings, clients),
     .min = 1,
     .max = CHAOS_CLIENTS,
     .summary = "at most so many clients (16)"},
    {.name = "limit",
     .kind = CGM_ARG_UINT,
     .value = "S",
     CGM_FIELD(struct settings, limit_s),
     .min = 1,
     .max = 3600,
     .summary = "what takes longer than this hangs (120)"},
};
static const struct cgm_option_table tables[] = {CGM_OPTION_TABLE(NULL, rounds_options),
                                                 CGM_OPTION_TABLE("Of chaos", options)};
static const struct cgm_program program = {
    .name = "commgemm-chaos",
    .summary = "random jobs, deaths and stops against a daemon of its own",
    .usage = "[OPTION]...",
    .tables = tables,
    .n_tables = 2,
};

/* ---- the daemon of some rounds ----------------------------------------------------------------
 */

/* One of some dozens is of the kind whose jobs take longer than they may; in some queues share
 * threads, as they do on a GPU. */
static bool start_server(struct chaos_server *server, struct cgm_random *random,
                         struct chaos_board *board)
{
    static const unsigned spins[] = {0, 50, 1000}, delays[] = {0, 0, 0, 50, 500, 3000};
    char set[512];
    bool sharing = cgm_random_below(random, 6) == 0 && !test_backend_is_cuda();
    bool hang = cgm_random_below(random, 24) == 0;
    board->impatient = cgm_random_below(random, 8) == 0;
    board->hang = hang && !test_backend_is_cuda(); /* there it takes minutes to end */
    snprintf(
        set, sizeof(set),
        "tune_ms=100,graphs_from=%u,spin_us=%u,test_delay_us=%u,job_timeout=%u,ready_timeout=%u,"
        "log_level=info%s",
        (unsigned)cgm_random_below(random, 4), spins[cgm_random_below(random, 3)],
        board->hang ? 500000u : delays[cgm_random_below(random, 6)], board->hang ? 1u : 100u,
        board->impatient ? 1u : 100u, sharing ? ",executor=" CGM_BIN_DIR "/sharing_executor" : "");
    if (!chaos_server_start(server, 1 + (uint32_t)cgm_random_below(random, 4), set))
        return false;
    snprintf(board->socket, sizeof(board->socket), "%s", server->daemon.socket);
    return true;
}

static uint64_t end_ns; /* no round begins after that */

static bool time_is_up(void)
{
    return end_ns && chaos_now_ns() >= end_ns;
}

static bool run_round(struct chaos_server *server, struct chaos_board *board,
                      const struct settings *settings, uint64_t number, struct chaos_totals *totals)
{
    struct chaos_round round = {
        .server = server, .board = board, .totals = totals, .limit_s = (uint32_t)settings->limit_s};
    uint64_t begin_ns = chaos_now_ns();
    chaos_script_make(settings->rounds.seed, number, (uint32_t)settings->clients, board->hang,
                      board->impatient, &board->script);
    if (!server->has_base) /* the first round is quiet: what is used after it is what must be */
        board->script.n_faults = 0;
    bool right = chaos_round_run(&round);
    if (settings->rounds.verbose)
        printf("round %llu: %u clients, %u comms, %u faults, %u kills%s: %.0f ms\n",
               (unsigned long long)number, board->script.n_clients, board->script.n_comms,
               board->script.n_faults, atomic_load(&board->kills), board->hang ? ", hanging" : "",
               (double)(chaos_now_ns() - begin_ns) / 1e6);
    return right;
}

/* Beside one in some daemons. */
static void start_jumpers(struct chaos_jumpers *jumpers, struct cgm_random *random)
{
    static const uint32_t periods_us[] = {1000, 10000, 50000};
    uint32_t n = 1 + (uint32_t)cgm_random_below(random, CHAOS_JUMPERS);
    uint32_t period_us = periods_us[cgm_random_below(random, 3)];
    chaos_jumpers_start(jumpers, cgm_random_below(random, 5) ? 0 : n, period_us);
}

/* Rounds on one daemon, from *number on. */
static bool run_rounds(struct chaos_board *board, const struct settings *settings,
                       struct chaos_totals *totals, struct cgm_random *random, uint64_t *number)
{
    struct chaos_server server;
    uint64_t end = settings->rounds.first + settings->rounds.n, first = *number;
    bool right = true;
    if (!start_server(&server, random, board))
        return false;
    uint64_t last = *number + (board->hang ? 2 : 1 + cgm_random_below(random, SERVER_ROUNDS));
    totals->daemons++;
    while (right && *number < end && *number < last && !time_is_up()) {
        right = run_round(&server, board, settings, *number, totals);
        if (!right)
            printf("chaos: round %llu went wrong; the rounds of its daemon again: --seed %llu "
                   "--first %llu --rounds %llu\n",
                   (unsigned long long)*number, (unsigned long long)settings->rounds.seed,
                   (unsigned long long)first, (unsigned long long)(*number - first + 1));
        ++*number;
        if (atomic_load(&board->daemon_killed) || server.deaths >= SERVER_KILLS)
            break;
    }
    chaos_server_stop(&server);
    return right;
}

static bool run_server(struct chaos_board *board, const struct settings *settings,
                       struct chaos_totals *totals, uint64_t *number)
{
    struct chaos_jumpers jumpers;
    struct cgm_random random;
    cgm_random_init(&random, settings->rounds.seed ^ (*number + 1) * 0xd1342543de82ef95u);
    start_jumpers(&jumpers, &random);
    bool right = run_rounds(board, settings, totals, &random, number);
    chaos_jumpers_stop(&jumpers);
    return right;
}

/* ---- the report -------------------------------------------------------------------------------
 */

/* Whether clients here have numbers for any of its operations. */
static bool can_run(const struct cgm_algorithm *algorithm)
{
    struct cgm_sizes sizes = {.m = 8, .n = 8, .k = 8, .world = 2};
    struct cgm_matrix matrices[CGM_MATRIX_COUNT];
    for (sizes.op = 0; sizes.op < 32; sizes.op++)
        if (algorithm->ops >> sizes.op & 1 && cgm_shards_describe(&sizes, matrices))
            return true;
    return false;
}

static bool report(const struct chaos_totals *t)
{
    bool all = true;
    printf("%llu rounds on %llu daemons, %llu clients, %llu plans (%llu refused)\n",
           (unsigned long long)t->rounds, (unsigned long long)t->daemons,
           (unsigned long long)t->clients, (unsigned long long)t->plans,
           (unsigned long long)t->refused);
    for (int i = 0; i < CHAOS_FAULT_KINDS; i++)
        printf("  %-20s %llu\n", chaos_fault_name((enum chaos_fault_kind)i),
               (unsigned long long)t->faults[i]);
    printf("  %-20s %llu\njobs of ranks, by status\n", "clients' own deaths",
           (unsigned long long)t->suicides);
    for (int i = 0; i < 32; i++)
        if (t->jobs[i])
            printf("  %-20s %llu\n", commgemm_status_name(-i), (unsigned long long)t->jobs[i]);
    printf("right, by algorithm\n");
    for (size_t i = 0; i < cgm_algorithm_count; i++) {
        uint64_t count = t->by_algorithm[cgm_algorithms[i]->number];
        printf("  %-24s %llu\n", cgm_algorithms[i]->name, (unsigned long long)count);
        all = all && (count || !can_run(cgm_algorithms[i]));
    }
    printf("%llu numbers checked, the worst at %.3f of its bound\n", (unsigned long long)t->checked,
           t->worst);
    if (!all && t->rounds >= 200)
        printf("chaos: an algorithm never ran\n");
    return all || t->rounds < 200;
}

int main(int argc, char **argv)
{
    struct settings settings = {.rounds.n = 200, .clients = CHAOS_CLIENTS, .limit_s = 120};
    struct chaos_totals totals = {0};
    struct cgm_args args;
    if (cgm_args_parse(&program, argc, argv, &settings, &args) || args.n_words) {
        fprintf(stderr, "commgemm-chaos: %s\n",
                args.detail[0] ? args.detail : "it takes options only");
        return 2;
    }
    if (settings.rounds.help)
        return cgm_args_help(&program, NULL, stdout), 0;
    if (!cgm_args_given(&program, &args, "seed"))
        settings.rounds.seed = cgm_random_seed() >> 16;
    struct chaos_board *board = cgm_shared_alloc(sizeof(*board));
    if (!board)
        return perror("commgemm-chaos"), 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("seed %llu\n", (unsigned long long)settings.rounds.seed);
    uint64_t begin_ns = chaos_now_ns(), number = settings.rounds.first;
    bool right = true;
    end_ns = settings.rounds.seconds ? begin_ns + settings.rounds.seconds * 1000000000ull : 0;
    while (right && number < settings.rounds.first + settings.rounds.n && !time_is_up())
        right = run_server(board, &settings, &totals, &number);
    bool all = report(&totals);
    printf("%s after %.1f s\n", right && all ? "all right" : "WRONG",
           (double)(chaos_now_ns() - begin_ns) / 1e9);
    return right && all ? 0 : 1;
}
