#include "daemon/broker/notify.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "proto/messages.h"
#include "proto/status.h"

#define TEXT_BYTES 272

/* In the order of their sending. */
enum word { READY, STATUS, STOPPING, WORD_COUNT };

static char owed[WORD_COUNT][TEXT_BYTES]; /* "": nothing */

static bool find_receiver(struct sockaddr_un *ret_address, socklen_t *ret_length)
{
    const char *path = getenv("NOTIFY_SOCKET");
    size_t length = path ? strlen(path) : 0;
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (length < 2 || length >= sizeof(ret_address->sun_path) || !strchr("/@", path[0]))
        return false;
    memcpy(ret_address->sun_path, path, length);
    if (path[0] == '@') /* a name that is no file's */
        ret_address->sun_path[0] = '\0';
    *ret_length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    return true;
}

/* sd_notify() would wait for room. False: there is none now. */
static bool send_word(const char *text)
{
    struct sockaddr_un address;
    socklen_t length;
    if (!find_receiver(&address, &length))
        return true;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ssize_t n = fd < 0 ? -1
                       : sendto(fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL,
                                (const struct sockaddr *)&address, length);
    int error = errno;
    if (fd >= 0)
        close(fd);
    return n >= 0 || (fd >= 0 && error != EAGAIN && error != ENOBUFS);
}

bool cgm_notify_settle(void)
{
    for (int word = 0; word < WORD_COUNT; word++) {
        if (owed[word][0] && !send_word(owed[word]))
            return false;
        owed[word][0] = '\0';
    }
    return true;
}

void cgm_notify_ready(void)
{
    strcpy(owed[READY], "READY=1");
    cgm_notify_settle();
}

void cgm_notify_stopping(void)
{
    strcpy(owed[STOPPING], "STOPPING=1");
    cgm_notify_settle();
}

void cgm_notify_watchdog(void)
{
    send_word("WATCHDOG=1");
}

void cgm_notify_status(const char *format, ...)
{
    va_list arguments;
    char *text = owed[STATUS];
    int used = snprintf(text, TEXT_BYTES, "STATUS=");
    va_start(arguments, format);
    vsnprintf(text + used, TEXT_BYTES - (size_t)used, format, arguments);
    va_end(arguments);
    text[strcspn(text, "\n")] = '\0'; /* behind which would be the next word */
    cgm_notify_settle();
}

uint64_t cgm_notify_watchdog_ms(void)
{
    uint64_t period_us;
    if (sd_watchdog_enabled(0, &period_us) <= 0)
        return 0;
    return period_us / 2000 > 0 ? period_us / 2000 : 1;
}

bool cgm_notify_is_active(void)
{
    return getenv("NOTIFY_SOCKET") != NULL;
}

int cgm_notify_listen_fd(int *ret_fd, char *ret_detail, unsigned detail_bytes)
{
    int count = sd_listen_fds(1);
    *ret_fd = -1;
    if (count == 0)
        return CGM_OK;
    if (count < 0)
        return cgm_detail(ret_detail, detail_bytes, CGM_INVALID_ARGUMENT,
                          "$LISTEN_PID, $LISTEN_FDS: the sockets of systemd cannot be taken: %s",
                          strerror(-count));
    if (count != 1)
        return cgm_detail(ret_detail, detail_bytes, CGM_INVALID_ARGUMENT,
                          "systemd hands over %d sockets; it must be one", count);
    if (sd_is_socket_unix(SD_LISTEN_FDS_START, SOCK_SEQPACKET, 1, NULL, 0) <= 0)
        return cgm_detail(ret_detail, detail_bytes, CGM_INVALID_ARGUMENT,
                          "the socket from systemd is not a listening Unix SOCK_SEQPACKET socket; "
                          "use ListenSequentialPacket=");
    *ret_fd = SD_LISTEN_FDS_START;
    return CGM_OK;
}
