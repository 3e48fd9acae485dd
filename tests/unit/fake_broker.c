#include "tests/unit/fake_broker.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/messages.h"
#include "proto/packet.h"
#include "proto/status.h"
#include "tests/unit/fake_poller.h"

#define SESSIONS_MAX 32

struct fake_session {
    struct fake_broker *fake;
    int socket;
    pthread_t thread;
    uint32_t entries; /* of the ring that it asked for; 0: none */
    struct fake_poller *poller;
};

struct fake_broker {
    struct fake_options options;
    char folder[64];
    char path[96];
    int listener;
    pthread_t thread;
    pthread_mutex_t lock; /* guards everything below */
    struct fake_session sessions[SESSIONS_MAX];
    unsigned n_sessions;
    uint64_t life, next_id, jobs_before, requests;
    bool has_executor, hung_up;
    struct cgm_entry last_entry;
    char name[64], complaint[128];
    char imports[1024], uuid[64]; /* what fake_imports and fake_import_uuid give */
    bool refuse_cancel, close_imports;
    uint64_t ending_comm, ending_number; /* 0: none */
};

/* ---- replies ----------------------------------------------------------------------------------
 */

static void reply(struct fake_session *session, uint32_t serial, int type,
                  const ProtobufCMessage *message, const int *fds, unsigned n_fds)
{
    cgm_packet_send(session->socket, (uint16_t)type, serial, message, fds, n_fds);
}

static void reply_ok(struct fake_session *session, uint32_t serial)
{
    Cgm__Ok ok = CGM__OK__INIT;
    reply(session, serial, CGM_MSG_OK, &ok.base, NULL, 0);
}

static void reply_error(struct fake_session *session, uint32_t serial, int status,
                        const char *detail)
{
    Cgm__Error error = CGM__ERROR__INIT;
    error.status = status;
    error.detail = (char *)(uintptr_t)detail;
    reply(session, serial, CGM_MSG_ERROR, &error.base, NULL, 0);
}

/* True when the name says how to answer, and it was answered so. */
static bool answer_by_name(struct fake_session *session, uint32_t serial, const char *name)
{
    if (name && strcmp(name, FAKE_SILENT_NAME) == 0)
        return true;
    if (name && strcmp(name, FAKE_ABSENT_NAME) == 0) {
        reply_error(session, serial, CGM_NO_EXECUTOR, "the executor is ending");
        return true;
    }
    if (!name || strcmp(name, FAKE_TAKEN_NAME) != 0)
        return false;
    reply_error(session, serial, CGM_EXISTS, "name is taken: " FAKE_TAKEN_NAME);
    return true;
}

static void name_executor(const struct fake_broker *fake, Cgm__Ring *ret_ring)
{
    ret_ring->executor_life = fake->life;
    ret_ring->backend = (char *)"cpu";
    ret_ring->has_devices = 1;
    ret_ring->devices = FAKE_DEVICES;
}

/* To a session without a ring: that there is an executor. */
static void send_no_ring(struct fake_session *session)
{
    Cgm__Ring none = CGM__RING__INIT;
    name_executor(session->fake, &none);
    reply(session, 0, CGM_MSG_RING, &none.base, NULL, 0);
}

static void send_ring(struct fake_session *session, uint32_t serial)
{
    struct fake_broker *fake = session->fake;
    Cgm__Ring ring = CGM__RING__INIT;
    session->poller = malloc(sizeof(*session->poller));
    fake_poller_start(session->poller, session->entries, fake->life, fake->options.poller_spin_ns,
                      fake->options.shuffle);
    ring.entries = session->entries;
    name_executor(fake, &ring);
    int fds[3] = {session->poller->ring_fd, session->poller->wake_fd, session->poller->client_end};
    reply(session, serial, CGM_MSG_RING, &ring.base, fds, 3);
}

static void on_hello(struct fake_session *session, uint32_t serial, const Cgm__Hello *hello)
{
    struct fake_broker *fake = session->fake;
    Cgm__HelloReply answer = CGM__HELLO_REPLY__INIT;
    snprintf(fake->name, sizeof(fake->name), "%s", hello->name ? hello->name : "");
    answer.version = fake->options.version ? fake->options.version : 1;
    answer.has_features = !fake->options.is_old;
    answer.features = CGM_FEATURE_BUFFER_CHECK;
    answer.has_session = answer.has_devices = answer.has_executor_life = 1;
    answer.session = ++fake->next_id;
    answer.devices = fake->has_executor ? FAKE_DEVICES : 0;
    answer.executor_life = fake->has_executor ? fake->life : 0;
    answer.release = (char *)"9.9.9";
    answer.backend = (char *)(fake->has_executor ? "cpu" : "");
    reply(session, serial, CGM_MSG_HELLO_REPLY, &answer.base, NULL, 0);
}

static void on_ring_setup(struct fake_session *session, uint32_t serial,
                          const Cgm__RingSetup *setup)
{
    session->entries = setup->entries;
    if (session->fake->has_executor)
        send_ring(session, serial);
    else
        reply_error(session, serial, CGM_NO_EXECUTOR, "no executor yet");
}

static void reply_comm(struct fake_session *session, uint32_t serial, const char *name, uint64_t id,
                       uint32_t size)
{
    Cgm__CommReply answer = CGM__COMM_REPLY__INIT;
    if (answer_by_name(session, serial, name))
        return;
    answer.id = id ? id : ++session->fake->next_id;
    answer.size = size ? size : 4;
    reply(session, serial, CGM_MSG_COMM_REPLY, &answer.base, NULL, 0);
}

static void reply_buffer(struct fake_session *session, uint32_t serial, const char *name,
                         uint64_t id, uint64_t bytes, bool writable)
{
    Cgm__BufferReply answer = CGM__BUFFER_REPLY__INIT;
    if (answer_by_name(session, serial, name))
        return;
    int fd = memfd_create("fake-buffer", MFD_CLOEXEC);
    must(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    answer.id = id ? id : ++session->fake->next_id;
    answer.generation = 3;
    answer.bytes = bytes;
    answer.has_writable = 1;
    answer.writable = writable;
    reply(session, serial, CGM_MSG_BUFFER_REPLY, &answer.base, &fd, 1);
    close(fd);
}

static void note_import(struct fake_broker *fake, const char *format, ...)
{
    va_list arguments;
    size_t used = strlen(fake->imports);
    va_start(arguments, format);
    vsnprintf(fake->imports + used, sizeof(fake->imports) - used, format, arguments);
    va_end(arguments);
}

/* Answered when the job has ended, or there is none of that ticket. */
static void on_cancel(struct fake_session *session, uint32_t serial, const Cgm__Cancel *cancel)
{
    static const uint64_t one = 1;
    struct fake_poller *poller = session->poller;
    if (session->fake->refuse_cancel) {
        reply_error(session, serial, CGM_INTERNAL, "no");
        return;
    }
    if (poller) {
        atomic_store(&poller->cancel, cancel->ticket);
        must(write(poller->wake_fd, &one, sizeof(one)) == sizeof(one));
        while (atomic_load(&poller->cancel))
            usleep(100);
    }
    reply_ok(session, serial);
}

static void on_import(struct fake_session *session, uint32_t serial,
                      const Cgm__ImportCreate *import, unsigned n_fds)
{
    Cgm__ImportReply answer = CGM__IMPORT_REPLY__INIT;
    unsigned wanted = 0;
    for (size_t i = 0; i < import->n_kind; i++)
        wanted += import->kind[i] == 1;
    if (wanted != n_fds) {
        reply_error(session, serial, CGM_BAD_MESSAGE, "fds");
        return;
    }
    answer.id = ++session->fake->next_id;
    answer.generation = (uint32_t)import->n_kind;
    note_import(session->fake, "+%u:%zu ", (unsigned)answer.id, import->n_kind);
    if (import->device_uuid)
        snprintf(session->fake->uuid, sizeof(session->fake->uuid), "%s", import->device_uuid);
    reply(session, serial, CGM_MSG_IMPORT_REPLY, &answer.base, NULL, 0);
    Cgm__ImportIdle idle = CGM__IMPORT_IDLE__INIT;
    idle.id = answer.id;
    if (session->fake->close_imports)
        reply(session, 0, CGM_MSG_IMPORT_IDLE, &idle.base, NULL, 0);
}

/* The same parameters give the same id; ids crowd together, to make tables collide. */
static void on_plan_create(struct fake_session *session, uint32_t serial,
                           const Cgm__PlanCreate *plan)
{
    Cgm__PlanReply answer = CGM__PLAN_REPLY__INIT;
    answer.id = (plan->comm << 40) + ((uint64_t)plan->op << 32) + plan->m * 16;
    answer.algorithm = 3;
    answer.reason = (char *)"the fake broker's favourite";
    answer.has_comm = answer.has_op = answer.has_workspace_bytes = 1;
    answer.comm = plan->comm;
    answer.op = plan->op;
    answer.workspace_bytes = plan->comm_type;
    reply(session, serial, CGM_MSG_PLAN_REPLY, &answer.base, NULL, 0);
}

static void on_plan_chunk(struct fake_session *session, uint32_t serial,
                          const Cgm__PlanChunk *chunk)
{
    Cgm__PlanChunkReply answer = CGM__PLAN_CHUNK_REPLY__INIT;
    answer.buffer = 77;
    answer.generation = 2;
    answer.offset_bytes = chunk->chunk * 100ull;
    answer.rows = chunk->rank;
    answer.cols = 5;
    answer.dtype = 2;
    reply(session, serial, CGM_MSG_PLAN_CHUNK_REPLY, &answer.base, NULL, 0);
}

static void on_plan_destroy_all(struct fake_session *session, uint32_t serial)
{
    Cgm__PlanDestroyAllReply answer = CGM__PLAN_DESTROY_ALL_REPLY__INIT;
    answer.count = 2;
    reply(session, serial, CGM_MSG_PLAN_DESTROY_ALL_REPLY, &answer.base, NULL, 0);
}

static void complete_message(struct fake_session *session, const struct cgm_entry *entry)
{
    Cgm__Completion event = CGM__COMPLETION__INIT;
    struct cgm_phase phases[FAKE_PHASES] = {{.end_ns = 1}, {.end_ns = 3}, {.end_ns = 5}};
    struct cgm_cqe cqe = {.ticket = entry->ticket, .comm_number = entry->comm_number};
    cqe.status = entry->rows == FAKE_FAIL_ROWS ? CGM_MISMATCH : CGM_OK;
    event.cqe.data = (uint8_t *)&cqe;
    event.cqe.len = sizeof(cqe);
    if (entry->flags & CGM_ENTRY_WANT_PHASES) {
        cqe.n_phases = FAKE_PHASES;
        event.has_phases = 1;
        event.phases.data = (uint8_t *)phases;
        event.phases.len = sizeof(phases);
    }
    reply(session, 0, CGM_MSG_COMPLETION, &event.base, NULL, 0);
}

static void on_submit(struct fake_session *session, uint32_t serial, const Cgm__Submit *submit)
{
    struct fake_broker *fake = session->fake;
    struct cgm_entry entry;
    must(submit->entry.len == sizeof(entry));
    memcpy(&entry, submit->entry.data, sizeof(entry));
    fake->last_entry = entry;
    if (!fake->has_executor || entry.rows == FAKE_REFUSE_ROWS) {
        reply_error(session, serial, fake->has_executor ? CGM_DRAINING : CGM_NO_EXECUTOR, "no");
        return;
    }
    if (entry.rows == FAKE_LOSE_ROWS) {
        complete_message(session, &entry);
        reply_error(session, serial, CGM_EXECUTOR_LOST, "it hung up");
        return;
    }
    if (fake->next_id % 2) /* either order is allowed */
        reply_ok(session, serial);
    if (entry.deadline_ms != FAKE_HOLD_MS)
        complete_message(session, &entry);
    if (fake->next_id % 2 == 0)
        reply_ok(session, serial);
    fake->next_id++;
}

/* Two pages, the second after cursor 1. The value is larger than a signed 64-bit number. */
static void on_query(struct fake_session *session, uint32_t serial, const Cgm__Query *query)
{
    Cgm__QueryReply answer = CGM__QUERY_REPLY__INIT;
    char *keys[] = {(char *)"id", (char *)"a \"key\"", (char *)"executor_life"};
    char *values[] = {(char *)"18446744073709551615", (char *)"[{\"x\": null}, -1.5e3]",
                      (char *)"1"};
    char *broken[] = {(char *)"1", (char *)"{\"x\":}", (char *)"0"};
    Cgm__Row row = CGM__ROW__INIT, *rows[] = {&row};
    row.n_key = row.n_value = 3;
    row.key = keys;
    row.value = query->what == CGM_QUERY_JOBS ? broken : values;
    answer.n_row = 1;
    answer.row = rows;
    answer.has_next = !query->has_after;
    answer.next = 1;
    reply(session, serial, CGM_MSG_QUERY_REPLY, &answer.base, NULL, 0);
}

static void answer_packet(struct fake_session *session, struct cgm_packet *packet)
{
    ProtobufCMessage *message = cgm_packet_unpack(packet);
    uint32_t serial = packet->header.serial;
    const Cgm__CommCreate *comm = (const Cgm__CommCreate *)message;
    const Cgm__CommJoin *join = (const Cgm__CommJoin *)message;
    const Cgm__BufferCreate *create = (const Cgm__BufferCreate *)message;
    const Cgm__BufferOpen *open = (const Cgm__BufferOpen *)message;
    must(message && serial);
    session->fake->requests++;
    switch (packet->header.type) {
    case CGM_MSG_HELLO:
        on_hello(session, serial, (const Cgm__Hello *)message);
        break;
    case CGM_MSG_RING_SETUP:
        on_ring_setup(session, serial, (const Cgm__RingSetup *)message);
        break;
    case CGM_MSG_COMM_CREATE:
        reply_comm(session, serial, comm->name, 0, comm->size);
        break;
    case CGM_MSG_COMM_JOIN:
        reply_comm(session, serial, join->name, join->id, join->size);
        break;
    case CGM_MSG_BUFFER_CREATE:
        reply_buffer(session, serial, create->name, 0, create->bytes, true);
        break;
    case CGM_MSG_BUFFER_OPEN:
        reply_buffer(session, serial, open->name, open->id, 8192, !open->read_only);
        break;
    case CGM_MSG_BUFFER_CHECK:
        if (session->fake->options.is_old)
            reply_error(session, serial, CGM_BAD_MESSAGE, "is not a request");
        else if (((const Cgm__BufferCheck *)message)->id == FAKE_LOST_BUFFER)
            reply_error(session, serial, CGM_NOT_FOUND, "not open");
        else
            reply_ok(session, serial);
        break;
    case CGM_MSG_IMPORT_CREATE:
        on_import(session, serial, (const Cgm__ImportCreate *)message, packet->n_fds);
        break;
    case CGM_MSG_IMPORT_RELEASE:
        note_import(session->fake, "-%u ", (unsigned)((const Cgm__ImportRelease *)message)->id);
        reply_ok(session, serial);
        break;
    case CGM_MSG_CANCEL:
        on_cancel(session, serial, (const Cgm__Cancel *)message);
        break;
    case CGM_MSG_PLAN_CREATE:
        on_plan_create(session, serial, (const Cgm__PlanCreate *)message);
        break;
    case CGM_MSG_PLAN_CHUNK:
        on_plan_chunk(session, serial, (const Cgm__PlanChunk *)message);
        break;
    case CGM_MSG_PLAN_DESTROY_ALL:
        on_plan_destroy_all(session, serial);
        break;
    case CGM_MSG_SUBMIT:
        on_submit(session, serial, (const Cgm__Submit *)message);
        break;
    case CGM_MSG_QUERY:
        on_query(session, serial, (const Cgm__Query *)message);
        break;
    default:
        reply_ok(session, serial);
    }
    cgm_packet_close_fds(packet);
    cgm_message_free(message);
}

/* ---- sessions ---------------------------------------------------------------------------------
 */

static void *session_main(void *argument)
{
    struct fake_session *session = argument;
    struct cgm_packet *packet = malloc(sizeof(*packet));
    while (cgm_packet_recv(session->socket, 0, packet) == CGM_OK) {
        pthread_mutex_lock(&session->fake->lock);
        answer_packet(session, packet);
        pthread_mutex_unlock(&session->fake->lock);
    }
    free(packet);
    return NULL;
}

static void *accept_main(void *argument)
{
    struct fake_broker *fake = argument;
    int socket;
    while ((socket = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        pthread_mutex_lock(&fake->lock);
        must(fake->n_sessions < SESSIONS_MAX);
        struct fake_session *session = &fake->sessions[fake->n_sessions++];
        *session = (struct fake_session){.fake = fake, .socket = socket};
        must(pthread_create(&session->thread, NULL, session_main, session) == 0);
        pthread_mutex_unlock(&fake->lock);
    }
    return NULL;
}

/* The caller holds the lock. */
static void poller_end(struct fake_session *session, int status)
{
    struct fake_broker *fake = session->fake;
    struct fake_poller *poller = session->poller;
    if (!poller)
        return;
    fake_poller_stop(poller);
    if (status != CGM_OK)
        cgm_ring_kill(&poller->ring, poller->ring_fd, status);
    fake->jobs_before += poller->jobs;
    if (poller->complaint[0])
        memcpy(fake->complaint, poller->complaint, sizeof(fake->complaint));
    fake_poller_free(poller);
    free(poller);
    session->poller = NULL;
}

struct fake_broker *fake_start(const struct fake_options *options)
{
    struct fake_broker *fake = calloc(1, sizeof(*fake));
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (options)
        fake->options = *options;
    fake->life = 1;
    fake->has_executor = !fake->options.no_executor;
    pthread_mutex_init(&fake->lock, NULL);
    snprintf(fake->folder, sizeof(fake->folder), "/tmp/fake-broker-XXXXXX");
    must(mkdtemp(fake->folder));
    snprintf(fake->path, sizeof(fake->path), "%s/sock", fake->folder);
    memcpy(address.sun_path, fake->path, strlen(fake->path) + 1);
    fake->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    must(bind(fake->listener, (struct sockaddr *)&address, sizeof(address)) == 0);
    must(listen(fake->listener, 16) == 0);
    must(pthread_create(&fake->thread, NULL, accept_main, fake) == 0);
    return fake;
}

void fake_hang_up(struct fake_broker *fake)
{
    if (fake->hung_up)
        return;
    fake->hung_up = true;
    shutdown(fake->listener, SHUT_RDWR);
    pthread_join(fake->thread, NULL);
    close(fake->listener);
    unlink(fake->path);
    for (unsigned i = 0; i < fake->n_sessions; i++)
        shutdown(fake->sessions[i].socket, SHUT_RDWR);
    for (unsigned i = 0; i < fake->n_sessions; i++) {
        pthread_join(fake->sessions[i].thread, NULL);
        close(fake->sessions[i].socket);
        poller_end(&fake->sessions[i], CGM_OK);
    }
}

void fake_stop(struct fake_broker *fake)
{
    fake_hang_up(fake);
    rmdir(fake->folder);
    pthread_mutex_destroy(&fake->lock);
    free(fake);
}

const char *fake_socket(const struct fake_broker *fake)
{
    return fake->path;
}

void fake_end_sessions(struct fake_broker *fake)
{
    pthread_mutex_lock(&fake->lock);
    for (unsigned i = 0; i < fake->n_sessions; i++)
        poller_end(&fake->sessions[i], CGM_DAEMON_LOST);
    pthread_mutex_unlock(&fake->lock);
}

void fake_set_ending(struct fake_broker *fake, uint64_t comm, uint64_t number)
{
    pthread_mutex_lock(&fake->lock);
    fake->ending_comm = comm;
    fake->ending_number = number;
    pthread_mutex_unlock(&fake->lock);
}

void fake_kill_executor(struct fake_broker *fake)
{
    Cgm__ExecutorLost lost = CGM__EXECUTOR_LOST__INIT;
    pthread_mutex_lock(&fake->lock);
    fake->has_executor = false;
    lost.executor_life = fake->life;
    lost.status = CGM_EXECUTOR_LOST;
    lost.detail = (char *)"killed by the test";
    lost.has_ended_comm = lost.has_ended_number = fake->ending_comm != 0;
    lost.ended_comm = fake->ending_comm;
    lost.ended_number = fake->ending_number;
    for (unsigned i = 0; i < fake->n_sessions; i++) {
        poller_end(&fake->sessions[i], CGM_EXECUTOR_LOST);
        reply(&fake->sessions[i], 0, CGM_MSG_EXECUTOR_LOST, &lost.base, NULL, 0);
    }
    pthread_mutex_unlock(&fake->lock);
}

void fake_start_executor(struct fake_broker *fake)
{
    pthread_mutex_lock(&fake->lock);
    fake->life++;
    fake->has_executor = true;
    for (unsigned i = 0; i < fake->n_sessions; i++)
        if (fake->sessions[i].entries)
            send_ring(&fake->sessions[i], 0);
        else
            send_no_ring(&fake->sessions[i]);
    pthread_mutex_unlock(&fake->lock);
}

/* ---- looking ----------------------------------------------------------------------------------
 */

void fake_release(struct fake_broker *fake)
{
    static const uint64_t one = 1;
    pthread_mutex_lock(&fake->lock);
    for (unsigned i = 0; i < fake->n_sessions; i++) {
        struct fake_poller *poller = fake->sessions[i].poller;
        if (!poller)
            continue;
        atomic_store(&poller->release, true);
        must(write(poller->wake_fd, &one, sizeof(one)) == sizeof(one));
    }
    pthread_mutex_unlock(&fake->lock);
}

struct cgm_entry fake_last_entry(struct fake_broker *fake)
{
    pthread_mutex_lock(&fake->lock);
    struct cgm_entry entry = fake->last_entry;
    for (unsigned i = 0; i < fake->n_sessions; i++) {
        struct fake_poller *poller = fake->sessions[i].poller;
        if (!poller)
            continue;
        pthread_mutex_lock(&poller->lock);
        entry = poller->last_entry;
        pthread_mutex_unlock(&poller->lock);
    }
    pthread_mutex_unlock(&fake->lock);
    return entry;
}

uint64_t fake_jobs(struct fake_broker *fake)
{
    pthread_mutex_lock(&fake->lock);
    uint64_t jobs = fake->jobs_before;
    for (unsigned i = 0; i < fake->n_sessions; i++)
        jobs += fake->sessions[i].poller ? fake->sessions[i].poller->jobs : 0;
    pthread_mutex_unlock(&fake->lock);
    return jobs;
}

uint64_t fake_requests(struct fake_broker *fake)
{
    pthread_mutex_lock(&fake->lock);
    uint64_t requests = fake->requests;
    pthread_mutex_unlock(&fake->lock);
    return requests;
}

void fake_imports(struct fake_broker *fake, char *ret_text, unsigned size)
{
    pthread_mutex_lock(&fake->lock);
    snprintf(ret_text, size, "%s", fake->imports);
    pthread_mutex_unlock(&fake->lock);
}

void fake_import_uuid(struct fake_broker *fake, char *ret_text, unsigned size)
{
    pthread_mutex_lock(&fake->lock);
    snprintf(ret_text, size, "%s", fake->uuid);
    pthread_mutex_unlock(&fake->lock);
}

void fake_close_imports(struct fake_broker *fake, bool close_them)
{
    pthread_mutex_lock(&fake->lock);
    fake->close_imports = close_them;
    pthread_mutex_unlock(&fake->lock);
}

void fake_refuse_cancel(struct fake_broker *fake, bool refuse)
{
    pthread_mutex_lock(&fake->lock);
    fake->refuse_cancel = refuse;
    pthread_mutex_unlock(&fake->lock);
}

void fake_client_name(struct fake_broker *fake, char *ret_name, unsigned size)
{
    pthread_mutex_lock(&fake->lock);
    snprintf(ret_name, size, "%s", fake->name);
    pthread_mutex_unlock(&fake->lock);
}

const char *fake_complaint(struct fake_broker *fake)
{
    pthread_mutex_lock(&fake->lock);
    for (unsigned i = 0; i < fake->n_sessions; i++) {
        struct fake_poller *poller = fake->sessions[i].poller;
        if (!poller)
            continue;
        pthread_mutex_lock(&poller->lock);
        if (poller->complaint[0])
            memcpy(fake->complaint, poller->complaint, sizeof(fake->complaint));
        pthread_mutex_unlock(&poller->lock);
    }
    pthread_mutex_unlock(&fake->lock);
    return fake->complaint;
}

/* The poller is idle when a test calls this. */
void fake_forge_cqe(struct fake_broker *fake, uint32_t slot, uint64_t ticket)
{
    pthread_mutex_lock(&fake->lock);
    struct fake_poller *poller = fake->sessions[0].poller;
    struct cgm_cqe *cqe = &poller->ring.cq[poller->cq_tail & poller->ring.mask];
    *cqe = (struct cgm_cqe){.slot = slot, .ticket = ticket};
    atomic_store(&poller->ring.header->cq_tail, ++poller->cq_tail);
    pthread_mutex_unlock(&fake->lock);
}

void fake_set_done(struct fake_broker *fake, uint32_t slot, uint64_t ticket, int status)
{
    pthread_mutex_lock(&fake->lock);
    cgm_ring_set_done(&fake->sessions[0].poller->ring, slot, ticket, status);
    pthread_mutex_unlock(&fake->lock);
}
