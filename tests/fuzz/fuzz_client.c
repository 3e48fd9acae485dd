/* A daemon that lies, and the library: every call is made against whatever the input answers, with
 * fds of every kind, events nobody asked for, packets that are none, and rings that are written by
 * somebody else. A call may fail; it returns, and what it says is a status. Afterwards no fd is
 * left. */
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/include/commgemm.h"
#include "proto/messages.h"
#include "proto/packet.h"
#include "proto/ring.h"
#include "proto/status.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/records.h"

#define ENTRIES 4u
#define ANSWERS_MAX 8u /* to one call: a daemon that always has another page keeps its caller */

/* What the record says of the answers to its call. */
enum manner {
    MANNER_RIGHT = 3,    /* up to here: of the right type, with what usually comes with it */
    MANNER_OTHER_TYPE,   /* of record->type */
    MANNER_ERROR,        /* record->type is the status */
    MANNER_OTHER_SERIAL, /* and then hangs up */
    MANNER_CUT,          /* a packet that is shorter than it says */
    MANNER_NO_PACKET,    /* bytes that are none */
    MANNER_HANG_UP,
    MANNERS
};

struct daemon {
    int socket;
    pthread_t thread;
    pthread_mutex_t lock; /* guards everything below */
    struct fuzz_record record;
    unsigned answers; /* to its call */
    struct cgm_ring ring;
    uint64_t life;
};

static struct daemon daemon_;
static commgemm_client *client;
static struct commgemm_buffer buffer;
static uint64_t plan, comm;
static bool tried; /* to connect */

/* ---- what the daemon sends --------------------------------------------------------------------
 */

/* Completions and phases are structures in fields of bytes. */
static size_t field_bytes(const char *field, uint8_t value, uint8_t *ret_bytes, size_t room)
{
    struct cgm_cqe cqe = {.ticket = value >> 2 & 7,
                          .status = value & 1 ? -(int32_t)value : 0,
                          .slot = value & 7,
                          .n_phases = (uint16_t)(value << 3)};
    if (strcmp(field, "cqe") != 0 || value == 255)
        return value < room ? value : room;
    memcpy(ret_bytes, &cqe, sizeof(cqe));
    return sizeof(cqe);
}

static const struct fuzz_words words = {.bytes = field_bytes};

static int odd_fd(uint8_t kind)
{
    int pair[2] = {-1, -1};
    switch (kind & 7) {
    case 0:
        return memfd_create("fuzz", MFD_CLOEXEC);
    case 1:
        FUZZ_CHECK(pipe(pair) == 0);
        break;
    case 2:
        FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        break;
    case 3:
        return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    case 4:
        return eventfd(0, EFD_CLOEXEC);
    case 5:
        return dup(daemon_.socket);
    case 6:
        FUZZ_CHECK(cgm_ring_create(ENTRIES, 1, kind >> 3, &pair[1]) == CGM_OK);
        return pair[1];
    default: {
        int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        FUZZ_CHECK(fd >= 0 && ftruncate(fd, kind << 10) == 0);
        return fd;
    }
    }
    close(pair[0]); /* whoever writes to the other end learns it */
    return pair[1];
}

/* A ring as it should be; the daemon keeps a mapping, to write into it what it likes. */
static unsigned ring_fds(int *ret_fds)
{
    int pair[2];
    cgm_ring_unmap(&daemon_.ring);
    FUZZ_CHECK(cgm_ring_create(ENTRIES, 1, daemon_.life, &ret_fds[0]) == CGM_OK);
    FUZZ_CHECK(cgm_ring_map(ret_fds[0], ENTRIES, &daemon_.ring) == CGM_OK);
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    ret_fds[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ret_fds[2] = pair[0];
    close(pair[1]);
    return 3;
}

/* extra: how many of which kinds; 0: what usually comes with such a message. */
static unsigned make_fds(int type, uint8_t extra, int *ret_fds)
{
    unsigned n = extra & 3;
    if (extra == 0 && type == CGM_MSG_RING)
        return ring_fds(ret_fds);
    if (extra == 0 && type == CGM_MSG_BUFFER_REPLY)
        extra = 7 | 1 << 3, n = 1;
    for (unsigned i = 0; i < n; i++)
        ret_fds[i] = odd_fd((uint8_t)(extra >> (i ? 3 : 2)));
    if (type == CGM_MSG_RING && n > 0 && extra & 128) {
        int right[3];
        ring_fds(right);
        close(ret_fds[0]);
        ret_fds[0] = right[0];
        close(right[1]);
        close(right[2]);
    }
    return n;
}

static size_t make_body(int type, const uint8_t *values, uint8_t *ret_bytes, size_t room)
{
    const ProtobufCMessageDescriptor *descriptor = cgm_message_descriptor(type);
    Cgm__HelloReply hello = CGM__HELLO_REPLY__INIT;
    Cgm__Ring ring = CGM__RING__INIT;
    hello.version = 1;
    ring.entries = ENTRIES;
    ring.executor_life = daemon_.life;
    if (values[0] == 0 && type == CGM_MSG_HELLO_REPLY)
        return cgm__hello_reply__pack(&hello, ret_bytes);
    if (values[0] == 0 && type == CGM_MSG_RING)
        return cgm__ring__pack(&ring, ret_bytes);
    return descriptor ? fuzz_message(descriptor, &words, values, ret_bytes, room) : 0;
}

static void send_packet(int type, uint32_t serial, uint8_t extra, const uint8_t *values, size_t cut)
{
    uint8_t bytes[8192];
    int fds[3] = {-1, -1, -1};
    struct cgm_packet_header header = {.magic = CGM_PACKET_MAGIC,
                                       .type = (uint16_t)type,
                                       .serial = serial,
                                       .n_fds = (uint16_t)make_fds(type, extra, fds)};
    size_t size = make_body(type, values, bytes + sizeof(header), sizeof(bytes) - sizeof(header));
    header.body_bytes = (uint32_t)size;
    memcpy(bytes, &header, sizeof(header));
    size += sizeof(header);
    cgm_packet_send_bytes(daemon_.socket, bytes, size > cut ? size - cut : 0, fds, header.n_fds);
    for (unsigned i = 0; i < header.n_fds; i++)
        close(fds[i]);
}

static void scribble(const uint8_t *values)
{
    struct cgm_ring *ring = &daemon_.ring;
    struct cgm_ring_header *header = ring->header;
    if (!header)
        return;
    struct cgm_cqe *cqe = &ring->cq[values[1] % ENTRIES];
    switch (values[0] % 6) {
    case 0:
        atomic_store(&header->dead, (int32_t)(int8_t)values[1]);
        break;
    case 1:
        atomic_fetch_add(&header->cq_tail, values[1] & 128 ? 1u << (values[1] & 31) : 1);
        break;
    case 2:
        atomic_store(&ring->done[values[1] % ENTRIES].status, (int32_t)(int8_t)values[2]);
        atomic_store(&ring->done[values[1] % ENTRIES].ticket, values[3]);
        break;
    case 3: /* the client may look at it: that is how such memory is */
        memset(cqe, values[2], sizeof(*cqe));
        cqe->slot = values[3];
        cqe->ticket = values[4];
        break;
    case 4:
        atomic_fetch_add(&header->cq_head, values[1]);
        atomic_fetch_add(&header->sq_head, values[2]);
        atomic_fetch_add(&header->sq_tail, values[3]);
        break;
    default:
        atomic_store(&header->dead, 0);
        header->entries = header->magic = values[1];
        break;
    }
}

/* Before the answer. */
static void do_event(const struct fuzz_record *record)
{
    static const uint8_t types[] = {CGM_MSG_RING, CGM_MSG_EXECUTOR_LOST, CGM_MSG_COMPLETION,
                                    CGM_MSG_IMPORT_IDLE, CGM_MSG_ERROR};
    unsigned kind = record->whom >> 4;
    if (kind == 0)
        return;
    if (kind < 4) {
        scribble(record->values + 14);
        return;
    }
    if (kind == 4)
        daemon_.life++;
    uint8_t type = kind < 10 ? types[(kind - 4) % 5] : record->values[27];
    send_packet(type, 0, record->values[26], record->values + 12, 0);
}

static int reply_type_of(int request)
{
    switch (request) {
    case CGM_MSG_HELLO:
    case CGM_MSG_RING_SETUP:
        return request + 1;
    case CGM_MSG_COMM_CREATE:
    case CGM_MSG_COMM_JOIN:
        return CGM_MSG_COMM_REPLY;
    case CGM_MSG_BUFFER_CREATE:
    case CGM_MSG_BUFFER_OPEN:
        return CGM_MSG_BUFFER_REPLY;
    case CGM_MSG_IMPORT_CREATE:
    case CGM_MSG_PLAN_CREATE:
    case CGM_MSG_PLAN_DESTROY_ALL:
    case CGM_MSG_PLAN_CHUNK:
    case CGM_MSG_QUERY:
    case CGM_MSG_SESSION_KILL:
    case CGM_MSG_TUNE:
        return request + 1;
    default:
        return CGM_MSG_OK;
    }
}

/* False: the daemon is gone. */
static bool answer(const struct cgm_packet *packet)
{
    const struct fuzz_record *record = &daemon_.record;
    int type = reply_type_of(packet->header.type);
    uint32_t serial = packet->header.serial;
    unsigned manner = (record->whom & 15) % MANNERS;
    if (++daemon_.answers > ANSWERS_MAX)
        return false;
    do_event(record);
    if (manner == MANNER_OTHER_TYPE)
        type = record->type;
    if (manner == MANNER_ERROR)
        type = CGM_MSG_ERROR;
    if (manner == MANNER_NO_PACKET)
        cgm_packet_send_bytes(daemon_.socket, record->values, 1 + record->extra % 28u, NULL, 0);
    else if (manner != MANNER_HANG_UP)
        send_packet(type, serial + (manner == MANNER_OTHER_SERIAL), record->extra, record->values,
                    manner == MANNER_CUT);
    return manner < MANNER_OTHER_SERIAL;
}

/* As the executor does: whoever lets go of something waits for that. */
static void read_ring(void)
{
    pthread_mutex_lock(&daemon_.lock);
    struct cgm_ring_header *header = daemon_.ring.header;
    if (header)
        atomic_store(&header->sq_head, atomic_load(&header->sq_tail));
    pthread_mutex_unlock(&daemon_.lock);
}

static void *daemon_main(void *argument)
{
    static struct cgm_packet packet;
    bool goes_on = true;
    (void)argument;
    while (goes_on && cgm_packet_recv(daemon_.socket, 0, &packet) == CGM_OK) {
        pthread_mutex_lock(&daemon_.lock);
        goes_on = answer(&packet);
        pthread_mutex_unlock(&daemon_.lock);
        cgm_packet_close_fds(&packet);
    }
    shutdown(daemon_.socket, SHUT_RDWR);
    return NULL;
}

int __wrap_cgm_socket_new(int *ret_socket);
int __wrap_cgm_socket_join(int socket, const char *path);

int __wrap_cgm_socket_join(int socket, const char *path)
{
    (void)socket;
    (void)path;
    return CGM_OK;
}

int __wrap_cgm_socket_new(int *ret_socket)
{
    int pair[2];
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    *ret_socket = pair[0];
    daemon_.socket = pair[1];
    FUZZ_CHECK(pthread_create(&daemon_.thread, NULL, daemon_main, NULL) == 0);
    return CGM_OK;
}

/* ---- what the program calls -------------------------------------------------------------------
 */

static int call_connect(const struct fuzz_record *record)
{
    struct commgemm_connect_options options;
    commgemm_connect_options_init(&options);
    options.ring_entries = ENTRIES;
    options.no_ring = record->what & 1;
    options.spin_ns = 0;
    return commgemm_connect(&options, &client);
}

static int call_comm(const struct fuzz_record *record)
{
    return record->type & 1 ? commgemm_comm_create(client, "c", 2, 0, &comm)
                            : commgemm_comm_join_simple(client, "c", 2, 1, &comm);
}

static int call_plan(const struct fuzz_record *record)
{
    struct commgemm_plan_options options;
    struct commgemm_plan made = {.id = plan};
    commgemm_plan_options_init(&options);
    options.comm = comm;
    options.op = COMMGEMM_OP_AG_GEMM;
    options.m = options.n = options.k = 64;
    (void)record;
    int status = commgemm_plan_create(client, &options, &made);
    FUZZ_CHECK(memchr(made.reason, 0, sizeof(made.reason)));
    plan = made.id;
    return status;
}

static int call_forget(const struct fuzz_record *record)
{
    uint32_t count;
    switch (record->type % 4) {
    case 0:
        return commgemm_plan_destroy(client, plan);
    case 1:
        return commgemm_plan_destroy_all(client, &count);
    case 2:
        return commgemm_comm_leave(client, comm);
    default:
        return commgemm_buffer_close(client, buffer.id);
    }
}

static int call_buffer(const struct fuzz_record *record)
{
    struct commgemm_buffer before = buffer;
    int status = record->type & 1 ? commgemm_buffer_create(client, "b", 4096, -1, 0, 0, &buffer)
                                  : commgemm_buffer_open(client, "b", 0, 0, &buffer);
    if (status != COMMGEMM_OK)
        buffer = before;
    return status;
}

static int call_bytes(const struct fuzz_record *record)
{
    uint8_t bytes[5000] = {0};
    void *address;
    switch (record->type % 3) {
    case 0:
        return commgemm_buffer_read(client, &buffer, record->values[0], bytes, sizeof(bytes));
    case 1:
        return commgemm_buffer_write(client, &buffer, record->values[0], bytes, sizeof(bytes));
    default:
        if (buffer.bytes > 1u << 20 || commgemm_buffer_map(client, &buffer, &address))
            return COMMGEMM_OK;
        return commgemm_buffer_unmap(address, buffer.bytes);
    }
}

static int call_import(const struct fuzz_record *record)
{
    struct commgemm_segment segment = {.kind = COMMGEMM_SEGMENT_FD, .length = 4096};
    uint64_t id = record->type;
    uint32_t generation;
    segment.fd = memfd_create("fuzz-import", MFD_CLOEXEC);
    int status = commgemm_import(client, &segment, 1, -1, 0, &id, &generation);
    close(segment.fd);
    return status == COMMGEMM_OK ? commgemm_import_release(client, id) : status;
}

static int call_submit(const struct fuzz_record *record)
{
    struct commgemm_job job;
    uint64_t ticket;
    commgemm_job_init(&job);
    job.kind = record->type & 1 ? COMMGEMM_JOB_NOOP : COMMGEMM_JOB_RUN;
    job.plan = plan;
    job.rank = record->type >> 4;
    job.detached = record->type >> 1 & 1;
    job.want_phases = !job.detached && record->type >> 2 & 1;
    int status = commgemm_submit(client, &job, &ticket);
    read_ring();
    return status;
}

static int call_wait(const struct fuzz_record *record)
{
    struct commgemm_completion done = {0};
    int status = commgemm_wait(client, record->type & 15, 1, &done);
    FUZZ_CHECK(memchr(done.detail, 0, sizeof(done.detail)) && done.status <= 0);
    commgemm_completion_fini(&done);
    return status;
}

static int call_reap(const struct fuzz_record *record)
{
    struct commgemm_completion done[2] = {0};
    uint32_t count = 0;
    int fd;
    if (record->type & 1)
        commgemm_poll_fd(client, &fd);
    int status = commgemm_reap(client, done, 2, &count);
    for (uint32_t i = 0; i < count; i++) {
        FUZZ_CHECK(memchr(done[i].detail, 0, sizeof(done[i].detail)) && done[i].status <= 0);
        commgemm_completion_fini(&done[i]);
    }
    return status;
}

static int call_detached(const struct fuzz_record *record)
{
    struct commgemm_completion first;
    uint64_t count;
    return record->type & 1 ? commgemm_wait_detached(client, 0, 1)
                            : commgemm_detached_failures(client, &first, &count);
}

static int call_cancel(const struct fuzz_record *record)
{
    return commgemm_cancel(client, record->type & 15);
}

static int call_executor(const struct fuzz_record *record)
{
    struct commgemm_info info;
    struct commgemm_chunk chunk;
    int status = commgemm_get_info(client, &info);
    FUZZ_CHECK(status != COMMGEMM_OK || memchr(info.release, 0, sizeof(info.release)));
    return record->type & 1 ? commgemm_wait_executor(client, 1)
                            : commgemm_plan_chunk(client, plan, 0, 0, &chunk);
}

static int call_query(const struct fuzz_record *record)
{
    char *text = NULL;
    int status = commgemm_query(client, record->type & 1 ? "status" : "jobs", &text);
    FUZZ_CHECK(status != COMMGEMM_OK || text);
    free(text);
    return status;
}

static int call_operator(const struct fuzz_record *record)
{
    static const char *const records[] = {"a", "b"};
    struct commgemm_killed killed = {0};
    uint32_t count;
    int status = commgemm_kill_session(client, 1, &killed);
    FUZZ_CHECK(memchr(killed.note, 0, sizeof(killed.note)));
    if (status == COMMGEMM_OK)
        status = commgemm_tune_clear(client, &count);
    return status == COMMGEMM_OK ? commgemm_tune_import(client, records, record->type % 3) : status;
}

static int (*const calls[])(const struct fuzz_record *record) = {
    call_submit, call_wait,   call_reap,     call_comm,   call_plan,     call_forget, call_buffer,
    call_bytes,  call_import, call_detached, call_cancel, call_executor, call_query,  call_operator,
};

/* The first record connects, if the daemon lets it. */
static void perform(const struct fuzz_record *record)
{
    int (*call)(const struct fuzz_record *record) =
        tried ? calls[record->what % (sizeof(calls) / sizeof(calls[0]))] : call_connect;
    if (tried && !client)
        return;
    tried = true;
    pthread_mutex_lock(&daemon_.lock);
    daemon_.record = *record;
    daemon_.answers = 0;
    pthread_mutex_unlock(&daemon_.lock);
    int status = call(record);
    FUZZ_CHECK(status <= 0);
    FUZZ_CHECK(status == COMMGEMM_OK || commgemm_last_error()[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned fds = fuzz_count_fds();
    tried = false;
    client = NULL;
    plan = comm = 0;
    buffer = (struct commgemm_buffer){.fd = -1};
    daemon_ = (struct daemon){.life = 1, .socket = -1};
    pthread_mutex_init(&daemon_.lock, NULL);
    fuzz_records_each(data, size, perform);
    commgemm_disconnect(client);
    if (tried) {
        pthread_join(daemon_.thread, NULL);
        close(daemon_.socket);
    }
    cgm_ring_unmap(&daemon_.ring);
    pthread_mutex_destroy(&daemon_.lock);
    FUZZ_CHECK(fuzz_count_fds() == fds);
    return 0;
}
