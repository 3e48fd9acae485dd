/* MPS as the broker sees it; and sessions that an operator ends. */
#include "tests/daemon/mps_service.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/send_signal.h"

#define ANOTHER_UID 65534
#define STOPPED_MS 3300 /* longer than the control program may take */

/* ---- what is said about it --------------------------------------------------------------------
 */

static void expect_mps(struct client *client, const char *result, const char *words)
{
    char value[2048];
    query_value(client, CGM_QUERY_DOCTOR, "check", "\"mps\"", "result", value, sizeof(value));
    assert_non_null(strstr(value, result));
    query_value(client, CGM_QUERY_DOCTOR, "check", "\"mps\"", "text", value, sizeof(value));
    if (!strstr(value, words))
        fail_msg("%s lacks: %s", value, words);
    if (strcmp(result, "ok") == 0)
        return;
    query_value(client, CGM_QUERY_STATUS, NULL, NULL, "warnings", value, sizeof(value));
    assert_non_null(strstr(value, words));
    query_value(client, CGM_QUERY_DOCTOR, "check", "\"mps\"", "fix", value, sizeof(value));
    assert_non_null(strstr(value, "mps"));
}

static void test_both_sides_are_told(void **state)
{
    struct daemon daemon;
    struct client client;
    struct service service;
    (void)state;
    folder_use(&daemon);
    write_file(daemon.folder, "backend", "cuda", 0644);
    daemon_start(&daemon, NULL);
    client_open(&client, &daemon);
    expect_mps(&client, "warning", "140 us");
    service_start(&service, &daemon, getuid(), "-M");
    expect_mps(&client, "warning", "on, for all users: one faulting process");
    service_stop(&service);
    expect_mps(&client, "warning", "off");
    client_close(&client);
    daemon_stop(&daemon);
}

static void test_the_cpu_backend_is_not_concerned(void **state)
{
    struct daemon daemon;
    struct client client;
    (void)state;
    folder_use(&daemon);
    daemon_start(&daemon, NULL);
    client_open(&client, &daemon);
    expect_mps(&client, "ok", "off; only the CUDA backend");
    client_close(&client);
    daemon_stop(&daemon);
}

/* Anybody can make the directory where there is none, and put in it what he likes. */
static void test_a_pipe_in_the_place_of_mps(void **state)
{
    struct daemon daemon;
    struct client client;
    char path[128];
    (void)state;
    folder_use(&daemon);
    snprintf(path, sizeof(path), "%s/mps", daemon.folder);
    assert_int_equal(mkdir(path, 0755), 0);
    write_file(path, "control", "", 0666);
    snprintf(path, sizeof(path), "%s/mps/nvidia-cuda-mps-control.pid", daemon.folder);
    assert_int_equal(mkfifo(path, 0666), 0);
    daemon_start(&daemon, NULL);
    client_open(&client, &daemon);
    expect_mps(&client, "ok", "off; only the CUDA backend");
    client_close(&client);
    daemon_stop(&daemon);
}

/* A single-user service of this uid lets the executor start, and others' sessions have no ring. */
static void test_single_user_of_our_uid(void **state)
{
    struct daemon daemon;
    struct client client;
    struct service service;
    (void)state;
    folder_use(&daemon);
    write_file(daemon.folder, "backend", "cuda", 0644);
    service_start(&service, &daemon, getuid(), NULL);
    daemon_start(&daemon, NULL);
    client_open(&client, &daemon);
    expect_mps(&client, "warning", "for one user at a time");
    message_free(client_ring_set_up(&client, 4));
    client_close(&client);
    service_stop(&service);
    daemon_stop(&daemon);
}

static void test_single_user_of_another_uid(void **state)
{
    Cgm__BufferCreate create = CGM__BUFFER_CREATE__INIT;
    Cgm__RingSetup setup = CGM__RING_SETUP__INIT;
    struct daemon daemon;
    struct client client;
    struct service service;
    char path[128], setting[192];
    (void)state;
    if (getuid() != 0)
        skip();
    folder_use(&daemon);
    cuda_setting(&daemon, setting, sizeof(setting));
    service_start(&service, &daemon, ANOTHER_UID, NULL);
    daemon_start(&daemon, setting, NULL);
    client_open(&client, &daemon);
    expect_mps(&client, "failure", "serves uid 65534 alone");
    create.bytes = 1;
    client_error(&client, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0, CGM_NO_EXECUTOR,
                 "nvidia-cuda-mps-control -d -M");
    service_stop(&service);
    wait_for_executor(&client);
    /* Now with an executor that was there first. */
    snprintf(path, sizeof(path), "%s/mps/control", daemon.folder);
    unlink(path);
    snprintf(path, sizeof(path), "%s/mps/nvidia-cuda-mps-control.pid", daemon.folder);
    unlink(path);
    assert_int_equal(rmdir(service.folder), 0);
    service_start(&service, &daemon, ANOTHER_UID, NULL);
    setup.entries = 4;
    client_error(&client, CGM_MSG_RING_SETUP, &setup.base, NULL, 0, CGM_PERMISSION,
                 "serves uid 65534 alone");
    client_close(&client);
    service_stop(&service);
    daemon_stop(&daemon);
}

/* ---- an executor that loses its GPU, and one that cannot end ----------------------------------
 */

/* Makes the executor meet the fault with a session that has a ring. */
static void begin_trouble(const struct daemon *daemon, struct client *client, const char *fault)
{
    Cgm__BufferCreate create = CGM__BUFFER_CREATE__INIT;
    message_free(client_ring_set_up(client, 4));
    fake_fault(daemon, fault, "BufferAlloc", "");
    create.bytes = 1;
    client_send(client, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0);
}

static void expect_lost(struct client *client, int status)
{
    struct message *event = client_event(client, CGM_MSG_EXECUTOR_LOST);
    const Cgm__ExecutorLost *lost = (const Cgm__ExecutorLost *)event->body;
    assert_int_equal(lost->status, status);
    assert_non_null(strstr(lost->detail, "the test wants it"));
    message_free(event);
}

static void make_trouble(const struct daemon *daemon, struct client *client, const char *fault,
                         int status)
{
    begin_trouble(daemon, client, fault);
    expect_lost(client, status);
}

static void await_text(struct client *client, const char *words)
{
    char value[2048];
    for (int i = 0; i < WAIT_S * 100; i++, usleep(10000)) {
        query_value(client, CGM_QUERY_DOCTOR, "check", "\"executor\"", "text", value,
                    sizeof(value));
        if (strstr(value, words))
            return;
    }
    fail_msg("%s lacks: %s", value, words);
}

/* A daemon whose executor is under MPS; one client is its victim, the other one asks. */
struct stand {
    struct daemon daemon;
    struct client client, asker;
    struct service service;
    char pid[32]; /* of the executor, and a newline; once it is listed */
};

static void open_under_mps(struct stand *stand)
{
    char executor[192], control[160];
    folder_use(&stand->daemon);
    program_install(&stand->daemon, control, sizeof(control));
    cuda_setting(&stand->daemon, executor, sizeof(executor));
    service_start(&stand->service, &stand->daemon, getuid(), "-M");
    daemon_start(&stand->daemon, executor, control, NULL);
    client_open(&stand->client, &stand->daemon);
    client_open(&stand->asker, &stand->daemon);
}

static void list_executor(struct stand *stand)
{
    snprintf(stand->pid, sizeof(stand->pid), "%ju\n",
             (uintmax_t)status_number(&stand->asker, "executor_pid"));
    write_file(stand->daemon.folder, "answer.get_client_list", stand->pid, 0644);
}

static void close_under_mps(struct stand *stand)
{
    client_close(&stand->asker);
    client_close(&stand->client);
    service_stop(&stand->service);
    daemon_stop(&stand->daemon);
}

static void test_gpu_lost_under_mps_names_who_is_attached(void **state)
{
    struct stand stand;
    char words[128];
    (void)state;
    open_under_mps(&stand);
    prctl(PR_SET_NAME, "odd\033[2J\377"); /* for a terminal, and no UTF-8 */
    make_trouble(&stand.daemon, &stand.client, "lose", CGM_GPU_LOST);
    snprintf(words, sizeof(words), "until these have ended: %d (odd?[2J?)", (int)getpid());
    await_text(&stand.asker, words);
    write_file(stand.daemon.folder, "answer.get_client_list", "", 0644);
    wait_for_executor(&stand.asker);
    close_under_mps(&stand);
}

static void test_gpu_lost_without_mps_is_the_executors_own(void **state)
{
    struct daemon daemon;
    struct client client, asker;
    char executor[192];
    (void)state;
    folder_use(&daemon);
    cuda_setting(&daemon, executor, sizeof(executor));
    daemon_start(&daemon, executor, NULL);
    client_open(&client, &daemon);
    client_open(&asker, &daemon);
    make_trouble(&daemon, &client, "lose", CGM_EXECUTOR_LOST);
    wait_for_executor(&asker);
    client_close(&asker);
    client_close(&client);
    daemon_stop(&daemon);
}

/* MPS ends it before it is killed, so that its running kernels harm nobody. */
static void test_a_stuck_executor_is_ended_by_mps(void **state)
{
    struct stand stand;
    char path[160], commands[512] = "";
    (void)state;
    open_under_mps(&stand);
    list_executor(&stand);
    make_trouble(&stand.daemon, &stand.client, "stuck", CGM_EXECUTOR_LOST);
    wait_for_executor(&stand.asker);
    snprintf(path, sizeof(path), "%s/commands", stand.daemon.folder);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    commands[fread(commands, 1, sizeof(commands) - 1, file)] = '\0';
    fclose(file);
    snprintf(path, sizeof(path), "terminate_client " SERVER " %s", stand.pid);
    assert_non_null(strstr(commands, path));
    close_under_mps(&stand);
}

/* The daemon is stopped while it asks MPS, which answers at once: that is no reason to kill the
 * executor with its kernels running. */
static void test_mps_answers_a_daemon_that_is_stopped(void **state)
{
    struct stand stand;
    int status;
    (void)state;
    open_under_mps(&stand);
    list_executor(&stand);
    write_file(stand.daemon.folder, "stop.terminate_client", "", 0644);
    begin_trouble(&stand.daemon, &stand.client, "stuck");
    assert_int_equal(waitpid(stand.daemon.pid, &status, WUNTRACED), stand.daemon.pid);
    assert_true(WIFSTOPPED(status));
    usleep(STOPPED_MS * 1000);
    assert_int_equal(send_signal(stand.daemon.pid, SIGCONT), 0);
    expect_lost(&stand.client, CGM_EXECUTOR_LOST);
    wait_for_executor(&stand.asker);
    assert_false(daemon_log_has(&stand.daemon, "warning", "does not answer"));
    close_under_mps(&stand);
}

/* ---- kill -------------------------------------------------------------------------------------
 */

static void expect_kill(struct client *client, uint64_t session, int part, const char *note)
{
    Cgm__SessionKill request = CGM__SESSION_KILL__INIT;
    request.session = session;
    struct message *reply = client_call(client, CGM_MSG_SESSION_KILL, &request.base, NULL, 0,
                                        CGM_MSG_SESSION_KILL_REPLY);
    const Cgm__SessionKillReply *answer = (const Cgm__SessionKillReply *)reply->body;
    assert_int_equal(answer->pid, getpid());
    assert_int_equal(answer->mps, part);
    assert_non_null(strstr(answer->note, note));
    message_free(reply);
}

/* The victim is told, then hung up on; its comm is told that its rank is lost. */
static void end_one(const struct daemon *daemon, struct client *operator, int part,
                    const char *note)
{
    struct client victim;
    client_open(&victim, daemon);
    buffer_create(&victim, NULL, 1, 0, NULL);
    expect_kill(operator, victim.session, part, note);
    struct message *event = client_event(&victim, CGM_MSG_ERROR);
    expect_error(event, CGM_DAEMON_LOST, "an operator ended the session");
    assert_true(client_is_closed(&victim));
    client_close(&victim);
    wait_for_status(operator, "sessions", 1);
    assert_int_equal(status_number(operator, "buffers"), 0);
}

static void test_kill_without_mps(void **state)
{
    Cgm__SessionKill request = CGM__SESSION_KILL__INIT;
    struct daemon daemon;
    struct client operator;
    char setting[160];
    (void)state;
    folder_use(&daemon);
    program_install(&daemon, setting, sizeof(setting));
    daemon_start(&daemon, setting, NULL);
    client_open(&operator, & daemon);
    end_one(&daemon, &operator, CGM_MPS_OFF, "");
    expect_commands(&daemon, "");
    request.session = operator.session;
    client_error(&operator, CGM_MSG_SESSION_KILL, &request.base, NULL, 0, CGM_INVALID_ARGUMENT,
                 "disconnect instead");
    request.session = 4711;
    client_error(&operator, CGM_MSG_SESSION_KILL, &request.base, NULL, 0, CGM_NOT_FOUND, "4711");
    client_close(&operator);
    daemon_stop(&daemon);
}

static void test_kill_under_mps(void **state)
{
    struct daemon daemon;
    struct client operator;
    struct service service;
    char setting[160], commands[256], first[128];
    (void)state;
    folder_use(&daemon);
    program_install(&daemon, setting, sizeof(setting));
    service_start(&service, &daemon, getuid(), "-M");
    daemon_start(&daemon, setting, NULL);
    client_open(&operator, & daemon);
    end_one(&daemon, &operator, CGM_MPS_TERMINATED, "");
    snprintf(first, sizeof(first),
             "get_server_list\nget_client_list " SERVER "\nterminate_client " SERVER " %d\n",
             (int)getpid());
    expect_commands(&daemon, first);
    /* Not among the clients, although a number contains its own. */
    snprintf(commands, sizeof(commands), "1%d\n%d1\n", (int)getpid(), (int)getpid());
    write_file(daemon.folder, "answer.get_client_list", commands, 0644);
    end_one(&daemon, &operator, CGM_MPS_NO_CLIENT, "");
    write_file(daemon.folder, "answer.get_server_list", "", 0644);
    end_one(&daemon, &operator, CGM_MPS_NO_CLIENT, "");
    client_close(&operator);
    service_stop(&service);
    daemon_stop(&daemon);
}

/* Whatever the control program does, the session ends and the operator is told. */
static void test_kill_when_mps_fails(void **state)
{
    static const char *const commands[] = {"get_server_list", "get_client_list",
                                           "terminate_client"};
    struct daemon daemon;
    struct client operator;
    struct service service;
    char setting[160], name[64], endless[9000];
    (void)state;
    folder_use(&daemon);
    program_install(&daemon, setting, sizeof(setting));
    service_start(&service, &daemon, getuid(), "-M");
    daemon_start(&daemon, setting, NULL);
    client_open(&operator, & daemon);
    for (size_t i = 0; i < 3; i++) {
        snprintf(name, sizeof(name), "fail.%s", commands[i]);
        write_file(daemon.folder, name, "", 0644);
        end_one(&daemon, &operator, CGM_MPS_FAILED, commands[i]);
        fake_heal(&daemon, "fail", commands[i]);
    }
    write_file(daemon.folder, "hang.terminate_client", "", 0644);
    end_one(&daemon, &operator, CGM_MPS_FAILED, "does not answer");
    fake_heal(&daemon, "hang", "terminate_client");
    memset(endless, 'x', sizeof(endless) - 1);
    endless[sizeof(endless) - 1] = '\0';
    write_file(daemon.folder, "answer.get_client_list", endless, 0644);
    end_one(&daemon, &operator, CGM_MPS_NO_CLIENT, "");
    client_close(&operator);
    service_stop(&service);
    daemon_stop(&daemon);
}

static void test_kill_without_the_control_program(void **state)
{
    struct daemon daemon;
    struct client operator;
    struct service service;
    (void)state;
    folder_use(&daemon);
    service_start(&service, &daemon, getuid(), "-M");
    daemon_start(&daemon, "mps_control=/nonexistent/control", NULL);
    client_open(&operator, & daemon);
    end_one(&daemon, &operator, CGM_MPS_FAILED, "/nonexistent/control cannot be started");
    client_close(&operator);
    service_stop(&service);
    daemon_stop(&daemon);
}

/* The daemon ends although the control program does not; a victim that left is no matter. */
static void test_end_while_the_control_program_hangs(void **state)
{
    Cgm__SessionKill request = CGM__SESSION_KILL__INIT;
    struct daemon daemon;
    struct client operator, victim;
    struct service service;
    char setting[160];
    (void)state;
    folder_use(&daemon);
    program_install(&daemon, setting, sizeof(setting));
    write_file(daemon.folder, "hang.get_server_list", "", 0644);
    service_start(&service, &daemon, getuid(), "-M");
    daemon_start(&daemon, setting, NULL);
    client_open(&operator, & daemon);
    client_open(&victim, &daemon);
    request.session = victim.session;
    client_send(&operator, CGM_MSG_SESSION_KILL, &request.base, NULL, 0);
    client_close(&victim);
    wait_for_status(&operator, "sessions", 1);
    daemon_stop(&daemon);
    client_close(&operator);
    service_stop(&service);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_sides_are_told),
        cmocka_unit_test(test_the_cpu_backend_is_not_concerned),
        cmocka_unit_test(test_a_pipe_in_the_place_of_mps),
        cmocka_unit_test(test_single_user_of_our_uid),
        cmocka_unit_test(test_single_user_of_another_uid),
        cmocka_unit_test(test_gpu_lost_under_mps_names_who_is_attached),
        cmocka_unit_test(test_gpu_lost_without_mps_is_the_executors_own),
        cmocka_unit_test(test_a_stuck_executor_is_ended_by_mps),
        cmocka_unit_test(test_mps_answers_a_daemon_that_is_stopped),
        cmocka_unit_test(test_kill_without_mps),
        cmocka_unit_test(test_kill_under_mps),
        cmocka_unit_test(test_kill_when_mps_fails),
        cmocka_unit_test(test_kill_without_the_control_program),
        cmocka_unit_test(test_end_while_the_control_program_hangs),
    };
    if (argc > 2 && strcmp(argv[1], CONTROL_WORD) == 0)
        return be_control(argv + 2);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
