/* Memory that clients have had goes where the daemon has it last, and the daemon's loop, which
 * everybody waits for, does not do it. Seen in processor time: of what the daemon spends, most is
 * not its first thread's. A busy machine may blur that once, a loop that frees memory fails each
 * time. */
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
#define TRIES 6
#define LOOK_US 200000 /* each look is work of the loop */

struct scene {
    struct daemon daemon;
    struct client witness;
    char executor[96]; /* a link, so that no new one starts when it is gone */
    uint64_t spent_ns, first_ns;
};

static void scene_open(struct scene *scene)
{
    char setting[128];
    memset(scene, 0, sizeof(*scene));
    daemon_init(&scene->daemon);
    snprintf(scene->executor, sizeof(scene->executor), "%s/executor", scene->daemon.folder);
    snprintf(setting, sizeof(setting), "executor=%s", scene->executor);
    assert_int_equal(symlink(CGM_BIN_DIR "/commgemm-executor-cpu", scene->executor), 0);
    daemon_start(&scene->daemon, setting, "devices=2", "log_level=warning", NULL);
    client_open(&scene->witness, &scene->daemon);
    wait_for_executor(&scene->witness);
}

static void scene_close(struct scene *scene)
{
    client_close(&scene->witness);
    daemon_stop(&scene->daemon);
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

static bool quota_is(struct scene *scene, const char *quota, const char *key, const char *number)
{
    char value[32];
    query_value(&scene->witness, CGM_QUERY_QUOTAS, "quota", quota, key, value, sizeof(value));
    return strcmp(value, number) == 0;
}

static void wait_for_quota(struct scene *scene, const char *quota, const char *used)
{
    for (int naps = 0;
         !quota_is(scene, quota, "used", used) || !quota_is(scene, quota, "ending", "0"); naps++) {
        assert_true(naps < WAIT_S * (1000000 / LOOK_US));
        usleep(LOOK_US);
    }
}

static bool loop_did_little(const struct scene *scene)
{
    uint64_t spent = spent_ns(scene->daemon.pid) - scene->spent_ns,
             first = spent_by_first_thread_ns(scene->daemon.pid) - scene->first_ns;
    print_message("of %.1f ms the loop took %.1f\n", (double)spent * 1e-6, (double)first * 1e-6);
    return first < spent / 2 || first < LITTLE_NS;
}

/* The executor that would have given them back piece by piece is dead. */
static bool frees_buffers(struct scene *scene)
{
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
    return loop_did_little(scene);
}

static void ring_fill(struct client *client)
{
    struct message *reply = client_ring_set_up(client, ENTRIES);
    size_t bytes = cgm_ring_bytes(ENTRIES);
    char *ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, reply->fds[0], 0);
    assert_ptr_not_equal(ring, MAP_FAILED);
    for (size_t at = bytes / 2; at < bytes; at += 4096)
        ring[at] = 1; /* phases, which nobody reads */
    munmap(ring, bytes);
    message_free(reply);
}

/* Their clients and the executor end at once. */
static bool frees_rings(struct scene *scene)
{
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
    return loop_did_little(scene);
}

/* Each of them is little. */
static bool frees_many_pieces_of_one_packet(struct scene *scene)
{
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
    return loop_did_little(scene);
}

static void expect_once(bool (*frees)(struct scene *scene))
{
    struct scene scene;
    for (int i = 0; i < TRIES; i++) {
        scene_open(&scene);
        bool little = frees(&scene);
        scene_close(&scene);
        if (little)
            return;
    }
    fail_msg("the loop did most of it, %d times", TRIES);
}

static void test_buffers(void **state)
{
    (void)state;
    expect_once(frees_buffers);
}

static void test_rings(void **state)
{
    (void)state;
    expect_once(frees_rings);
}

static void test_many_pieces_in_one_packet(void **state)
{
    (void)state;
    expect_once(frees_many_pieces_of_one_packet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_rings),
        cmocka_unit_test(test_many_pieces_in_one_packet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
