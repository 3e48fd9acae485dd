/* commgemmctl against a scripted daemon: exit statuses of refusals, and rows that are not nice. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/messages.h"
#include "proto/packet.h"
#include "proto/status.h"

static char folder[] = "/tmp/test_ctl_replies.XXXXXX";
static char socket_path[64];
static int listener;

/* What the scripted daemon answers. */
static struct {
    int hello_status; /* not OK: Hello is refused with it */
    int query_status;
    const char *key, *value; /* of the only row */
} script;

static void answer_error(int connection, uint32_t serial, int status)
{
    Cgm__Error error = CGM__ERROR__INIT;

    error.status = status;
    error.detail = (char *)"as the script says";
    cgm_packet_send(connection, CGM_MSG_ERROR, serial, &error.base, NULL, 0);
}

static void answer_hello(int connection, uint32_t serial)
{
    Cgm__HelloReply reply = CGM__HELLO_REPLY__INIT;

    reply.version = CGM_PROTOCOL_MAX;
    reply.release = (char *)"9.9.9";
    reply.backend = (char *)"cpu";
    cgm_packet_send(connection, CGM_MSG_HELLO_REPLY, serial, &reply.base, NULL, 0);
}

static void answer_query(int connection, uint32_t serial)
{
    Cgm__QueryReply reply = CGM__QUERY_REPLY__INIT;
    Cgm__Row row = CGM__ROW__INIT, *rows[] = {&row};
    char *key = (char *)script.key, *value = (char *)script.value;

    row.n_key = row.n_value = 1;
    row.key = &key;
    row.value = &value;
    reply.n_row = 1;
    reply.row = rows;
    cgm_packet_send(connection, CGM_MSG_QUERY_REPLY, serial, &reply.base, NULL, 0);
}

/* Serves one connection until the client hangs up. */
static void *serve(void *unused)
{
    static struct cgm_packet packet;
    int connection = accept(listener, NULL, NULL);

    (void)unused;
    while (cgm_packet_recv(connection, 0, &packet) == CGM_OK) {
        int status =
            packet.header.type == CGM_MSG_HELLO ? script.hello_status : script.query_status;
        if (status != CGM_OK)
            answer_error(connection, packet.header.serial, status);
        else if (packet.header.type == CGM_MSG_HELLO)
            answer_hello(connection, packet.header.serial);
        else
            answer_query(connection, packet.header.serial);
        cgm_packet_close_fds(&packet);
    }
    close(connection);
    return NULL;
}

/* Runs commgemmctl with the arguments and checks its exit status and that its output has the words.
 */
static void expect(int expected_status, const char *words, const char *arguments)
{
    char command[512], output[4096] = "";
    pthread_t server;

    assert_int_equal(pthread_create(&server, NULL, serve, NULL), 0);
    snprintf(command, sizeof(command), "%s/commgemmctl --socket %s %s 2>&1", CGM_BIN_DIR,
             socket_path, arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    output[fread(output, 1, sizeof(output) - 1, pipe)] = '\0';
    int status = pclose(pipe);
    assert_int_equal(pthread_join(server, NULL), 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != expected_status ||
        strstr(output, words) == NULL)
        fail_msg("%s: status %x, expected exit %d and \"%s\":\n%s", arguments, (unsigned)status,
                 expected_status, words, output);
}

static void test_statuses_become_exit_statuses(void **state)
{
    static const struct {
        int status, exit;
    } cases[] = {
        {CGM_VERSION, 5}, {CGM_PERMISSION, 4}, {CGM_DRAINING, 1}, {CGM_INVALID_ARGUMENT, 2}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char words[128];
        snprintf(words, sizeof(words),
                 "commgemmctl: status: %s: ", cgm_status_text(cases[i].status));
        script.hello_status = cases[i].status;
        script.query_status = CGM_OK;
        expect(cases[i].exit, words, "status");
        script.hello_status = CGM_OK;
        script.query_status = cases[i].status;
        expect(cases[i].exit, words, "status --json");
        expect(cases[i].exit, "as the script says", "status");
    }
    script.query_status = CGM_OK;
}

static void test_advice_helps(void **state)
{
    (void)state;
    script.query_status = CGM_PERMISSION;
    expect(4, "try: run it as the buffer's owner or root", "buffers destroy x");
    expect(4, "create it with a wider --mode", "buffers checksum x");
    expect(4, "try: run it as the daemon's user or root", "drain");
    script.query_status = CGM_OK;
}

static void set_row(const char *key, const char *value)
{
    script.key = key;
    script.value = value;
}

static void test_odd_rows_are_shown(void **state)
{
    (void)state;
    set_row("name", "\"esc\\u001b[2J\\n\"");
    expect(0, "esc?[2J?", "buffers");
    expect(0, "{\"version\":1,\"buffers\":[{\"name\":\"esc\\u001b[2J\\n\"}]}", "buffers --json");
    set_row("bytes", "18446744073709551615");
    expect(0, "18446744073709551615", "buffers");
    expect(0, "18446744073709551615", "buffers --json");
    set_row("bytes", "9223372036854775807");
    expect(0, "9223372036854775807", "buffers");
    set_row("name", "\"\\\\\\\"12345678901234567890\"");
    expect(0, "\\\"12345678901234567890", "buffers");
    set_row("id", "18446744073709551615");
    expect(0, "18446744073709551615", "plans");
    set_row("mode", "\"0640\"");
    expect(0, "0640", "buffers");
    set_row("ranks", "[\"1:0\",\"1:1\"]");
    expect(0, "1:0,1:1", "sessions");
    set_row("backend", "\"esc\\u001b[2J\\nJobs done: 9\"");
    expect(0, "Backend: esc?[2J?Jobs done: 9\n", "status");
    set_row("unknown", "null");
    expect(0, "PID: -", "status");
}

static void test_another_release_is_a_warning(void **state)
{
    (void)state;
    set_row("check", "\"scripted\"");
    expect(0, "the daemon is release 9.9.9", "doctor");
    expect(0, "scripted", "doctor");
    set_row("result", "\"failure\"");
    expect(1, "failure", "doctor");
    script.hello_status = CGM_VERSION;
    expect(1, "as the script says", "doctor");
    script.hello_status = CGM_OK;
}

static int set_up(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(socket_path, sizeof(socket_path), "%s/sock", folder);
    strcpy(address.sun_path, socket_path);
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (bind(listener, (const struct sockaddr *)&address, sizeof(address)) != 0)
        return -1;
    return listen(listener, 4);
}

static int tear_down(void **state)
{
    (void)state;
    close(listener);
    unlink(socket_path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statuses_become_exit_statuses),
        cmocka_unit_test(test_advice_helps),
        cmocka_unit_test(test_odd_rows_are_shown),
        cmocka_unit_test(test_another_release_is_a_warning),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
