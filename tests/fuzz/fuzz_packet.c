/* Bytes that arrive on a control socket: cgm_packet_recv and cgm_packet_unpack. The low bits of the
 * first byte say how many file descriptors travel along. With its highest bit the rest is the
 * packet as it is; without, the second byte is the message's type and the rest its body. */
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/messages.h"
#include "proto/packet.h"
#include "proto/status.h"
#include "tests/fuzz/fuzz.h"

#define FDS_MAX 4u
#define RAW 0x80u

/* One pair for all inputs: a packet leaves nothing behind on it. */
static void socket_pair(int ret_pair[2])
{
    static int pair[2] = {-1, -1};
    if (pair[0] < 0)
        FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    memcpy(ret_pair, pair, sizeof(pair));
}

static int sink_fd(void)
{
    static int fd = -1;
    if (fd < 0)
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    FUZZ_CHECK(fd >= 0);
    return fd;
}

/* What was understood can be packed again within a packet. Whether it reads the same then is not
 * promised: unknown fields are kept with whatever encoding they came in. */
static void repack(const struct cgm_packet *packet, const ProtobufCMessage *message)
{
    static struct cgm_packet again;
    static uint8_t bytes[CGM_PACKET_BYTES_MAX];
    size_t size;
    if (cgm_packet_pack(packet->header.type, packet->header.serial, message, 0, bytes, &size) !=
        CGM_OK)
        return;
    FUZZ_CHECK(size <= sizeof(bytes));
    memcpy(&again.header, bytes, sizeof(again.header));
    memcpy(again.body, bytes + sizeof(again.header), again.header.body_bytes);
    ProtobufCMessage *second = cgm_packet_unpack(&again);
    if (second)
        cgm_message_free(second);
}

/* The packet that an input stands for; its size, or 0 for an input that stands for none. */
static size_t make_packet(const uint8_t *data, size_t size, unsigned n_fds, uint8_t *ret_bytes)
{
    struct cgm_packet_header header = {
        .magic = CGM_PACKET_MAGIC, .type = data[1], .n_fds = (uint16_t)n_fds};
    size_t skip = data[0] & RAW ? 1 : 2, head = data[0] & RAW ? 0 : sizeof(header);
    if (size - skip + head > CGM_PACKET_BYTES_MAX + 1)
        return 0;
    header.body_bytes = (uint32_t)(size - skip);
    memcpy(ret_bytes, &header, head);
    memcpy(ret_bytes + head, data + skip, size - skip);
    return size - skip + head;
}

static void check_fds(struct cgm_packet *packet, unsigned n_fds)
{
    int taken = cgm_packet_take_fd(packet, 0);
    FUZZ_CHECK((taken >= 0) == (n_fds > 0));
    if (taken >= 0)
        close(taken);
    FUZZ_CHECK(cgm_packet_take_fd(packet, 0) == -1);
    cgm_packet_close_fds(packet);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct cgm_packet packet;
    static uint8_t bytes[CGM_PACKET_BYTES_MAX + 1];
    int pair[2], fds[FDS_MAX];
    if (size < 3)
        return -1;
    unsigned n_fds = (data[0] & ~RAW) % (FDS_MAX + 1);
    size_t packet_bytes = make_packet(data, size, n_fds, bytes);
    if (packet_bytes == 0)
        return -1;
    socket_pair(pair);
    for (unsigned i = 0; i < n_fds; i++)
        fds[i] = sink_fd();
    FUZZ_CHECK(cgm_packet_send_bytes(pair[0], bytes, packet_bytes, fds, n_fds) == CGM_OK);

    int status = cgm_packet_recv(pair[1], MSG_DONTWAIT, &packet);
    FUZZ_CHECK(status == CGM_OK || status == CGM_BAD_MESSAGE);
    if (status != CGM_OK) {
        FUZZ_CHECK(packet.n_fds == 0);
        return 0;
    }
    FUZZ_CHECK(packet.n_fds == n_fds && packet.header.body_bytes <= sizeof(packet.body));
    ProtobufCMessage *message = cgm_packet_unpack(&packet);
    if (message) {
        repack(&packet, message);
        cgm_message_free(message);
    }
    check_fds(&packet, n_fds);
    return 0;
}
