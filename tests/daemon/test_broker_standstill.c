/* The daemon is stopped for longer than its clients and its executor may take: who did nothing
 * wrong meanwhile is not to blame when it goes on. It stops itself at a step, at a request that the
 * test sends right behind the one whose time is to pass: how busy the machine is does not matter.
 */
#include "tests/daemon/steps_fixture.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/send_signal.h"

#define FAKE_EXECUTOR "executor=" CGM_BIN_DIR "/fake_executor"

static void stop(const struct daemon *daemon)
{
    int status;
    assert_int_equal(send_signal(daemon->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(daemon->pid, &status, WUNTRACED), daemon->pid);
    assert_true(WIFSTOPPED(status));
}

static void go_on(const struct daemon *daemon)
{
    assert_int_equal(send_signal(daemon->pid, SIGCONT), 0);
}

static uint32_t send_status_query(struct client *client)
{
    Cgm__Query query = CGM__QUERY__INIT;
    query.what = CGM_QUERY_STATUS;
    return client_send(client, CGM_MSG_QUERY, &query.base, NULL, 0);
}

/* What lies there is read, up to the query, where it stops again. */
static void go_on_to_query(struct scene *scene)
{
    arm(scene, CGM_STEP_CLIENT_REQUEST, CGM_MSG_QUERY);
    go_on(&scene->daemon);
    assert_int_equal(await_stop(scene), scene->daemon.pid);
}

static void go_on_after(struct scene *scene, unsigned ms)
{
    usleep(ms * 1000);
    go_on(&scene->daemon);
}

static void expect_reply(struct client *client, uint32_t serial, int type)
{
    struct message *reply = client_reply(client, serial);
    assert_int_equal(reply->type, type);
    message_free(reply);
}

static void test_a_join_that_comes_meanwhile(void **state)
{
    struct scene scene;
    struct client first, second;
    (void)state;
    scene_open(&scene, "join_timeout=600", FAKE_EXECUTOR);
    client_open(&first, &scene.daemon);
    client_open(&second, &scene.daemon);
    wait_for_executor(&first);
    stop(&scene.daemon);
    uint32_t early = send_join(&first, "pair", 2, 0, 500);
    uint32_t query = send_status_query(&first);
    go_on_to_query(&scene);
    uint32_t late = send_join(&second, "pair", 2, 1, 500);
    go_on_after(&scene, 800);
    expect_reply(&first, early, CGM_MSG_COMM_REPLY);
    expect_reply(&second, late, CGM_MSG_COMM_REPLY);
    expect_reply(&first, query, CGM_MSG_QUERY_REPLY);
    client_close(&first);
    client_close(&second);
    scene_close(&scene);
}

/* Of the one who was let in before another one asked. */
static void test_a_hello_that_comes_meanwhile(void **state)
{
    Cgm__Hello hello = CGM__HELLO__INIT;
    struct scene scene;
    struct client silent, asking;
    (void)state;
    hello.min_version = CGM_PROTOCOL_MIN;
    hello.max_version = CGM_PROTOCOL_MAX;
    scene_open(&scene, "hello_timeout=1", FAKE_EXECUTOR);
    stop(&scene.daemon);
    client_connect(&silent, &scene.daemon);
    client_connect(&asking, &scene.daemon);
    uint32_t greeting = client_send(&asking, CGM_MSG_HELLO, &hello.base, NULL, 0);
    uint32_t query = send_status_query(&asking);
    go_on_to_query(&scene);
    uint32_t late = client_send(&silent, CGM_MSG_HELLO, &hello.base, NULL, 0);
    go_on_after(&scene, 1300);
    expect_reply(&silent, late, CGM_MSG_HELLO_REPLY);
    expect_reply(&asking, greeting, CGM_MSG_HELLO_REPLY);
    expect_reply(&asking, query, CGM_MSG_QUERY_REPLY);
    client_close(&silent);
    client_close(&asking);
    scene_close(&scene);
}

/* The executor stands still with the daemon, in the middle of its start. */
static void test_an_executor_that_starts_meanwhile(void **state)
{
    struct scene scene;
    struct client client;
    (void)state;
    scene_open(&scene, "executor_start_timeout=2", REAL_EXECUTOR);
    client_open(&client, &scene.daemon);
    wait_for_executor(&client);
    buffer_create(&client, "kept", 4096, 0, NULL);
    uint64_t life = status_number(&client, "executor_life");
    arm(&scene, CGM_STEP_EXECUTOR_REQUEST, CGM_MSG_BUFFER_ADOPT);
    assert_int_equal(send_signal((pid_t)status_number(&client, "executor_pid"), SIGKILL), 0);
    pid_t executor = await_stop(&scene);
    stop(&scene.daemon);
    bool in_time = !daemon_log_has(&scene.daemon, "error", "did not answer in time");
    go_on_after(&scene, 2300);
    send_signal(executor, SIGCONT);
    wait_for_executor(&client);
    if (in_time) /* else it was given up before */
        assert_int_equal(status_number(&client, "executor_life"), life + 1);
    client_close(&client);
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_join_that_comes_meanwhile),
        cmocka_unit_test(test_a_hello_that_comes_meanwhile),
        cmocka_unit_test(test_an_executor_that_starts_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
