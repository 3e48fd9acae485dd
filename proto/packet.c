#include "proto/packet.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/messages.h"
#include "proto/status.h"

#define SMALL_BYTES 2048u

union fd_control {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof(int) * CGM_PACKET_FDS_ROOM)];
};

int cgm_packet_pack(uint16_t type, uint32_t serial, const ProtobufCMessage *message, unsigned n_fds,
                    uint8_t *ret_bytes, size_t *ret_size)
{
    size_t body = protobuf_c_message_get_packed_size(message);
    if (body > CGM_PACKET_BYTES_MAX - sizeof(struct cgm_packet_header) ||
        n_fds > CGM_PACKET_FDS_MAX) {
        errno = EMSGSIZE;
        return CGM_INVALID_ARGUMENT;
    }
    struct cgm_packet_header header = {
        .magic = CGM_PACKET_MAGIC,
        .type = type,
        .n_fds = (uint16_t)n_fds,
        .serial = serial,
        .body_bytes = (uint32_t)body,
    };
    memcpy(ret_bytes, &header, sizeof(header));
    protobuf_c_message_pack(message, ret_bytes + sizeof(header));
    *ret_size = sizeof(header) + body;
    return CGM_OK;
}

static void attach_fds(struct msghdr *msg, union fd_control *control, const int *fds,
                       unsigned n_fds)
{
    memset(control, 0, sizeof(*control));
    msg->msg_control = control->space;
    msg->msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
    struct cmsghdr *c = CMSG_FIRSTHDR(msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
    memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
}

int cgm_packet_send_bytes(int socket, const uint8_t *bytes, size_t size, const int *fds,
                          unsigned n_fds)
{
    union fd_control control;
    struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t n;
    if (n_fds > 0)
        attach_fds(&msg, &control, fds, n_fds);
    do
        n = sendmsg(socket, &msg, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n >= 0)
        return CGM_OK;
    /* ETOOMANYREFS: too many fds in flight; room comes back as the peer reads. */
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ETOOMANYREFS)
        return CGM_RING_FULL;
    return errno == ENOTCONN ? CGM_DAEMON_LOST : cgm_status_of_errno(errno);
}

struct outgoing {
    uint16_t type;
    uint32_t serial;
    const ProtobufCMessage *message;
    const int *fds;
    unsigned n_fds;
};

static int send_in(uint8_t *bytes, int socket, const struct outgoing *out)
{
    size_t size;
    int status = cgm_packet_pack(out->type, out->serial, out->message, out->n_fds, bytes, &size);
    if (status != CGM_OK)
        return status;
    return cgm_packet_send_bytes(socket, bytes, size, out->fds, out->n_fds);
}

/* A program's threads may have small stacks, and nearly all that they send is small. */
static __attribute__((noinline)) int send_small(int socket, const struct outgoing *out)
{
    uint8_t bytes[SMALL_BYTES];
    return send_in(bytes, socket, out);
}

static __attribute__((noinline)) int send_large(int socket, const struct outgoing *out)
{
    uint8_t bytes[CGM_PACKET_BYTES_MAX];
    return send_in(bytes, socket, out);
}

int cgm_packet_send(int socket, uint16_t type, uint32_t serial, const ProtobufCMessage *message,
                    const int *fds, unsigned n_fds)
{
    const struct outgoing out = {type, serial, message, fds, n_fds};
    size_t body = protobuf_c_message_get_packed_size(message);
    bool small = body <= SMALL_BYTES - sizeof(struct cgm_packet_header);
    return small ? send_small(socket, &out) : send_large(socket, &out);
}

#ifndef SCM_PIDFD
#define SCM_PIDFD 4
#endif

/* The system's own, of who sent the packet, where whoever made the socket wished for it. */
static void close_pidfd(struct cmsghdr *c)
{
    int fd;
    memcpy(&fd, CMSG_DATA(c), sizeof(fd));
    if (fd >= 0)
        close(fd);
}

static void collect_fds(struct msghdr *msg, struct cgm_packet *packet)
{
    packet->n_fds = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_PIDFD)
            close_pidfd(c);
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count && packet->n_fds < CGM_PACKET_FDS_ROOM; i++)
            memcpy(&packet->fds[packet->n_fds++], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
    }
}

static int packet_is_right(int flags, const struct cgm_packet *packet, unsigned n_fds, size_t size)
{
    return !(flags & (MSG_TRUNC | MSG_CTRUNC)) && size >= sizeof(packet->header) &&
           packet->header.magic == CGM_PACKET_MAGIC && packet->header.n_fds == n_fds &&
           n_fds <= CGM_PACKET_FDS_MAX &&
           packet->header.body_bytes == size - sizeof(packet->header);
}

/* This process has no room for all the fds of a packet that is right otherwise. */
static int fds_were_cut(int flags, const struct cgm_packet *packet, size_t size)
{
    unsigned sent = packet->header.n_fds;
    return flags & MSG_CTRUNC && packet->n_fds < sent && sent <= CGM_PACKET_FDS_MAX &&
           packet_is_right(flags & ~MSG_CTRUNC, packet, sent, size);
}

/* Only a peer that hung up is lost: one that could not be heard may live. */
static int status_of_failed_recv(int error)
{
    if (error == EAGAIN || error == EWOULDBLOCK)
        return CGM_TIMEOUT;
    return error == ECONNRESET ? CGM_DAEMON_LOST : CGM_IO;
}

int cgm_packet_recv_all(int socket, int flags, struct cgm_packet *ret_packet)
{
    union fd_control control;
    struct iovec iov[2] = {
        {.iov_base = &ret_packet->header, .iov_len = sizeof(ret_packet->header)},
        {.iov_base = ret_packet->body, .iov_len = sizeof(ret_packet->body)},
    };
    struct msghdr msg = {.msg_iov = iov,
                         .msg_iovlen = 2,
                         .msg_control = control.space,
                         .msg_controllen = sizeof(control.space)};
    ssize_t n;
    ret_packet->n_fds = 0;
    do
        n = recvmsg(socket, &msg, flags | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return status_of_failed_recv(errno);
    collect_fds(&msg, ret_packet);
    if (n == 0 && ret_packet->n_fds == 0)
        return CGM_DAEMON_LOST;
    if (packet_is_right(msg.msg_flags, ret_packet, ret_packet->n_fds, (size_t)n))
        return CGM_OK;
    return fds_were_cut(msg.msg_flags, ret_packet, (size_t)n) ? CGM_NO_MEMORY : CGM_BAD_MESSAGE;
}

int cgm_packet_recv(int socket, int flags, struct cgm_packet *ret_packet)
{
    int status = cgm_packet_recv_all(socket, flags, ret_packet);
    if (status != CGM_OK)
        cgm_packet_close_fds(ret_packet);
    return status;
}

void cgm_packet_close_fds(struct cgm_packet *packet)
{
    for (unsigned i = 0; i < packet->n_fds; i++)
        if (packet->fds[i] >= 0)
            close(packet->fds[i]);
    packet->n_fds = 0;
}

int cgm_packet_take_fd(struct cgm_packet *packet, unsigned i)
{
    if (i >= packet->n_fds)
        return -1;
    int fd = packet->fds[i];
    packet->fds[i] = -1;
    return fd;
}

/* protobuf-c multiplies sizes unchecked and knows no limit: this allocator counts. */
struct counting {
    size_t left;
    bool failed; /* the system had no memory */
};

static void *counting_alloc(void *data, size_t size)
{
    struct counting *counting = data;
    if (size > counting->left)
        return NULL;
    counting->left -= size;
    void *block = malloc(size ? size : 1);
    counting->failed |= !block;
    return block;
}

static void counting_free(void *data, void *pointer)
{
    (void)data;
    free(pointer);
}

int cgm_packet_read(const struct cgm_packet *packet, ProtobufCMessage **ret_message)
{
    struct counting counting = {.left = CGM_UNPACK_BYTES_MAX};
    ProtobufCAllocator allocator = {counting_alloc, counting_free, &counting};
    const ProtobufCMessageDescriptor *descriptor = cgm_message_descriptor(packet->header.type);
    ProtobufCMessage *message =
        descriptor ? protobuf_c_message_unpack(descriptor, &allocator, packet->header.body_bytes,
                                               packet->body)
                   : NULL;
    if (!message)
        return counting.failed ? CGM_NO_MEMORY : CGM_BAD_MESSAGE;
    *ret_message = message;
    return CGM_OK;
}

ProtobufCMessage *cgm_packet_unpack(const struct cgm_packet *packet)
{
    ProtobufCMessage *message;
    return cgm_packet_read(packet, &message) == CGM_OK ? message : NULL;
}

void cgm_message_free(ProtobufCMessage *message)
{
    ProtobufCAllocator allocator = {counting_alloc, counting_free, NULL};
    if (message)
        protobuf_c_message_free_unpacked(message, &allocator);
}

int cgm_socket_new(int *ret_socket)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return cgm_status_of_errno(errno);
    *ret_socket = fd;
    return CGM_OK;
}

int cgm_socket_join(int socket, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path))
        return CGM_INVALID_ARGUMENT;
    memcpy(address.sun_path, path, strlen(path) + 1);
    int failed;
    do /* where many wait to be let in, it waits to be one of them, and a signal ends that */
        failed = connect(socket, (struct sockaddr *)&address, sizeof(address));
    while (failed && errno == EINTR);
    return failed ? cgm_status_of_errno(errno) : CGM_OK;
}

int cgm_socket_connect(const char *path, int *ret_socket)
{
    int fd = -1, status = cgm_socket_new(&fd);
    if (status != CGM_OK)
        return status;
    status = cgm_socket_join(fd, path);
    if (status != CGM_OK) {
        int error = errno;
        close(fd);
        errno = error;
        return status;
    }
    *ret_socket = fd;
    return CGM_OK;
}

#define SYSTEM_SOCKET "/run/commgemm/commgemmd.sock"

static int default_path(int listening, char *ret_path, size_t size)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (!runtime || !runtime[0])
        return snprintf(ret_path, size, SYSTEM_SOCKET);
    int length = snprintf(ret_path, size, "%s/commgemm/commgemmd.sock", runtime);
    if (listening || access(ret_path, F_OK) == 0 || access(SYSTEM_SOCKET, F_OK) != 0)
        return length;
    return snprintf(ret_path, size, SYSTEM_SOCKET);
}

int cgm_socket_path(const char *given, int listening, char *ret_path, size_t size)
{
    struct sockaddr_un address;
    if (!given || !given[0])
        given = getenv("COMMGEMM_SOCKET");
    int length = given && given[0] ? snprintf(ret_path, size, "%s", given)
                                   : default_path(listening, ret_path, size);
    if (length < 0 || (size_t)length >= size || (size_t)length >= sizeof(address.sun_path))
        return CGM_INVALID_ARGUMENT;
    return CGM_OK;
}
