/* Memory that clients have had goes where the daemon has it last, and the daemon's loop, which
 * everybody waits for, does not do it. Seen in processor time: of what the daemon spends, most is
 * not its first thread's. */
#include "tests/daemon/broker_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fault/spent.h"
#include "tests/send_signal.h"

#define MIB (1u << 20)
#define BUFFERS 4
#define BUFFER_BYTES (96ull * MIB)
#define RINGS 8
#define ENTRIES CGM_RING_ENTRIES_MAX
#define PIECES 32u
#define PIECE_BYTES (12ull * MIB)
#define LITTLE_NS 10000000u /* what the loop does besides; freeing takes several times that */

struct scene {
    struct daemon daemon;
    struct client witness;
    char executor[96]; /* a link, so that no new one starts when it is gone */
    uint64_t spent_ns, first_ns;
};

static int set_up(void **state)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    char setting[128];
    daemon_init(&scene->daemon);
    snprintf(scene->executor, sizeof(scene->executor), "%s/executor", scene->daemon.folder);
    snprintf(setting, sizeof(setting), "executor=%s", scene->executor);
    assert_int_equal(symlink(CGM_BIN_DIR "/commgemm-executor-cpu", scene->executor), 0);
    daemon_start(&scene->daemon, setting, "devices=2", "log_level=warning", NULL);
    client_open(&scene->witness, &scene->daemon);
    wait_for_executor(&scene->witness);
    *state = scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;
    client_close(&scene->witness);
    daemon_stop(&scene->daemon);
    free(scene);
    return 0;
}

static pid_t executor_of(struct scene *scene)
{
    return (pid_t)status_number(&scene->witness, "executor_pid");
}

/* Until its memory is gone; the daemon, which may be stopped, need not know. */
static void kill_executor(const struct scene *scene, pid_t executor)
{
    char path[64], line[256], state = '?';
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)executor);
    unlink(scene->executor);
    assert_int_equal(send_signal(executor, SIGKILL), 0);
    for (int naps = 0; state != 'Z'; naps++) {
        FILE *file = fopen(path, "re");
        if (!file)
            return; /* reaped */
        line[0] = '\0';
        assert_true(!fgets(line, sizeof(line), file) || strrchr(line, ')'));
        state = line[0] ? strrchr(line, ')')[2] : 'Z';
        fclose(file);
        assert_true(naps < WAIT_S * 100);
        usleep(10000);
    }
}

static void begin(struct scene *scene)
{
    scene->spent_ns = spent_ns(scene->daemon.pid);
    scene->first_ns = spent_by_first_thread_ns(scene->daemon.pid);
}

static void wait_for_quota(struct scene *scene, const char *quota, const char *used)
{
    char value[32] = "";
    for (int naps = 0; strcmp(value, used) != 0; naps++) {
        assert_true(naps < WAIT_S * 20);
        usleep(50000);
        query_value(&scene->witness, CGM_QUERY_QUOTAS, "quota", quota, "used", value,
                    sizeof(value));
    }
}

static void expect_that_the_loop_did_little(struct scene *scene)
{
    uint64_t spent = spent_ns(scene->daemon.pid) - scene->spent_ns,
             first = spent_by_first_thread_ns(scene->daemon.pid) - scene->first_ns;
    print_message("of %.1f ms the loop took %.1f\n", (double)spent * 1e-6, (double)first * 1e-6);
    assert_true(first < spent / 2 || first < LITTLE_NS);
}

/* The executor that would have given them back piece by piece is dead. */
static void test_buffers(void **state)
{
    struct scene *scene = *state;
    uint64_t ids[BUFFERS];
    for (int i = 0; i < BUFFERS; i++)
        ids[i] = buffer_create(&scene->witness, NULL, BUFFER_BYTES, 0, NULL);
    kill_executor(scene, executor_of(scene));
    wait_for_status(&scene->witness, "executor_pid", 0);
    begin(scene);
    for (int i = 0; i < BUFFERS; i++) {
        Cgm__BufferClose close_it = CGM__BUFFER_CLOSE__INIT;
        close_it.id = ids[i];
        client_ok(&scene->witness, CGM_MSG_BUFFER_CLOSE, &close_it.base);
    }
    wait_for_quota(scene, "\"quota_fds\"", "1"); /* the witness's socket */
    expect_that_the_loop_did_little(scene);
}

static void ring_fill(struct client *client)
{
    Cgm__RingSetup setup = CGM__RING_SETUP__INIT;
    setup.entries = ENTRIES;
    struct message *reply =
        client_call(client, CGM_MSG_RING_SETUP, &setup.base, NULL, 0, CGM_MSG_RING);
    size_t bytes = cgm_ring_bytes(ENTRIES);
    char *ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, reply->fds[0], 0);
    assert_ptr_not_equal(ring, MAP_FAILED);
    for (size_t at = bytes / 2; at < bytes; at += 4096)
        ring[at] = 1; /* phases, which nobody reads */
    munmap(ring, bytes);
    message_free(reply);
}

/* Their clients and the executor end at once. */
static void test_rings(void **state)
{
    struct scene *scene = *state;
    struct client clients[RINGS];
    pid_t executor = executor_of(scene);
    for (int i = 0; i < RINGS; i++) {
        client_open(&clients[i], &scene->daemon);
        ring_fill(&clients[i]);
    }
    assert_int_equal(send_signal(scene->daemon.pid, SIGSTOP), 0);
    for (int i = 0; i < RINGS; i++)
        client_close(&clients[i]);
    kill_executor(scene, executor);
    begin(scene);
    assert_int_equal(send_signal(scene->daemon.pid, SIGCONT), 0);
    wait_for_quota(scene, "\"quota_jobs\"", "0");
    expect_that_the_loop_did_little(scene);
}

/* Each of them is little. */
static void test_many_pieces_in_one_packet(void **state)
{
    struct scene *scene = *state;
    struct client client;
    Cgm__Query query = CGM__QUERY__INIT;
    int fds[PIECES];
    client_open(&client, &scene->daemon);
    for (unsigned i = 0; i < PIECES; i++) {
        fds[i] = memfd_create("piece", MFD_CLOEXEC);
        assert_int_equal(fallocate(fds[i], 0, 0, PIECE_BYTES), 0);
    }
    assert_int_equal(send_signal(scene->daemon.pid, SIGSTOP), 0);
    client_send(&client, CGM_MSG_QUERY, &query.base, fds, PIECES);
    for (unsigned i = 0; i < PIECES; i++)
        close(fds[i]);
    begin(scene);
    assert_int_equal(send_signal(scene->daemon.pid, SIGCONT), 0);
    assert_true(client_is_closed(&client));
    client_close(&client);
    wait_for_quota(scene, "\"quota_fds\"", "1");
    expect_that_the_loop_did_little(scene);
}

int main(void)
{
#define RELEASES(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        RELEASES(test_buffers),
        RELEASES(test_rings),
        RELEASES(test_many_pieces_in_one_packet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
