/* How a socket is closed behind a client: what was sent to it stays readable, and for one that has
 * gone nothing is done. recv is this file's (--wrap), and counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/closer.h"
#include "daemon/broker/quota.h"

#define PACKETS 20u
#define UID 4711u

static _Atomic unsigned received;

ssize_t __real_recv(int fd, void *bytes, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags);

ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags)
{
    received++;
    return __real_recv(fd, bytes, size, flags);
}

struct scene {
    struct cgm_broker broker;
    int ours, theirs;
};

/* The client has sent packets that nobody has read, and was answered once. */
static void scene_init(struct scene *scene)
{
    int pair[2];
    memset(scene, 0, sizeof(*scene));
    assert_int_equal(uv_loop_init(&scene->broker.loop), 0);
    assert_int_equal(cgm_closer_init(&scene->broker), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair),
                     0);
    scene->ours = pair[0];
    scene->theirs = pair[1];
    for (unsigned i = 0; i < PACKETS; i++)
        assert_int_equal(send(scene->theirs, "packet", 6, MSG_NOSIGNAL), 6);
    assert_int_equal(send(scene->ours, "answer", 6, MSG_NOSIGNAL), 6);
    received = 0;
}

/* Until the socket is closed. */
static void hang_up(struct scene *scene)
{
    cgm_closer_hang_up(&scene->broker, UID, scene->ours);
    while (scene->broker.closer.newest)
        uv_run(&scene->broker.loop, UV_RUN_ONCE);
}

static void scene_fini(struct scene *scene)
{
    cgm_closer_fini(&scene->broker);
    uv_close((uv_handle_t *)&scene->broker.closer.ended, NULL);
    uv_run(&scene->broker.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&scene->broker.loop), 0);
    cgm_quota_fini(&scene->broker);
}

static void test_who_is_there_can_read_his_answer(void **state)
{
    struct scene scene;
    char bytes[16];
    (void)state;
    scene_init(&scene);
    hang_up(&scene);
    assert_true(received > PACKETS);
    assert_int_equal(recv(scene.theirs, bytes, sizeof(bytes), 0), 6);
    assert_memory_equal(bytes, "answer", 6);
    assert_int_equal(recv(scene.theirs, bytes, sizeof(bytes), 0), 0);
    close(scene.theirs);
    scene_fini(&scene);
}

/* Who fills sockets and goes, again and again, would have them emptied by the daemon. */
static void test_for_who_has_gone_nothing_is_emptied(void **state)
{
    struct scene scene;
    char bytes[16];
    (void)state;
    scene_init(&scene);
    assert_int_equal(recv(scene.theirs, bytes, sizeof(bytes), 0), 6);
    close(scene.theirs); /* with nothing unread, which would reset our end */
    received = 0;
    hang_up(&scene);
    assert_true(received <= 1); /* a look whether there is something */
    scene_fini(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_is_there_can_read_his_answer),
        cmocka_unit_test(test_for_who_has_gone_nothing_is_emptied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
