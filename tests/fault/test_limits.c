/* What one user may take, how it is told, and that it is nobody else's: daemons with small limits,
 * users by their uid where the tests run as root. */
#include "tests/daemon/broker_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/system.h"
#include "tests/send_signal.h"

#define PAGE 4096u

static uint64_t quota_number(struct client *client, const char *quota, const char *key)
{
    char match[64], value[32];
    snprintf(match, sizeof(match), "\"%s\"", quota);
    query_value(client, CGM_QUERY_QUOTAS, "quota", match, key, value, sizeof(value));
    return strtoull(value, NULL, 10);
}

static uint64_t used_of(struct client *client, const char *quota)
{
    return quota_number(client, quota, "used");
}

static uint64_t quota_ending(struct client *client, const char *quota)
{
    return quota_number(client, quota, "ending");
}

static void wait_for_quota(struct client *client, const char *quota, uint64_t used)
{
    for (int naps = 0; used_of(client, quota) != used; naps++) {
        assert_true(naps < WAIT_S * 100);
        usleep(10000);
    }
}

/* ---- quotas -----------------------------------------------------------------------------------
 */

static void expect_comm(struct client *client, uint32_t size, const char *refusal)
{
    Cgm__CommCreate create = CGM__COMM_CREATE__INIT;
    create.size = size;
    if (refusal)
        client_error(client, CGM_MSG_COMM_CREATE, &create.base, NULL, 0, CGM_QUOTA, refusal);
    else
        message_free(
            client_call(client, CGM_MSG_COMM_CREATE, &create.base, NULL, 0, CGM_MSG_COMM_REPLY));
}

/* Whole pages are charged. What is asked for is not used yet. */
static void test_bytes_that_are_rounded(void **state)
{
    Cgm__BufferCreate create = CGM__BUFFER_CREATE__INIT;
    struct daemon daemon;
    struct client client;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, REAL_EXECUTOR, "quota_bytes=1000000", NULL);
    client_open(&client, &daemon);
    wait_for_executor(&client);
    create.bytes = 999999;
    client_error(&client, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0, CGM_QUOTA,
                 "asked for 1003520, used 0, allowed 1000000");
    assert_int_equal(used_of(&client, "quota_bytes"), 0);
    assert_int_equal(used_of(&client, "quota_buffers"), 0);
    client_close(&client);
    daemon_stop(&daemon);
}

static void test_comms_and_ranks(void **state)
{
    struct daemon daemon;
    struct client client, other;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, "quota_comms=3", "quota_ranks=100", NULL);
    client_open(&client, &daemon);
    client_open(&other, &daemon);
    expect_comm(&client, 64, NULL);
    expect_comm(&other, 64, "quota_ranks of uid");
    expect_comm(&other, 37, "asked for 37, used 64, allowed 100");
    expect_comm(&other, 30, NULL);
    expect_comm(&client, 1, NULL);
    expect_comm(&client, 1, "asked for 1, used 3, allowed 3");
    client_close(&client);
    wait_for_quota(&other, "quota_comms", 1);
    assert_int_equal(used_of(&other, "quota_ranks"), 30);
    expect_comm(&other, 64, NULL);
    client_close(&other);
    daemon_stop(&daemon);
}

static void test_jobs_are_counted_by_rings(void **state)
{
    Cgm__RingSetup setup = CGM__RING_SETUP__INIT;
    Cgm__BufferCreate create = CGM__BUFFER_CREATE__INIT;
    struct daemon daemon;
    struct client one, two;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, "quota_jobs=1200", NULL);
    client_open(&one, &daemon);
    client_open(&two, &daemon);
    setup.entries = 1024;
    message_free(client_call(&one, CGM_MSG_RING_SETUP, &setup.base, NULL, 0, CGM_MSG_RING));
    setup.entries = 256;
    client_error(&two, CGM_MSG_RING_SETUP, &setup.base, NULL, 0, CGM_QUOTA,
                 "asked for 256, used 1024, allowed 1200");
    /* Who submits through the socket has as many. */
    create.bytes = 1;
    client_error(&two, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0, CGM_QUOTA, "quota_jobs");
    setup.entries = 128;
    message_free(client_call(&two, CGM_MSG_RING_SETUP, &setup.base, NULL, 0, CGM_MSG_RING));
    client_close(&one);
    wait_for_quota(&two, "quota_jobs", 128);
    client_close(&two);
    daemon_stop(&daemon);
}

static uint32_t send_import_of(struct client *client, int memfd, uint32_t segments, uint64_t bytes)
{
    Cgm__ImportCreate create = CGM__IMPORT_CREATE__INIT;
    uint32_t kind[CGM_IMPORT_SEGMENTS_MAX];
    uint64_t offset[CGM_IMPORT_SEGMENTS_MAX] = {0}, length[CGM_IMPORT_SEGMENTS_MAX];
    int fds[CGM_IMPORT_SEGMENTS_MAX];
    for (uint32_t i = 0; i < segments; i++) {
        kind[i] = 1;
        length[i] = bytes;
        fds[i] = memfd;
    }
    create.n_kind = create.n_offset = create.n_length = segments;
    create.kind = kind;
    create.offset = offset;
    create.length = length;
    return client_send(client, CGM_MSG_IMPORT_CREATE, &create.base, fds, segments);
}

static uint32_t send_import(struct client *client, int memfd, uint32_t segments)
{
    return send_import_of(client, memfd, segments, PAGE);
}

/* Memory that was never touched costs its owner nothing, and the executor as many addresses. */
static void test_bytes_of_imports_are_counted(void **state)
{
    enum { MIB = 1 << 20 };
    Cgm__ImportRelease release = CGM__IMPORT_RELEASE__INIT;
    struct daemon daemon;
    struct client client, other;
    (void)state;
    int memfd = memfd_create("limits", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(memfd, 1ll << 40), 0);
    assert_int_equal(fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    daemon_init(&daemon);
    daemon_start(&daemon, "quota_import_bytes=10485760", NULL);
    client_open(&client, &daemon);
    client_open(&other, &daemon);
    expect_error(client_reply(&client, send_import_of(&client, memfd, 1, 1ull << 40)), CGM_QUOTA,
                 "quota_import_bytes of uid");
    struct message *reply = client_reply(&client, send_import_of(&client, memfd, 8, MIB));
    assert_int_equal(reply->type, CGM_MSG_IMPORT_REPLY);
    release.id = ((const Cgm__ImportReply *)reply->body)->id;
    message_free(reply);
    expect_error(client_reply(&other, send_import_of(&other, memfd, 3, MIB)), CGM_QUOTA,
                 "asked for 3145728, used 8388608, allowed 10485760");
    message_free(client_reply(&other, send_import_of(&other, memfd, 2, MIB)));
    assert_int_equal(used_of(&other, "quota_import_bytes"), 10 * MIB);
    client_ok(&client, CGM_MSG_IMPORT_RELEASE, &release.base);
    wait_for_quota(&other, "quota_import_bytes", 2 * MIB);
    client_close(&client);
    client_close(&other);
    daemon_stop(&daemon);
    close(memfd);
}

/* Also where nothing is configured: mappings cost the executor memory for page tables. */
static void test_bytes_of_imports_have_a_bound(void **state)
{
    struct daemon daemon;
    struct client client;
    char allowed[64];
    uint64_t total, available;
    (void)state;
    assert_int_equal(cgm_system_memory(&total, &available), CGM_OK);
    int memfd = memfd_create("limits", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(memfd, (off_t)total), 0);
    assert_int_equal(fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    daemon_init(&daemon);
    daemon_start(&daemon, "quota_import_bytes=0", NULL);
    client_open(&client, &daemon);
    struct message *reply = client_reply(&client, send_import_of(&client, memfd, 4, total));
    assert_int_equal(reply->type, CGM_MSG_IMPORT_REPLY);
    message_free(reply);
    snprintf(allowed, sizeof(allowed), "used %ju, allowed %ju", (uintmax_t)(4 * total),
             (uintmax_t)(4 * total));
    expect_error(client_reply(&client, send_import(&client, memfd, 1)), CGM_QUOTA, allowed);
    client_close(&client);
    daemon_stop(&daemon);
    close(memfd);
}

static void test_fds_are_counted(void **state)
{
    struct daemon daemon;
    struct client client, other;
    (void)state;
    int memfd = memfd_create("limits", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(memfd, PAGE), 0);
    assert_int_equal(fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    daemon_init(&daemon);
    daemon_start(&daemon, "quota_fds=70", NULL);
    client_open(&other, &daemon);
    wait_for_status(&other, "sessions", 1);
    client_open(&client, &daemon);
    struct message *reply = client_reply(&client, send_import(&client, memfd, 60));
    assert_int_equal(reply->type, CGM_MSG_IMPORT_REPLY);
    message_free(reply);
    expect_error(client_reply(&client, send_import(&client, memfd, 9)), CGM_QUOTA,
                 "quota_fds of uid");
    buffer_create(&client, NULL, 1, 0, NULL);
    assert_int_equal(used_of(&other, "quota_fds"), 63);
    client_close(&client);
    wait_for_quota(&other, "quota_fds", 1);
    assert_int_equal(used_of(&other, "quota_imports"), 0);
    client_close(&other);
    daemon_stop(&daemon);
    close(memfd);
}

/* ---- pairs of priorities ----------------------------------------------------------------------
 */

/* Each is queues for every rank, which stay with the comm when the plans of the pair are gone. */
static void test_pairs_count_the_ranks_again(void **state)
{
    Cgm__PlanDestroy destroy = CGM__PLAN_DESTROY__INIT;
    struct daemon daemon;
    struct client client, other;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, "quota_ranks=11", NULL);
    client_open(&client, &daemon);
    client_open(&other, &daemon);
    uint64_t comm = comm_join_all(&client, "four", 4);
    pair_plan_create(&client, comm, 8, 0, 0);
    pair_plan_create(&client, comm, 8, 5, 1); /* no device has more than 0 */
    assert_int_equal(used_of(&other, "quota_ranks"), 4);
    destroy.id = pair_plan_create(&client, comm, 8, -3, 0);
    assert_int_equal(used_of(&other, "quota_ranks"), 8);
    assert_int_equal(pair_plan_create(&client, comm, 8, -3, 0), destroy.id);
    pair_plan_create(&client, comm, 16, -3, 0);
    pair_plan_create(&client, comm, 8, -3, 2);
    pair_plan_create_error(&client, comm, 8, 0, -3, CGM_QUOTA, ": asked for 4, used 8, allowed 11");
    pair_plan_create_error(&client, comm, 8, -3, -3, CGM_QUOTA,
                           "queues of other priorities: quota_ranks of uid");
    client_ok(&client, CGM_MSG_PLAN_DESTROY, &destroy.base);
    assert_int_equal(used_of(&other, "quota_ranks"), 8);
    assert_int_equal(status_number(&other, "plans"), 4); /* nothing is left of those refused */
    client_close(&client);
    wait_for_quota(&other, "quota_ranks", 0);
    client_close(&other);
    daemon_stop(&daemon);
}

/* Nobody knows how far the executor came with a plan that it was told to make. */
static void test_pairs_of_plans_that_fail(void **state)
{
    struct daemon daemon;
    struct client client;
    char status[8];
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, NULL);
    client_open(&client, &daemon);
    uint64_t comm = comm_join_all(&client, "four", 4);
    snprintf(status, sizeof(status), "%d", CGM_NO_MEMORY);
    fake_fault(&daemon, "error", "PlanMeasure", status);
    pair_plan_create_error(&client, comm, 8, -1, 0, CGM_NO_MEMORY, "the test");
    assert_int_equal(used_of(&client, "quota_ranks"), 4);
    fake_heal(&daemon, "error", "PlanMeasure");
    fake_fault(&daemon, "error", "PlanAdd", status);
    pair_plan_create_error(&client, comm, 8, -1, 0, CGM_NO_MEMORY, "the test");
    assert_int_equal(used_of(&client, "quota_ranks"), 8);
    fake_heal(&daemon, "error", "PlanAdd");
    pair_plan_create(&client, comm, 8, -1, 0);
    assert_int_equal(used_of(&client, "quota_ranks"), 8);
    client_close(&client);
    daemon_stop(&daemon);
}

/* What it has refused has no queues, and what it had made is made again by the next one. */
static void test_pairs_that_the_executor_has(void **state)
{
    struct daemon daemon;
    struct client client;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, "executor=" CGM_BIN_DIR "/commgemm-executor-cpu", "backend=cpu", NULL);
    client_open(&client, &daemon);
    uint64_t comm = comm_join_all(&client, "two", 2);
    pair_plan_create_error(&client, comm, 8, -6, 0, CGM_INVALID_ARGUMENT, "gemm_priority is -6");
    pair_plan_create_error(&client, comm, 8, -1, 6, CGM_INVALID_ARGUMENT, "comm_priority is 6");
    pair_plan_create_error(&client, comm, 9, -1, 0, CGM_INVALID_ARGUMENT, "m");
    assert_int_equal(used_of(&client, "quota_ranks"), 2);
    pair_plan_create(&client, comm, 8, -1, 0);
    pair_plan_create(&client, comm, 8, 0, -1);
    assert_int_equal(used_of(&client, "quota_ranks"), 6);
    uint64_t life = client_kill_executor(&client);
    wait_for_more(&client, "executor_life", life);
    pair_plan_create(&client, comm, 16, 0, -1);
    assert_int_equal(used_of(&client, "quota_ranks"), 6);
    pair_plan_create(&client, comm, 8, -5, -5);
    assert_int_equal(used_of(&client, "quota_ranks"), 8);
    pair_plan_create_error(&client, comm, 8, -2, 0, CGM_QUOTA, "at most 4 pairs");
    assert_int_equal(used_of(&client, "quota_ranks"), 8);
    client_close(&client);
    daemon_stop(&daemon);
}

/* ---- plans ------------------------------------------------------------------------------------
 */

static uint64_t first_plan(void)
{
    struct daemon daemon;
    struct client client;
    daemon_init(&daemon);
    daemon_start(&daemon, NULL);
    client_open(&client, &daemon);
    uint64_t comm = comm_join_all(&client, "one", 1), id = plan_create(&client, comm, 16);
    assert_int_equal(plan_create(&client, comm, 16), id);
    client_close(&client);
    daemon_stop(&daemon);
    return id;
}

/* Else somebody could find, at leisure, a plan that takes the place of another's. */
static void test_plan_ids_cannot_be_foretold(void **state)
{
    (void)state;
    assert_int_not_equal(first_plan(), first_plan());
}

/* Who asks again and again for a plan that is being made is not read until it is there. */
static void test_waiting_for_a_plan_is_limited(void **state)
{
    enum { REQUESTS = 20000 };
    static uint8_t packet[CGM_PACKET_BYTES_MAX];
    Cgm__PlanCreate create = CGM__PLAN_CREATE__INIT;
    struct daemon daemon;
    struct client client, other;
    size_t size;
    int sent = 0, naps = 0;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, NULL);
    fake_fault(&daemon, "drop", "PlanAdd", "");
    client_open(&client, &daemon);
    client_open(&other, &daemon);
    create.comm = comm_join_all(&client, "one", 1);
    create.op = 2;
    create.method = 4;
    create.m = create.n = create.k = 8;
    assert_int_equal(cgm_packet_pack(CGM_MSG_PLAN_CREATE, 1000, &create.base, 0, packet, &size),
                     CGM_OK);
    while (sent < REQUESTS && naps < 20) {
        if (send(client.fd, packet, size, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)size) {
            sent++;
        } else {
            naps++;
            usleep(10000);
        }
    }
    assert_in_range(sent, 1, REQUESTS / 4);
    assert_int_equal(status_number(&other, "sessions"), 2);
    client_close(&client);
    wait_for_status(&other, "sessions", 1);
    client_close(&other);
    daemon_stop(&daemon);
}

/* While plans are made none has its memory yet, and each knows of the others. */
static void test_plans_that_are_made_at_once(void **state)
{
    Cgm__PlanCreate create = CGM__PLAN_CREATE__INIT;
    struct daemon daemon;
    struct client client, other;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, "quota_bytes=100000", NULL);
    fake_fault(&daemon, "drop", "PlanAdd", "");
    client_open(&client, &daemon);
    client_open(&other, &daemon);
    create.comm = comm_join_all(&client, "one", 1);
    create.op = 2;
    create.method = 4;
    create.n = create.k = 8;
    create.m = 16; /* the fake says that it takes 36 KiB to make it */
    client_send(&client, CGM_MSG_PLAN_CREATE, &create.base, NULL, 0);
    create.m = 24;
    client_send(&client, CGM_MSG_PLAN_CREATE, &create.base, NULL, 0);
    create.m = 32;
    client_error(&client, CGM_MSG_PLAN_CREATE, &create.base, NULL, 0, CGM_QUOTA,
                 "quota_bytes of uid");
    assert_int_equal(used_of(&other, "quota_bytes"), (16 + 24) * 8 * 4 * 64 + 2 * 4096);
    client_close(&client);
    assert_int_equal(send_signal((pid_t)status_number(&other, "executor_pid"), SIGKILL), 0);
    wait_for_quota(&other, "quota_bytes", 0);
    client_close(&other);
    daemon_stop(&daemon);
}

/* Everything that is given out is given back. */
static void test_nothing_stays_counted(void **state)
{
    static const char *const quotas[] = {"quota_bytes",        "quota_buffers", "quota_plans",
                                         "quota_comms",        "quota_ranks",   "quota_jobs",
                                         "quota_import_bytes", "quota_opens"};
    struct daemon daemon;
    struct client client, other;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, NULL);
    client_open(&other, &daemon);
    for (int round = 0; round < 3; round++) {
        client_open(&client, &daemon);
        buffer_create(&client, NULL, 10000, 0, NULL);
        plan_create(&client, comm_join_all(&client, "four", 4), 16);
        assert_true(used_of(&other, "quota_bytes") > 12000);
        assert_int_equal(used_of(&other, "quota_plans"), 1);
        assert_int_equal(used_of(&other, "quota_ranks"), 4);
        client_close(&client);
        for (size_t i = 0; i < sizeof(quotas) / sizeof(quotas[0]); i++)
            wait_for_quota(&other, quotas[i], 0);
        wait_for_quota(&other, "quota_fds", 1);
    }
    client_close(&other);
    daemon_stop(&daemon);
}

/* Jobs may go on using what their owner has dropped. */
static void test_counted_until_the_executor_is_through(void **state)
{
    static const char *const removals[] = {"BufferRemove", "PlanRemove", "CommRemove",
                                           "ImportRemove", "SessionRemove"};
    static const struct {
        const char *quota;
        uint64_t ending;
    } rows[] = {{"quota_buffers", 1}, {"quota_plans", 1},   {"quota_comms", 1},
                {"quota_ranks", 4},   {"quota_imports", 1}, {"quota_jobs", 256}};
    struct daemon daemon;
    struct client client, other;
    (void)state;
    int memfd = memfd_create("limits", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(memfd, PAGE), 0);
    assert_int_equal(fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    daemon_init(&daemon);
    daemon_start(&daemon, NULL);
    for (size_t i = 0; i < sizeof(removals) / sizeof(removals[0]); i++)
        fake_fault(&daemon, "drop", removals[i], "");
    client_open(&other, &daemon);
    client_open(&client, &daemon);
    buffer_create(&client, NULL, 10000, 0, NULL);
    plan_create(&client, comm_join_all(&client, "four", 4), 16);
    message_free(client_reply(&client, send_import(&client, memfd, 1)));
    client_close(&client);
    wait_for_status(&other, "sessions", 1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(quota_ending(&other, rows[i].quota), rows[i].ending);
    assert_true(quota_ending(&other, "quota_bytes") > 10000);
    assert_int_equal(send_signal((pid_t)status_number(&other, "executor_pid"), SIGKILL), 0);
    wait_for_executor(&other);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(quota_ending(&other, rows[i].quota), 0);
        assert_int_equal(used_of(&other, rows[i].quota), 0);
    }
    wait_for_quota(&other, "quota_bytes", 0);
    wait_for_quota(&other, "quota_fds", 1);
    client_close(&other);
    daemon_stop(&daemon);
    close(memfd);
}

/* Closing gives room at once, but not without end. */
static void test_what_is_ending_is_limited_too(void **state)
{
    Cgm__BufferCreate create = CGM__BUFFER_CREATE__INIT;
    Cgm__BufferClose close_it = CGM__BUFFER_CLOSE__INIT;
    struct daemon daemon;
    struct client client;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, "quota_buffers=3", NULL);
    fake_fault(&daemon, "drop", "BufferRemove", "");
    client_open(&client, &daemon);
    for (int i = 0; i < 5; i++) {
        close_it.id = buffer_create(&client, NULL, 1, 0, NULL);
        client_ok(&client, CGM_MSG_BUFFER_CLOSE, &close_it.base);
    }
    buffer_create(&client, NULL, 1, 0, NULL);
    create.bytes = 1;
    client_error(
        &client, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0, CGM_QUOTA,
        "asked for 1, used 1 and 5 that are still in use by jobs or being freed, allowed 3");
    client_close(&client);
    daemon_stop(&daemon);
}

static void send_open(struct client *client, uint64_t id, const char *refusal)
{
    Cgm__BufferOpen m = CGM__BUFFER_OPEN__INIT;
    m.has_id = 1;
    m.id = id;
    if (refusal)
        client_error(client, CGM_MSG_BUFFER_OPEN, &m.base, NULL, 0, CGM_QUOTA, refusal);
    else
        message_free(
            client_call(client, CGM_MSG_BUFFER_OPEN, &m.base, NULL, 0, CGM_MSG_BUFFER_REPLY));
}

/* Each open takes memory of the daemon, whoever's the buffer is; again in the same session it takes
 * none. */
static void test_opens_are_counted(void **state)
{
    static const char refusal[] = "asked for 1, used 3, allowed 3";
    Cgm__BufferClose close_it = CGM__BUFFER_CLOSE__INIT;
    Cgm__BufferCreate create = CGM__BUFFER_CREATE__INIT;
    struct daemon daemon;
    struct client client, other;
    uint64_t ids[2];
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, "quota_opens=3", NULL);
    client_open(&client, &daemon);
    client_open(&other, &daemon);
    ids[0] = buffer_create(&client, "one", 1, 0, NULL);
    ids[1] = buffer_create(&client, "two", 1, 0, NULL);
    send_open(&client, ids[0], NULL);
    send_open(&other, ids[0], NULL);
    send_open(&other, ids[1], refusal);
    create.bytes = 1;
    client_error(&other, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0, CGM_QUOTA, refusal);
    assert_int_equal(status_number(&client, "buffers"), 2); /* nothing is left of it */
    close_it.id = ids[0];
    client_ok(&other, CGM_MSG_BUFFER_CLOSE, &close_it.base);
    send_open(&other, ids[1], NULL);
    assert_int_equal(used_of(&client, "quota_opens"), 3);
    client_close(&other);
    wait_for_quota(&client, "quota_opens", 2);
    client_close(&client);
    daemon_stop(&daemon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_that_are_rounded),
        cmocka_unit_test(test_comms_and_ranks),
        cmocka_unit_test(test_jobs_are_counted_by_rings),
        cmocka_unit_test(test_bytes_of_imports_are_counted),
        cmocka_unit_test(test_bytes_of_imports_have_a_bound),
        cmocka_unit_test(test_fds_are_counted),
        cmocka_unit_test(test_pairs_count_the_ranks_again),
        cmocka_unit_test(test_pairs_of_plans_that_fail),
        cmocka_unit_test(test_pairs_that_the_executor_has),
        cmocka_unit_test(test_plan_ids_cannot_be_foretold),
        cmocka_unit_test(test_waiting_for_a_plan_is_limited),
        cmocka_unit_test(test_plans_that_are_made_at_once),
        cmocka_unit_test(test_nothing_stays_counted),
        cmocka_unit_test(test_counted_until_the_executor_is_through),
        cmocka_unit_test(test_what_is_ending_is_limited_too),
        cmocka_unit_test(test_opens_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
