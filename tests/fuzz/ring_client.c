#include "tests/fuzz/ring_client.h"

#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/status.h"
#include "tests/fuzz/fuzz.h"

struct client {
    struct cgm_ring ring;
    int notify_fd;        /* 0: there is no such client */
    int ring_fd, wake_fd; /* until it has joined */
    uint64_t tickets;
    uint64_t numbers[2]; /* by rank */
};

static struct client clients[RINGS + 1];
static const struct fuzz_words words;

void ring_client_close(uint64_t session)
{
    struct client *client = &clients[session];
    cgm_ring_unmap(&client->ring);
    if (client->notify_fd)
        close(client->notify_fd);
    memset(client, 0, sizeof(*client));
}

void ring_client_open(uint64_t session, struct cgm_packet *packet)
{
    struct client *client = &clients[session];
    int ring_fd, pair[2];
    ring_client_close(session);
    FUZZ_CHECK(cgm_ring_create(RING_ENTRIES, session, 1, &ring_fd) == CGM_OK);
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    client->notify_fd = pair[0];
    packet->fds[0] = ring_fd;
    packet->fds[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    packet->fds[2] = pair[1];
    packet->n_fds = 3;
    client->ring_fd = dup(ring_fd);
    client->wake_fd = dup(packet->fds[1]);
    FUZZ_CHECK(client->ring_fd >= 0 && client->wake_fd >= 0);
}

void ring_client_join(uint64_t session, bool seals)
{
    static const uint64_t one = 1;
    struct client *client = &clients[session];
    int status = seals ? cgm_ring_join(client->ring_fd, RING_ENTRIES, &client->ring)
                       : cgm_ring_map(client->ring_fd, RING_ENTRIES, &client->ring);
    FUZZ_CHECK(status == CGM_OK);
    FUZZ_CHECK(write(client->wake_fd, &one, sizeof(one)) == sizeof(one));
    close(client->ring_fd);
    close(client->wake_fd);
}

static void fill_operands(struct cgm_entry *entry, const uint8_t *values,
                          ring_generation_fn *generation_of)
{
    for (unsigned i = 0; i < CGM_OPERAND_COUNT; i++) {
        entry->operand[i].id = fuzz_number(&words, values[i]);
        entry->operand[i].generation = generation_of(entry->operand[i].id);
    }
    struct cgm_operand *odd = &entry->operand[values[12] % CGM_OPERAND_COUNT];
    odd->offset_bytes = fuzz_number(&words, values[13]);
    odd->row_stride_bytes = fuzz_number(&words, values[14]);
    odd->generation += values[15] >> 4 & 1;
    odd->reserved = values[15] >> 5 & 1;
}

static void fill_entry(struct cgm_entry *entry, const struct fuzz_record *record,
                       struct client *client, ring_generation_fn *generation_of)
{
    const uint8_t *values = record->values;
    uint32_t rank = values[2] & 1;
    memset(entry, 0, sizeof(*entry));
    entry->ticket = client->tickets;
    entry->plan = values[0];
    entry->opcode = values[1] % 5u;
    entry->rank = values[2];
    entry->rows = fuzz_number(&words, values[3]);
    entry->flags = values[4];
    entry->chunk = (uint32_t)fuzz_number(&words, values[5]);
    entry->deadline_ms = fuzz_number(&words, values[6]);
    entry->comm_number = fuzz_number(&words, values[7]);
    if (values[7] == 1)
        entry->comm_number = ++client->numbers[rank];
    entry->submit_ns = fuzz_number(&words, values[8]);
    fill_operands(entry, values + 10, generation_of);
}

void ring_client_submit(const struct fuzz_record *record, ring_generation_fn *generation_of)
{
    struct client *client = &clients[1 + record->whom % RINGS];
    struct cgm_ring *ring = &client->ring;
    uint32_t slot = record->extra % RING_ENTRIES;
    if (!ring->header)
        return;
    client->tickets++;
    fill_entry(&ring->entry[slot], record, client, generation_of);
    ring->sq[ring->header->sq_tail & ring->mask] = slot;
    if (record->extra & 0x80)
        ring->ready[slot] = client->tickets;
    ring->header->sq_tail++;
}

void ring_client_ready_and_reap(const struct fuzz_record *record)
{
    struct client *client = &clients[1 + record->whom % RINGS];
    struct cgm_ring *ring = &client->ring;
    if (!ring->header)
        return;
    if (record->extra & 1)
        for (unsigned i = 0; i < RING_ENTRIES; i++)
            ring->ready[i] = UINT64_MAX;
    if (record->extra & 2)
        ring->header->cq_head = ring->header->cq_tail;
}

void ring_client_scribble(const struct fuzz_record *record)
{
    struct client *client = &clients[1 + record->whom % RINGS];
    struct cgm_ring *ring = &client->ring;
    uint64_t value = fuzz_number(&words, record->values[0]);
    if (!ring->header)
        return;
    switch (record->extra % 8u) {
    case 0:
        ring->header->sq_tail = (uint32_t)value;
        break;
    case 1:
        ring->header->cq_head = (uint32_t)value;
        break;
    case 2:
        ring->header->cq_tail = ring->header->sq_head = (uint32_t)value;
        break;
    case 3:
        ring->sq[record->values[1] % RING_ENTRIES] = (uint32_t)value;
        break;
    case 4:
        client->tickets = value;
        break;
    case 5:
        ring->header->cq_need_wakeup = ring->header->sq_need_wakeup = (uint32_t)value;
        break;
    case 6:
        memset(ring->header, record->values[0], offsetof(struct cgm_ring_header, sq_tail));
        break;
    default:
        memcpy((char *)&ring->entry[record->values[1] % RING_ENTRIES] + record->values[2],
               record->values + 3, 16);
    }
}
