/* A daemon that has ended, or was killed, while a client keeps one of its threads from ending: the
 * next one starts beside what is left of it. But not beside one that still does something. */
#include "tests/daemon/broker_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/broker/process_state.h"
#include "tests/fault/slow_file.h"
#include "tests/send_signal.h"

#define CROWD 600 /* more than wait to be let in */

/* ThreadSanitizer keeps a signal back from a thread that waits in recvmsg: an executor is not told
 * of its broker's end. */
#if defined(__SANITIZE_THREAD__)
#define SIGNALS_ARE_KEPT_BACK true
#else
#define SIGNALS_ARE_KEPT_BACK false
#endif

struct scene {
    struct daemon daemon, next;
    pid_t executor, sender;
    struct slow_file file;
    struct client attacker;
    char lock[128];
    ino_t socket;
};

static void nap_until(unsigned naps)
{
    assert_true(naps < WAIT_S * 100);
    usleep(10000);
}

/* '?': there is none. */
static char state_of_leader(pid_t pid)
{
    char path[96], text[256], state = '?';
    snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)pid, (int)pid);
    FILE *file = fopen(path, "re");
    if (file && fgets(text, sizeof(text), file) && strrchr(text, ')'))
        state = strrchr(text, ')')[2];
    if (file)
        fclose(file);
    return state;
}

static ino_t inode_of(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 ? st.st_ino : 0;
}

/* A child, as it waits, too, when its own descriptor is closed. */
static void send_it(const struct scene *scene)
{
    uint8_t packet[512];
    size_t size;
    Cgm__Query query = CGM__QUERY__INIT;
    int fd = slow_file_open(&scene->file);
    if (fd >= 0 && cgm_packet_pack(CGM_MSG_QUERY, 7, &query.base, 0, packet, &size) == CGM_OK)
        cgm_packet_send_bytes(scene->attacker.fd, packet, size, &fd, 1);
    close(fd); /* with threads of a sanitizer's, the end may not wait */
    _exit(0);
}

/* A file that is not closed before its server answers. */
static void send_slow_file(struct scene *scene)
{
    scene->sender = fork();
    assert_true(scene->sender >= 0);
    if (scene->sender == 0)
        send_it(scene);
    for (unsigned naps = 0; atomic_load(scene->file.closes) < 2; naps++)
        nap_until(naps);
}

/* False: there is no such file here. A thread of the daemon stands still. */
static bool scene_open(struct scene *scene)
{
    char path[96];
    skip_unless_root();
    memset(scene, 0, sizeof(*scene));
    daemon_init(&scene->daemon);
    snprintf(scene->lock, sizeof(scene->lock), "%s.lock", scene->daemon.socket);
    snprintf(path, sizeof(path), "%s/slow", scene->daemon.folder);
    bool started = slow_file_start(&scene->file, path);
    daemon_start(&scene->daemon, REAL_EXECUTOR, NULL);
    scene->socket = inode_of(scene->daemon.socket);
    client_open(&scene->attacker, &scene->daemon);
    wait_for_executor(&scene->attacker);
    scene->executor = (pid_t)status_number(&scene->attacker, "executor_pid");
    scene->next = scene->daemon;
    scene->next.pid = 0;
    if (started)
        send_slow_file(scene);
    else
        print_message("no file of FUSE can be had here\n");
    return started;
}

/* The first daemon ends at last. */
static void scene_close(struct scene *scene, bool started, int status)
{
    client_close(&scene->attacker);
    if (!started) {
        daemon_stop(&scene->daemon);
        return;
    }
    slow_file_stop(&scene->file);
    waitpid(scene->sender, NULL, 0);
    assert_int_equal(daemon_wait(&scene->daemon), status);
    daemon_stop(&scene->next);
}

static void await_end_of_leader(const struct scene *scene)
{
    for (unsigned naps = 0; state_of_leader(scene->daemon.pid) != 'Z'; naps++)
        nap_until(naps);
    for (unsigned naps = 0; !cgm_process_is_held(scene->daemon.pid);
         naps++) /* it gets its signal, too */
        nap_until(naps);
}

/* It listens on a socket of its own. */
static void await_next(struct scene *scene)
{
    struct client client;
    for (unsigned naps = 0; inode_of(scene->next.socket) == scene->socket ||
                            cgm_socket_connect(scene->next.socket, &client.fd) != CGM_OK;
         naps++) {
        assert_int_equal(waitpid(scene->next.pid, NULL, WNOHANG), 0);
        nap_until(naps);
    }
    close(client.fd);
    client_open(&client, &scene->next);
    wait_for_executor(&client);
    client_close(&client);
}

/* Nobody lets them in; only so many can wait for that. */
static void crowd_into(const char *path, int *ret_fds)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path) + 1);
    for (int i = 0; i < CROWD; i++) {
        ret_fds[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)connect(ret_fds[i], (struct sockaddr *)&address, sizeof(address));
    }
}

/* Its sockets are open: everything in its table is, as long as one of its threads has not ended. */
static void test_after_one_that_was_killed(void **state)
{
    struct scene scene;
    int crowd[CROWD];
    (void)state;
    bool started = scene_open(&scene);
    if (started) {
        assert_int_equal(send_signal(scene.daemon.pid, SIGKILL), 0);
        await_end_of_leader(&scene);
        crowd_into(scene.daemon.socket, crowd);
        daemon_launch(&scene.next, (const char *const[]){REAL_EXECUTOR, NULL});
        await_next(&scene);
        if (SIGNALS_ARE_KEPT_BACK)
            send_signal(scene.executor, SIGKILL);
        for (unsigned naps = 0; strchr("?Z", state_of_leader(scene.executor)) == NULL; naps++)
            nap_until(naps);
        for (int i = 0; i < CROWD; i++)
            close(crowd[i]);
    }
    scene_close(&scene, started, 1000 + SIGKILL);
}

static void test_after_one_that_was_ended(void **state)
{
    struct scene scene;
    (void)state;
    bool started = scene_open(&scene);
    if (started) {
        assert_int_equal(send_signal(scene.daemon.pid, SIGTERM), 0);
        await_end_of_leader(&scene);
        scene.socket = 0; /* it is closed: the next one's may be known by the same number */
        daemon_launch(&scene.next, (const char *const[]){REAL_EXECUTOR, NULL});
        await_next(&scene);
    }
    scene_close(&scene, started, 0);
}

/* Nobody comes in any more, but its jobs still run, and what it has measured is not written. */
static void test_beside_one_that_is_ending(void **state)
{
    struct daemon daemon, next;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, NULL);
    next = daemon;
    fake_fault(&daemon, "drop", "Shutdown", "");
    assert_int_equal(send_signal(daemon.pid, SIGTERM), 0);
    for (unsigned naps = 0; access(daemon.socket, F_OK) == 0; naps++)
        nap_until(naps);
    daemon_launch(&next, NULL);
    assert_int_equal(daemon_wait(&next), CGM_EXIT_FAILED);
    assert_true(daemon_log_has(&daemon, "", "another daemon"));
    assert_int_equal(send_signal(daemon.pid, SIGTERM), 0);
    assert_int_equal(daemon_wait(&daemon), 0);
    daemon_start(&next, NULL);
    daemon_stop(&next);
}

int main(void)
{
    /* At its end a sanitizer would wait for the thread that stands still. */
    setenv("LSAN_OPTIONS", "detect_leaks=0", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_after_one_that_was_killed),
        cmocka_unit_test(test_after_one_that_was_ended),
        cmocka_unit_test(test_beside_one_that_is_ending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
