#include "proto/log_sink.h"

#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/log_line.h"

#define WARNING 4

/* WAITING: a file's writes end by themselves. PEEKING: there is room before a write, unless another
 * process takes it in between. */
enum manner { WAITING, OWN, SENDING, PEEKING };

static struct {
    int fd;
    enum manner manner;
    atomic_uint left_out;
    atomic_bool torn; /* the last line has no end: the disk was full */
} sink = {.fd = STDERR_FILENO};

/* Whether to wait is a property of an open file, and this one may be that of a terminal, a shell or
 * the executor as well: hence one of our own. A file's has a position, which is to be shared. */
void cgm_log_sink_open(void)
{
    struct stat st;
    if (fstat(STDERR_FILENO, &st) < 0 || S_ISREG(st.st_mode))
        return;
    sink.manner = S_ISSOCK(st.st_mode) ? SENDING : PEEKING;
    if (sink.manner == SENDING)
        return;
    int fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return;
    sink.fd = fd;
    sink.manner = OWN;
}

static bool has_room(void)
{
    struct pollfd poll_fd = {.fd = sink.fd, .events = POLLOUT};
    return poll(&poll_fd, 1, 0) == 1 && poll_fd.revents & POLLOUT;
}

static bool put(const char *text, size_t size)
{
    ssize_t n = -1;
    if (sink.manner == SENDING)
        n = send(sink.fd, text, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    else if (sink.manner != PEEKING || has_room())
        n = write(sink.fd, text, size);
    if (n > 0 && (size_t)n < size)
        atomic_store(&sink.torn, true);
    return n == (ssize_t)size;
}

static bool mend(void)
{
    if (!atomic_exchange(&sink.torn, false) || put("\n", 1))
        return true;
    atomic_store(&sink.torn, true);
    return false;
}

/* True when none was left out, or it is said. */
static bool tell_left_out(void)
{
    char text[96];
    unsigned lines = atomic_exchange(&sink.left_out, 0);
    if (lines == 0)
        return true;
    int used = cgm_log_line_begin(text, sizeof(text), WARNING);
    used += snprintf(text + used, sizeof(text) - (size_t)used,
                     "log: %u lines were left out, for which there was no room\n", lines);
    if (put(text, (size_t)used))
        return true;
    atomic_fetch_add(&sink.left_out, lines);
    return false;
}

void cgm_log_sink_write(const char *line, size_t size)
{
    if (!mend() || !tell_left_out() || !put(line, size))
        atomic_fetch_add(&sink.left_out, 1);
}
