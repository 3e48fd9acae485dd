/* Lives of executors: one process makes durable memory and is killed while another, without CUDA,
 * holds the fd, as the broker does; the next life adopts the memory from every device, computes
 * with it, and the contents are whole. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "tests/gpu/gpu_fixture.h"
#include "tests/send_signal.h"

#define BYTES (64 * MIB)
#define LIVES 3

static void send_fd(int link, int fd)
{
    char byte = 0, control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    assert_int_equal(sendmsg(link, &message, 0), 1);
}

/* -1: the other end is gone. */
static int receive_fd(int link)
{
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    int fd;
    if (recvmsg(link, &message, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&message))
        return -1;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    return fd;
}

static unsigned char pattern(size_t at, int life)
{
    return (unsigned char)(at * 31 + (at >> 12) + (size_t)life * 7);
}

static void check_and_rewrite(struct host_view *view, int life)
{
    for (size_t i = 0; i < BYTES; i++) {
        unsigned char expected = life == 0 ? 0 : pattern(i, life - 1);
        if (view->base[i] != expected) {
            print_error("life %d: byte %zu is %u instead of %u\n", life, i, view->base[i],
                        expected);
            exit(1);
        }
        view->base[i] = pattern(i, life);
    }
    host_view_push(view, 0, BYTES);
}

/* Every device copies it to itself and back. */
static void use_everywhere(struct cgm_mem *mem)
{
    for (uint32_t device = 0; device < ops->device_count(backend); device++) {
        struct cgm_mem *local;
        struct lane lane;
        assert_int_equal(ops->mem_alloc(backend, device, BYTES, 0, &local), CGM_OK);
        lane_open(&lane, device);
        struct cgm_copy copy = {.label = label,
                                .dst = view_of(local, 0, 1, BYTES / 4, BYTES / 4, CGM_DTYPE_FP32),
                                .src = view_of(mem, 0, 1, BYTES / 4, BYTES / 4, CGM_DTYPE_FP32),
                                .sms = device % 2 ? 8 : 0};
        assert_int_equal(ops->copy(lane.queue, &copy), CGM_OK);
        struct cgm_view there = copy.dst;
        copy.dst = copy.src;
        copy.src = there;
        assert_int_equal(ops->copy(lane.queue, &copy), CGM_OK);
        lane_finish(&lane);
        lane_close(&lane);
        ops->mem_free(local);
    }
}

/* The process of one life: fd 0 is the link. Ends by being killed. */
static int live(int life)
{
    struct cgm_mem *mem;
    struct host_view view;
    void *state = NULL;
    uint64_t begin_ns = now_ns();
    if (open_backend(&state) != 0)
        return 1;
    uint32_t last = ops->device_count(backend) - 1;
    int fd = life == 0 ? -1 : receive_fd(0);
    int status = life == 0 ? ops->mem_alloc(backend, last, BYTES, 0, &mem)
                           : ops->mem_adopt(backend, last, fd, BYTES, &mem);
    if (status != CGM_OK || (life == 0 && ops->mem_export(mem, &fd) != CGM_OK) ||
        host_view_open(&view, fd, BYTES) != 0)
        return 1;
    print_message("life %d: memory there after %.0f ms\n", life,
                  (double)(now_ns() - begin_ns) / 1e6);
    use_everywhere(mem);
    host_view_pull(&view, 0, BYTES);
    check_and_rewrite(&view, life);
    if (life == 0)
        send_fd(0, fd);
    if (write(0, "", 1) != 1)
        return 1;
    pause();
    return 1;
}

static pid_t start_life(int life, int *ret_link)
{
    char number[8];
    int link[2];
    snprintf(number, sizeof(number), "%d", life);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, link), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(link[1], 0);
        execl("/proc/self/exe", "test_gpu_lives", "--life", number, (char *)NULL);
        _exit(127);
    }
    close(link[1]);
    *ret_link = link[0];
    return pid;
}

/* This process makes no CUDA call. */
static void test_memory_goes_from_life_to_life(void **state)
{
    int fd = -1, link, status;
    char byte;
    (void)state;
    for (int life = 0; life < LIVES; life++) {
        pid_t pid = start_life(life, &link);
        if (life > 0)
            send_fd(link, fd);
        else
            fd = receive_fd(link);
        assert_true(fd >= 0);
        bool lived = recv(link, &byte, 1, 0) == 1;
        send_signal(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (!lived)
            fail_msg("life %d ended by itself with status %#x", life, status);
        close(link);
    }
    close(fd);
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--life") == 0)
        return live(atoi(argv[2]));
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory_goes_from_life_to_life)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
