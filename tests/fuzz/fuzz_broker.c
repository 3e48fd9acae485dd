/* Packets into dispatch with a live registry: a broker with clients of several uids that come, ask,
 * do not read, and go, and with an executor that answers in any order, refuses, answers nonsense
 * and dies. Afterwards every request was answered exactly once, and when all clients are gone
 * nothing is left: no object, no quota, no index, no call, no fd.
 *
 * The input is a list of records of 32 bytes: what happens, to whom, which message, its fds, and
 * the bytes that message.h makes the message of. */
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/comm.h"
#include "daemon/broker/comm_join.h"
#include "daemon/broker/quota.h"
#include "daemon/broker/session.h"
#include "proto/journal.h"
#include "proto/status.h"
#include "tests/fuzz/fake_link.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/records.h"

#define CLIENTS 6u
#define SERIALS_MAX 1024u
#define PENDING_MAX 4096u
#define SWEEPER CLIENTS /* the client that removes named buffers in the end */

struct client {
    uint64_t session; /* 0: not connected */
    int fd;
    uint32_t last_serial;
    uint8_t open[SERIALS_MAX]; /* requests that are not answered, by serial */
};

struct asked {
    uint32_t serial;
    uint16_t type;
};

static const uid_t uids[] = {1000, 1001, 0, 65534};
#define UIDS (sizeof(uids) / sizeof(uids[0]))
#define NEW_UID 77u
#define QUIET_NS 1000000000000u

static struct cgm_broker broker;
static struct client clients[CLIENTS + 1];
static struct asked pending[PENDING_MAX]; /* at the executor, oldest first */
static unsigned n_pending;
static int template_fd, memory_fd;
static unsigned fds_at_rest;
static struct cgm_packet packet;

/* ---- what the broker sends -------------------------------------------------------------------
 */

static struct client *client_of(int fd)
{
    for (unsigned i = 0; i <= CLIENTS; i++)
        if (clients[i].session && clients[i].fd == fd)
            return &clients[i];
    return NULL;
}

static void client_got(struct client *client, const struct cgm_packet_header *header)
{
    if (header->serial == 0 || header->serial >= SERIALS_MAX)
        return;
    FUZZ_CHECK(client->open[header->serial] == 1);
    client->open[header->serial] = 0;
}

static void executor_got(const struct cgm_packet_header *header)
{
    FUZZ_CHECK(header->serial != 0 && n_pending < PENDING_MAX);
    pending[n_pending++] = (struct asked){header->serial, header->type};
}

static void on_sent(int fd, const uint8_t *bytes, size_t size, unsigned n_fds)
{
    struct cgm_packet_header header;
    memcpy(&header, bytes, sizeof(header));
    FUZZ_CHECK(header.magic == CGM_PACKET_MAGIC && header.n_fds == n_fds);
    FUZZ_CHECK(header.body_bytes == size - sizeof(header) && cgm_message_descriptor(header.type));
    struct client *client = client_of(fd);
    if (client)
        client_got(client, &header);
    else if (broker.executor.link_open && fd == broker.executor.link.fd)
        executor_got(&header);
}

/* ---- making packets --------------------------------------------------------------------------
 */

static uint64_t known_id(unsigned n)
{
    uint64_t at = 0, id = 0;
    for (unsigned i = 0; i <= n % 4 && cgm_registry_next(&broker.plans, &at); i++)
        id = at;
    return id;
}

static size_t bytes_of(const char *field, uint8_t value, uint8_t *ret_bytes, size_t room)
{
    (void)ret_bytes;
    if (strcmp(field, "entry") == 0 && value < 250)
        return sizeof(struct cgm_entry);
    return value < room ? value & 0x7f : room;
}

static const struct fuzz_words words = {known_id, bytes_of};

/* Fds of the kinds that clients send: memory, sealed memory, memory for reading, none at all. */
static int make_fd(uint8_t kind)
{
    switch (kind & 3) {
    case 0:
        return fcntl(memory_fd, F_DUPFD_CLOEXEC, 3);
    case 1:
        return fcntl(template_fd, F_DUPFD_CLOEXEC, 3);
    case 2:
        return open("/dev/null", O_RDONLY | O_CLOEXEC);
    default:
        return fcntl(broker.executor.journal_fd, F_DUPFD_CLOEXEC, 3);
    }
}

static void make_packet(uint16_t type, uint32_t serial, const struct fuzz_record *record, bool raw,
                        unsigned n_fds)
{
    const ProtobufCMessageDescriptor *descriptor = cgm_message_descriptor(type);
    memset(&packet.header, 0, sizeof(packet.header));
    packet.header.magic = CGM_PACKET_MAGIC;
    packet.header.type = type;
    packet.header.serial = serial;
    if (raw || !descriptor) {
        memcpy(packet.body, record->values, sizeof(record->values));
        packet.header.body_bytes = sizeof(record->values);
    } else {
        packet.header.body_bytes = (uint32_t)fuzz_message(descriptor, &words, record->values,
                                                          packet.body, sizeof(packet.body));
    }
    packet.header.n_fds = (uint16_t)n_fds;
    for (packet.n_fds = 0; packet.n_fds < n_fds; packet.n_fds++) {
        packet.fds[packet.n_fds] = make_fd((uint8_t)(record->extra >> 4));
        FUZZ_CHECK(packet.fds[packet.n_fds] >= 0);
    }
}

/* ---- clients ---------------------------------------------------------------------------------
 */

static struct cgm_session *session_of(const struct client *client)
{
    return client->session ? cgm_registry_find(&broker.sessions, client->session) : NULL;
}

/* Sessions that the broker has ended. */
static void notice_ended(void)
{
    for (unsigned i = 0; i <= CLIENTS; i++)
        if (clients[i].session && !session_of(&clients[i]))
            memset(&clients[i], 0, sizeof(clients[i]));
}

static void send_packet(struct client *client)
{
    struct cgm_session *session = session_of(client);
    uint32_t serial = packet.header.serial;
    if (serial && serial < SERIALS_MAX)
        client->open[serial] = 1;
    session->connection.events->on_packet(session, &packet);
    cgm_packet_close_fds(&packet);
}

static void say_hello(struct client *client)
{
    static const struct fuzz_record hello = {.values = {CGM_PROTOCOL_MIN, CGM_PROTOCOL_MAX}};
    make_packet(CGM_MSG_HELLO, ++client->last_serial, &hello, false, 0);
    send_packet(client);
}

static void connect_client(struct client *client, uid_t uid, bool hello)
{
    notice_ended();
    if (client->session)
        return;
    fake_link.peer = (struct ucred){.pid = 99, .uid = uid, .gid = uid % 3};
    client->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    client->session = broker.last_session + 1;
    cgm_session_accept(&broker, client->fd);
    if (session_of(client) && hello)
        say_hello(client);
    notice_ended();
}

static void on_connect(const struct fuzz_record *record, struct client *client)
{
    connect_client(client, uids[(record->whom >> 4) % UIDS], !(record->extra & 1));
}

/* Most of the time a message of the right number of fds from a client that is there. */
static void on_message(const struct fuzz_record *record, struct client *client)
{
    uint16_t type = record->type & 0x80 ? record->type & 0x7f : 1 + record->type % 36;
    if (!session_of(client))
        connect_client(client, 1000 + (record->whom >> 4 & 1), true);
    if (!session_of(client) || client->last_serial + 1 >= SERIALS_MAX ||
        session_of(client)->connection.paused || session_of(client)->connection.broken)
        return;
    unsigned n_fds = type == CGM_MSG_IMPORT_CREATE ? record->values[0] >> 4 : 0;
    if (record->extra & 4)
        n_fds = record->extra >> 6;
    uint32_t serial = record->extra & 8 && record->values[27] > 250 ? 0 : ++client->last_serial;
    make_packet(type, serial, record, (record->extra & 3) == 3, n_fds);
    send_packet(client);
}

static void on_hang_up(const struct fuzz_record *record, struct client *client)
{
    struct cgm_session *session = session_of(client);
    if (!session)
        return;
    if (!(record->extra & 1)) {
        session->connection.events->on_end(session, "hung up");
        return;
    }
    uint32_t serial = record->extra & 2 ? 0 : ++client->last_serial;
    client->open[serial % SERIALS_MAX] = 1;
    session->connection.events->on_garbage(session, serial);
}

/* ---- the executor ----------------------------------------------------------------------------
 */

static uint16_t reply_type(uint16_t type)
{
    switch (type) {
    case CGM_MSG_EXECUTOR_SETUP:
        return CGM_MSG_EXECUTOR_HELLO;
    case CGM_MSG_BUFFER_ALLOC:
        return CGM_MSG_MEMORY;
    case CGM_MSG_PLAN_ADD:
        return CGM_MSG_PLAN_ADDED;
    case CGM_MSG_PLAN_MEASURE:
        return CGM_MSG_PLAN_MEASURED;
    case CGM_MSG_QUERY:
        return CGM_MSG_QUERY_REPLY;
    default:
        return CGM_MSG_OK;
    }
}

static bool executor_talks(void)
{
    return broker.executor.link_open && broker.executor.state != CGM_EXECUTOR_DOWN &&
           broker.executor.state != CGM_EXECUTOR_DYING;
}

static void executor_says(void)
{
    broker.executor.link.events->on_packet(&broker, &packet);
    cgm_packet_close_fds(&packet);
}

static void answer_asked(unsigned which, const struct fuzz_record *record, uint16_t type)
{
    struct asked asked = pending[which];
    unsigned n_fds = 0;
    memmove(&pending[which], &pending[which + 1], (--n_pending - which) * sizeof(pending[0]));
    if (type == CGM_MSG_MEMORY)
        n_fds = record->extra & 8 ? 0 : 1;
    else if (type == CGM_MSG_PLAN_ADDED)
        n_fds = record->extra & 7;
    make_packet(type, asked.serial, record, false, n_fds);
    executor_says();
}

static void on_answer(const struct fuzz_record *record, struct client *client)
{
    (void)client;
    if (!executor_talks() || n_pending == 0)
        return;
    unsigned which = record->whom % n_pending;
    uint16_t type = reply_type(pending[which].type);
    if (record->type % 8 == 7)
        type = CGM_MSG_ERROR;
    else if (record->type == 200)
        type = record->values[0];
    answer_asked(which, record, type);
}

/* What an executor without any wish of its own says to everything. */
static void answer_all(bool fail)
{
    static const struct fuzz_record hello = {.values = {1, 0, 0x40, 0x40, 0x40}};
    static const struct fuzz_record right = {.extra = 7, .values = {1, 1, 8, 8, 8, 1, 4, 8}};
    static const struct fuzz_record error = {.values = {CGM_NO_MEMORY, 1}};
    while (executor_talks() && n_pending > 0) {
        uint16_t type = reply_type(pending[0].type);
        bool fails = fail && type != CGM_MSG_EXECUTOR_HELLO;
        answer_asked(0,
                     type == CGM_MSG_EXECUTOR_HELLO ? &hello
                     : fails                        ? &error
                                                    : &right,
                     fails ? CGM_MSG_ERROR : type);
    }
}

static void on_answer_all(const struct fuzz_record *record, struct client *client)
{
    (void)client;
    answer_all(record->extra & 1);
}

static void on_executor_event(const struct fuzz_record *record, struct client *client)
{
    static const uint16_t types[] = {CGM_MSG_COMPLETION_FORWARD, CGM_MSG_BUFFER_RESTORED,
                                     CGM_MSG_SESSION_BAD, CGM_MSG_OK, CGM_MSG_BUFFER_TAINTED};
    (void)client;
    if (!executor_talks())
        return;
    make_packet(types[record->type % 5], 0, record, false, 0);
    executor_says();
}

static void hang_up_link(void)
{
    if (executor_talks())
        broker.executor.link.events->on_end(&broker, "hung up");
    n_pending = 0;
}

static void on_executor_dies(const struct fuzz_record *record, struct client *client)
{
    (void)client;
    if (record->extra & 1)
        fake_link_end_process(&broker, record->extra & 2 ? SIGSEGV : 0);
    if (record->extra & 4 && executor_talks())
        broker.executor.link.events->on_garbage(&broker, 0);
    else
        hang_up_link();
    fake_link_end_process(&broker, SIGKILL);
}

static void fire(uv_timer_t *timer)
{
    uv_timer_cb callback = timer->timer_cb;
    if (!uv_is_active((uv_handle_t *)timer))
        return;
    uv_timer_stop(timer);
    callback(timer);
}

/* What the loop would do next: ends what was killed, forgets what was closed, also behind it. */
static void settle(void)
{
    if (fake_link.killed)
        fake_link_end_process(&broker, SIGKILL);
    uv_run(&broker.loop, UV_RUN_NOWAIT);
    while (broker.closer.newest)
        uv_run(&broker.loop, UV_RUN_ONCE);
    if (!executor_talks())
        n_pending = 0;
    notice_ended();
}

static void on_timer(const struct fuzz_record *record, struct client *client)
{
    (void)client;
    fake_link.now_ns += 2000000000;
    fake_link.start_fails = record->extra & 1;
    if (record->type & 1)
        fire(&broker.join_timer);
    else
        fire(&broker.executor.timer);
    fake_link.start_fails = false;
}

/* What the journal of a dying executor may say, and a ring that its client writes. */
static void on_scribble(const struct fuzz_record *record, struct client *client)
{
    struct cgm_session *session = session_of(client);
    struct cgm_journal *journal = broker.executor.journal;
    journal->writers[record->values[0] % 8] = record->values[1];
    journal->comm_high[record->values[2] % 8] = fuzz_number(&words, record->values[3]);
    journal->comm_retired[record->values[2] % 8] = fuzz_number(&words, record->values[3]);
    if (!session || !session->ring.map.header)
        return;
    struct cgm_entry *entry =
        &session->ring.map.entry[record->values[4] % session->ring.map.entries];
    entry->ticket = fuzz_number(&words, record->values[5]);
    entry->plan = fuzz_number(&words, record->values[6]);
    entry->comm_number = fuzz_number(&words, record->values[7]);
    entry->rank = (uint32_t)fuzz_number(&words, record->values[8]);
    session->ring.map.header->sq_tail = (uint32_t)fuzz_number(&words, record->values[9]);
    session->ring.map.header->cq_head = (uint32_t)fuzz_number(&words, record->values[10]);
    session->ring.map.header->entries = record->values[11];
}

static void on_full(const struct fuzz_record *record, struct client *client)
{
    (void)client;
    fake_link.full = record->extra & 1;
}

/* MPS comes and goes; its control program answers what it likes. */
static void on_mps(const struct fuzz_record *record, struct client *client)
{
    static const int statuses[] = {CGM_OK, CGM_OK, CGM_TIMEOUT, CGM_IO};
    static const char *const lines[] = {
        "99\n", "4242\n99\n", "", "no MPS server\n", "99999999999999999999\n", "-1\n0\n"};
    char text[sizeof(record->values) + 1] = "";
    (void)client;
    fake_link.mps_on = record->extra & 1;
    memcpy(text, record->values, sizeof(record->values));
    fake_link_end_tool(statuses[record->extra >> 1 & 3],
                       record->type < 128 ? lines[record->type % 6] : text);
}

static void on_settle(const struct fuzz_record *record, struct client *client)
{
    (void)record, (void)client;
    settle();
}

/* ---- one input -------------------------------------------------------------------------------
 */

static void perform(const struct fuzz_record *record)
{
    static void (*const actions[16])(const struct fuzz_record *record, struct client *client) = {
        on_message,        on_message,  on_message, on_message,    on_message, on_message,
        on_message,        on_answer,   on_answer,  on_answer_all, on_connect, on_hang_up,
        on_executor_event, on_scribble, on_settle,  NULL};
    static void (*const rare[4])(const struct fuzz_record *record, struct client *client) = {
        on_executor_dies, on_timer, on_full, on_mps};
    struct client *client = &clients[(record->whom & 15u) % CLIENTS];
    unsigned what = record->what & 15;
    if (actions[what])
        actions[what](record, client);
    else
        rare[record->what >> 4 & 3](record, client);
    notice_ended();
}

static void bring_up(void)
{
    for (int i = 0; i < 8 && !cgm_executor_is_ready(&broker.executor); i++) {
        settle();
        if (broker.executor.state == CGM_EXECUTOR_DOWN)
            fire(&broker.executor.timer);
        answer_all(false);
    }
    FUZZ_CHECK(cgm_executor_is_ready(&broker.executor));
}

/* Requests of sessions that live were answered, unless they wait for other ranks. */
static void check_answered(void)
{
    for (unsigned i = 0; i < CLIENTS; i++) {
        struct cgm_session *session = session_of(&clients[i]);
        uint64_t at = 0;
        struct cgm_comm *comm;
        while (session && (comm = cgm_registry_next(&session->comms, &at)))
            for (const struct cgm_join *join = comm->joins; join; join = join->next)
                if (join->session == session->id && join->serial < SERIALS_MAX)
                    clients[i].open[join->serial] = 0;
        for (unsigned serial = 1; session && serial < SERIALS_MAX; serial++)
            FUZZ_CHECK(!clients[i].open[serial] || session->connection.broken);
    }
}

static void end_clients(void)
{
    for (unsigned i = 0; i <= CLIENTS; i++) {
        struct cgm_session *session = session_of(&clients[i]);
        if (session)
            session->connection.events->on_end(session, "hung up");
    }
    settle();
}

static void destroy_buffers(void)
{
    uint64_t at = 0;
    if (broker.buffers.count == 0)
        return;
    broker.draining = false;
    connect_client(&clients[SWEEPER], 0, true);
    while (cgm_registry_next(&broker.buffers, &at)) {
        struct fuzz_record destroy = {.values = {0, (uint8_t)(at + 1)}};
        FUZZ_CHECK(at < 191);
        make_packet(CGM_MSG_BUFFER_DESTROY, ++clients[SWEEPER].last_serial, &destroy, false, 0);
        send_packet(&clients[SWEEPER]);
    }
    answer_all(false);
    end_clients();
}

/* Users that hold nothing and have been quiet for a while are forgotten when a new one comes. */
static void forget_users(void)
{
    static const struct cgm_charge one = {{1}};
    char detail[256];
    fake_link.now_ns += QUIET_NS;
    FUZZ_CHECK(cgm_quota_take(&broker, NEW_UID, &one, detail, sizeof(detail)) == CGM_OK);
    cgm_quota_give(&broker, NEW_UID, &one);
}

static void check_nothing_is_left(void)
{
    forget_users();
    FUZZ_CHECK(broker.sessions.count == 0 && broker.comms.count == 0 && broker.buffers.count == 0);
    FUZZ_CHECK(broker.imports.count == 0 && broker.plans.count == 0);
    FUZZ_CHECK(broker.users.count == 0);
    FUZZ_CHECK(broker.orphan_comms.count == 0 && broker.orphan_imports.count == 0);
    FUZZ_CHECK(broker.closing_sessions == 0 && broker.executor.calls.pending.count == 0);
    FUZZ_CHECK(broker.buffer_indices.used == 0 && broker.comm_indices.used == 0);
    FUZZ_CHECK(fuzz_count_fds() == fds_at_rest);
}

/* Ids count from the same number in every input. */
static void start_counters_anew(void)
{
    broker.last_session = broker.last_comm = broker.last_object = 0;
    broker.executor.calls.last_serial = 0;
    broker.draining = false;
    memset((void *)broker.executor.journal->writers, 0, 8 * sizeof(uint32_t));
    memset((void *)broker.executor.journal->comm_high, 0, 8 * sizeof(uint64_t));
    memset((void *)broker.executor.journal->comm_retired, 0, 8 * sizeof(uint64_t));
}

static void finish(void)
{
    fake_link.full = fake_link.mps_on = false;
    while (fake_link.tool_done)
        fake_link_end_tool(CGM_IO, "");
    settle();
    bring_up();
    answer_all(false);
    check_answered();
    end_clients();
    bring_up();
    answer_all(false);
    destroy_buffers();
    bring_up();
    answer_all(false);
    settle();
    check_nothing_is_left();
    start_counters_anew();
}

static void set_up(void)
{
    struct cgm_config config;
    char detail[512];
    cgm_config_init(&config);
    snprintf(config.socket, sizeof(config.socket), "/tmp/commgemm-fuzz-%d", (int)getpid());
    snprintf(config.executor, sizeof(config.executor), "/commgemm-executor-fuzz");
    config.join_timeout = 1;
    strcpy(config.state_dir, "none");
    config.executor_timeout = 0; /* the loop's own timers would make runs differ */
    config.max_sessions = 5;
    config.quota_sessions = 4;
    config.quota_buffers = config.quota_plans = config.quota_imports = 4;
    config.quota_bytes = 1 << 20;
    config.quota_comms = 6;
    config.quota_ranks = 16;
    config.quota_fds = 24;
    config.connection_rate = 0; /* who only connected would be remembered for a while */
    config.user_share = 100;    /* who asked as well */
    fake_link.on_sent = on_sent;
    FUZZ_CHECK(cgm_broker_init(&broker, &config, NULL, detail, sizeof(detail)) == CGM_OK);
    memset(broker.plan_key, 0, sizeof(broker.plan_key)); /* the same ids in every run */
    cgm_listener_close(&broker.listener);
    cgm_listener_init(&broker.listener);
    memory_fd = memfd_create("memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    template_fd = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    FUZZ_CHECK(ftruncate(memory_fd, 8192) == 0 && ftruncate(template_fd, 1 << 16) == 0);
    FUZZ_CHECK(fcntl(template_fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    broker.executor.settled = true; /* there is no listener to start */
    cgm_executor_start(&broker);
    bring_up();
    settle();
    start_counters_anew();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!broker.wire)
        set_up();
    fds_at_rest = fuzz_count_fds(); /* libFuzzer opens some between two inputs */
    fuzz_records_each(data, size, perform);
    finish();
    return 0;
}
