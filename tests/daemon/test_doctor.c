/* A backend's doctor: it is asked once for all who ask, between jobs, and may say anything. */
#include "tests/daemon/broker_fixture.h"

#include <string.h>

#define ASKERS 8

static void set_up(struct daemon *daemon, struct client *client)
{
    daemon_init(daemon);
    daemon_start(daemon, "executor=" CGM_BIN_DIR "/doctor_executor", "devices=2", NULL);
    client_open(client, daemon);
}

static void expect_row(struct client *client, const char *check, const char *key, const char *value)
{
    char found[512];
    query_value(client, CGM_QUERY_DOCTOR, "check", check, key, found, sizeof(found));
    assert_string_equal(found, value);
}

static void test_rows(void **state)
{
    struct daemon daemon;
    struct client client;
    (void)state;
    set_up(&daemon, &client);
    expect_row(&client, "\"count\"", "text", "\"look 1\"");
    expect_row(&client, "\"device 1\"", "result", "\"ok\"");
    expect_row(&client, "\"words\"", "result", "\"warning\"");
    expect_row(&client, "\"words\"", "text", "\"a 'quoted' ' and a'line\"");
    expect_row(&client, "\"words\"", "fix", "\"none\"");
    expect_row(&client, "\"count\"", "text", "\"look 1\"");
    client_close(&client);
    daemon_stop(&daemon);
}

static void test_many_ask_at_once(void **state)
{
    Cgm__Query query = CGM__QUERY__INIT;
    struct daemon daemon;
    struct client clients[ASKERS];
    uint32_t serials[ASKERS];
    (void)state;
    set_up(&daemon, &clients[0]);
    query.what = CGM_QUERY_DOCTOR;
    for (int i = 0; i < ASKERS; i++) {
        if (i > 0)
            client_open(&clients[i], &daemon);
        serials[i] = client_send(&clients[i], CGM_MSG_QUERY, &query.base, NULL, 0);
    }
    for (int i = 0; i < ASKERS; i++) {
        struct message *reply = client_reply(&clients[i], serials[i]);
        assert_int_equal(reply->type, CGM_MSG_QUERY_REPLY);
        message_free(reply);
    }
    for (int i = 0; i < ASKERS; i++) {
        expect_row(&clients[i], "\"count\"", "text", "\"look 1\"");
        client_close(&clients[i]);
    }
    daemon_stop(&daemon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_many_ask_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
