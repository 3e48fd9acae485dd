/* Executors that cannot start: everybody is told why, and backend = auto goes on with the next. And
 * a daemon that hears signals, and is asked for, while it starts or ends. */
#include "tests/daemon/broker_fixture.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NO_DRIVER "there is no CUDA driver on this machine"

/* A folder with both executors, where the daemon will look. */
static void install_executors(const struct daemon *daemon)
{
    static const char *const names[] = {"cuda", "cpu"};
    char path[256];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/commgemm-executor-%s", daemon->folder, names[i]);
        assert_int_equal(symlink(CGM_BIN_DIR "/fake_executor", path), 0);
    }
    setenv("COMMGEMM_LIBEXEC", daemon->folder, 1);
}

static void expect_words(struct client *client, uint32_t what, const char *match, const char *key,
                         const char *words)
{
    char value[2048];
    query_value(client, what, match ? "check" : NULL, match, key, value, sizeof(value));
    if (!strstr(value, words))
        fail_msg("%s: %s lacks: %s", key, value, words);
}

static void test_auto_goes_on_with_the_cpu_and_says_so(void **state)
{
    struct daemon daemon;
    struct client client;
    (void)state;
    daemon_init(&daemon);
    install_executors(&daemon);
    fake_fault(&daemon, "refuse", "ExecutorSetup", NO_DRIVER);
    daemon_start(&daemon, "executor=", "backend=auto", NULL);
    client_open(&client, &daemon);
    buffer_create(&client, "works", 1, 0, NULL);
    assert_true(daemon_log_has(&daemon, "warning", NO_DRIVER));
    expect_words(&client, CGM_QUERY_DOCTOR, "\"backend\"", "result", "warning");
    expect_words(&client, CGM_QUERY_DOCTOR, "\"backend\"", "text", NO_DRIVER);
    expect_words(&client, CGM_QUERY_STATUS, NULL, "warnings", NO_DRIVER);
    expect_words(&client, CGM_QUERY_STATUS, NULL, "device_names", "x fake");
    assert_int_equal(status_number(&client, "executor_deaths"), 0);
    client_close(&client);
    daemon_stop(&daemon);
    unsetenv("COMMGEMM_LIBEXEC");
}

static void test_cuda_alone_says_why_it_does_not_start(void **state)
{
    Cgm__BufferCreate create = CGM__BUFFER_CREATE__INIT;
    Cgm__RingSetup setup = CGM__RING_SETUP__INIT;
    struct daemon daemon;
    struct client client;
    char number[16];
    (void)state;
    daemon_init(&daemon);
    install_executors(&daemon);
    snprintf(number, sizeof(number), "%d", CGM_NOT_SUPPORTED);
    fake_fault(&daemon, "error", "ExecutorSetup", number);
    daemon_start(&daemon, "executor=", "backend=cuda", NULL);
    client_open(&client, &daemon);
    /* Also after the process has ended, which says less. */
    for (int i = 0; i < 20; i++) {
        expect_words(&client, CGM_QUERY_DOCTOR, "\"executor\"", "result", "failure");
        expect_words(&client, CGM_QUERY_DOCTOR, "\"executor\"", "text", "the test wants it");
        expect_words(&client, CGM_QUERY_STATUS, NULL, "executor_missing", "the test wants it");
        expect_words(&client, CGM_QUERY_STATUS, NULL, "warnings", "the test wants it");
        usleep(20000);
    }
    create.bytes = 1;
    client_error(&client, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0, CGM_NO_EXECUTOR,
                 "the test wants it");
    setup.entries = 4;
    client_error(&client, CGM_MSG_RING_SETUP, &setup.base, NULL, 0, CGM_NO_EXECUTOR,
                 "the test wants it");
    fake_heal(&daemon, "error", "ExecutorSetup");
    wait_for_executor(&client);
    expect_words(&client, CGM_QUERY_DOCTOR, "\"executor\"", "result", "ok");
    client_close(&client);
    daemon_stop(&daemon);
    unsetenv("COMMGEMM_LIBEXEC");
}

/* One that ends without a word is named. */
static void test_silent_end_is_named(void **state)
{
    struct daemon daemon;
    struct client client;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, "executor=/bin/false", NULL);
    client_open(&client, &daemon);
    expect_words(&client, CGM_QUERY_DOCTOR, "\"executor\"", "text", "false, process ");
    client_close(&client);
    daemon_stop(&daemon);
}

/* Which is before it listens. */
static void launch_until_there_is_a_socket(struct daemon *daemon)
{
    static const char *const no_settings[] = {NULL};
    daemon_launch(daemon, no_settings);
    while (access(daemon->socket, F_OK) != 0)
        assert_int_equal(waitpid(daemon->pid, NULL, WNOHANG), 0);
}

static void test_an_end_as_soon_as_there_is_a_socket(void **state)
{
    struct daemon daemon;
    (void)state;
    daemon_init(&daemon);
    for (int i = 0; i < 50; i++) {
        launch_until_there_is_a_socket(&daemon);
        assert_int_equal(kill(daemon.pid, SIGTERM), 0);
        assert_int_equal(daemon_wait(&daemon), 0);
        assert_int_not_equal(access(daemon.socket, F_OK), 0);
    }
    daemon_start(&daemon, NULL);
    daemon_stop(&daemon);
}

static void test_a_reload_as_soon_as_there_is_a_socket(void **state)
{
    struct daemon daemon;
    struct client client;
    (void)state;
    daemon_init(&daemon);
    for (int i = 0; i < 20; i++) {
        launch_until_there_is_a_socket(&daemon);
        assert_int_equal(kill(daemon.pid, SIGHUP), 0);
        daemon_wait_for_socket(&daemon);
        client_open(&client, &daemon);
        client_close(&client);
        assert_int_equal(kill(daemon.pid, SIGTERM), 0);
        assert_int_equal(daemon_wait(&daemon), 0);
    }
    daemon_start(&daemon, NULL);
    daemon_stop(&daemon);
}

/* Whoever may connect never hears that he may not, however early he comes. */
static void test_a_newcomer_hears_that_it_does_not_run_yet(void **state)
{
    static const char *const for_all[] = {"socket_mode=0666", NULL};
    struct daemon daemon;
    int fd, status;
    (void)state;
    skip_unless_root();
    daemon_init(&daemon);
    for (int i = 0; i < 50; i++) {
        daemon_launch(&daemon, for_all);
        assert_int_equal(seteuid(STRANGER), 0);
        while ((status = cgm_socket_connect(daemon.socket, &fd)) == CGM_NOT_RUNNING)
            continue;
        assert_int_equal(seteuid(0), 0);
        assert_int_equal(status, CGM_OK);
        close(fd);
        assert_int_equal(kill(daemon.pid, SIGTERM), 0);
        assert_int_equal(daemon_wait(&daemon), 0);
    }
    daemon_start(&daemon, NULL);
    daemon_stop(&daemon);
}

/* It ends by itself, whatever comes meanwhile. */
static void test_signals_until_the_end(void **state)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
    struct daemon daemon;
    int status;
    (void)state;
    daemon_init(&daemon);
    for (unsigned i = 0; i < 20 * sizeof(signals) / sizeof(signals[0]); i++) {
        daemon_start(&daemon, NULL);
        assert_int_equal(kill(daemon.pid, SIGTERM), 0);
        while (waitpid(daemon.pid, &status, WNOHANG) == 0)
            kill(daemon.pid, signals[i % 3]);
        daemon.pid = 0;
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    daemon_start(&daemon, NULL);
    daemon_stop(&daemon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_end_as_soon_as_there_is_a_socket),
        cmocka_unit_test(test_a_reload_as_soon_as_there_is_a_socket),
        cmocka_unit_test(test_a_newcomer_hears_that_it_does_not_run_yet),
        cmocka_unit_test(test_signals_until_the_end),
        cmocka_unit_test(test_auto_goes_on_with_the_cpu_and_says_so),
        cmocka_unit_test(test_cuda_alone_says_why_it_does_not_start),
        cmocka_unit_test(test_silent_end_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
