/* What its owner has let go of is at the cost of those who keep it, and not for longer than their
 * quotas have room for it: nobody fills another's. */
#include "tests/daemon/broker_fixture.h"

#include <string.h>
#include <unistd.h>

#define ANN (STRANGER + 1u)
#define BOB STRANGER

struct scene {
    struct daemon daemon;
    struct client ann, bob, operator;
};

static void scene_open(struct scene *scene, const char *quota)
{
    daemon_init(&scene->daemon);
    daemon_start(&scene->daemon, "socket_mode=0666", quota, NULL);
    client_open(&scene->operator, & scene->daemon);
    wait_for_executor(&scene->operator);
    client_open_as(ANN, &scene->ann, &scene->daemon);
    client_open_as(BOB, &scene->bob, &scene->daemon);
}

static void scene_close(struct scene *scene)
{
    client_close(&scene->bob);
    client_close(&scene->ann);
    client_close(&scene->operator);
    daemon_stop(&scene->daemon);
}

static void wait_for_quota(struct scene *scene, uid_t uid, const char *quota, uint64_t used)
{
    for (unsigned naps = 0; quota_used(&scene->operator, uid, quota) != used; naps++) {
        assert_true(naps < WAIT_S * 100);
        usleep(10000);
    }
}

/* ---- buffers ----------------------------------------------------------------------------------
 */

static void open_to_read(struct client *client, uint64_t id)
{
    Cgm__BufferOpen open_it = CGM__BUFFER_OPEN__INIT;
    open_it.has_id = open_it.has_read_only = open_it.read_only = 1;
    open_it.id = id;
    message_free(
        client_call(client, CGM_MSG_BUFFER_OPEN, &open_it.base, NULL, 0, CGM_MSG_BUFFER_REPLY));
}

static void close_buffer(struct client *client, uint64_t id)
{
    Cgm__BufferClose close_it = CGM__BUFFER_CLOSE__INIT;
    close_it.id = id;
    client_ok(client, CGM_MSG_BUFFER_CLOSE, &close_it.base);
}

/* Readable for everybody; Bob has it open when Ann has destroyed it. */
static uint64_t publish_and_destroy(struct scene *scene)
{
    Cgm__BufferDestroy destroy = CGM__BUFFER_DESTROY__INIT;
    uint64_t id = buffer_create(&scene->ann, "weights", 1, 0644, NULL);
    open_to_read(&scene->bob, id);
    destroy.name = (char *)(uintptr_t) "weights";
    client_ok(&scene->ann, CGM_MSG_BUFFER_DESTROY, &destroy.base);
    return id;
}

static void check_buffer(struct client *client, uint64_t id, int status)
{
    Cgm__BufferCheck check = CGM__BUFFER_CHECK__INIT;
    check.id = id;
    if (status == CGM_OK)
        client_ok(client, CGM_MSG_BUFFER_CHECK, &check.base);
    else
        client_error(client, CGM_MSG_BUFFER_CHECK, &check.base, NULL, 0, status, "open");
}

static void test_buffers(void **state)
{
    Cgm__BufferClose close_it = CGM__BUFFER_CLOSE__INIT;
    struct scene scene;
    (void)state;
    skip_unless_root();
    scene_open(&scene, "quota_buffers=2");
    uint64_t kept = publish_and_destroy(&scene);
    assert_int_equal(quota_used(&scene.operator, ANN, "quota_buffers"), 1); /* she has it open */
    assert_int_equal(quota_used(&scene.operator, BOB, "quota_buffers"), 0);
    close_buffer(&scene.ann, kept);
    wait_for_quota(&scene, ANN, "quota_buffers", 0);
    assert_int_equal(quota_used(&scene.operator, BOB, "quota_buffers"), 1);
    assert_true(quota_used(&scene.operator, BOB, "quota_bytes") > 0);
    buffer_create(&scene.bob, NULL, 1, 0, NULL);
    /* For another one he has no room. */
    close_it.id = publish_and_destroy(&scene);
    check_buffer(&scene.bob, close_it.id, CGM_OK);
    close_buffer(&scene.ann, close_it.id);
    wait_for_quota(&scene, ANN, "quota_buffers", 0);
    wait_for_status(&scene.operator, "buffers", 2);
    check_buffer(&scene.bob, close_it.id, CGM_NOT_FOUND);
    client_error(&scene.bob, CGM_MSG_BUFFER_CLOSE, &close_it.base, NULL, 0, CGM_NOT_FOUND, "open");
    assert_true(daemon_log_has(&scene.daemon, "warning",
                               "has no room for it in its quotas: quota_buffers"));
    close_buffer(&scene.bob, kept);
    wait_for_quota(&scene, BOB, "quota_buffers", 1);
    scene_close(&scene);
}

/* Who comes back to what is his pays again, or does not get it. */
static void test_the_owner_comes_back(void **state)
{
    Cgm__BufferOpen open_it = CGM__BUFFER_OPEN__INIT;
    struct scene scene;
    (void)state;
    skip_unless_root();
    scene_open(&scene, "quota_buffers=1");
    uint64_t id = publish_and_destroy(&scene);
    close_buffer(&scene.ann, id);
    wait_for_quota(&scene, BOB, "quota_buffers", 1);
    open_to_read(&scene.ann, id);
    assert_int_equal(quota_used(&scene.operator, ANN, "quota_buffers"), 1);
    assert_int_equal(quota_used(&scene.operator, BOB, "quota_buffers"), 0);
    close_buffer(&scene.ann, id);
    wait_for_quota(&scene, BOB, "quota_buffers", 1);
    buffer_create(&scene.ann, NULL, 1, 0, NULL);
    open_it.has_id = 1;
    open_it.id = id;
    client_error(&scene.ann, CGM_MSG_BUFFER_OPEN, &open_it.base, NULL, 0, CGM_QUOTA,
                 "quota_buffers of uid 12346");
    assert_int_equal(quota_used(&scene.operator, ANN, "quota_opens"), 1);
    scene_close(&scene);
}

/* Nobody else is asked while he who pays has it, and nobody loses it. */
static void test_who_pays_goes_on_paying(void **state)
{
    struct scene scene;
    struct client again, full;
    (void)state;
    skip_unless_root();
    scene_open(&scene, "quota_buffers=1");
    client_open_as(BOB + 2, &full, &scene.daemon);
    client_open_as(BOB, &again, &scene.daemon);
    buffer_create(&full, NULL, 1, 0, NULL);
    uint64_t id = publish_and_destroy(&scene);
    open_to_read(&full, id);
    open_to_read(&again, id);
    close_buffer(&scene.ann, id);
    close_buffer(&scene.bob, id);
    wait_for_quota(&scene, ANN, "quota_buffers", 0);
    assert_int_equal(quota_used(&scene.operator, BOB, "quota_buffers"), 1);
    close_buffer(&full, id);
    close_buffer(&again, id);
    wait_for_quota(&scene, BOB, "quota_buffers", 0);
    client_close(&again);
    client_close(&full);
    scene_close(&scene);
}

/* ---- comms and plans --------------------------------------------------------------------------
 */

static uint64_t create_comm(struct client *client, uint32_t size)
{
    Cgm__CommCreate create = CGM__COMM_CREATE__INIT;
    create.size = size;
    create.has_mode = 1;
    create.mode = 0666;
    struct message *reply =
        client_call(client, CGM_MSG_COMM_CREATE, &create.base, NULL, 0, CGM_MSG_COMM_REPLY);
    uint64_t id = ((Cgm__CommReply *)reply->body)->id;
    message_free(reply);
    return id;
}

static uint32_t join(struct client *client, uint64_t id, uint32_t rank)
{
    Cgm__CommJoin message = CGM__COMM_JOIN__INIT;
    message.has_id = 1;
    message.id = id;
    message.n_ranks = 1;
    message.ranks = &rank;
    return client_send(client, CGM_MSG_COMM_JOIN, &message.base, NULL, 0);
}

static void expect_joined(struct client *client, uint32_t serial)
{
    struct message *reply = client_reply(client, serial);
    assert_int_equal(reply->type, CGM_MSG_COMM_REPLY);
    message_free(reply);
}

static uint64_t both_join(struct scene *scene)
{
    uint64_t id = create_comm(&scene->ann, 2);
    uint32_t ann = join(&scene->ann, id, 0), bob = join(&scene->bob, id, 1);
    expect_joined(&scene->ann, ann);
    expect_joined(&scene->bob, bob);
    return id;
}

static void leave(struct client *client, uint64_t id)
{
    Cgm__CommLeave message = CGM__COMM_LEAVE__INIT;
    message.id = id;
    client_ok(client, CGM_MSG_COMM_LEAVE, &message.base);
}

static void test_comms_and_plans(void **state)
{
    struct scene scene;
    (void)state;
    skip_unless_root();
    scene_open(&scene, "quota_ranks=4");
    uint64_t comm = both_join(&scene), plan = plan_create(&scene.ann, comm, 8);
    assert_true(plan_create(&scene.bob, comm, 8) == plan);
    uint64_t bytes = quota_used(&scene.operator, ANN, "quota_bytes");
    assert_int_equal(quota_used(&scene.operator, BOB, "quota_plans"), 0);
    leave(&scene.ann, comm);
    wait_for_quota(&scene, ANN, "quota_ranks", 0);
    assert_int_equal(quota_used(&scene.operator, ANN, "quota_plans"), 0);
    assert_int_equal(quota_used(&scene.operator, ANN, "quota_bytes"), 0);
    assert_int_equal(quota_used(&scene.operator, BOB, "quota_ranks"), 2);
    assert_int_equal(quota_used(&scene.operator, BOB, "quota_plans"), 1);
    assert_int_equal(quota_used(&scene.operator, BOB, "quota_bytes"), bytes);
    leave(&scene.bob, comm);
    wait_for_quota(&scene, BOB, "quota_ranks", 0);
    wait_for_status(&scene.operator, "plans", 0);
    scene_close(&scene);
}

/* The queues of every pair of priorities are the comm's, whoever made the plan that has them. */
static void test_comms_with_pairs(void **state)
{
    struct scene scene;
    (void)state;
    skip_unless_root();
    scene_open(&scene, "quota_ranks=4");
    uint64_t comm = both_join(&scene);
    pair_plan_create(&scene.bob, comm, 8, -1, 0);
    assert_int_equal(quota_used(&scene.operator, ANN, "quota_ranks"), 4);
    assert_int_equal(quota_used(&scene.operator, BOB, "quota_ranks"), 0);
    pair_plan_create_error(&scene.bob, comm, 8, 0, -1, CGM_QUOTA,
                           "quota_ranks of uid 12346: asked for 2, used 4, allowed 4");
    leave(&scene.ann, comm);
    wait_for_quota(&scene, ANN, "quota_ranks", 0);
    assert_int_equal(quota_used(&scene.operator, BOB, "quota_ranks"), 4);
    leave(&scene.bob, comm);
    wait_for_quota(&scene, BOB, "quota_ranks", 0);
    scene_close(&scene);
}

static void test_pairs_without_room(void **state)
{
    Cgm__CommLeave again = CGM__COMM_LEAVE__INIT;
    struct scene scene;
    (void)state;
    skip_unless_root();
    scene_open(&scene, "quota_ranks=4");
    create_comm(&scene.bob, 1);
    again.id = both_join(&scene);
    pair_plan_create(&scene.ann, again.id, 8, -1, 0);
    leave(&scene.ann, again.id);
    wait_for_status(&scene.operator, "comms", 1);
    wait_for_quota(&scene, ANN, "quota_ranks", 0);
    assert_int_equal(quota_used(&scene.operator, BOB, "quota_ranks"), 1);
    client_error(&scene.bob, CGM_MSG_COMM_LEAVE, &again.base, NULL, 0, CGM_NOT_FOUND, "not in");
    assert_true(daemon_log_has(&scene.daemon, "warning",
                               "has no room for it in its quotas: quota_ranks of uid 12345: asked "
                               "for 4, used 1, allowed 4"));
    scene_close(&scene);
}

/* Who has no room for a plan that he did not make loses it, and the comm stays his. */
static void test_plans_without_room(void **state)
{
    struct scene scene;
    (void)state;
    skip_unless_root();
    scene_open(&scene, "quota_plans=1");
    uint64_t comm = both_join(&scene), own = create_comm(&scene.bob, 1);
    expect_joined(&scene.bob, join(&scene.bob, own, 0));
    plan_create(&scene.bob, own, 8);
    uint64_t plan = plan_create(&scene.ann, comm, 8);
    assert_true(plan_create(&scene.bob, comm, 8) == plan);
    leave(&scene.ann, comm);
    wait_for_status(&scene.operator, "plans", 1);
    assert_int_equal(quota_used(&scene.operator, BOB, "quota_plans"), 1);
    assert_int_equal(quota_used(&scene.operator, BOB, "quota_comms"), 2);
    leave(&scene.bob, comm);
    wait_for_quota(&scene, BOB, "quota_comms", 1);
    scene_close(&scene);
}

static int create_plan_status(struct client *client, uint32_t serial)
{
    struct message *reply = client_reply(client, serial);
    int status = reply->type == CGM_MSG_ERROR ? ((Cgm__Error *)reply->body)->status : CGM_OK;
    if (status != CGM_OK)
        assert_non_null(strstr(((Cgm__Error *)reply->body)->detail, "of uid 12346"));
    message_free(reply);
    return status;
}

static void destroy_plans(struct client *client)
{
    Cgm__PlanDestroyAll all = CGM__PLAN_DESTROY_ALL__INIT;
    message_free(client_call(client, CGM_MSG_PLAN_DESTROY_ALL, &all.base, NULL, 0,
                             CGM_MSG_PLAN_DESTROY_ALL_REPLY));
}

/* Both want it at the same time, and Ann has no room for it: that is hers alone. */
static void test_a_plan_for_who_has_room(void **state)
{
    struct scene scene;
    (void)state;
    skip_unless_root();
    scene_open(&scene, "quota_bytes=1000000");
    uint64_t comm = both_join(&scene);
    buffer_create(&scene.ann, NULL, 990000, 0, NULL);
    for (unsigned i = 0; i < 200; i++) {
        uint32_t ann = plan_create_send(&scene.ann, comm, 8);
        uint32_t bob = plan_create_send(&scene.bob, comm, 8);
        int status = create_plan_status(&scene.ann, ann);
        assert_true(status == CGM_OK || status == CGM_QUOTA);
        assert_int_equal(create_plan_status(&scene.bob, bob), CGM_OK);
        /* Now that it is there, and his, she may have it. */
        ann = plan_create_send(&scene.ann, comm, 8);
        assert_int_equal(create_plan_status(&scene.ann, ann), CGM_OK);
        assert_int_equal(quota_used(&scene.operator, ANN, "quota_plans"), 0);
        assert_int_equal(quota_used(&scene.operator, BOB, "quota_plans"), 1);
        destroy_plans(&scene.ann);
        destroy_plans(&scene.bob);
    }
    scene_close(&scene);
}

/* Who comes back to a plan of his, which another pays for now, is told what he lacks. */
static void test_the_owner_comes_back_to_a_plan(void **state)
{
    Cgm__PlanDestroy destroy = CGM__PLAN_DESTROY__INIT;
    struct scene scene;
    (void)state;
    skip_unless_root();
    scene_open(&scene, "quota_plans=1");
    uint64_t comm = both_join(&scene);
    destroy.id = plan_create(&scene.ann, comm, 8);
    assert_true(plan_create(&scene.bob, comm, 8) == destroy.id);
    client_ok(&scene.ann, CGM_MSG_PLAN_DESTROY, &destroy.base);
    plan_create(&scene.ann, comm, 16);
    plan_create_error(&scene.ann, comm, 8, CGM_QUOTA, "quota_plans of uid 12346");
    scene_close(&scene);
}

static void test_comms_without_room(void **state)
{
    Cgm__CommLeave again = CGM__COMM_LEAVE__INIT;
    struct scene scene;
    (void)state;
    skip_unless_root();
    scene_open(&scene, "quota_comms=1");
    create_comm(&scene.bob, 1);
    again.id = both_join(&scene);
    leave(&scene.ann, again.id);
    wait_for_status(&scene.operator, "comms", 1);
    wait_for_quota(&scene, ANN, "quota_comms", 0);
    client_error(&scene.bob, CGM_MSG_COMM_LEAVE, &again.base, NULL, 0, CGM_NOT_FOUND, "not in");
    /* One who waits for others is told why. */
    uint64_t forming = create_comm(&scene.ann, 2);
    uint32_t waits = join(&scene.bob, forming, 1);
    wait_for_status(&scene.operator, "comms", 2);
    leave(&scene.ann, forming);
    expect_error(client_reply(&scene.bob, waits), CGM_QUOTA,
                 "owner has left it: quota_comms of uid");
    wait_for_status(&scene.operator, "comms", 1);
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_the_owner_comes_back),
        cmocka_unit_test(test_who_pays_goes_on_paying),
        cmocka_unit_test(test_comms_and_plans),
        cmocka_unit_test(test_comms_with_pairs),
        cmocka_unit_test(test_pairs_without_room),
        cmocka_unit_test(test_plans_without_room),
        cmocka_unit_test(test_a_plan_for_who_has_room),
        cmocka_unit_test(test_the_owner_comes_back_to_a_plan),
        cmocka_unit_test(test_comms_without_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
