/* Buffers: who may do what, and what goes when. */
#include "tests/daemon/broker_fixture.h"

#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

static void test_buffer_arguments(void **state)
{
    Cgm__BufferCreate create = CGM__BUFFER_CREATE__INIT;
    struct client client;
    client_open(&client, *state);
    create.bytes = 1;
    for (size_t i = 0; i < bad_names_count; i++) {
        create.name = (char *)(uintptr_t)bad_names[i];
        client_error(&client, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0, CGM_INVALID_ARGUMENT,
                     "name");
    }
    create.name = NULL;
    create.bytes = 0;
    client_error(&client, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0, CGM_INVALID_ARGUMENT,
                 "bytes is 0");
    create.bytes = UINT64_MAX;
    client_error(&client, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0, CGM_INVALID_ARGUMENT,
                 "bytes is");
    create.bytes = 1;
    create.has_device = 1;
    create.device = 4;
    client_error(&client, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0, CGM_INVALID_ARGUMENT,
                 "from 0 to 3");
    create.device = -1;
    create.has_flags = 1;
    create.flags = 6;
    client_error(&client, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0, CGM_INVALID_ARGUMENT,
                 "flags is 6");
    assert_int_equal(status_number(&client, "buffers"), 0);
    client_close(&client);
}

static void test_unnamed_goes_with_its_session_named_stays(void **state)
{
    struct client one, two;
    Cgm__BufferOpen open_request = CGM__BUFFER_OPEN__INIT;
    Cgm__BufferDestroy destroy = CGM__BUFFER_DESTROY__INIT;
    int fd;
    client_open(&one, *state);
    buffer_create(&one, NULL, 100, 0, NULL);
    buffer_create(&one, "weights", 10000, 0, &fd);
    assert_int_equal(pwrite(fd, "contents", 8, 5000), 8);
    close(fd);
    assert_int_equal(status_number(&one, "buffers"), 2);
    client_close(&one);
    client_open(&two, *state);
    wait_for_status(&two, "buffers", 1);
    open_request.name = destroy.name = (char *)(uintptr_t) "weights";
    struct message *reply =
        client_call(&two, CGM_MSG_BUFFER_OPEN, &open_request.base, NULL, 0, CGM_MSG_BUFFER_REPLY);
    const Cgm__BufferReply *buffer = (const Cgm__BufferReply *)reply->body;
    char bytes[9] = "";
    assert_int_equal(buffer->bytes, 10000);
    assert_int_equal(buffer->generation, 1);
    assert_int_equal(pread(reply->fds[0], bytes, 8, 5000), 8);
    assert_string_equal(bytes, "contents");
    /* Destroyed: the name is free at once, the open reference works on. */
    client_ok(&two, CGM_MSG_BUFFER_DESTROY, &destroy.base);
    client_error(&two, CGM_MSG_BUFFER_DESTROY, &destroy.base, NULL, 0, CGM_NOT_FOUND, "weights");
    buffer_create(&two, "weights", 1, 0, NULL);
    assert_int_equal(status_number(&two, "buffers"), 2);
    Cgm__BufferClose close_request = CGM__BUFFER_CLOSE__INIT;
    close_request.id = buffer->id;
    client_ok(&two, CGM_MSG_BUFFER_CLOSE, &close_request.base);
    client_error(&two, CGM_MSG_BUFFER_CLOSE, &close_request.base, NULL, 0, CGM_NOT_FOUND, "open");
    assert_int_equal(status_number(&two, "buffers"), 1);
    message_free(reply);
    client_close(&two);
}

static void test_names_are_taken_once(void **state)
{
    Cgm__BufferCreate create = CGM__BUFFER_CREATE__INIT;
    struct client client;
    client_open(&client, *state);
    buffer_create(&client, "one", 1, 0, NULL);
    create.name = (char *)(uintptr_t) "one";
    create.bytes = 1;
    client_error(&client, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0, CGM_EXISTS, "one");
    client_close(&client);
}

static uint32_t create_send(struct client *client, const char *name)
{
    Cgm__BufferCreate create = CGM__BUFFER_CREATE__INIT;
    create.name = (char *)(uintptr_t)name;
    create.bytes = 4096;
    return client_send(client, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0);
}

static uint32_t open_send(struct client *client, const char *name)
{
    Cgm__BufferOpen open_it = CGM__BUFFER_OPEN__INIT;
    open_it.name = (char *)(uintptr_t)name;
    return client_send(client, CGM_MSG_BUFFER_OPEN, &open_it.base, NULL, 0);
}

static uint32_t destroy_send(struct client *client, const char *name)
{
    Cgm__BufferDestroy destroy = CGM__BUFFER_DESTROY__INIT;
    destroy.name = (char *)(uintptr_t)name;
    return client_send(client, CGM_MSG_BUFFER_DESTROY, &destroy.base, NULL, 0);
}

static int status_of(struct client *client, uint32_t serial)
{
    struct message *reply = client_reply(client, serial);
    int status = reply->type == CGM_MSG_ERROR ? ((Cgm__Error *)reply->body)->status : CGM_OK;
    message_free(reply);
    return status;
}

/* Whoever is told that there is one can open it, and destroy it, though it is being made still. */
static void test_who_comes_second_finds_it(void **state)
{
    struct client clients[2];
    unsigned found = 0;
    for (int i = 0; i < 2; i++)
        client_open(&clients[i], *state);
    wait_for_executor(&clients[0]);
    for (unsigned round = 0; round < 500; round++) {
        uint32_t serial[2];
        for (int i = 0; i < 2; i++)
            serial[i] = create_send(&clients[i], "shared");
        bool second = status_of(&clients[1], serial[1]) == CGM_EXISTS;
        struct client *late = &clients[second];
        if (!second)
            assert_int_equal(status_of(&clients[0], serial[0]), CGM_EXISTS);
        uint32_t opened = open_send(late, "shared"), destroyed = destroy_send(late, "shared");
        uint32_t again = open_send(late, "shared");
        assert_int_equal(status_of(late, opened), CGM_OK);
        assert_int_equal(status_of(late, destroyed), CGM_OK);
        assert_int_equal(status_of(late, again), CGM_NOT_FOUND);
        if (second)
            assert_int_equal(status_of(&clients[0], serial[0]), CGM_OK);
        found += second;
    }
    print_message("the second one was late %u times\n", found);
    for (int i = 0; i < 2; i++)
        client_close(&clients[i]);
}

/* Its maker hangs up as soon as he has asked for it. Who has it open by its name can rely on that.
 */
static void test_who_has_it_keeps_its_name(void **state)
{
    struct client client;
    unsigned opened = 0;
    client_open(&client, *state);
    wait_for_executor(&client);
    for (unsigned round = 0; round < 300; round++) {
        struct client maker;
        client_open(&maker, *state);
        create_send(&maker, "left");
        usleep(round % 10 * 50);
        uint32_t serial = open_send(&client, "left");
        client_close(&maker);
        if (status_of(&client, serial) != CGM_OK)
            continue;
        opened++;
        wait_for_status(&client, "sessions", 1);
        assert_int_equal(status_of(&client, open_send(&client, "left")), CGM_OK);
        assert_int_equal(status_of(&client, destroy_send(&client, "left")), CGM_OK);
    }
    print_message("opened %u times\n", opened);
    client_close(&client);
}

/* The executor dies before it has granted it to either: there is none. */
static void test_who_is_refused_leaves_no_name(void **state)
{
    struct client clients[2];
    for (int i = 0; i < 2; i++)
        client_open(&clients[i], *state);
    wait_for_executor(&clients[0]);
    fake_fault(*state, "slow", "BufferAlloc", "");
    fake_fault(*state, "die", "Grant", "");
    uint32_t created = create_send(&clients[0], "risky");
    while (!fake_has_line(*state, "BufferAlloc"))
        usleep(1000);
    uint32_t opened = open_send(&clients[1], "risky");
    assert_int_equal(status_of(&clients[0], created), CGM_EXECUTOR_LOST);
    assert_int_equal(status_of(&clients[1], opened), CGM_EXECUTOR_LOST);
    wait_for_executor(&clients[0]);
    assert_int_equal(status_of(&clients[0], open_send(&clients[0], "risky")), CGM_NOT_FOUND);
    buffer_create(&clients[0], "risky", 1, 0, NULL);
    for (int i = 0; i < 2; i++)
        client_close(&clients[i]);
}

/* A close undoes what has been answered, not what is to be. */
static void test_a_close_before_the_answer(void **state)
{
    Cgm__BufferClose close_it = CGM__BUFFER_CLOSE__INIT;
    struct client one, two;
    client_open(&one, *state);
    client_open(&two, *state);
    close_it.id = buffer_create(&one, "slow", 4096, 0, NULL);
    fake_fault(*state, "slow", "Grant", "");
    uint32_t opened = open_send(&one, "slow");
    client_ok(&one, CGM_MSG_BUFFER_CLOSE, &close_it.base);
    client_error(&one, CGM_MSG_BUFFER_CLOSE, &close_it.base, NULL, 0, CGM_NOT_FOUND, "open");
    assert_int_equal(status_of(&one, opened), CGM_OK);
    client_ok(&one, CGM_MSG_BUFFER_CLOSE, &close_it.base);
    opened = open_send(&two, "slow");
    client_error(&two, CGM_MSG_BUFFER_CLOSE, &close_it.base, NULL, 0, CGM_NOT_FOUND, "open");
    assert_int_equal(status_of(&two, opened), CGM_OK);
    client_ok(&two, CGM_MSG_BUFFER_CLOSE, &close_it.base);
    assert_int_equal(quota_used(&one, getuid(), "quota_opens"), 0);
    client_close(&one);
    client_close(&two);
}

static uint64_t open_number(struct client *client, uint32_t serial)
{
    struct message *reply = client_reply(client, serial);
    assert_int_equal(reply->type, CGM_MSG_BUFFER_REPLY);
    uint64_t number = ((const Cgm__BufferReply *)reply->body)->open;
    message_free(reply);
    return number;
}

/* Who could not take an open's answer undoes that one, unless a close has done so, and no later
 * one. */
static void test_an_open_is_undone_by_its_number(void **state)
{
    Cgm__BufferClose close_it = CGM__BUFFER_CLOSE__INIT;
    Cgm__BufferClose once = CGM__BUFFER_CLOSE__INIT;
    struct client client;
    client_open(&client, *state);
    once.id = close_it.id = buffer_create(&client, "one", 4096, 0, NULL);
    once.has_once = once.once = once.has_open = 1;
    once.open = open_number(&client, open_send(&client, "one"));
    client_ok(&client, CGM_MSG_BUFFER_CLOSE, &close_it.base);
    uint64_t later = open_number(&client, open_send(&client, "one"));
    assert_true(later > once.open);
    client_error(&client, CGM_MSG_BUFFER_CLOSE, &once.base, NULL, 0, CGM_NOT_FOUND, "is closed");
    once.open = later;
    client_ok(&client, CGM_MSG_BUFFER_CLOSE, &once.base);
    client_error(&client, CGM_MSG_BUFFER_CLOSE, &close_it.base, NULL, 0, CGM_NOT_FOUND, "open");
    client_close(&client);
}

static int unmake(struct client *client, uint64_t id)
{
    Cgm__BufferClose unmade = CGM__BUFFER_CLOSE__INIT;
    unmade.id = id;
    unmade.has_once = unmade.once = unmade.has_unmade = unmade.unmade = 1;
    return status_of(client, client_send(client, CGM_MSG_BUFFER_CLOSE, &unmade.base, NULL, 0));
}

/* The same for a create: the name goes, but not that of one that others have opened. */
static void test_a_create_is_undone(void **state)
{
    struct client one, two;
    client_open(&one, *state);
    client_open(&two, *state);
    uint64_t id = buffer_create(&one, "made", 4096, 0, NULL);
    assert_int_equal(unmake(&one, id), CGM_OK);
    assert_int_equal(status_of(&two, open_send(&two, "made")), CGM_NOT_FOUND);
    wait_for_status(&one, "buffers", 0);
    id = buffer_create(&one, "made", 4096, 0, NULL);
    assert_int_equal(status_of(&two, open_send(&two, "made")), CGM_OK);
    assert_int_equal(unmake(&one, id), CGM_OK);
    client_close(&two);
    assert_int_equal(status_of(&one, open_send(&one, "made")), CGM_OK);
    client_close(&one);
}

/* Of several opens one fails: the others stay. */
static void test_an_open_that_fails_takes_no_other(void **state)
{
    Cgm__BufferClose close_it = CGM__BUFFER_CLOSE__INIT;
    struct client client;
    client_open(&client, *state);
    close_it.id = buffer_create(&client, "one", 4096, 0, NULL);
    fake_fault(*state, "error", "Grant", "-2");
    assert_int_not_equal(status_of(&client, open_send(&client, "one")), CGM_OK);
    fake_heal(*state, "error", "Grant");
    client_ok(&client, CGM_MSG_BUFFER_CLOSE, &close_it.base);
    client_error(&client, CGM_MSG_BUFFER_CLOSE, &close_it.base, NULL, 0, CGM_NOT_FOUND, "open");
    client_close(&client);
}

static void test_read_only_open_gives_a_read_only_fd(void **state)
{
    Cgm__BufferOpen open_request = CGM__BUFFER_OPEN__INIT;
    Cgm__BufferRewritten rewritten = CGM__BUFFER_REWRITTEN__INIT;
    struct client one, two;
    client_open(&one, *state);
    client_open(&two, *state);
    rewritten.id = open_request.id = buffer_create(&one, NULL, 4096, 0, NULL);
    open_request.has_id = open_request.has_read_only = open_request.read_only = 1;
    struct message *reply =
        client_call(&two, CGM_MSG_BUFFER_OPEN, &open_request.base, NULL, 0, CGM_MSG_BUFFER_REPLY);
    assert_false(((const Cgm__BufferReply *)reply->body)->writable);
    assert_int_equal(pwrite(reply->fds[0], "x", 1, 0), -1);
    assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, reply->fds[0], 0),
                     MAP_FAILED);
    message_free(reply);
    client_error(&two, CGM_MSG_BUFFER_REWRITTEN, &rewritten.base, NULL, 0, CGM_PERMISSION,
                 "for reading");
    client_ok(&one, CGM_MSG_BUFFER_REWRITTEN, &rewritten.base);
    client_close(&one);
    client_close(&two);
}

/* What one sets on an open file is no other's. */
static void test_each_session_has_its_own_open_file(void **state)
{
    Cgm__BufferOpen open_request = CGM__BUFFER_OPEN__INIT;
    struct client one, two;
    int fd;
    client_open(&one, *state);
    client_open(&two, *state);
    open_request.has_id = 1;
    open_request.id = buffer_create(&one, NULL, 4096, 0, &fd);
    struct message *reply =
        client_call(&two, CGM_MSG_BUFFER_OPEN, &open_request.base, NULL, 0, CGM_MSG_BUFFER_REPLY);
    assert_int_equal(fcntl(reply->fds[0], F_SETFL, O_APPEND), 0);
    assert_int_equal(pwrite(fd, "x", 1, 0), 1);
    message_free(reply);
    close(fd);
    client_close(&one);
    client_close(&two);
}

/* Runs in a child of another uid; the status of an open, or 1 when something else went wrong. */
static int open_as(const struct daemon *daemon, uid_t uid, const char *name, bool read_only,
                   bool *ret_reopened)
{
    pid_t pid = fork();
    if (pid == 0) {
        Cgm__BufferOpen request = CGM__BUFFER_OPEN__INIT;
        struct client client;
        char path[32];
        int status = 0;
        if (setgroups(0, NULL) < 0 || setgid(uid) < 0 || setuid(uid) < 0)
            _exit(101);
        client_open(&client, daemon);
        request.name = (char *)(uintptr_t)name;
        request.has_read_only = 1;
        request.read_only = read_only;
        struct message *reply = client_reply(
            &client, client_send(&client, CGM_MSG_BUFFER_OPEN, &request.base, NULL, 0));
        if (reply->type == CGM_MSG_ERROR)
            _exit(-((const Cgm__Error *)reply->body)->status);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", reply->fds[0]);
        status = read_only && open(path, O_RDWR) >= 0 ? 100 : 0;
        _exit(status);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) <= 100);
    *ret_reopened = WEXITSTATUS(status) == 100;
    return *ret_reopened ? CGM_OK : -WEXITSTATUS(status);
}

static void test_permissions_by_mode(void **state)
{
    static const struct {
        const char *name;
        uint32_t mode;
        int write, read;
    } rows[] = {
        {"private", 0600, CGM_PERMISSION, CGM_PERMISSION},
        {"group", 0660, CGM_PERMISSION, CGM_PERMISSION},
        {"readable", 0604, CGM_PERMISSION, CGM_OK},
        {"shared", 0606, CGM_OK, CGM_OK},
        {"blind", 0602, CGM_PERMISSION, CGM_PERMISSION},
    };
    struct daemon daemon;
    struct client client;
    bool reopened;
    (void)state;
    skip_unless_root();
    daemon_init(&daemon);
    daemon_start(&daemon, "socket_mode=0666", NULL);
    client_open(&client, &daemon);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        buffer_create(&client, rows[i].name, 1, rows[i].mode, NULL);
        assert_int_equal(open_as(&daemon, NOBODY, rows[i].name, false, &reopened), rows[i].write);
        assert_int_equal(open_as(&daemon, NOBODY, rows[i].name, true, &reopened), rows[i].read);
        assert_false(reopened);
        assert_int_equal(open_as(&daemon, 0, rows[i].name, false, &reopened), CGM_OK);
    }
    client_close(&client);
    daemon_stop(&daemon);
}

int main(void)
{
#define WITH_DAEMON(test) cmocka_unit_test_setup_teardown(test, daemon_set_up, daemon_tear_down)
    const struct CMUnitTest tests[] = {
        WITH_DAEMON(test_buffer_arguments),
        WITH_DAEMON(test_unnamed_goes_with_its_session_named_stays),
        WITH_DAEMON(test_names_are_taken_once),
        WITH_DAEMON(test_who_comes_second_finds_it),
        WITH_DAEMON(test_who_has_it_keeps_its_name),
        WITH_DAEMON(test_who_is_refused_leaves_no_name),
        WITH_DAEMON(test_a_close_before_the_answer),
        WITH_DAEMON(test_an_open_is_undone_by_its_number),
        WITH_DAEMON(test_a_create_is_undone),
        WITH_DAEMON(test_an_open_that_fails_takes_no_other),
        WITH_DAEMON(test_read_only_open_gives_a_read_only_fd),
        WITH_DAEMON(test_each_session_has_its_own_open_file),
        cmocka_unit_test(test_permissions_by_mode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
