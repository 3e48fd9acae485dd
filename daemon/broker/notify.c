#include "daemon/broker/notify.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>

#include "proto/messages.h"
#include "proto/status.h"

void cgm_notify_ready(void)
{
    sd_notify(0, "READY=1");
}

void cgm_notify_stopping(void)
{
    sd_notify(0, "STOPPING=1");
}

void cgm_notify_watchdog(void)
{
    sd_notify(0, "WATCHDOG=1");
}

void cgm_notify_status(const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    sd_notifyf(0, "STATUS=%s", text);
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
    if (count <= 0)
        return CGM_OK;
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
