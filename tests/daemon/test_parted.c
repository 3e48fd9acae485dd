/* Devices that do not reach each other's memory: comms with ranks on both are refused, by name. */
#include "tests/daemon/broker_fixture.h"

static void expect_refused(struct client *client, int32_t *devices, const char *words)
{
    Cgm__CommCreate create = CGM__COMM_CREATE__INIT;
    Cgm__CommJoin join = CGM__COMM_JOIN__INIT;
    uint32_t ranks[] = {0, 1};
    create.size = 2;
    struct message *reply =
        client_call(client, CGM_MSG_COMM_CREATE, &create.base, NULL, 0, CGM_MSG_COMM_REPLY);
    join.id = ((Cgm__CommReply *)reply->body)->id;
    message_free(reply);
    join.has_id = 1;
    join.ranks = ranks;
    join.devices = devices;
    join.n_ranks = join.n_devices = 2;
    if (words)
        client_error(client, CGM_MSG_COMM_JOIN, &join.base, NULL, 0, CGM_NOT_SUPPORTED, words);
    else
        message_free(
            client_call(client, CGM_MSG_COMM_JOIN, &join.base, NULL, 0, CGM_MSG_COMM_REPLY));
}

static void test_ranks_that_do_not_reach_each_other(void **state)
{
    struct daemon daemon;
    struct client client;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, "executor=" CGM_BIN_DIR "/parted_executor", "devices=4", NULL);
    client_open(&client, &daemon);
    wait_for_executor(&client);
    expect_refused(&client, (int32_t[]){1, 2},
                   "device 1 of rank 0 cannot access the memory of device 2 of rank 1");
    expect_refused(&client, (int32_t[]){2, 1},
                   "device 2 of rank 0 cannot access the memory of device 1 of rank 1");
    expect_refused(&client, (int32_t[]){0, 1}, NULL);
    expect_refused(&client, (int32_t[]){2, 2}, NULL);
    client_close(&client);
    daemon_stop(&daemon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_that_do_not_reach_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
