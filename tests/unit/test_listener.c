/* How many that wait are taken at once. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/broker/config.h"
#include "daemon/broker/listener.h"
#include "proto/packet.h"
#include "proto/status.h"

#define WAITING 40

static bool lets_in;
static unsigned taken;

static bool on_client(void *owner, int fd)
{
    (void)owner;
    taken++;
    close(fd);
    return lets_in;
}

static void on_refused(void *owner, int fd)
{
    (void)owner;
    close(fd);
}

/* Of those that wait, so many are taken in the loop's first turn; the others come later. */
static unsigned taken_at_once(void)
{
    char folder[] = "/tmp/test-listener.XXXXXX", detail[256];
    struct cgm_config config = {.socket_mode = 0600};
    struct cgm_listener listener;
    int fds[WAITING];
    uv_loop_t loop;
    assert_non_null(mkdtemp(folder));
    snprintf(config.socket, sizeof(config.socket), "%s/sock", folder);
    assert_int_equal(uv_loop_init(&loop), 0);
    cgm_listener_init(&listener);
    assert_int_equal(cgm_listener_bind(&listener, &config, detail, sizeof(detail)), CGM_OK);
    assert_int_equal(cgm_listener_start(&listener, &loop, on_client, on_refused, NULL), CGM_OK);
    for (int i = 0; i < WAITING; i++)
        assert_int_equal(cgm_socket_connect(config.socket, &fds[i]), CGM_OK);
    taken = 0;
    uv_run(&loop, UV_RUN_NOWAIT);
    unsigned at_once = taken;
    while (taken < WAITING)
        uv_run(&loop, UV_RUN_ONCE);
    for (int i = 0; i < WAITING; i++)
        close(fds[i]);
    cgm_listener_fini(&listener);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    assert_int_equal(rmdir(folder), 0);
    return at_once;
}

static void test_of_those_who_are_let_in_many_are_taken(void **state)
{
    (void)state;
    lets_in = true;
    assert_in_range(taken_at_once(), 8, WAITING / 2);
}

/* Or whoever connects all the time would keep those waiting who are in. */
static void test_of_those_who_are_refused_few_are_taken(void **state)
{
    (void)state;
    lets_in = false;
    assert_in_range(taken_at_once(), 1, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_of_those_who_are_let_in_many_are_taken),
        cmocka_unit_test(test_of_those_who_are_refused_few_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
