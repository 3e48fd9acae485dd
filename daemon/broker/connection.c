#include "daemon/broker/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/quota.h"
#include "daemon/broker/unread.h"
#include "proto/room.h"
#include "proto/status.h"

#define RETRY_MS 20u
#define LONG_SEND_NS 50000u /* many times what waking a sleeper takes */
#define ROOM_MS 100u        /* until fds may come */
#define REST_MS 4u          /* at least: to look whether it is over costs something too */
#define REST_MAX_MS 100u    /* at once: why it has to rest may be over before */

static const char hung_up[] = "hung up";

/* What waits for room in the socket. The fds are duplicates of its own. */
struct cgm_outgoing {
    struct cgm_outgoing *next;
    size_t size;
    unsigned n_fds;
    int *fds; /* behind the bytes' struct, in the same allocation */
    uint8_t bytes[];
};

static size_t weight(const struct cgm_connection *connection, size_t size, unsigned n_fds)
{
    return size + (size_t)n_fds * connection->events->fd_weight_bytes;
}

/* Of what was not sent this may be the last fd that there is. */
static void outgoing_free(struct cgm_connection *connection, struct cgm_outgoing *outgoing)
{
    if (outgoing->n_fds > 0)
        connection->events->drop_fds(connection->owner, outgoing->fds, outgoing->n_fds);
    free(outgoing);
}

static struct cgm_outgoing *outgoing_new(struct cgm_connection *connection, size_t size,
                                         const int *fds, unsigned n_fds)
{
    size_t padded = (size + sizeof(int) - 1) / sizeof(int) * sizeof(int);
    struct cgm_outgoing *outgoing = malloc(sizeof(*outgoing) + padded + n_fds * sizeof(int));
    if (!outgoing)
        return NULL;
    *outgoing =
        (struct cgm_outgoing){.size = size, .fds = (int *)(void *)(outgoing->bytes + padded)};
    memcpy(outgoing->bytes, connection->wire->out, size);
    for (; outgoing->n_fds < n_fds; outgoing->n_fds++) {
        int copy = fcntl(fds[outgoing->n_fds], F_DUPFD_CLOEXEC, 3);
        if (copy < 0) {
            outgoing_free(connection, outgoing);
            return NULL;
        }
        outgoing->fds[outgoing->n_fds] = copy;
    }
    return outgoing;
}

static bool spares_fds(const struct cgm_outgoing *outgoing)
{
    char why[128];
    for (unsigned i = 0; i < outgoing->n_fds; i++)
        if (!cgm_quota_spares_fd(outgoing->fds[i], why, sizeof(why)))
            return false;
    return true;
}

/* Cuts the peer off; the loop finds the hang-up and calls on_end. */
static void cut_off(struct cgm_connection *connection, const char *why)
{
    if (connection->broken)
        return;
    connection->broken = why;
    shutdown(connection->fd, SHUT_RDWR);
}

/* It could not be sent to. */
static void cut_off_for(struct cgm_connection *connection, int status)
{
    cut_off(connection, status == CGM_DAEMON_LOST ? hung_up : "sending failed");
}

bool cgm_connection_was_cut(const struct cgm_connection *connection)
{
    return connection->broken && connection->broken != hung_up;
}

static void on_event(uv_poll_t *poll, int status, int events);

static void update_events(struct cgm_connection *connection)
{
    int events = connection->paused || connection->resting ? UV_DISCONNECT : UV_READABLE;
    if (connection->first && !connection->crowded)
        events |= UV_WRITABLE;
    uv_poll_start(&connection->poll, events, on_event);
}

static void flush_queue(struct cgm_connection *connection);

static void on_retry(uv_timer_t *timer)
{
    struct cgm_connection *connection = timer->data;
    connection->crowded = false;
    if (connection->broken)
        return;
    flush_queue(connection);
    update_events(connection);
}

static void try_later(struct cgm_connection *connection, uint64_t ms)
{
    connection->crowded = true;
    uv_timer_start(&connection->retry, on_retry, ms, 0);
}

static bool has_read_all(const struct cgm_connection *connection)
{
    int bytes;
    return ioctl(connection->fd, SIOCOUTQ, &bytes) == 0 && bytes == 0;
}

static void count_unread(const struct cgm_connection *connection, int n_fds)
{
    if (n_fds != 0 && connection->events->count_unread)
        connection->events->count_unread(connection->owner, n_fds);
}

static void look_for_unread(struct cgm_connection *connection)
{
    if (connection->unread_fds == 0 || !has_read_all(connection))
        return;
    count_unread(connection, -(int)connection->unread_fds);
    connection->unread_fds = 0;
}

unsigned cgm_connection_unread_fds(struct cgm_connection *connection)
{
    look_for_unread(connection);
    return connection->unread_fds + connection->queued_fds;
}

/* n_more: 0 of those that are in the queue, and counted. */
static bool lets_fds_go(struct cgm_connection *connection, unsigned n_fds, unsigned n_more)
{
    if (n_fds == 0 || !connection->events->lets_unread)
        return true;
    look_for_unread(connection);
    return connection->unread_fds == 0 ||
           connection->events->lets_unread(connection->owner, connection->unread_fds + n_fds,
                                           n_more);
}

/* The clock also runs while others have the processor, which is not the peer's fault. What was
 * spent of a processor says nothing else, but asking for it takes nearly as long as a send, and it
 * may be coarse: then it jumps by more than has passed. */
static int send_bytes(struct cgm_connection *connection, const uint8_t *bytes, size_t size,
                      const int *fds, unsigned n_fds)
{
    uint64_t begin_ns = cgm_clock_ns(), spent_ns = connection->measured ? cgm_spent_ns() : 0;
    int status = cgm_packet_send_bytes(connection->fd, bytes, size, fds, n_fds), error = errno;
    if (connection->measured)
        spent_ns = cgm_spent_ns() - spent_ns;
    uint64_t took_ns = cgm_clock_ns() - begin_ns;
    connection->slow = spent_ns > LONG_SEND_NS && took_ns > LONG_SEND_NS;
    if (connection->slow && connection->events->on_long_send)
        connection->events->on_long_send(connection->owner,
                                         spent_ns < took_ns ? spent_ns : took_ns);
    connection->measured = took_ns > LONG_SEND_NS;
    errno = error;
    return status;
}

static uint64_t sends_rest_ms(const struct cgm_connection *connection)
{
    return connection->slow && connection->events->sends_rest_ms
               ? connection->events->sends_rest_ms(connection->owner)
               : 0;
}

/* Sends; of what is RING_FULL, errno says what is full. A socket with room for bytes is writable,
 * so that waiting for that would not be waiting: fds are tried again after a while, also those of
 * sessions that are not to blame. */
static int send_now(struct cgm_connection *connection, const uint8_t *bytes, size_t size,
                    const int *fds, unsigned n_fds, unsigned n_more)
{
    uint64_t rest_ms = sends_rest_ms(connection);
    if (rest_ms > 0 || !lets_fds_go(connection, n_fds, n_more)) {
        try_later(connection, rest_ms > 0 ? rest_ms : RETRY_MS);
        return CGM_RING_FULL;
    }
    int status = send_bytes(connection, bytes, size, fds, n_fds);
    if (status == CGM_RING_FULL && errno == ETOOMANYREFS)
        try_later(connection, RETRY_MS);
    if (status == CGM_OK) {
        connection->unread_fds += n_fds;
        count_unread(connection, (int)n_more);
    }
    return status;
}

/* From the queue; sent: its fds lie unread now. */
static void dequeue(struct cgm_connection *connection, bool sent)
{
    struct cgm_outgoing *outgoing = connection->first;
    connection->first = outgoing->next;
    if (!connection->first)
        connection->last = &connection->first;
    connection->queued_bytes -= weight(connection, outgoing->size, outgoing->n_fds);
    connection->queued_fds -= outgoing->n_fds;
    if (!sent)
        count_unread(connection, -(int)outgoing->n_fds);
    outgoing_free(connection, outgoing);
}

static void flush_queue(struct cgm_connection *connection)
{
    struct cgm_outgoing *outgoing;
    while ((outgoing = connection->first)) {
        int status = send_now(connection, outgoing->bytes, outgoing->size, outgoing->fds,
                              outgoing->n_fds, 0);
        if (status == CGM_RING_FULL)
            return;
        dequeue(connection, status == CGM_OK);
        if (status != CGM_OK)
            cut_off_for(connection, status);
    }
}

static bool has_turn(const struct cgm_connection *connection)
{
    return !connection->events->has_turn || connection->events->has_turn(connection->owner);
}

static void on_rested(uv_timer_t *timer)
{
    struct cgm_connection *connection = timer->data;
    connection->resting = false;
    update_events(connection);
}

/* Timers of one time are in the order of their starting: who was served comes behind those of the
 * same user who were not. */
static void rest(struct cgm_connection *connection, uint64_t ms)
{
    ms = ms < REST_MS ? REST_MS : ms > REST_MAX_MS ? REST_MAX_MS : ms;
    connection->resting = true;
    update_events(connection);
    uv_timer_start(&connection->rested, on_rested, ms + connection->served, 0);
    connection->served = false;
}

static bool must_rest(struct cgm_connection *connection)
{
    uint64_t ms = connection->events->rest_ms ? connection->events->rest_ms(connection->owner) : 0;
    if (ms > 0)
        rest(connection, ms);
    return ms > 0;
}

/* The system closes at once what finds no room in this process, however long that takes. */
static bool must_wait_for_room(struct cgm_connection *connection)
{
    const struct cgm_connection_events *events = connection->events;
    if (!events->lets_fds_come || events->lets_fds_come(connection->owner) ||
        !cgm_unread_has_fds(connection->fd))
        return false;
    rest(connection, ROOM_MS);
    return true;
}

static const char *must_end(const struct cgm_connection *connection)
{
    return connection->events->must_end ? connection->events->must_end(connection->owner) : NULL;
}

/* Those that nobody has taken. A peer that sends what may keep its closer waiting is not heard
 * again.
 */
static void close_fds(struct cgm_connection *connection, struct cgm_packet *packet)
{
    unsigned n_fds = packet->n_fds;
    packet->n_fds = 0;
    if (n_fds > 0 && !connection->events->close_fds(connection->owner, packet->fds, n_fds) &&
        !connection->closing)
        cut_off(connection, "sent file descriptors that are no memory");
}

/* What was done for the peer since then. */
static void spend(struct cgm_connection *connection, uint64_t *since_ns)
{
    if (!connection->events->on_spent)
        return;
    uint64_t now_ns = cgm_spent_ns();
    connection->events->on_spent(connection->owner, now_ns - *since_ns);
    *since_ns = now_ns;
}

/* False: there was none, or it was the last one. */
static bool receive_one(struct cgm_connection *connection)
{
    struct cgm_packet *packet = &connection->wire->in;
    memset(&packet->header, 0, sizeof(packet->header));
    int status = cgm_packet_recv_all(connection->fd, MSG_DONTWAIT, packet);
    if (status == CGM_TIMEOUT)
        return false;
    connection->served = true;
    if (status == CGM_OK)
        connection->events->on_packet(connection->owner, packet);
    else if (status == CGM_NO_MEMORY && connection->events->on_cut)
        connection->events->on_cut(connection->owner, packet);
    else if (status == CGM_BAD_MESSAGE || status == CGM_NO_MEMORY)
        connection->events->on_garbage(connection->owner, packet->header.magic == CGM_PACKET_MAGIC
                                                              ? packet->header.serial
                                                              : 0);
    else if (status == CGM_DAEMON_LOST)
        connection->events->on_end(connection->owner, hung_up);
    else
        cut_off(connection, "receiving failed");
    close_fds(connection, packet);
    return !connection->closing && !connection->broken && !connection->paused;
}

static void receive(struct cgm_connection *connection, uint64_t *since_ns)
{
    for (unsigned i = 0; i < connection->events->packets_per_turn && has_turn(connection); i++) {
        const char *why = must_end(connection);
        if (why)
            cut_off(connection, why);
        if (why || must_rest(connection) || must_wait_for_room(connection) ||
            !receive_one(connection))
            return;
        spend(connection, since_ns);
    }
}

static void handle_event(struct cgm_connection *connection, int status, int events,
                         uint64_t *since_ns)
{
    if (!connection->broken && status == 0 && events & UV_WRITABLE) {
        flush_queue(connection);
        update_events(connection);
    }
    if (!connection->broken && status == 0 && events & UV_READABLE)
        receive(connection, since_ns);
    if (connection->closing)
        return;
    if (connection->broken || status < 0 || events & UV_DISCONNECT)
        connection->events->on_end(connection->owner,
                                   connection->broken ? connection->broken : hung_up);
}

static void on_event(uv_poll_t *poll, int status, int events)
{
    struct cgm_connection *connection = poll->data;
    uint64_t since_ns = connection->events->on_spent ? cgm_spent_ns() : 0;
    handle_event(connection, status, events, &since_ns);
    spend(connection, &since_ns);
}

/* The loop has a table of all fds, which grows to the next power of two, and where there is no
 * memory for that libuv ends the process. */
static bool has_room_in_loop(struct cgm_wire *wire, int fd)
{
    size_t entries = 1;
    if (fd <= wire->highest_fd)
        return true;
    while (entries < (size_t)fd + 3)
        entries *= 2;
    void *probe = malloc(entries * sizeof(void *));
    free(probe);
    if (probe)
        wire->highest_fd = fd;
    return probe != NULL;
}

int cgm_connection_open(struct cgm_connection *connection, uv_loop_t *loop, struct cgm_wire *wire,
                        int fd, size_t queued_bytes_max, const struct cgm_connection_events *events,
                        void *owner)
{
    *connection = (struct cgm_connection){.wire = wire,
                                          .events = events,
                                          .owner = owner,
                                          .fd = fd,
                                          .queued_bytes_max = queued_bytes_max};
    connection->last = &connection->first;
    if (!has_room_in_loop(wire, fd) || uv_poll_init(loop, &connection->poll, fd) != 0)
        return CGM_NO_MEMORY;
    uv_timer_init(loop, &connection->retry);
    uv_timer_init(loop, &connection->rested);
    connection->rested.data = connection->retry.data = connection->poll.data = connection;
    update_events(connection);
    return CGM_OK;
}

/* Memory with a limit is not refused by the system: who fills it is killed. One packet waits in any
 * case. */
static bool has_room(const struct cgm_connection *connection, size_t size)
{
    return !connection->events->keeps_reserve || connection->queued_bytes < CGM_PACKET_BYTES_MAX ||
           cgm_room_check(size, CGM_ROOM_OF_BROKER) != CGM_NO_MEMORY;
}

static void enqueue(struct cgm_connection *connection, size_t size, const int *fds, unsigned n_fds)
{
    struct cgm_outgoing *outgoing;
    if (connection->queued_bytes + weight(connection, size, n_fds) > connection->queued_bytes_max) {
        cut_off(connection, "does not read its messages");
        return;
    }
    outgoing = has_room(connection, size) ? outgoing_new(connection, size, fds, n_fds) : NULL;
    if (outgoing && connection->events->keeps_reserve && !spares_fds(outgoing)) {
        outgoing_free(connection, outgoing);
        outgoing = NULL;
    }
    if (!outgoing) {
        cut_off(connection, "no memory for its messages");
        return;
    }
    *connection->last = outgoing;
    connection->last = &outgoing->next;
    connection->queued_bytes += weight(connection, size, n_fds);
    connection->queued_fds += n_fds;
    count_unread(connection, (int)n_fds);
    update_events(connection);
}

void cgm_connection_send(struct cgm_connection *connection, uint16_t type, uint32_t serial,
                         const ProtobufCMessage *message, const int *fds, unsigned n_fds)
{
    size_t size;
    if (connection->closing || connection->broken)
        return;
    if (cgm_packet_pack(type, serial, message, n_fds, connection->wire->out, &size) != CGM_OK) {
        cut_off(connection, "its answer is larger than a packet");
        return;
    }
    int status = connection->first
                     ? CGM_RING_FULL
                     : send_now(connection, connection->wire->out, size, fds, n_fds, n_fds);
    if (status == CGM_RING_FULL)
        enqueue(connection, size, fds, n_fds);
    else if (status != CGM_OK)
        cut_off_for(connection, status);
}

void cgm_connection_pause(struct cgm_connection *connection, bool paused)
{
    if (connection->closing || connection->paused == paused)
        return;
    connection->paused = paused;
    update_events(connection);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct cgm_connection *connection = handle->data;
    if (--connection->handles == 0)
        connection->events->on_closed(connection->owner);
}

void cgm_connection_close(struct cgm_connection *connection)
{
    if (connection->closing)
        return;
    connection->closing = true;
    flush_queue(connection);
    while (connection->first)
        dequeue(connection, false);
    connection->handles = 3;
    uv_close((uv_handle_t *)&connection->retry, on_handle_closed);
    uv_close((uv_handle_t *)&connection->rested, on_handle_closed);
    uv_close((uv_handle_t *)&connection->poll, on_handle_closed);
    connection->events->hang_up(connection->owner, connection->fd);
}
