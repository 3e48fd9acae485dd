/* The executor behind its control socket and its rings: requests of the broker, entries of clients
 * that obey no rule, jobs that run long, fail, are cancelled and come too late. Every operation
 * stays within memory (null_backend.h), every request is answered once, every accepted entry is
 * completed once, and when all sessions are gone nothing is left.
 *
 * The threads' tasks are run here, one after the other; the poller is included for its one round.
 * The input is a list of records of 32 bytes. */
#include "daemon/executor/poller.c" /* NOLINT(bugprone-suspicious-include): see above */

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>

#include "daemon/executor/control.h"
#include "daemon/executor/warmth.h"
#include "proto/messages.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/null_backend.h"
#include "tests/fuzz/ring_client.h"

#define SERIALS_MAX 1024u
#define IDS_MAX 256u
#define HELD_NS_MAX 15000000000u
#define ROUNDS_MAX 100u
#define ROUND_NS 100000u
#define TUNE_NS 4000000u

static struct cgm_executor executor;
static struct cgm_journal journal;
static uint8_t unanswered[SERIALS_MAX];
static uint32_t last_serial;
static uint64_t now_ns, held_since_ns, last_user_buffer;
static struct cgm_packet *incoming;
static unsigned fds_at_rest;

/* ---- in place of what the linker takes away (targets.cmake) ----------------------------------
 */

uint64_t __wrap_cgm_now_ns(void);
void __wrap_cgm_executor_log(int level, const char *format, ...);
int __wrap_cgm_packet_recv(int fd, int flags, struct cgm_packet *ret_packet);
int __wrap_cgm_packet_send(int fd, uint16_t type, uint32_t serial, const ProtobufCMessage *message,
                           const int *fds, unsigned n_fds);
void __wrap_cgm_worker_flush(struct cgm_worker *worker);
void __wrap_cgm_sweeps_add(struct cgm_sweeps *sweeps, uint32_t uid, uint32_t guest,
                           struct cgm_turn *turn);

uint64_t __wrap_cgm_now_ns(void)
{
    return ++now_ns;
}

void __wrap_cgm_executor_log(int level, const char *format, ...)
{
    char line[512];
    va_list arguments;
    (void)level;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
}

/* One packet, then the end. */
int __wrap_cgm_packet_recv(int fd, int flags, struct cgm_packet *ret_packet)
{
    (void)fd;
    (void)flags;
    if (!incoming)
        return CGM_DAEMON_LOST;
    ret_packet->header = incoming->header;
    ret_packet->n_fds = incoming->n_fds;
    memcpy(ret_packet->fds, incoming->fds, sizeof(incoming->fds));
    memcpy(ret_packet->body, incoming->body, incoming->header.body_bytes);
    incoming = NULL;
    return CGM_OK;
}

int __wrap_cgm_packet_send(int fd, uint16_t type, uint32_t serial, const ProtobufCMessage *message,
                           const int *fds, unsigned n_fds)
{
    static uint8_t bytes[CGM_PACKET_BYTES_MAX];
    size_t size;
    (void)fd;
    FUZZ_CHECK(message->descriptor == cgm_message_descriptor(type));
    FUZZ_CHECK(cgm_packet_pack(type, serial, message, n_fds, bytes, &size) == CGM_OK);
    for (unsigned i = 0; i < n_fds; i++)
        FUZZ_CHECK(fcntl(fds[i], F_GETFD) >= 0);
    if (serial == 0)
        return CGM_OK;
    FUZZ_CHECK(serial < SERIALS_MAX && unanswered[serial] == 1);
    unanswered[serial] = 0;
    return CGM_OK;
}

void __wrap_cgm_worker_flush(struct cgm_worker *worker)
{
    while (cgm_task_list_run(&worker->list))
        continue;
}

void __wrap_cgm_sweeps_add(struct cgm_sweeps *sweeps, uint32_t uid, uint32_t guest,
                           struct cgm_turn *turn)
{
    (void)sweeps;
    (void)uid;
    (void)guest;
    while (turn->slice(turn))
        continue;
    turn->done(turn);
}

/* ---- running ---------------------------------------------------------------------------------
 */

static bool run_threads(void)
{
    bool busy = false, hold = null_backend.hold;
    for (uint32_t i = 0; i < executor.n_devices; i++)
        busy |= cgm_task_list_run(&executor.devices[i].list);
    null_backend.hold = false; /* what the mapper enqueues it also waits for */
    busy |= cgm_task_list_run(&executor.mapper.list);
    busy |= cgm_task_list_run(&executor.sweeper.list);
    null_backend.hold = hold;
    return busy;
}

/* Until two rounds in a row have nothing to do: the poller skips some of its lists in some rounds.
 */
static void run_all(void)
{
    unsigned idle = 0;
    for (unsigned i = 0; i < ROUNDS_MAX && idle < 2; i++) {
        bool busy = run_threads();
        busy |= poller_round(&executor.poller) || looks(&executor.poller);
        idle = busy ? 0 : idle + 1;
        now_ns += ROUND_NS;
    }
}

static void receive(struct cgm_packet *packet)
{
    incoming = packet;
    cgm_control_run(&executor);
    FUZZ_CHECK(!incoming);
}

/* ---- requests --------------------------------------------------------------------------------
 */

static const struct fuzz_words words;

static uint32_t next_serial(void)
{
    unanswered[++last_serial] = 1;
    return last_serial;
}

static void send_request(uint16_t type, const ProtobufCMessage *message)
{
    static struct cgm_packet packet;
    packet.n_fds = 0;
    packet.header = (struct cgm_packet_header){
        .magic = CGM_PACKET_MAGIC, .type = type, .serial = next_serial()};
    packet.header.body_bytes = (uint32_t)protobuf_c_message_pack(message, packet.body);
    receive(&packet);
}

/* A session with a ring while there is a number for one. */
/* seals: as a client must before its ring is looked at. */
static void add_session(uint64_t session, bool seals)
{
    static struct cgm_packet packet;
    Cgm__SessionAdd add = CGM__SESSION_ADD__INIT;
    if (cgm_map_get(&executor.poller.endpoints, session))
        return;
    packet.n_fds = 0;
    if (session >= 1 && session <= RINGS) {
        ring_client_open(session, &packet);
        add.entries = RING_ENTRIES;
    }
    add.session = session;
    packet.header = (struct cgm_packet_header){.magic = CGM_PACKET_MAGIC,
                                               .type = CGM_MSG_SESSION_ADD,
                                               .n_fds = (uint16_t)packet.n_fds,
                                               .serial = next_serial()};
    packet.header.body_bytes = (uint32_t)protobuf_c_message_pack(&add.base, packet.body);
    receive(&packet);
    if (session < 1 || session > RINGS)
        return;
    run_all(); /* the client gets its ring when the executor has it */
    ring_client_join(session, seals);
}

/* The types that the broker sends, less those that have a record of their own. */
static const uint16_t types[] = {
    CGM_MSG_COMM_ADD,       CGM_MSG_COMM_RANK_LEFT, CGM_MSG_BUFFER_ALLOC,
    CGM_MSG_BUFFER_ADOPT,   CGM_MSG_BUFFER_REMOVE,  CGM_MSG_BUFFER_REWRITTEN,
    CGM_MSG_GRANT,          CGM_MSG_REVOKE,         CGM_MSG_IMPORT_ADD,
    CGM_MSG_IMPORT_REMOVE,  CGM_MSG_PLAN_REMOVE,    CGM_MSG_SUBMIT_FORWARD,
    CGM_MSG_CANCEL_FORWARD, CGM_MSG_COPY_FORWARD,   CGM_MSG_QUERY,
    CGM_MSG_COMM_REMOVE,    CGM_MSG_PING,           CGM_MSG_HELLO,
};
#define TYPE_COUNT (sizeof(types) / sizeof(types[0]))

static void on_request(const struct fuzz_record *record)
{
    static struct cgm_packet packet;
    uint16_t type = types[record->type % TYPE_COUNT];
    unsigned n_fds = record->extra & 3;
    if (type == CGM_MSG_IMPORT_ADD)
        n_fds = record->values[3] >> 4;
    packet.header = (struct cgm_packet_header){
        .magic = CGM_PACKET_MAGIC, .type = type, .n_fds = (uint16_t)n_fds, .serial = next_serial()};
    packet.header.body_bytes = (uint32_t)fuzz_message(
        cgm_message_descriptor(type), &words, record->values, packet.body, sizeof(packet.body));
    for (packet.n_fds = 0; packet.n_fds < n_fds; packet.n_fds++)
        packet.fds[packet.n_fds] = fcntl(0, F_DUPFD_CLOEXEC, 3);
    receive(&packet);
}

static void on_session(const struct fuzz_record *record)
{
    Cgm__SessionRemove remove = CGM__SESSION_REMOVE__INIT;
    uint64_t session = 1 + record->whom % 6u;
    remove.session = session;
    if (record->extra & 1)
        add_session(session, !(record->extra & 0x40));
    else
        send_request(CGM_MSG_SESSION_REMOVE, &remove.base);
}

static void scribble_numbers(uint32_t index, uint64_t retired, uint64_t value)
{
    journal.comm_retired[index] = retired;
    journal.comm_high[index] = retired + value % 16;
    for (uint64_t number = retired; number < retired + 16; number++)
        journal.comm_ended[index][number % CGM_COMM_WINDOW] =
            value >> (number - retired) & 1 ? cgm_journal_end(number, -(int)(value % 28)) : 0;
}

/* A comm of one or two ranks whose sessions are there. */
static void on_comm(const struct fuzz_record *record)
{
    Cgm__CommAdd add = CGM__COMM_ADD__INIT;
    uint64_t sessions[2] = {1 + record->values[0] % RINGS, 1 + record->values[1] % RINGS};
    uint32_t devices[2] = {record->values[2] % NULL_DEVICES, record->values[3] % NULL_DEVICES};
    add.comm = 1 + record->whom % 4u;
    add.n_sessions = add.n_devices = 1 + (record->extra & 1);
    add.sessions = sessions;
    add.devices = devices;
    add.journal = record->whom % 4u;
    add.join_timeout_ns = 5000000000;
    if (record->values[4] != 0) /* what an executor before this one may have left */
        scribble_numbers(add.journal, fuzz_number(&words, record->values[4]), record->values[5]);
    for (unsigned i = 0; i < add.n_sessions; i++)
        add_session(sessions[i], true);
    send_request(CGM_MSG_COMM_ADD, &add.base);
}

/* What is remembered of its algorithms, right or wrong. */
static void add_times(const struct fuzz_record *record, Cgm__PlanAdd *add)
{
    static uint32_t tried[3];
    static uint64_t tried_ns[3] = {5, 0, 7};
    for (unsigned i = 0; i < 3; i++)
        tried[i] = (uint32_t)fuzz_number(&words, record->values[FUZZ_VALUES - 1 - i]);
    add->tried = tried;
    add->tried_ns = tried_ns;
    add->n_tried = record->extra >> 4 & 3;
    add->n_tried_ns = record->extra >> 4 & 2;
    add->has_tried_at = add->tried_at = record->extra >> 6 & 1;
}

/* Plan n has id n; its request is made of the values, its user buffers have ids of their own. */
static void on_plan(const struct fuzz_record *record)
{
    uint8_t request[1024];
    uint64_t ids[2] = {last_user_buffer + 1, last_user_buffer + 2};
    uint32_t journals[2] = {8, 9};
    Cgm__PlanAdd add = CGM__PLAN_ADD__INIT;
    const struct cgm_comm *comm = cgm_map_get(&executor.poller.comms, record->values[0]);
    last_user_buffer += 2;
    add.id = 1 + record->whom % 8u;
    add.request.data = request;
    add.request.len = fuzz_message(&cgm__plan_create__descriptor, &words, record->values, request,
                                   sizeof(request));
    add.n_buffer_ids = add.n_journals = comm && comm->size <= 2 ? comm->size : 1;
    add.buffer_ids = ids;
    add.journals = journals;
    executor.limits.tune_ns = record->extra & 1 ? TUNE_NS : 0;
    add_times(record, &add);
    send_request(CGM_MSG_PLAN_ADD, &add.base);
}

static uint32_t generation_of(uint64_t id)
{
    const struct cgm_memory *memory = cgm_map_get(&executor.poller.memories, id);
    return memory ? memory->generation : 0;
}

static void on_submit(const struct fuzz_record *record)
{
    ring_client_submit(record, generation_of);
}

/* ---- time, devices ---------------------------------------------------------------------------
 */

/* With a poller that is awake; else it has stood still. */
static void pass_time(uint64_t ns, bool awake)
{
    now_ns += ns;
    if (awake)
        executor.poller.round_ns = now_ns;
}

static void let_go(void)
{
    null_backend_let_go();
    run_all();
    held_since_ns = now_ns;
}

/* A job that a device holds for longer ends the executor, as it should. */
static void on_time(const struct fuzz_record *record)
{
    uint64_t more_ns = 1000000ull * (record->values[0] + 1) * (record->extra & 1 ? 20 : 1);
    if (now_ns + more_ns - held_since_ns > HELD_NS_MAX)
        let_go();
    pass_time(more_ns, !(record->extra & 2));
}

static void on_device(const struct fuzz_record *record)
{
    static const int statuses[] = {CGM_OK, CGM_NO_MEMORY, CGM_INTERNAL, CGM_IO};
    let_go();
    null_backend.hold = record->extra & 1;
    null_backend.groups = record->extra >> 5 & 1;
    null_backend.next_status = statuses[record->extra >> 1 & 3];
    null_backend.run_status = statuses[record->extra >> 3 & 3];
}

static void on_run(const struct fuzz_record *record)
{
    if (record->extra & 1)
        let_go();
    else
        run_all();
}

/* ---- one input -------------------------------------------------------------------------------
 */

static void perform(const struct fuzz_record *record)
{
    static void (*const actions[16])(const struct fuzz_record *record) = {
        on_request,
        on_request,
        on_request,
        on_session,
        on_comm,
        on_plan,
        on_submit,
        on_submit,
        on_submit,
        on_submit,
        ring_client_ready_and_reap,
        ring_client_scribble,
        on_time,
        on_device,
        on_run,
        on_run};
    if (last_serial + 32 < SERIALS_MAX)
        actions[record->what & 15](record);
    if (record->what & 0x10)
        run_all();
}

struct ids {
    uint64_t id[IDS_MAX];
    unsigned count;
};

static void collect_id(void *context, uint64_t id, void *value)
{
    struct ids *ids = context;
    (void)value;
    FUZZ_CHECK(ids->count < IDS_MAX);
    ids->id[ids->count++] = id;
}

static void remove_sessions(void)
{
    struct ids ids = {.count = 0};
    Cgm__SessionRemove remove = CGM__SESSION_REMOVE__INIT;
    cgm_map_each(&executor.poller.endpoints, collect_id, &ids);
    for (unsigned i = 0; i < ids.count; i++) {
        const struct cgm_endpoint *endpoint = cgm_map_get(&executor.poller.endpoints, ids.id[i]);
        remove.session = ids.id[i];
        if (!endpoint->removal)
            send_request(CGM_MSG_SESSION_REMOVE, &remove.base);
    }
    run_all();
}

static void remove_plans(void)
{
    struct ids ids = {.count = 0};
    Cgm__PlanRemove remove = CGM__PLAN_REMOVE__INIT;
    cgm_map_each(&executor.poller.plans, collect_id, &ids);
    for (unsigned i = 0; i < ids.count; i++) {
        remove.id = ids.id[i];
        send_request(CGM_MSG_PLAN_REMOVE, &remove.base);
    }
    run_all();
}

static void remove_comms(void)
{
    struct ids ids = {.count = 0};
    Cgm__CommRemove remove = CGM__COMM_REMOVE__INIT;
    cgm_map_each(&executor.poller.comms, collect_id, &ids);
    for (unsigned i = 0; i < ids.count; i++) {
        remove.comm = ids.id[i];
        remove.status = CGM_PEER_LOST;
        send_request(CGM_MSG_COMM_REMOVE, &remove.base);
    }
    run_all();
}

static void remove_memories(void)
{
    struct ids ids = {.count = 0};
    Cgm__BufferRemove remove = CGM__BUFFER_REMOVE__INIT;
    cgm_map_each(&executor.poller.memories, collect_id, &ids);
    for (unsigned i = 0; i < ids.count; i++) {
        remove.id = ids.id[i];
        send_request(CGM_MSG_BUFFER_REMOVE, &remove.base);
    }
    run_all();
}

static void check_nothing_is_left(void)
{
    const struct cgm_poller *poller = &executor.poller;
    FUZZ_CHECK(poller->endpoints.count == 0 && poller->comms.count == 0);
    FUZZ_CHECK(poller->plans.count == 0 && poller->memories.count == 0);
    FUZZ_CHECK(poller->rings.n_rings == 0 && !poller->gangs && poller->noops.n_noops == 0 &&
               !poller->warming);
    FUZZ_CHECK(!poller->quiet_first && poller->enqueuing == 0);
    FUZZ_CHECK(null_backend.mems == 0 && null_backend.group_count == 0);
    for (uint32_t serial = 1; serial <= last_serial; serial++)
        FUZZ_CHECK(!unanswered[serial]);
    for (unsigned i = 0; i < 16; i++)
        FUZZ_CHECK(journal.writers[i] == 0);
    FUZZ_CHECK(journal.jobs_accepted == journal.jobs_done + journal.jobs_failed);
    FUZZ_CHECK(fuzz_count_fds() == fds_at_rest);
}

/* Its jobs asked for deadlines, or those of a number before it. */
static bool has_deadline(const struct cgm_gang *gang)
{
    for (const struct cgm_gang *g = executor.poller.gangs; g; g = g->links[CGM_GANGS_ALL].next)
        if (g->comm == gang->comm && g->number <= gang->number && g->default_ns == 0)
            return true;
    return false;
}

/* Whoever does not come, comes too late or starts with the wrong number: nothing waits for ever,
 * unless a client asked for that with a deadline of its own. */
static void check_nothing_waits(void)
{
    for (unsigned i = 0; i < 4; i++) {
        pass_time(6000000000u, true);
        run_all();
    }
    for (const struct cgm_gang *gang = executor.poller.gangs; gang;
         gang = gang->links[CGM_GANGS_ALL].next)
        FUZZ_CHECK(has_deadline(gang));
}

static void finish(void)
{
    null_backend.hold = null_backend.groups = false;
    null_backend.next_status = null_backend.run_status = CGM_OK;
    null_backend_let_go();
    run_all();
    check_nothing_waits();
    remove_sessions();
    remove_plans();
    remove_comms();
    remove_memories();
    for (uint64_t session = 1; session <= RINGS; session++)
        ring_client_close(session);
    check_nothing_is_left();
    last_serial = 0;
    last_user_buffer = 100;
    memset(&journal.jobs_accepted, 0, 4 * sizeof(journal.jobs_accepted));
}

static void set_up(void)
{
    static struct cgm_worker devices[NULL_DEVICES];
    static struct cgm_device_info info[NULL_DEVICES];
    struct cgm_poller *poller = &executor.poller;
    executor.ops = &null_backend_ops;
    executor.link = -1;
    executor.life = 1;
    executor.journal = &journal;
    executor.limits = (struct cgm_limits){.spin_ns = 5000000000,
                                          .join_timeout_ns = 5000000000,
                                          .ready_timeout_ns = 5000000000,
                                          .job_timeout_ns = 8000000000};
    executor.n_devices = NULL_DEVICES;
    executor.devices = devices;
    executor.info = info;
    executor.warmth = cgm_warmth_new(&executor);
    FUZZ_CHECK(executor.warmth);
    for (unsigned i = 0; i < NULL_DEVICES; i++) {
        cgm_task_list_init(&devices[i].list);
        executor.ops->device_info(NULL, i, &info[i]);
    }
    cgm_task_list_init(&executor.mapper.list);
    cgm_turns_init(&executor.steps, &executor.mapper);
    cgm_turns_init(&executor.slices, &executor.mapper);
    cgm_task_list_init(&executor.sweeper.list);
    cgm_wishes_init(&executor.wishes);
    cgm_task_list_init(&poller->inbox);
    poller->executor = &executor;
    poller->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    poller->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    last_user_buffer = 100;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!executor.ops)
        set_up();
    fds_at_rest = fuzz_count_fds();
    fuzz_records_each(data, size, perform);
    finish();
    return 0;
}
