/* commgemm-lines: random jobs around user buffers, of ranks that are not in step, some of which are
 * cancelled, refused, late or miss memory, against a daemon of its own; whatever ends well has to
 * be right, and so has all that the cells and the user buffers hold afterwards. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include "client/bench/options.h"
#include "client/bench/private_daemon.h"
#include "tests/lines/batch.h"
#include "tests/lines/judge.h"
#include "tests/rounds.h"

#define BATCHES 6u        /* of a round */
#define DAEMON_ROUNDS 32u /* of one daemon */
#define DAEMON_KILLS 3u

static const struct cgm_option_table tables[] = {CGM_OPTION_TABLE(NULL, rounds_options)};
static const struct cgm_program program = {
    .name = "commgemm-lines",
    .summary = "random jobs around user buffers, checked against a model of them",
    .usage = "[OPTION]...",
    .tables = tables,
    .n_tables = 1,
};

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static struct judge judge;
static struct script script;
static struct crew crew;
static uint64_t kills;
static struct lines_job jobs[LINES_STEPS][LINES_WORLD];

static void show_batch(void)
{
    char text[1024];
    for (uint32_t i = 0; i < script.n_steps; i++) {
        step_text(&script, i, text, sizeof(text));
        printf("  %s:", text);
        for (uint32_t rank = 0; rank < script.world; rank++)
            printf(" %s", commgemm_status_name(jobs[i][rank].status));
        printf("\n");
    }
}

static bool run_batches(struct cgm_random *random)
{
    struct batch_events *events = &judge.events;
    judge_begin(&judge, &crew);
    events->executor = crew_executor(&crew);
    for (uint32_t i = 0; i < BATCHES; i++) {
        judge_fill_cells(&judge, random);
        if (!judge_fill_user_buffers(&judge, random))
            return false;
        script_batch(&script, random);
        if (!batch_run(&crew, random, events, jobs) || !judge_batch(&judge, jobs))
            return false;
        if (events->killed) {
            if (!crew_recover(&crew))
                return false;
            judge_lose(&judge);
            events->executor = crew_executor(&crew);
            kills++;
        }
    }
    return true;
}

static bool run_round(const struct rounds *settings, uint64_t number, const char *socket)
{
    struct cgm_random random;
    cgm_random_init(&random, settings->seed ^ (number + 1) * 0xd1342543de82ef95u);
    script_begin(&script, &random);
    bool right = crew_open(&crew, &script, socket) && run_batches(&random);
    if (!right) {
        printf("lines: round %llu went wrong: %u ranks%s%s; again: --seed %llu --first %llu "
               "--rounds 1\n",
               (unsigned long long)number, script.world, script.streams ? ", streams" : "",
               script.users ? ", users" : "", (unsigned long long)settings->seed,
               (unsigned long long)number);
        if (settings->verbose)
            show_batch();
    }
    crew_close(&crew);
    return right;
}

static void report(uint64_t rounds)
{
    printf("%llu rounds, %llu executors killed; jobs of ranks, by status\n",
           (unsigned long long)rounds, (unsigned long long)kills);
    for (int i = 0; i < 64; i++)
        if (judge.statuses[i])
            printf("  %-20s %llu\n", commgemm_status_name(-i),
                   (unsigned long long)judge.statuses[i]);
    printf("%llu runs with results that are known, %llu numbers compared\n",
           (unsigned long long)judge.runs_right, (unsigned long long)judge.compared);
}

static double end_s; /* no round begins after that; 0: there is none */

static bool goes_on(const struct rounds *settings, uint64_t number)
{
    return number < settings->first + settings->n && !(end_s > 0 && now_s() >= end_s);
}

/* Rounds on one daemon, from *number on; which ones have one together follows from the numbers. */
static bool run_daemon(const struct rounds *settings, uint64_t *number)
{
    static const unsigned delays[] = {0, 0, 50, 300}, spins[] = {0, 20};
    struct cgm_private_daemon daemon;
    struct cgm_random random;
    char detail[CGM_BENCH_DETAIL_BYTES], set[128];
    judge.events.kills_left = DAEMON_KILLS;
    cgm_random_init(&random, settings->seed ^ *number / DAEMON_ROUNDS);
    snprintf(set, sizeof(set),
             "tune_ms=0,socket_mode=0666,graphs_from=%u,test_delay_us=%u,spin_us=%u",
             (unsigned)cgm_random_below(&random, 3), delays[cgm_random_below(&random, 4)],
             spins[cgm_random_below(&random, 2)]);
    if (cgm_private_daemon_start("cpu", 2, set, detail, &daemon))
        return printf("lines: %s\n", detail), false;
    chmod(daemon.folder, 0711); /* for the other users among the ranks */
    bool right = true;
    do
        right = run_round(settings, (*number)++, daemon.socket);
    while (right && *number % DAEMON_ROUNDS != 0 && goes_on(settings, *number));
    if (!right)
        printf("lines: with %s\n", set);
    cgm_private_daemon_stop(&daemon);
    return right;
}

static bool run_rounds(const struct rounds *settings)
{
    double begin = now_s();
    uint64_t number = settings->first;
    bool right = true;
    end_s = settings->seconds ? begin + (double)settings->seconds : 0;
    while (right && goes_on(settings, number))
        right = run_daemon(settings, &number);
    report(number - settings->first);
    printf("%s after %.1f s\n", right ? "all right" : "WRONG", now_s() - begin);
    return right;
}

int main(int argc, char **argv)
{
    struct rounds settings = {.n = 200};
    struct cgm_args args;
    if (cgm_args_parse(&program, argc, argv, &settings, &args) || args.n_words) {
        fprintf(stderr, "commgemm-lines: %s\n",
                args.detail[0] ? args.detail : "it takes options only");
        return 2;
    }
    if (settings.help)
        return cgm_args_help(&program, NULL, stdout), 0;
    if (!cgm_args_given(&program, &args, "seed"))
        settings.seed = cgm_random_seed() >> 16;
    setvbuf(stdout, NULL, _IOLBF, 0);
    setenv("COMMGEMM_LIBCUDA", FAKE_CUDA, 1);
    printf("seed %llu\n", (unsigned long long)settings.seed);
    return run_rounds(&settings) ? 0 : 1;
}
