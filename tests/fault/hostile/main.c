/* hostile_client --socket PATH [--seconds N] [--seed N] [--as UID] [ATTACK...]
 *
 * Runs the attacks, all of them unless some are named, each for N seconds (default 1). Exit status
 * 0 when the daemon lets it in afterwards and answers, 1 when it does not, 2 for wrong usage. */
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/fault/hostile/hostile.h"

static const struct attack attacks[] = {
    {"messages", "every message and field, valid structure, odd values", attack_messages},
    {"packets", "noise, cut packets, headers that lie", attack_packets},
    {"fds", "imports of pipes, sockets, directories, unsealed and short memfds", attack_fds},
    {"flood", "connections as fast as they come", attack_flood},
    {"half_open", "as many silent connections as it gets", attack_half_open},
    {"deaf", "asks for much and reads nothing", attack_deaf},
    {"questions", "listings on many connections at once", attack_questions},
    {"rings", "indices that jump, slots that are not there", attack_rings},
    {"entries", "jobs with odd operands, rows, plans and flags", attack_entries},
    {"scribble", "entries and slots that change while they are read", attack_scribble},
    {"feed", "many rings that are always full", attack_feed},
    {"listings", "listings of many jobs that wait", attack_listings},
    {"comms", "thousands of comms", attack_comms},
    {"buffers", "thousands of buffers, and those of others", attack_buffers},
    {"plans", "hundreds of plans, with sizes that overflow", attack_plans},
    {"imports", "imports of 64 segments", attack_imports},
};
#define ATTACK_COUNT (sizeof(attacks) / sizeof(attacks[0]))

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int usage(const char *why)
{
    fprintf(stderr,
            "hostile_client: %s\nusage: hostile_client --socket PATH [--seconds N] [--seed N] "
            "[--as UID] [ATTACK...]\nattacks:\n",
            why);
    for (size_t i = 0; i < ATTACK_COUNT; i++)
        fprintf(stderr, "  %-10s %s\n", attacks[i].name, attacks[i].help);
    return 2;
}

static void run(const struct attack *attack, struct hostile *hostile, double seconds)
{
    double end = now_s() + seconds;
    struct hostile before = *hostile;
    do {
        attack->round(hostile);
        hostile->rounds++;
    } while (now_s() < end);
    printf("%-10s %6ju rounds %8ju packets %8ju replies %8ju errors %6ju cut off\n", attack->name,
           (uintmax_t)(hostile->rounds - before.rounds),
           (uintmax_t)(hostile->packets - before.packets),
           (uintmax_t)(hostile->replies - before.replies),
           (uintmax_t)(hostile->errors - before.errors), (uintmax_t)(hostile->cuts - before.cuts));
    fflush(stdout);
}

/* The daemon's own doubts of this user must have time to go: rates are counted in seconds. */
static bool is_served(struct hostile *hostile)
{
    for (int attempt = 0; attempt < 30; attempt++) {
        struct line line;
        Cgm__Query query = CGM__QUERY__INIT;
        ProtobufCMessage *reply = NULL;
        if (line_open(hostile, &line)) {
            cgm_message_free(line_reply(hostile, &line, CGM_MSG_HELLO_REPLY, NULL, NULL));
            line_send(hostile, &line, CGM_MSG_QUERY, &query.base, NULL, 0);
            reply = line_reply(hostile, &line, CGM_MSG_QUERY_REPLY, NULL, NULL);
        }
        line_close(&line);
        cgm_message_free(reply);
        if (reply)
            return true;
        usleep(200000);
    }
    return false;
}

static const struct attack *find(const char *name)
{
    for (size_t i = 0; i < ATTACK_COUNT; i++)
        if (strcmp(attacks[i].name, name) == 0)
            return &attacks[i];
    return NULL;
}

static int run_named(struct hostile *hostile, double seconds, char **names, int n_names)
{
    for (int i = 0; i < n_names; i++)
        if (!find(names[i]))
            return usage("there is no such attack");
    for (int i = 0; i < n_names; i++)
        run(find(names[i]), hostile, seconds);
    for (size_t i = 0; n_names == 0 && i < ATTACK_COUNT; i++)
        run(&attacks[i], hostile, seconds);
    return is_served(hostile) ? 0 : 1;
}

static void take_every_fd(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int main(int argc, char **argv)
{
    struct hostile hostile = {.socket = getenv("COMMGEMM_SOCKET")};
    unsigned seed = (unsigned)time(NULL) ^ (unsigned)getpid();
    double seconds = 1;
    uid_t uid = getuid();
    struct stat st;
    int at = 1;
    for (; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
        if (strcmp(argv[at], "--socket") == 0)
            hostile.socket = argv[at + 1];
        else if (strcmp(argv[at], "--seconds") == 0)
            seconds = atof(argv[at + 1]);
        else if (strcmp(argv[at], "--seed") == 0)
            seed = (unsigned)atoi(argv[at + 1]);
        else if (strcmp(argv[at], "--as") == 0)
            uid = (uid_t)atoi(argv[at + 1]);
        else
            return usage("there is no such option");
    }
    if (!hostile.socket)
        return usage("it needs --socket or $COMMGEMM_SOCKET");
    if (uid != getuid() && (setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0))
        return usage("it cannot become that user");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    hostile.operator= uid == 0 ||(stat(hostile.socket, &st) == 0 && st.st_uid == uid);
    take_every_fd();
    srandom(seed);
    printf("seed %u\n", seed);
    return run_named(&hostile, seconds, argv + at, argc - at);
}
