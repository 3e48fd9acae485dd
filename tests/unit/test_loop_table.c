/* A connection whose fd finds no room in the loop's table is refused: libuv would end the process.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/broker/connection.h"
#include "proto/status.h"

#define HIGH_FD 900

static void *taken; /* a list */

/* All that there is; no more comes. */
static void take_all_memory(void)
{
    char text[64] = "";
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, text, sizeof(text) - 1);
    rlim_t bytes = n > 0 ? strtoull(text, NULL, 10) * (rlim_t)sysconf(_SC_PAGESIZE) : 0;
    close(fd);
    setrlimit(RLIMIT_AS, &(struct rlimit){bytes, bytes});
    for (size_t size = 1u << 20; size >= 64; size /= 2)
        for (void **block; (block = malloc(size)); taken = block)
            *block = taken;
}

static int open_without_memory(void)
{
    static const struct cgm_connection_events none;
    static struct cgm_connection connection;
    static struct cgm_wire wire;
    static uv_loop_t loop;
    int pair[2];
    if (uv_loop_init(&loop) != 0 || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0)
        return 1;
    int high = fcntl(pair[0], F_DUPFD_CLOEXEC, HIGH_FD);
    take_all_memory();
    return cgm_connection_open(&connection, &loop, &wire, high, 1, &none, NULL) != CGM_NO_MEMORY;
}

static void test_an_fd_without_room_in_the_loop(void **state)
{
    int status;
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip();
#endif
    pid_t child = fork();
    if (child == 0)
        _exit(open_without_memory());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_fd_without_room_in_the_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
