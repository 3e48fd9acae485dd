#include "tests/fuzz/fake_link.h"

#include <errno.h>
#include <stdarg.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/log.h"
#include "daemon/broker/mps.h"
#include "proto/messages.h"
#include "proto/status.h"
#include "tests/fuzz/fuzz.h"

#define PROCESS_ID 4242

struct fake_link fake_link;

int __wrap_cgm_starter_init(struct cgm_starter *starter);
int __wrap_cgm_starter_run(struct cgm_starter *starter, const char *path, const int *fds,
                           unsigned n_fds, pid_t *ret_pid);
int __real_kill(pid_t pid, int number);
int __wrap_kill(pid_t pid, int number);
pid_t __real_waitpid(pid_t pid, int *ret_status, int options);
pid_t __wrap_waitpid(pid_t pid, int *ret_status, int options);
int __wrap_cgm_packet_send_bytes(int fd, const uint8_t *bytes, size_t size, const int *fds,
                                 unsigned n_fds);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size);
uint64_t __wrap_cgm_clock_ns(void);
void __wrap_cgm_mps_look(struct cgm_mps *ret_mps);
int __wrap_cgm_tool_run(struct cgm_broker *broker, const char *program, const char *input,
                        unsigned limit_ms, cgm_tool_fn *done, void *context, char *ret_detail,
                        unsigned detail_bytes);
void __wrap_cgm_log(enum cgm_log_level level, const char *format, ...);

int __wrap_cgm_starter_init(struct cgm_starter *starter)
{
    (void)starter;
    return 0;
}

int __wrap_cgm_starter_run(struct cgm_starter *starter, const char *path, const int *fds,
                           unsigned n_fds, pid_t *ret_pid)
{
    (void)starter;
    FUZZ_CHECK(path[0] != '\0' && n_fds == 3 && !fake_link.runs);
    if (fake_link.start_fails) {
        fake_link.start_fails = false;
        return ENOENT;
    }
    *ret_pid = PROCESS_ID;
    fake_link.link_fd = fcntl(fds[2], F_DUPFD_CLOEXEC, 3);
    fake_link.runs = true;
    fake_link.killed = fake_link.ended = false;
    return 0;
}

int __wrap_kill(pid_t pid, int number)
{
    if (pid != PROCESS_ID)
        return __real_kill(pid, number);
    FUZZ_CHECK(number == SIGKILL);
    fake_link.killed = true;
    return 0;
}

pid_t __wrap_waitpid(pid_t pid, int *ret_status, int options)
{
    if (pid != PROCESS_ID)
        return __real_waitpid(pid, ret_status, options);
    if (!fake_link.ended)
        return fake_link.runs ? 0 : -1;
    fake_link.ended = false;
    if (ret_status)
        *ret_status = fake_link.status;
    return PROCESS_ID;
}

void fake_link_end_process(struct cgm_broker *broker, int signal_number)
{
    if (!fake_link.runs)
        return;
    close(fake_link.link_fd);
    fake_link.runs = fake_link.killed = false;
    fake_link.ended = true;
    fake_link.status = signal_number ? signal_number : 3 << 8;
    cgm_executor_on_child(broker);
}

int __wrap_cgm_packet_send_bytes(int fd, const uint8_t *bytes, size_t size, const int *fds,
                                 unsigned n_fds)
{
    FUZZ_CHECK(size >= sizeof(struct cgm_packet_header) && size <= CGM_PACKET_BYTES_MAX);
    for (unsigned i = 0; i < n_fds; i++)
        FUZZ_CHECK(fds[i] >= 0);
    if (fake_link.full)
        return CGM_RING_FULL;
    fake_link.on_sent(fd, bytes, size, n_fds);
    return CGM_OK;
}

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
    (void)fd;
    FUZZ_CHECK(level == SOL_SOCKET);
    if (name != SO_PEERCRED) { /* SO_PEERPIDFD, which Linux knows since 6.5 */
        errno = ENOPROTOOPT;
        return -1;
    }
    FUZZ_CHECK(*size == sizeof(fake_link.peer));
    *(struct ucred *)value = fake_link.peer;
    return 0;
}

uint64_t __wrap_cgm_clock_ns(void)
{
    return ++fake_link.now_ns;
}

void __wrap_cgm_mps_look(struct cgm_mps *ret_mps)
{
    memset(ret_mps, 0, sizeof(*ret_mps));
    ret_mps->on = fake_link.mps_on;
}

/* One at a time, as from a daemon that is short of memory. */
int __wrap_cgm_tool_run(struct cgm_broker *broker, const char *program, const char *input,
                        unsigned limit_ms, cgm_tool_fn *done, void *context, char *ret_detail,
                        unsigned detail_bytes)
{
    (void)broker;
    FUZZ_CHECK(program[0] && limit_ms > 0 && strlen(input) <= CGM_TOOL_INPUT_BYTES);
    if (fake_link.tool_done)
        return cgm_detail(ret_detail, detail_bytes, CGM_NO_MEMORY, "no memory to run %s", program);
    fake_link.tool_done = done;
    fake_link.tool_context = context;
    return CGM_OK;
}

void fake_link_end_tool(int status, const char *output)
{
    cgm_tool_fn *done = fake_link.tool_done;
    fake_link.tool_done = NULL;
    if (done)
        done(fake_link.tool_context, status, output);
}

/* Texts are still made: what they are made of must be there. */
void __wrap_cgm_log(enum cgm_log_level level, const char *format, ...)
{
    char line[1024];
    va_list arguments;
    (void)level;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
}
