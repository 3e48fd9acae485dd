/* Whether the process that connected a socket lives. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/broker/peer.h"

static int listen_here(struct sockaddr_un *ret_address)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(ret_address->sun_path + 1, sizeof(ret_address->sun_path) - 1, "cgm-peer-%d",
             (int)getpid());
    assert_int_equal(bind(fd, (const struct sockaddr *)ret_address, sizeof(*ret_address)), 0);
    assert_int_equal(listen(fd, 1), 0);
    return fd;
}

/* It connects, and ends when the gate is closed. */
static pid_t start_peer(int *ret_socket, int *ret_gate)
{
    struct sockaddr_un address;
    int listening = listen_here(&address), gate[2];
    char byte;
    assert_int_equal(pipe(gate), 0);
    pid_t child = fork();
    if (child == 0) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        close(gate[1]);
        _exit(connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
              read(gate[0], &byte, 1) != 0);
    }
    close(gate[0]);
    *ret_gate = gate[1];
    *ret_socket = accept(listening, NULL, NULL);
    assert_true(*ret_socket >= 0);
    close(listening);
    return child;
}

static void test_a_process_and_its_end(void **state)
{
    siginfo_t ended;
    int socket, gate;
    (void)state;
    pid_t child = start_peer(&socket, &gate);
    assert_int_equal(cgm_peer_look(socket, child), CGM_PEER_LIVES);
    close(gate);
    assert_int_equal(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT), 0);
    assert_int_equal(ended.si_status, 0);
    assert_int_equal(cgm_peer_look(socket, child), CGM_PEER_ENDED);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(cgm_peer_look(socket, child), CGM_PEER_ENDED);
    close(socket);
}

/* As of another pid namespace: before Linux 6.5 nothing is known of it. */
static void test_a_process_without_a_number(void **state)
{
    int socket, gate;
    (void)state;
    pid_t child = start_peer(&socket, &gate);
    enum cgm_peer seen = cgm_peer_look(socket, 0);
    assert_int_not_equal(seen, CGM_PEER_ENDED);
    close(gate);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(cgm_peer_look(socket, 0),
                     seen == CGM_PEER_LIVES ? CGM_PEER_ENDED : CGM_PEER_UNKNOWN);
    close(socket);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_process_and_its_end),
        cmocka_unit_test(test_a_process_without_a_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
