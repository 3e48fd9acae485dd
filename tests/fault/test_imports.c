/* Imports that no job names for long: closed after their last job, known until they are released.
 */
#include "tests/daemon/broker_fixture.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "commgemm.h"
#include "tests/daemon/enter.h"
#include "tests/send_signal.h"

#define SIDE 32u
#define BYTES (SIDE * SIDE * 4u)
#define WAIT_MS (WAIT_S * 1000)
#define MEMORY "cgm-idle-import"

struct scene {
    struct daemon daemon;
    struct client watcher;
    commgemm_client *client;
    struct commgemm_plan plan;
    struct commgemm_buffer rhs, out;
    int memfd;
};

static int memory_new(void)
{
    int fd = memfd_create(MEMORY, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    float one = 1;
    assert_int_equal(ftruncate(fd, BYTES), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    for (unsigned i = 0; i < SIDE * SIDE; i++)
        assert_int_equal(pwrite(fd, &one, sizeof(one), i * sizeof(one)), sizeof(one));
    return fd;
}

static void plan_new(commgemm_client *client, uint64_t comm, int op, struct commgemm_plan *ret_plan)
{
    struct commgemm_plan_options options;
    commgemm_plan_options_init(&options);
    options.comm = comm;
    options.op = op;
    options.m = options.n = options.k = SIDE;
    assert_int_equal(commgemm_plan_create(client, &options, ret_plan), COMMGEMM_OK);
}

static int scene_set_up(void **state)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    uint64_t comm;
    daemon_init(&scene->daemon);
    daemon_start(&scene->daemon, REAL_EXECUTOR, "devices=2", "import_idle=1", NULL);
    client_open(&scene->watcher, &scene->daemon);
    scene->client = enter(&scene->daemon);
    assert_int_equal(commgemm_comm_join_simple(scene->client, "one", 1, 0, &comm), COMMGEMM_OK);
    plan_new(scene->client, comm, COMMGEMM_OP_GEMM, &scene->plan);
    assert_int_equal(commgemm_buffer_create(scene->client, NULL, BYTES, -1, 0, 0, &scene->rhs),
                     COMMGEMM_OK);
    assert_int_equal(commgemm_buffer_create(scene->client, NULL, BYTES, -1, 0, 0, &scene->out),
                     COMMGEMM_OK);
    scene->memfd = memory_new();
    *state = scene;
    return 0;
}

static int scene_tear_down(void **state)
{
    struct scene *scene = *state;
    close(scene->memfd);
    commgemm_disconnect(scene->client);
    client_close(&scene->watcher);
    daemon_stop(&scene->daemon);
    free(scene);
    return 0;
}

static struct commgemm_operand import(commgemm_client *client, int memfd)
{
    struct commgemm_segment segment = {.kind = COMMGEMM_SEGMENT_FD, .fd = memfd, .length = BYTES};
    struct commgemm_operand operand = {0};
    assert_int_equal(commgemm_import(client, &segment, 1, -1, 0, &operand.id, &operand.generation),
                     COMMGEMM_OK);
    return operand;
}

static int run(struct scene *scene, const struct commgemm_operand *lhs)
{
    struct commgemm_job job;
    struct commgemm_completion done;
    uint64_t ticket;
    commgemm_job_init(&job);
    job.plan = scene->plan.id;
    job.lhs = *lhs;
    job.rhs = commgemm_operand_at(&scene->rhs, 0);
    job.out = commgemm_operand_at(&scene->out, 0);
    assert_int_equal(commgemm_submit(scene->client, &job, &ticket), COMMGEMM_OK);
    assert_int_equal(commgemm_wait(scene->client, ticket, WAIT_MS, &done), COMMGEMM_OK);
    if (done.status != COMMGEMM_OK)
        print_message("%s\n", done.detail);
    commgemm_completion_fini(&done);
    return done.status;
}

static bool is_closed(struct client *watcher, uint64_t id)
{
    char match[24], value[16];
    snprintf(match, sizeof(match), "%ju", (uintmax_t)id);
    query_value(watcher, CGM_QUERY_IMPORTS, "id", match, "idle", value, sizeof(value));
    return strcmp(value, "true") == 0;
}

static void wait_until_closed(struct client *watcher, uint64_t id)
{
    for (int naps = 0; !is_closed(watcher, id); naps++) {
        assert_true(naps < WAIT_S * 50);
        usleep(20000);
    }
}

/* In the maps or among the fds of the process. */
static bool has_memory(pid_t pid, const char *where)
{
    char command[128];
    snprintf(command, sizeof(command), "grep -q %s /proc/%d/maps 2>/dev/null", MEMORY, (int)pid);
    if (strcmp(where, "fd") == 0)
        snprintf(command, sizeof(command), "ls -l /proc/%d/fd | grep -q %s", (int)pid, MEMORY);
    return system(command) == 0;
}

static uint64_t used_of(struct client *client, const char *quota)
{
    char value[32];
    query_value(client, CGM_QUERY_QUOTAS, "quota", quota, "used", value, sizeof(value));
    return strtoull(value, NULL, 10);
}

static void next_executor(struct scene *scene)
{
    uint64_t life = status_number(&scene->watcher, "executor_life");
    assert_int_equal(send_signal((pid_t)status_number(&scene->watcher, "executor_pid"), SIGKILL),
                     0);
    wait_for_status(&scene->watcher, "executor_life", life + 1);
    assert_int_equal(commgemm_wait_executor(scene->client, WAIT_MS), COMMGEMM_OK);
}

static void test_closed_when_idle(void **state)
{
    struct scene *scene = *state;
    pid_t executor = (pid_t)status_number(&scene->watcher, "executor_pid");
    struct commgemm_operand lhs = import(scene->client, scene->memfd), again;
    assert_int_equal(run(scene, &lhs), COMMGEMM_OK);
    assert_true(has_memory(executor, "maps") && has_memory(scene->daemon.pid, "fd"));
    assert_int_equal(used_of(&scene->watcher, "\"quota_import_bytes\""), BYTES);
    wait_until_closed(&scene->watcher, lhs.id);
    assert_false(has_memory(scene->daemon.pid, "fd"));
    assert_int_equal(used_of(&scene->watcher, "\"quota_import_bytes\""), 0);
    for (int naps = 0; has_memory(executor, "maps"); naps++) {
        assert_true(naps < WAIT_S * 50);
        usleep(20000);
    }
    assert_int_equal(run(scene, &lhs), COMMGEMM_STALE);
    lhs.generation++; /* it would not help */
    assert_int_equal(run(scene, &lhs), COMMGEMM_STALE);
    again = import(scene->client, scene->memfd);
    assert_int_equal(run(scene, &again), COMMGEMM_OK);
    assert_int_equal(commgemm_import_release(scene->client, lhs.id), COMMGEMM_OK);
    assert_int_equal(run(scene, &lhs), COMMGEMM_NOT_FOUND);
}

/* The library's own import, through which it copies where it does not see the memory. */
static void test_buffers_are_read_and_written_all_the_same(void **state)
{
    struct scene *scene = *state;
    struct commgemm_buffer unseen = scene->rhs;
    char id[24], sent[] = "still here", got[sizeof(sent)] = "";
    unseen.fd = -1;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(commgemm_buffer_write(scene->client, &unseen, 5, sent, sizeof(sent)),
                         COMMGEMM_OK);
        query_value(&scene->watcher, CGM_QUERY_IMPORTS, NULL, NULL, "id", id, sizeof(id));
        wait_until_closed(&scene->watcher, strtoull(id, NULL, 10));
        memset(got, 0, sizeof(got));
        assert_int_equal(commgemm_buffer_read(scene->client, &unseen, 5, got, sizeof(got)),
                         COMMGEMM_OK);
        assert_string_equal(got, sent);
        assert_int_equal(used_of(&scene->watcher, "\"quota_imports\""), 1);
        sent[0]++;
    }
}

/* A new executor knows it too, and that it is closed. */
static void test_closed_for_the_next_executor(void **state)
{
    struct scene *scene = *state;
    struct commgemm_operand lhs = import(scene->client, scene->memfd);
    assert_int_equal(run(scene, &lhs), COMMGEMM_OK);
    wait_until_closed(&scene->watcher, lhs.id);
    next_executor(scene);
    assert_int_equal(run(scene, &lhs), COMMGEMM_STALE);
    assert_int_equal(commgemm_import_release(scene->client, lhs.id), COMMGEMM_OK);
}

/* Whoever has the memory may seal it behind the daemon's back: it is closed then. */
static void test_closed_when_the_next_executor_refuses_it(void **state)
{
    struct scene *scene = *state;
    struct commgemm_operand lhs = import(scene->client, scene->memfd), again;
    assert_int_equal(run(scene, &lhs), COMMGEMM_OK);
    assert_int_equal(fcntl(scene->memfd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
    next_executor(scene);
    assert_true(is_closed(&scene->watcher, lhs.id));
    assert_int_equal(used_of(&scene->watcher, "\"quota_import_bytes\""), 0);
    assert_int_equal(run(scene, &lhs), COMMGEMM_STALE);
    next_executor(scene);
    assert_int_equal(run(scene, &lhs), COMMGEMM_STALE);
    close(scene->memfd);
    scene->memfd = memory_new();
    again = import(scene->client, scene->memfd);
    assert_int_equal(run(scene, &again), COMMGEMM_OK);
    assert_int_equal(commgemm_import_release(scene->client, lhs.id), COMMGEMM_OK);
}

struct late {
    struct scene *scene;
    commgemm_client *client;
    uint64_t comm;
};

static void *join(void *argument)
{
    struct late *late = argument;
    assert_int_equal(commgemm_comm_join_simple(late->client, "two", 2, 1, &late->comm),
                     COMMGEMM_OK);
    return NULL;
}

/* A job that waits for another rank uses it all the while. */
static void test_open_until_its_last_job(void **state)
{
    struct scene *scene = *state;
    struct late late = {scene, enter(&scene->daemon), 0};
    struct commgemm_plan plan;
    struct commgemm_job job;
    struct commgemm_buffer buffer;
    struct commgemm_completion done;
    uint64_t comm, first, second;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, join, &late), 0);
    assert_int_equal(commgemm_comm_join_simple(scene->client, "two", 2, 0, &comm), COMMGEMM_OK);
    pthread_join(thread, NULL);
    plan_new(scene->client, comm, COMMGEMM_OP_AR, &plan);
    plan_new(late.client, comm, COMMGEMM_OP_AR, &plan);
    assert_int_equal(commgemm_buffer_create(late.client, NULL, 2 * BYTES, -1, 0, 0, &buffer),
                     COMMGEMM_OK);
    commgemm_job_init(&job);
    job.plan = plan.id;
    job.lhs = import(scene->client, scene->memfd);
    job.out = commgemm_operand_at(&scene->out, 0);
    assert_int_equal(commgemm_submit(scene->client, &job, &first), COMMGEMM_OK);
    usleep(2500000);
    assert_false(is_closed(&scene->watcher, job.lhs.id));
    uint64_t id = job.lhs.id;
    job.rank = 1;
    job.lhs = commgemm_operand_at(&buffer, 0);
    job.out = commgemm_operand_at(&buffer, BYTES);
    assert_int_equal(commgemm_submit(late.client, &job, &second), COMMGEMM_OK);
    assert_int_equal(commgemm_wait(scene->client, first, WAIT_MS, &done), COMMGEMM_OK);
    assert_int_equal(done.status, COMMGEMM_OK);
    commgemm_completion_fini(&done);
    float *sum;
    assert_int_equal(commgemm_buffer_map(scene->client, &scene->out, (void **)&sum), COMMGEMM_OK);
    for (unsigned i = 0; i < SIDE * SIDE; i++)
        assert_true(sum[i] == 1);
    commgemm_buffer_unmap(sum, BYTES);
    wait_until_closed(&scene->watcher, id);
    commgemm_disconnect(late.client);
}

static void import_again_and_again(struct client *client, int memfd, unsigned times)
{
    Cgm__ImportCreate create = CGM__IMPORT_CREATE__INIT;
    uint32_t kind = 1;
    uint64_t offset = 0, length = BYTES;
    create.n_kind = create.n_offset = create.n_length = 1;
    create.kind = &kind;
    create.offset = &offset;
    create.length = &length;
    for (unsigned i = 0; i < times; i++)
        message_free(client_call(client, CGM_MSG_IMPORT_CREATE, &create.base, &memfd, 1,
                                 CGM_MSG_IMPORT_REPLY));
}

/* Sealed meanwhile, it cannot be mapped again: the next executor takes none, and each is a line. */
static void test_what_cannot_come_back_does_not_fill_the_log(void **state)
{
    enum { IMPORTS = 2500 };
    struct daemon daemon;
    struct client attacker, watcher;
    struct rlimit limit;
    int memfd = memory_new();
    (void)state;
    skip_unless_root();
    daemon_init(&daemon);
    daemon_start(&daemon, REAL_EXECUTOR, "devices=2", "socket_mode=0666", NULL);
    client_open(&watcher, &daemon);
    wait_for_executor(&watcher);
    client_open_as(STRANGER, &attacker, &daemon);
    assert_int_equal(prlimit(daemon.pid, RLIMIT_NOFILE, NULL, &limit), 0);
    if (limit.rlim_cur / 4 > IMPORTS + 8) { /* what one user may have */
        import_again_and_again(&attacker, memfd, IMPORTS);
        assert_int_equal(fcntl(memfd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
        uint64_t life = status_number(&watcher, "executor_life");
        assert_int_equal(send_signal((pid_t)status_number(&watcher, "executor_pid"), SIGKILL), 0);
        wait_for_status(&watcher, "executor_life", life + 1);
        assert_in_range(daemon_log_count(&daemon, "is not taken over"), 1, IMPORTS - 1);
    }
    client_close(&attacker);
    client_close(&watcher);
    daemon_stop(&daemon);
    close(memfd);
}

#define IDLE(name) cmocka_unit_test_setup_teardown(name, scene_set_up, scene_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IDLE(test_closed_when_idle),
        IDLE(test_buffers_are_read_and_written_all_the_same),
        IDLE(test_closed_for_the_next_executor),
        IDLE(test_closed_when_the_next_executor_refuses_it),
        IDLE(test_open_until_its_last_job),
        cmocka_unit_test(test_what_cannot_come_back_does_not_fill_the_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
