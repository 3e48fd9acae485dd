/* Somebody sets up a comm, plans and a buffer again and again beside another user who has such made
 * and ended as fast as he can. All of it is made; how long it took is printed.
 *
 * test_set_up [SECONDS]: SECONDS beside each attack, default 1. */
#include "tests/daemon/broker_fixture.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/bench/stats.h"
#include "tests/backend.h"

#define STRANGER_TEXT "12345"
#define WORLD 2u
#define SAMPLES_MAX 100000u
#define LARGE_M 16384u /* a user buffer of 64 MiB on each rank */
#define LARGE_K 1024u

enum step { COMM, SMALL_PLAN, LARGE_PLAN, BUFFER, STEPS };

static const char *const step_names[STEPS] = {"comm", "small plan", "large plan", "buffer"};
static const char *const attacks[] = {NULL, "comms", "buffers", "plans", "imports"};
static const char *seconds = "1";

struct scene {
    struct daemon daemon;
    commgemm_client *client;
    double ms[STEPS][SAMPLES_MAX];
    uint32_t samples;
};

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static void join(struct scene *scene, uint64_t *ret_comm)
{
    static const uint32_t ranks[WORLD] = {0, 1};
    struct commgemm_join_options options;
    commgemm_join_options_init(&options);
    options.name = "set_up";
    options.create = 1;
    options.size = options.n_ranks = WORLD;
    options.ranks = ranks;
    assert_int_equal(commgemm_comm_join(scene->client, &options, ret_comm), COMMGEMM_OK);
}

static void plan(struct scene *scene, uint64_t comm, uint64_t m, uint64_t k)
{
    struct commgemm_plan_options options;
    struct commgemm_plan made;
    commgemm_plan_options_init(&options);
    options.comm = comm;
    options.op = COMMGEMM_OP_AG_GEMM;
    options.method = COMMGEMM_METHOD_RING_EXCHANGE;
    options.m = m;
    options.n = 32;
    options.k = k;
    assert_int_equal(commgemm_plan_create(scene->client, &options, &made), COMMGEMM_OK);
}

static void took(struct scene *scene, enum step step, double *begin_ms)
{
    double end_ms = now_ms();
    scene->ms[step][scene->samples] = end_ms - *begin_ms;
    *begin_ms = end_ms;
}

static void set_up_once(struct scene *scene)
{
    struct commgemm_buffer buffer;
    uint64_t comm;
    double begin_ms = now_ms();
    join(scene, &comm);
    took(scene, COMM, &begin_ms);
    plan(scene, comm, 32, 16);
    took(scene, SMALL_PLAN, &begin_ms);
    plan(scene, comm, LARGE_M, LARGE_K);
    took(scene, LARGE_PLAN, &begin_ms);
    assert_int_equal(commgemm_buffer_create(scene->client, NULL, 4096, -1, 0, 0, &buffer),
                     COMMGEMM_OK);
    took(scene, BUFFER, &begin_ms);
    scene->samples++;
    assert_int_equal(commgemm_buffer_close(scene->client, buffer.id), COMMGEMM_OK);
    assert_int_equal(commgemm_comm_leave(scene->client, comm), COMMGEMM_OK);
}

static pid_t start_attack(const struct scene *scene, const char *attack)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execl(CGM_BIN_DIR "/hostile_client", "hostile_client", "--socket", scene->daemon.socket, "--as",
          STRANGER_TEXT, "--seconds", seconds, attack, (char *)NULL);
    _exit(127);
}

static void report(struct scene *scene, const char *attack)
{
    print_message("beside %s, %u times:", attack ? attack : "nobody", scene->samples);
    for (int i = 0; i < STEPS; i++) {
        struct cgm_stats stats = cgm_stats_of(scene->ms[i], scene->samples);
        print_message("%s %s %.1f, %.1f, %.1f", i ? ";" : "", step_names[i], stats.median,
                      stats.p99, stats.max);
    }
    print_message(" ms\n");
}

static void set_up_beside(struct scene *scene, const char *attack)
{
    pid_t pid = attack ? start_attack(scene, attack) : 0;
    double end_ms = now_ms() + atof(seconds) * 1e3;
    int status = 0;
    scene->samples = 0;
    do
        set_up_once(scene);
    while (now_ms() < end_ms && scene->samples < SAMPLES_MAX);
    if (pid)
        assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    report(scene, attack);
}

static void test_all_of_it_is_made(void **state)
{
    static struct scene scene;
    struct commgemm_connect_options options;
    (void)state;
    skip_unless_root();
    daemon_init(&scene.daemon);
    daemon_start(&scene.daemon, test_backend_setting(), test_executor_setting(),
                 test_devices_setting(), "socket_mode=0666", "log_level=warning", NULL);
    commgemm_connect_options_init(&options);
    options.socket = scene.daemon.socket;
    assert_int_equal(commgemm_connect(&options, &scene.client), COMMGEMM_OK);
    assert_int_equal(commgemm_wait_executor(scene.client, WAIT_S * 1000), COMMGEMM_OK);
    print_message("median, p99 and longest of each step:\n");
    for (size_t i = 0; i < sizeof(attacks) / sizeof(attacks[0]); i++)
        set_up_beside(&scene, attacks[i]);
    commgemm_disconnect(scene.client);
    daemon_stop(&scene.daemon);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_of_it_is_made)};
    if (argc > 1)
        seconds = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
