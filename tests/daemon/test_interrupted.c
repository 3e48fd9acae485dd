/* A program with signals that interrupt system calls, one after the other: no call of the library
 * fails or loses anything by it. */
#include "tests/daemon/broker_fixture.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "commgemm.h"
#include "tests/daemon/enter.h"

#define EVERY_US 1000
#define ENOUGH 3u /* signals: the call that waits has got one at least */
#define LIVES 20
#define JOBS 8

enum { M = 16, N = 16, K = 16, FLOATS = M * K + K * N + M * N };

static atomic_uint signals;

static void on_alarm(int number)
{
    (void)number;
    atomic_fetch_add(&signals, 1);
}

static void set_timer(long every_us)
{
    const struct itimerval timer = {{.tv_usec = every_us}, {.tv_usec = every_us}};
    assert_int_equal(setitimer(ITIMER_REAL, &timer, NULL), 0);
}

static int begin_signals(void **state)
{
    struct sigaction action = {.sa_handler = on_alarm}; /* without SA_RESTART */
    (void)state;
    sigaction(SIGALRM, &action, NULL);
    set_timer(EVERY_US);
    return 0;
}

static int end_signals(void **state)
{
    (void)state;
    set_timer(0);
    return 0;
}

static void await_signals(unsigned more)
{
    unsigned from = atomic_load(&signals);
    while (atomic_load(&signals) - from < more)
        sched_yield();
}

static void block_signals(void)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
}

/* Lets one in. */
static void *accept_later(void *listener)
{
    block_signals();
    await_signals(ENOUGH);
    close(accept(*(int *)listener, NULL, NULL));
    return NULL;
}

static int listen_on(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 0), 0);
    return fd;
}

/* There are as many already as may wait. */
static void test_connecting(void **state)
{
    char folder[] = "/tmp/cgm-interrupted-XXXXXX", path[64];
    int first, second;
    pthread_t thread;
    (void)state;
    set_timer(0);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/socket", folder);
    int listener = listen_on(path);
    assert_int_equal(cgm_socket_connect(path, &first), CGM_OK);
    set_timer(EVERY_US);
    assert_int_equal(pthread_create(&thread, NULL, accept_later, &listener), 0);
    assert_int_equal(cgm_socket_connect(path, &second), CGM_OK);
    pthread_join(thread, NULL);
    close(first);
    close(second);
    close(listener);
    unlink(path);
    rmdir(folder);
}

static void must(int status)
{
    if (status != COMMGEMM_OK)
        print_message("%s\n", commgemm_last_error());
    assert_int_equal(status, COMMGEMM_OK);
}

static void run_jobs(commgemm_client *client, const struct commgemm_plan *plan,
                     const struct commgemm_buffer *buffer)
{
    uint64_t tickets[JOBS];
    struct commgemm_completion done;
    struct commgemm_job job;
    commgemm_job_init(&job);
    job.plan = plan->id;
    job.lhs = commgemm_operand_at(buffer, 0);
    job.rhs = commgemm_operand_at(buffer, M * K * sizeof(float));
    job.out = commgemm_operand_at(buffer, (M * K + K * N) * sizeof(float));
    for (int i = 0; i < JOBS; i++)
        must(commgemm_submit(client, &job, &tickets[i]));
    for (int i = 0; i < JOBS; i++) {
        must(commgemm_wait(client, tickets[i], -1, &done));
        must(done.status);
        commgemm_completion_fini(&done);
    }
}

/* Over the ring, through the daemon's memory, and by requests. */
static void live(const struct daemon *daemon, unsigned number)
{
    struct commgemm_plan_options options;
    struct commgemm_plan plan;
    struct commgemm_buffer buffer, remote;
    float values[FLOATS], *memory;
    void *address;
    char *json;
    commgemm_client *client = enter(daemon);
    commgemm_plan_options_init(&options);
    options.op = COMMGEMM_OP_GEMM, options.m = M, options.n = N, options.k = K;
    must(commgemm_comm_join_simple(client, "interrupted", 1, 0, &options.comm));
    must(commgemm_plan_create(client, &options, &plan));
    must(commgemm_buffer_create(client, "kept", sizeof(values), -1, 0, 0, &buffer));
    for (int i = 0; i < FLOATS; i++)
        values[i] = i < M * K ? 0.5f : (float)number;
    remote = buffer;
    remote.fd = -1;
    must(commgemm_buffer_write(client, number % 2 ? &buffer : &remote, 0, values, sizeof(values)));
    must(commgemm_buffer_map(client, &buffer, &address));
    run_jobs(client, &plan, &buffer);
    memory = address;
    assert_true(memory[FLOATS - 1] == 0.5f * K * (float)number);
    must(commgemm_buffer_read(client, &remote, 0, values, sizeof(values)));
    assert_memory_equal(values, memory, sizeof(values));
    must(commgemm_query(client, "status", &json));
    free(json);
    must(commgemm_buffer_unmap(address, sizeof(values)));
    must(commgemm_buffer_destroy(client, "kept"));
    must(commgemm_plan_destroy(client, plan.id));
    must(commgemm_comm_leave(client, options.comm));
    commgemm_disconnect(client);
}

static void test_living(void **state)
{
    struct daemon daemon;
    (void)state;
    set_timer(0);
    daemon_init(&daemon);
    daemon_start(&daemon, REAL_EXECUTOR, NULL);
    set_timer(EVERY_US);
    for (unsigned i = 0; i < LIVES; i++)
        live(&daemon, i);
    set_timer(0);
    daemon_stop(&daemon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_connecting, begin_signals, end_signals),
        cmocka_unit_test_setup_teardown(test_living, begin_signals, end_signals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
