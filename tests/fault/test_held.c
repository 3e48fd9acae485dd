/* Locks of the system that a client holds for as long as it likes, on what it shares with the
 * daemon: it calls the system with memory whose pages nobody brings. Whoever wants such a lock
 * waits; that must be nobody for whom others wait. */
#include "tests/daemon/broker_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/types.h"
#include "tests/fault/counted.h"
#include "tests/fault/slow_file.h"
#include "tests/send_signal.h"

#define PAGE 4096u
#define FRIEND 12346u
#define LARGE_BYTES (4ull << 20)

struct scene {
    struct daemon daemon;
    struct client attacker, honest;
    struct slow_file file;
    pid_t holder;
};

/* The file's server first: it has every fd that there is. bequeath: as the daemon's. */
static bool scene_open_with(struct scene *scene, void (*bequeath)(void))
{
    char path[96];
    skip_unless_root();
    memset(scene, 0, sizeof(*scene));
    daemon_init(&scene->daemon);
    snprintf(path, sizeof(path), "%s/slow", scene->daemon.folder);
    bool started = slow_file_start(&scene->file, path);
    if (!started)
        print_message("no file of FUSE can be had here\n");
    scene->daemon.bequeath = bequeath;
    daemon_start(&scene->daemon, "socket_mode=0666", "executor_timeout=10", REAL_EXECUTOR, NULL);
    client_open(&scene->honest, &scene->daemon);
    wait_for_executor(&scene->honest);
    client_open_as(STRANGER, &scene->attacker, &scene->daemon);
    return started;
}

static bool scene_open(struct scene *scene)
{
    return scene_open_with(scene, NULL);
}

/* From here on nobody holds anything any more. */
static void let_go(struct scene *scene)
{
    if (scene->file.server)
        slow_file_stop(&scene->file);
    if (!scene->holder)
        return;
    send_signal(scene->holder, SIGKILL);
    waitpid(scene->holder, NULL, 0);
    scene->holder = 0;
}

static void scene_close(struct scene *scene)
{
    let_go(scene);
    client_close(&scene->attacker);
    client_close(&scene->honest);
    daemon_stop(&scene->daemon);
}

/* A child that calls the system with the page, and has only this fd. */
static void hold(struct scene *scene, void (*call)(int fd, void *page), int fd)
{
    scene->holder = fork();
    assert_true(scene->holder >= 0);
    if (scene->holder == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(fd, STDIN_FILENO);
        close_range(STDERR_FILENO + 1, ~0u, 0);
        call(STDIN_FILENO, slow_file_map(&scene->file));
        _exit(0);
    }
    for (int naps = 0; atomic_load(scene->file.reads) == 0; naps++) {
        assert_true(naps < WAIT_S * 100);
        usleep(10000);
    }
}

static void write_it(int fd, void *page)
{
    (void)!write(fd, page, 1);
}

/* Of what it watches one can be read, and it cannot be told. */
static void watch_it(int fd, void *page)
{
    struct epoll_event event = {.events = EPOLLIN};
    int watch = epoll_create1(EPOLL_CLOEXEC);
    epoll_ctl(watch, EPOLL_CTL_ADD, fd, &event);
    epoll_ctl(watch, EPOLL_CTL_ADD, eventfd(1, EFD_CLOEXEC), &event);
    close(fd);
    epoll_wait(watch, page, 1, -1);
}

/* Somebody else's memory is made and given back, and he is told. */
static void go_on(struct client *client)
{
    Cgm__ImportCreate create = CGM__IMPORT_CREATE__INIT;
    Cgm__ImportRelease release = CGM__IMPORT_RELEASE__INIT;
    uint32_t kind = 1;
    uint64_t offset = 0, length = PAGE;
    int fd = memfd_create("held", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, PAGE), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    create.n_kind = create.n_offset = create.n_length = 1;
    create.kind = &kind;
    create.offset = &offset;
    create.length = &length;
    struct message *reply =
        client_call(client, CGM_MSG_IMPORT_CREATE, &create.base, &fd, 1, CGM_MSG_IMPORT_REPLY);
    release.id = ((const Cgm__ImportReply *)reply->body)->id;
    message_free(reply);
    close(fd);
    client_ok(client, CGM_MSG_IMPORT_RELEASE, &release.base);
    buffer_create(client, NULL, PAGE, 0, NULL);
}

/* A hole can be made in a buffer when nobody writes into it. */
static void test_a_buffer_that_is_written(void **state)
{
    struct scene scene;
    (void)state;
    if (scene_open(&scene)) {
        int fd;
        Cgm__BufferClose close_it = CGM__BUFFER_CLOSE__INIT;
        close_it.id = buffer_create(&scene.attacker, NULL, LARGE_BYTES, 0, &fd);
        hold(&scene, write_it, fd);
        client_ok(&scene.attacker, CGM_MSG_BUFFER_CLOSE, &close_it.base);
        go_on(&scene.honest);
        close(fd);
    }
    scene_close(&scene);
}

/* A thread of the executor's waits for what nobody can take away from it. */
static void await_waiter(pid_t executor)
{
    char path[96], text[128];
    bool waits = false;
    for (int naps = 0; !waits; naps++) {
        assert_true(naps < WAIT_S * 100);
        usleep(10000);
        snprintf(path, sizeof(path), "/proc/%d/task", (int)executor);
        DIR *tasks = opendir(path);
        assert_non_null(tasks);
        for (const struct dirent *task; (task = readdir(tasks)) && !waits;) {
            snprintf(path, sizeof(path), "/proc/%d/task/%.16s/stat", (int)executor, task->d_name);
            FILE *file = fopen(path, "re");
            if (!file)
                continue;
            waits = fgets(text, sizeof(text), file) && strstr(text, "(cgm-sweep") &&
                    strstr(text, ") D");
            fclose(file);
        }
        closedir(tasks);
    }
}

/* And no thread can be had meanwhile. */
static void test_a_buffer_that_is_written_without_threads(void **state)
{
    struct scene scene;
    (void)state;
    skip_unless_root();
    if (!counted_can_be()) {
        print_message("no limit of threads can be had here\n");
        skip();
    }
    if (scene_open_with(&scene, counted_be)) {
        int fd;
        Cgm__BufferClose close_it = CGM__BUFFER_CLOSE__INIT;
        close_it.id = buffer_create(&scene.attacker, NULL, LARGE_BYTES, 0, &fd);
        hold(&scene, write_it, fd);
        close(fd);
        counted_crowd_come();
        client_ok(&scene.attacker, CGM_MSG_BUFFER_CLOSE, &close_it.base);
        await_waiter((pid_t)status_number(&scene.honest, "executor_pid"));
        go_on(&scene.honest);
        for (int naps = 0; !daemon_log_has(&scene.daemon, "warning", "no thread to free"); naps++) {
            assert_true(naps < WAIT_S * 100);
            usleep(10000);
        }
        counted_crowd_go();
    }
    scene_close(&scene);
}

static void replace_executor(struct scene *scene)
{
    uint64_t life = status_number(&scene->honest, "executor_life");
    pid_t executor = (pid_t)status_number(&scene->honest, "executor_pid");
    assert_int_equal(send_signal(executor, SIGKILL), 0);
    wait_for_more(&scene->honest, "executor_life", life);
    wait_for_executor(&scene->honest);
}

/* A guest can hold what he was let have, and nothing else that its owner gives back. */
static void hold_as_guest(bool of_another_life)
{
    struct scene scene;
    if (scene_open(&scene)) {
        Cgm__BufferOpen open_it = CGM__BUFFER_OPEN__INIT;
        Cgm__BufferDestroy destroy = CGM__BUFFER_DESTROY__INIT;
        Cgm__BufferClose close_it = CGM__BUFFER_CLOSE__INIT;
        close_it.id = buffer_create(&scene.honest, "lent", LARGE_BYTES, 0666, NULL);
        open_it.name = destroy.name = (char *)(uintptr_t) "lent";
        struct message *reply = client_call(&scene.attacker, CGM_MSG_BUFFER_OPEN, &open_it.base,
                                            NULL, 0, CGM_MSG_BUFFER_REPLY);
        client_close(&scene.attacker);
        wait_for_status(&scene.honest, "sessions", 1);
        if (of_another_life)
            replace_executor(&scene);
        hold(&scene, write_it, reply->fds[0]);
        message_free(reply);
        client_ok(&scene.honest, CGM_MSG_BUFFER_DESTROY, &destroy.base);
        client_ok(&scene.honest, CGM_MSG_BUFFER_CLOSE, &close_it.base);
        go_on(&scene.honest);
        client_open_as(STRANGER, &scene.attacker, &scene.daemon);
    }
    scene_close(&scene);
}

static void test_a_buffer_of_another_user(void **state)
{
    (void)state;
    hold_as_guest(false);
}

/* Who was one before the executor came has his descriptor still. */
static void test_a_buffer_of_a_former_guest(void **state)
{
    (void)state;
    hold_as_guest(true);
}

static const char *value_of(const Cgm__Row *row, const char *key)
{
    for (size_t i = 0; i < row->n_key; i++)
        if (strcmp(row->key[i], key) == 0)
            return row->value[i];
    return "";
}

/* Buffers that were given back and that the executor has not freed, of all users. */
static unsigned long count_ending(struct client *client)
{
    unsigned long count = 0;
    Cgm__Query query = CGM__QUERY__INIT;
    query.what = CGM_QUERY_QUOTAS;
    struct message *reply =
        client_call(client, CGM_MSG_QUERY, &query.base, NULL, 0, CGM_MSG_QUERY_REPLY);
    const Cgm__QueryReply *page = (const Cgm__QueryReply *)reply->body;
    for (size_t i = 0; i < page->n_row; i++)
        if (strcmp(value_of(page->row[i], "quota"), "\"quota_buffers\"") == 0)
            count += strtoul(value_of(page->row[i], "ending"), NULL, 10);
    message_free(reply);
    return count;
}

static void open_as(struct scene *scene, uid_t uid, const char *name, int *ret_fd)
{
    struct client guest;
    Cgm__BufferOpen open_it = CGM__BUFFER_OPEN__INIT;
    open_it.name = (char *)(uintptr_t)name;
    client_open_as(uid, &guest, &scene->daemon);
    struct message *reply =
        client_call(&guest, CGM_MSG_BUFFER_OPEN, &open_it.base, NULL, 0, CGM_MSG_BUFFER_REPLY);
    if (ret_fd)
        *ret_fd = fcntl(reply->fds[0], F_DUPFD_CLOEXEC, 3);
    message_free(reply);
    client_close(&guest);
    wait_for_status(&scene->honest, "sessions", 1);
}

static void give_back(struct scene *scene, uint64_t id)
{
    Cgm__BufferDestroy destroy = CGM__BUFFER_DESTROY__INIT;
    Cgm__BufferClose close_it = CGM__BUFFER_CLOSE__INIT;
    destroy.has_id = 1;
    destroy.id = close_it.id = id;
    client_ok(&scene->honest, CGM_MSG_BUFFER_DESTROY, &destroy.base);
    client_ok(&scene->honest, CGM_MSG_BUFFER_CLOSE, &close_it.base);
}

/* A second guest can hold what he was let have as well, and nothing else that the first one was
 * let have, or others together. */
static void hold_as_second_guest(bool of_another_life)
{
    struct scene scene;
    int fd;
    if (scene_open(&scene)) {
        client_close(&scene.attacker);
        uint64_t held = buffer_create(&scene.honest, "held", LARGE_BYTES, 0666, NULL);
        uint64_t of_friend = buffer_create(&scene.honest, "friends", LARGE_BYTES, 0666, NULL);
        uint64_t of_both = buffer_create(&scene.honest, "of_both", LARGE_BYTES, 0666, NULL);
        open_as(&scene, FRIEND, "held", NULL);
        open_as(&scene, STRANGER, "held", &fd);
        open_as(&scene, FRIEND, "friends", NULL);
        open_as(&scene, FRIEND, "of_both", NULL);
        open_as(&scene, STRANGER, "of_both", NULL);
        if (of_another_life)
            replace_executor(&scene);
        hold(&scene, write_it, fd);
        close(fd);
        give_back(&scene, held);
        await_waiter((pid_t)status_number(&scene.honest, "executor_pid"));
        give_back(&scene, of_friend);
        give_back(&scene, of_both);
        for (int naps = 0; count_ending(&scene.honest) != 1; naps++) {
            assert_true(naps < WAIT_S * 10);
            usleep(100000);
        }
        client_open_as(STRANGER, &scene.attacker, &scene.daemon);
    }
    scene_close(&scene);
}

static void test_a_buffer_of_two_guests(void **state)
{
    (void)state;
    hold_as_second_guest(false);
}

static void test_a_buffer_of_two_former_guests(void **state)
{
    (void)state;
    hold_as_second_guest(true);
}

/* Neither the process nor what the system keeps of one. */
static void await_end(pid_t pid)
{
    for (int naps = 0; send_signal(pid, 0) == 0; naps++) {
        assert_true(naps < WAIT_S * 100);
        usleep(10000);
    }
}

/* Killed, it does not end while a client holds what one of its threads waits for. */
static void test_an_executor_that_cannot_end(void **state)
{
    struct scene scene;
    (void)state;
    if (scene_open(&scene)) {
        int fd;
        Cgm__BufferClose close_it = CGM__BUFFER_CLOSE__INIT;
        uint64_t life = status_number(&scene.honest, "executor_life");
        pid_t executor = (pid_t)status_number(&scene.honest, "executor_pid");
        close_it.id = buffer_create(&scene.attacker, NULL, LARGE_BYTES, 0, &fd);
        hold(&scene, write_it, fd);
        client_ok(&scene.attacker, CGM_MSG_BUFFER_CLOSE, &close_it.base);
        await_waiter(executor);
        assert_int_equal(send_signal(executor, SIGKILL), 0);
        wait_for_more(&scene.honest, "executor_life", life);
        go_on(&scene.honest);
        close(fd);
        let_go(&scene);
        await_end(executor);
    }
    scene_close(&scene);
}

static int open_user_buffer(struct client *client, uint64_t plan, uint32_t rank)
{
    Cgm__PlanChunk chunk = CGM__PLAN_CHUNK__INIT;
    Cgm__BufferOpen open_it = CGM__BUFFER_OPEN__INIT;
    chunk.plan = plan;
    chunk.rank = rank;
    chunk.chunk = UINT32_MAX;
    struct message *reply =
        client_call(client, CGM_MSG_PLAN_CHUNK, &chunk.base, NULL, 0, CGM_MSG_PLAN_CHUNK_REPLY);
    open_it.has_id = 1;
    open_it.id = ((const Cgm__PlanChunkReply *)reply->body)->buffer;
    message_free(reply);
    reply = client_call(client, CGM_MSG_BUFFER_OPEN, &open_it.base, NULL, 0, CGM_MSG_BUFFER_REPLY);
    assert_int_equal(reply->n_fds, 1);
    int fd = fcntl(reply->fds[0], F_DUPFD_CLOEXEC, 3);
    message_free(reply);
    return fd;
}

static void test_a_user_buffer_that_is_written(void **state)
{
    struct scene scene;
    (void)state;
    if (scene_open(&scene)) {
        Cgm__PlanDestroy destroy = CGM__PLAN_DESTROY__INIT;
        destroy.id =
            ag_gemm_plan_create(&scene.attacker, comm_join_all(&scene.attacker, "held", 1), 16);
        int fd = open_user_buffer(&scene.attacker, destroy.id, 0);
        hold(&scene, write_it, fd);
        client_ok(&scene.attacker, CGM_MSG_PLAN_DESTROY, &destroy.base);
        go_on(&scene.honest);
        close(fd);
    }
    scene_close(&scene);
}

static uint32_t join(struct client *client, uint32_t rank)
{
    Cgm__CommJoin join = CGM__COMM_JOIN__INIT;
    join.name = (char *)(uintptr_t) "both";
    join.has_create = join.create = join.has_size = join.has_mode = 1;
    join.size = 2;
    join.mode = 0666;
    join.n_ranks = 1;
    join.ranks = &rank;
    return client_send(client, CGM_MSG_COMM_JOIN, &join.base, NULL, 0);
}

/* A comm that has a rank of each. */
static uint64_t join_both(struct scene *scene)
{
    uint32_t honest = join(&scene->honest, 0), attacker = join(&scene->attacker, 1);
    struct message *reply = client_reply(&scene->honest, honest);
    assert_int_equal(reply->type, CGM_MSG_COMM_REPLY);
    uint64_t comm = ((const Cgm__CommReply *)reply->body)->id;
    message_free(reply);
    message_free(client_reply(&scene->attacker, attacker));
    return comm;
}

/* Who has one of the ranks has its user buffer, whoever made the plan. */
static void test_a_user_buffer_of_another_user(void **state)
{
    struct scene scene;
    (void)state;
    if (scene_open(&scene)) {
        Cgm__PlanDestroy destroy = CGM__PLAN_DESTROY__INIT;
        uint64_t comm = join_both(&scene);
        destroy.id = ag_gemm_plan_create(&scene.honest, comm, 16);
        assert_int_equal(ag_gemm_plan_create(&scene.attacker, comm, 16), destroy.id);
        int fd = open_user_buffer(&scene.attacker, destroy.id, 1);
        hold(&scene, write_it, fd);
        client_close(&scene.attacker);
        client_ok(&scene.honest, CGM_MSG_PLAN_DESTROY, &destroy.base);
        wait_for_status(&scene.honest, "sessions", 1);
        go_on(&scene.honest);
        close(fd);
        client_open_as(STRANGER, &scene.attacker, &scene.daemon);
    }
    scene_close(&scene);
}

static uint32_t count_threads(pid_t pid)
{
    char path[64];
    uint32_t count = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    assert_non_null(tasks);
    for (const struct dirent *task; (task = readdir(tasks));)
        count += task->d_name[0] != '.';
    closedir(tasks);
    return count;
}

/* Who holds what his own plan has holds no comm of others, whose queues are threads here. */
static void test_a_comm_of_a_plan_that_is_held(void **state)
{
    struct scene scene;
    (void)state;
    if (scene_open(&scene)) {
        Cgm__CommLeave leave = CGM__COMM_LEAVE__INIT;
        pid_t executor = (pid_t)status_number(&scene.honest, "executor_pid");
        uint32_t threads = count_threads(executor);
        leave.id = join_both(&scene);
        uint64_t plan = ag_gemm_plan_create(&scene.attacker, leave.id, 16);
        int fd = open_user_buffer(&scene.attacker, plan, 1);
        assert_true(count_threads(executor) > threads + 1);
        hold(&scene, write_it, fd);
        client_close(&scene.attacker);
        client_ok(&scene.honest, CGM_MSG_COMM_LEAVE, &leave.base);
        await_waiter(executor);
        for (int naps = 0; count_threads(executor) > threads + 1; naps++) {
            assert_true(naps < WAIT_S * 100);
            usleep(10000);
        }
        go_on(&scene.honest);
        close(fd);
        client_open_as(STRANGER, &scene.attacker, &scene.daemon);
    }
    scene_close(&scene);
}

/* The last one who closes a file takes it away from all who watch it, one after the other. */
static void test_a_ring_that_is_watched(void **state)
{
    struct scene scene;
    (void)state;
    if (scene_open(&scene)) {
        struct message *ring = client_ring_set_up(&scene.attacker, 8);
        hold(&scene, watch_it, ring->fds[1]);
        message_free(ring);
        client_close(&scene.attacker);
        wait_for_status(&scene.honest, "sessions", 1);
        go_on(&scene.honest);
        client_open_as(STRANGER, &scene.attacker, &scene.daemon);
    }
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_buffer_that_is_written),
        cmocka_unit_test(test_a_buffer_that_is_written_without_threads),
        cmocka_unit_test(test_a_buffer_of_another_user),
        cmocka_unit_test(test_a_buffer_of_a_former_guest),
        cmocka_unit_test(test_a_buffer_of_two_guests),
        cmocka_unit_test(test_a_buffer_of_two_former_guests),
        cmocka_unit_test(test_an_executor_that_cannot_end),
        cmocka_unit_test(test_a_user_buffer_that_is_written),
        cmocka_unit_test(test_a_user_buffer_of_another_user),
        cmocka_unit_test(test_a_comm_of_a_plan_that_is_held),
        cmocka_unit_test(test_a_ring_that_is_watched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
