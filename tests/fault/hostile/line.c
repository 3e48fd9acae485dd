#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/status.h"
#include "tests/fault/hostile/hostile.h"

bool line_connect(struct hostile *hostile, struct line *ret_line)
{
    *ret_line = (struct line){.fd = -1};
    if (cgm_socket_connect(hostile->socket, &ret_line->fd) != CGM_OK) {
        hostile->cuts++;
        usleep(1000);
        return false;
    }
    fcntl(ret_line->fd, F_SETFL, O_NONBLOCK);
    return true;
}

bool line_hello(struct hostile *hostile, struct line *line)
{
    Cgm__Hello hello = CGM__HELLO__INIT;
    hello.min_version = CGM_PROTOCOL_MIN;
    hello.max_version = CGM_PROTOCOL_MAX;
    hello.name = (char *)(uintptr_t) "hostile";
    return line_send(hostile, line, CGM_MSG_HELLO, &hello.base, NULL, 0);
}

bool line_open(struct hostile *hostile, struct line *ret_line)
{
    if (!line_connect(hostile, ret_line))
        return false;
    if (line_hello(hostile, ret_line))
        return true;
    line_close(ret_line);
    return false;
}

void line_close(struct line *line)
{
    if (line->fd >= 0)
        close(line->fd);
    line->fd = -1;
}

static bool count_send(struct hostile *hostile, int status)
{
    if (status == CGM_OK)
        hostile->packets++;
    if (status != CGM_DAEMON_LOST)
        return true;
    hostile->cuts++;
    return false;
}

bool line_send(struct hostile *hostile, struct line *line, int type,
               const ProtobufCMessage *message, const int *fds, unsigned n_fds)
{
    int status = cgm_packet_send(line->fd, (uint16_t)type, ++line->serial, message, fds, n_fds);
    return count_send(hostile, status);
}

bool line_send_bytes(struct hostile *hostile, struct line *line, const uint8_t *bytes, size_t size)
{
    ssize_t n = send(line->fd, bytes, size, MSG_NOSIGNAL);
    bool room = n < 0 && (errno == EAGAIN || errno == EMSGSIZE || errno == ENOBUFS);
    return count_send(hostile, n >= 0 ? CGM_OK : room ? CGM_RING_FULL : CGM_DAEMON_LOST);
}

/* ---- what comes back ------------------------------------------------------------------------ */

/* Every 64-bit number of a reply may be the id of something. */
static void keep_ids(struct hostile *hostile, const ProtobufCMessage *message)
{
    const ProtobufCMessageDescriptor *descriptor = message->descriptor;
    for (unsigned i = 0; i < descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
        uint64_t id;
        if (field->type != PROTOBUF_C_TYPE_UINT64 || field->label == PROTOBUF_C_LABEL_REPEATED)
            continue;
        memcpy(&id, (const char *)message + field->offset, sizeof(id));
        if (id != 0)
            hostile->ids[hostile->n_ids++ % IDS_MAX] = id;
    }
}

static int receive(struct hostile *hostile, struct line *line, struct cgm_packet *packet,
                   ProtobufCMessage **ret_message)
{
    int status = cgm_packet_recv(line->fd, MSG_DONTWAIT, packet);
    *ret_message = NULL;
    if (status == CGM_DAEMON_LOST)
        hostile->cuts++;
    if (status != CGM_OK)
        return status;
    hostile->replies++;
    hostile->errors += packet->header.type == CGM_MSG_ERROR;
    *ret_message = cgm_packet_unpack(packet);
    if (*ret_message)
        keep_ids(hostile, *ret_message);
    return CGM_OK;
}

static void take_fds(struct cgm_packet *packet, int *ret_fds, unsigned *ret_n_fds)
{
    while (*ret_n_fds > 0)
        close(ret_fds[--*ret_n_fds]);
    for (unsigned i = 0; i < packet->n_fds; i++)
        ret_fds[i] = cgm_packet_take_fd(packet, i);
    *ret_n_fds = packet->n_fds;
}

bool line_drain(struct hostile *hostile, struct line *line, int *ret_fds, unsigned *ret_n_fds)
{
    static struct cgm_packet packet;
    ProtobufCMessage *message;
    int status;
    while ((status = receive(hostile, line, &packet, &message)) == CGM_OK) {
        if (ret_fds && ret_n_fds && packet.n_fds > 0)
            take_fds(&packet, ret_fds, ret_n_fds);
        cgm_packet_close_fds(&packet);
        cgm_message_free(message);
    }
    return status != CGM_DAEMON_LOST;
}

ProtobufCMessage *line_reply(struct hostile *hostile, struct line *line, int type, int *ret_fds,
                             unsigned *ret_n_fds)
{
    static struct cgm_packet packet;
    struct pollfd ready = {.fd = line->fd, .events = POLLIN};
    while (poll(&ready, 1, 1000) == 1) {
        ProtobufCMessage *message;
        if (receive(hostile, line, &packet, &message) != CGM_OK)
            return NULL;
        bool wanted = packet.header.serial == line->serial;
        if (wanted && message && packet.header.type == type) {
            if (ret_fds)
                take_fds(&packet, ret_fds, ret_n_fds);
            cgm_packet_close_fds(&packet);
            return message;
        }
        cgm_packet_close_fds(&packet);
        cgm_message_free(message);
        if (wanted)
            return NULL;
    }
    return NULL;
}
