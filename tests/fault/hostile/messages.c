/* Attacks through the control socket. */
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/fault/hostile/hostile.h"

#define PACKETS_PER_ROUND 200
#define LINES 24

static const int types[] = {
#define X(number, SYMBOL, name, Type) CGM_MSG_##SYMBOL,
    CGM_MESSAGES(X)
#undef X
};
#define TYPE_COUNT (sizeof(types) / sizeof(types[0]))

/* Most of them requests; what is for executors, and replies, end the session. */
static int odd_type(const struct hostile *hostile)
{
    for (;;) {
        int type = types[chance(TYPE_COUNT)];
        bool obeyed = type == CGM_MSG_DRAIN || type == CGM_MSG_SESSION_KILL;
        if (hostile->operator&& obeyed)
            continue;
        if (type < CGM_MSG_EXECUTOR_SETUP || chance(30) == 0)
            return type;
    }
}

static unsigned odd_fds(int *ret_fds, unsigned most)
{
    unsigned n = 0;
    while (n < most && chance(4)) {
        int fd = odd_fd();
        if (fd >= 0)
            ret_fds[n++] = fd;
    }
    return n;
}

static void close_all(const int *fds, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        close(fds[i]);
}

/* Valid structure, odd values, in any order. */
void attack_messages(struct hostile *hostile)
{
    struct line line;
    int fds[CGM_PACKET_FDS_MAX];
    bool connected = line_open(hostile, &line);
    for (int i = 0; connected && i < PACKETS_PER_ROUND; i++) {
        int type = odd_type(hostile);
        unsigned n = chance(8) == 0 ? odd_fds(fds, CGM_PACKET_FDS_MAX) : 0;
        connected = line_send(hostile, &line, type, odd_message(hostile, type), fds, n);
        close_all(fds, n);
        if (connected && chance(4) == 0)
            connected = line_drain(hostile, &line, NULL, NULL);
    }
    line_close(&line);
}

static void spoil(uint8_t *bytes, size_t size, int times)
{
    for (int i = 0; i < times; i++)
        bytes[chance(size)] = (uint8_t)chance(256);
}

/* Bytes: noise, cut off, too long, headers that lie, bodies with a few wrong bytes. */
void attack_packets(struct hostile *hostile)
{
    static uint8_t bytes[CGM_PACKET_BYTES_MAX + 64];
    struct line line;
    for (int round = 0; round < PACKETS_PER_ROUND / 4; round++) {
        int type = odd_type(hostile);
        size_t size;
        if (!line_connect(hostile, &line))
            continue;
        if (chance(4))
            line_hello(hostile, &line);
        if (cgm_packet_pack((uint16_t)type, 2, odd_message(hostile, type), 0, bytes, &size) != 0)
            size = chance(sizeof(bytes)) + 1;
        if (chance(3) == 0)
            size = chance(size) + 1;
        if (chance(8) == 0)
            size = sizeof(bytes) - chance(128);
        spoil(bytes, size, (int)chance(6));
        if (chance(4) == 0)
            spoil(bytes, sizeof(struct cgm_packet_header), 2);
        line_send_bytes(hostile, &line, bytes, size);
        line_drain(hostile, &line, NULL, NULL);
        line_close(&line);
    }
}

/* Imports of everything that is an fd. */
void attack_fds(struct hostile *hostile)
{
    struct line line;
    uint32_t kind[CGM_IMPORT_SEGMENTS_MAX];
    uint64_t offset[CGM_IMPORT_SEGMENTS_MAX], length[CGM_IMPORT_SEGMENTS_MAX];
    int fds[CGM_IMPORT_SEGMENTS_MAX];
    bool connected = line_open(hostile, &line);
    for (int i = 0; connected && i < PACKETS_PER_ROUND; i++) {
        Cgm__ImportCreate create = CGM__IMPORT_CREATE__INIT;
        unsigned n = odd_fds(fds, 8);
        for (unsigned k = 0; k < n; k++) {
            kind[k] = 1;
            offset[k] = chance(4) ? 0 : odd_number(hostile) & ~4095ull;
            length[k] = chance(4) ? 4096 : odd_number(hostile) & ~4095ull;
        }
        create.n_kind = create.n_offset = create.n_length = n;
        create.kind = kind;
        create.offset = offset;
        create.length = length;
        create.has_read_only = 1;
        create.read_only = (protobuf_c_boolean)chance(2);
        connected = line_send(hostile, &line, CGM_MSG_IMPORT_CREATE, &create.base, fds,
                              chance(10) ? n : n / 2) &&
                    line_drain(hostile, &line, NULL, NULL);
        close_all(fds, n);
    }
    line_close(&line);
}

/* Connections as fast as they come, said nothing on. */
void attack_flood(struct hostile *hostile)
{
    struct line lines[LINES];
    for (int i = 0; i < PACKETS_PER_ROUND; i++) {
        struct line *line = &lines[i % LINES];
        if (i >= LINES)
            line_close(line);
        if (line_connect(hostile, line) && chance(2))
            line_hello(hostile, line);
    }
    for (int i = 0; i < LINES; i++)
        line_close(&lines[i]);
}

/* As many as it gets, held for a while. */
void attack_half_open(struct hostile *hostile)
{
    static struct line lines[900];
    unsigned n = 0;
    while (n < sizeof(lines) / sizeof(lines[0]) && line_connect(hostile, &lines[n]))
        n++;
    usleep(200000);
    while (n > 0)
        line_close(&lines[--n]);
}

/* Asks for much, and for fds, and reads nothing. */
void attack_deaf(struct hostile *hostile)
{
    struct line lines[LINES];
    Cgm__BufferCreate create = CGM__BUFFER_CREATE__INIT;
    Cgm__Query query = CGM__QUERY__INIT;
    create.bytes = 1;
    for (int i = 0; i < LINES; i++)
        if (!line_open(hostile, &lines[i]))
            lines[i].fd = -1;
    for (int i = 0; i < PACKETS_PER_ROUND * LINES; i++) {
        struct line *line = &lines[i % LINES];
        query.what = (uint32_t)chance(10);
        if (line->fd < 0)
            continue;
        bool alive = chance(2)
                         ? line_send(hostile, line, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0)
                         : line_send(hostile, line, CGM_MSG_QUERY, &query.base, NULL, 0);
        if (!alive)
            line_close(line);
    }
    usleep(50000);
    for (int i = 0; i < LINES; i++)
        line_close(&lines[i]);
}

/* Every listing, from every cursor, on many lines at once. */
void attack_questions(struct hostile *hostile)
{
    struct line lines[LINES];
    Cgm__Query query = CGM__QUERY__INIT;
    for (int i = 0; i < LINES; i++)
        if (!line_open(hostile, &lines[i]))
            lines[i].fd = -1;
    for (int i = 0; i < PACKETS_PER_ROUND * LINES; i++) {
        struct line *line = &lines[i % LINES];
        query.what = (uint32_t)chance(11);
        query.has_after = (protobuf_c_boolean)(chance(4) == 0);
        query.after = odd_number(hostile);
        if (line->fd >= 0 && !(line_send(hostile, line, CGM_MSG_QUERY, &query.base, NULL, 0) &&
                               line_drain(hostile, line, NULL, NULL)))
            line_close(line);
    }
    for (int i = 0; i < LINES; i++)
        line_close(&lines[i]);
}
