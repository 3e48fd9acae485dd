/* Bytes that arrive on a control socket: cgm_packet_recv and cgm_packet_unpack. The first byte says
 * how many file descriptors travel along, the rest is the packet. */
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/messages.h"
#include "proto/packet.h"
#include "proto/status.h"
#include "tests/fuzz/fuzz.h"

#define FDS_MAX 4u

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct cgm_packet packet;
    int pair[2], fds[FDS_MAX];
    if (size < 2 || size - 1 > CGM_PACKET_BYTES_MAX + 1)
        return -1;
    socket_pair(pair);
    unsigned n_fds = data[0] % (FDS_MAX + 1);
    for (unsigned i = 0; i < n_fds; i++)
        fds[i] = sink_fd();
    FUZZ_CHECK(cgm_packet_send_bytes(pair[0], data + 1, size - 1, fds, n_fds) == CGM_OK);

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
    int taken = cgm_packet_take_fd(&packet, 0);
    FUZZ_CHECK((taken >= 0) == (n_fds > 0));
    if (taken >= 0)
        close(taken);
    cgm_packet_close_fds(&packet);
    return 0;
}
