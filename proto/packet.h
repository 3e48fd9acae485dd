/* Framing of the control protocol: one SOCK_SEQPACKET packet = this header + one protobuf message +
 * its file descriptors. The same on client <-> broker and broker <-> executor. */
#ifndef CGM_PACKET_H
#define CGM_PACKET_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CGM_PROTOCOL_MIN 1u
#define CGM_PROTOCOL_MAX 1u
/* Bits of HelloReply.features: requests that daemons before them would hang up on. */
#define CGM_FEATURE_BUFFER_CHECK 1u
#define CGM_PACKET_MAGIC 0x314d4743u /* "CGM1" */
#define CGM_PACKET_BYTES_MAX 65536u
#define CGM_PACKET_FDS_MAX 64u
#define CGM_PACKET_FDS_ROOM 253u /* SCM_MAX_FD: what the kernel lets anybody send */
/* Most memory that one unpacked message may take; protobuf-c itself has no limit. */
#define CGM_UNPACK_BYTES_MAX (1u << 20)

struct cgm_packet_header {
    uint32_t magic;
    uint16_t type;   /* proto/messages.h */
    uint16_t n_fds;  /* file descriptors that travel with the packet */
    uint32_t serial; /* of the request, from 1; a reply repeats it; 0: an event */
    uint32_t body_bytes;
};
_Static_assert(sizeof(struct cgm_packet_header) == 16, "layout is protocol");

/* A received packet. The fds are owned by the packet until somebody takes them (sets them to -1).
 */
struct cgm_packet {
    struct cgm_packet_header header;
    unsigned n_fds; /* at most CGM_PACKET_FDS_MAX in one that is right */
    int fds[CGM_PACKET_FDS_ROOM];
    uint8_t body[CGM_PACKET_BYTES_MAX - sizeof(struct cgm_packet_header)];
};

/* Packs and sends; never raises SIGPIPE. The fds stay the caller's. Status: OK; INVALID_ARGUMENT
 * when the message is larger than a packet (errno is EMSGSIZE), or an fd is one that the system
 * passes to nobody; DAEMON_LOST when the peer is gone; RING_FULL when a non-blocking socket has no
 * room now. */
int cgm_packet_send(int socket, uint16_t type, uint32_t serial, const ProtobufCMessage *message,
                    const int *fds, unsigned n_fds);

/* Packs into a caller's buffer of at least CGM_PACKET_BYTES_MAX bytes, for those who queue. */
int cgm_packet_pack(uint16_t type, uint32_t serial, const ProtobufCMessage *message, unsigned n_fds,
                    uint8_t *ret_bytes, size_t *ret_size);

/* Sends bytes made by cgm_packet_pack; the same statuses. */
int cgm_packet_send_bytes(int socket, const uint8_t *bytes, size_t size, const int *fds,
                          unsigned n_fds);

/* Receives one packet. flags: 0 or MSG_DONTWAIT. OK; TIMEOUT when there is none now (EAGAIN);
 * DAEMON_LOST when the peer hung up; IO when the system receives nothing, and the peer may live;
 * BAD_MESSAGE for a packet that is truncated, has no right header, or
 * has other fds than it says (all of its fds are closed then); NO_MEMORY, with a right header and
 * without fds, when this process had no room for all of them. Every fd is close-on-exec. */
int cgm_packet_recv(int socket, int flags, struct cgm_packet *ret_packet);

/* The same, but the fds of a packet that is not right are left to the caller too. */
int cgm_packet_recv_all(int socket, int flags, struct cgm_packet *ret_packet);

/* Closes the fds that nobody has taken. */
void cgm_packet_close_fds(struct cgm_packet *packet);

/* Moves fd i out of the packet; -1 when there is none. */
int cgm_packet_take_fd(struct cgm_packet *packet, unsigned i);

/* Unpacks the body as the message that header.type says, within CGM_UNPACK_BYTES_MAX. BAD_MESSAGE
 * when the type is unknown or the body is malformed or too large; NO_MEMORY when the system has
 * none. Free with cgm_message_free. */
int cgm_packet_read(const struct cgm_packet *packet, ProtobufCMessage **ret_message);
ProtobufCMessage *cgm_packet_unpack(const struct cgm_packet *packet); /* NULL: whichever it was */
void cgm_message_free(ProtobufCMessage *message);

/* Bound Unix SOCK_SEQPACKET address helpers. */
int cgm_socket_connect(const char *path, int *ret_socket); /* NOT_RUNNING, PERMISSION, ... */
/* The same in two steps: a socket, and that connected, which may take as long as others are let in.
 */
int cgm_socket_new(int *ret_socket);
int cgm_socket_join(int socket, const char *path);

/* Where the daemon's socket is: `given`, else $COMMGEMM_SOCKET, else
 * $XDG_RUNTIME_DIR/commgemm/commgemmd.sock, else /run/commgemm/commgemmd.sock. A client
 * (`listening` 0) takes the last one also when it exists and the one before it does not.
 * INVALID_ARGUMENT when the path is longer than a socket address can be. */
int cgm_socket_path(const char *given, int listening, char *ret_path, size_t size);

#endif
