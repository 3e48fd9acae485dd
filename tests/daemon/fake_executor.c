/* An executor without devices: it says yes to everything, gives out memfds, and fails on demand.
 *
 * $FAKE_EXECUTOR_DIR is a folder in which
 *   messages             gets a line for every message that came in
 *   die.<Message>        ends the process instead of an answer, once
 *   drop.<Message>       leaves the message unanswered, as long as the file is there
 *   slow.<Message>       answers after .3 s, as long as the file is there
 *   error.<Message>      answers with the status in the file
 *   refuse.<Message>     answers with NOT_SUPPORTED and the file's text, and ends; once
 *   lose.<Message>       says that its device is lost, and ends; once
 *   stuck.<Message>      says that a job does not end, and waits; once
 *   garbage.<Message>    answers with bytes that are no packet, once
 *   late.<Message>       the same, and ends job 1 of its last ring well as soon as that is dead
 *   hold.BufferAdopt     maps the buffer whose id is in the file, and never gets it
 *   backend              says what it calls itself
 * A submitted RUN marks its `out` buffer as being written, and its number as submitted, in the
 * journal, and never completes. A NOOP completes. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/journal.h"
#include "proto/messages.h"
#include "proto/packet.h"
#include "proto/ring.h"
#include "proto/status.h"

#define LINK 3
#define OBJECTS_MAX 65536u
#define DEVICES_MAX 64u

static const char *folder;
static struct cgm_journal *journal;
static uint32_t index_of_buffer[OBJECTS_MAX]; /* journal index + 1, by id */
static uint32_t index_of_comm;                /* the last comm's journal index */
static struct cgm_ring last_ring;

static void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void note(const char *format, ...)
{
    char path[512], line[512];
    va_list arguments;
    snprintf(path, sizeof(path), "%s/messages", folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    if (fd < 0 || write(fd, line, (size_t)length) < 0)
        exit(9);
    close(fd);
}

/* True when the fault is wanted; *ret_number is what its file says. */
static bool fault(const char *kind, const char *message, bool once, int *ret_number)
{
    char path[512], text[32] = "";
    snprintf(path, sizeof(path), "%s/%s.%s", folder, kind, message);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    if (read(fd, text, sizeof(text) - 1) > 0 && ret_number)
        *ret_number = atoi(text);
    close(fd);
    if (once)
        unlink(path);
    return true;
}

static void answer(const struct cgm_packet *packet, int type, const ProtobufCMessage *message,
                   const int *fds, unsigned n_fds)
{
    if (cgm_packet_send(LINK, (uint16_t)type, packet->header.serial, message, fds, n_fds) != CGM_OK)
        exit(8);
}

static void answer_ok(const struct cgm_packet *packet)
{
    Cgm__Ok ok = CGM__OK__INIT;
    answer(packet, CGM_MSG_OK, &ok.base, NULL, 0);
}

static int memory_new(uint64_t bytes)
{
    int fd = memfd_create("fake-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
        exit(7);
    return fd;
}

static char *backend_name(void)
{
    static char name[16] = "fake";
    char path[512];
    snprintf(path, sizeof(path), "%s/backend", folder);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, name, sizeof(name) - 1) : 0;
    if (length > 0)
        name[length] = '\0';
    if (fd >= 0)
        close(fd);
    return name;
}

static void on_setup(struct cgm_packet *packet, const ProtobufCMessage *message)
{
    const Cgm__ExecutorSetup *setup = (const Cgm__ExecutorSetup *)message;
    static char *texts[DEVICES_MAX];
    static uint64_t bytes[DEVICES_MAX];
    Cgm__ExecutorHello hello = CGM__EXECUTOR_HELLO__INIT;
    journal = mmap(NULL, sizeof(*journal), PROT_READ | PROT_WRITE, MAP_SHARED, packet->fds[0], 0);
    if (journal == MAP_FAILED || journal->magic != CGM_JOURNAL_MAGIC)
        exit(6);
    for (uint32_t i = 0; i < setup->devices; i++)
        texts[i] = (char *)(uintptr_t) "fake";
    note("life %ju\n", (uintmax_t)setup->life);
    hello.version = 1;
    hello.backend = backend_name();
    hello.n_device_uuid = hello.n_device_name = hello.n_device_bytes = setup->devices;
    hello.device_uuid = hello.device_name = texts;
    hello.device_bytes = bytes;
    answer(packet, CGM_MSG_EXECUTOR_HELLO, &hello.base, NULL, 0);
}

static void on_session_add(struct cgm_packet *packet, const ProtobufCMessage *message)
{
    const Cgm__SessionAdd *add = (const Cgm__SessionAdd *)message;
    if (packet->n_fds > 0) {
        cgm_ring_unmap(&last_ring);
        if (cgm_ring_map(packet->fds[0], add->entries, &last_ring) != CGM_OK)
            exit(6);
    }
    note("session %ju entries %u fds %u\n", (uintmax_t)add->session, add->entries, packet->n_fds);
    answer_ok(packet);
}

/* The first number that has; 0: none near the beginning. */
static unsigned first_ended(uint32_t index)
{
    int status;
    for (unsigned number = 1; number < 64; number++)
        if (cgm_journal_has_ended(atomic_load(&journal->comm_ended[index][number]), number,
                                  &status))
            return number;
    return 0;
}

static void on_comm_add(struct cgm_packet *packet, const ProtobufCMessage *message)
{
    const Cgm__CommAdd *add = (const Cgm__CommAdd *)message;
    index_of_comm = add->journal;
    note("comm %ju high %ju ended %u\n", (uintmax_t)add->comm,
         (uintmax_t)atomic_load(&journal->comm_high[add->journal]), first_ended(add->journal));
    answer_ok(packet);
}

static void on_alloc(struct cgm_packet *packet, const ProtobufCMessage *message)
{
    const Cgm__BufferAlloc *alloc = (const Cgm__BufferAlloc *)message;
    Cgm__Memory memory = CGM__MEMORY__INIT;
    memory.id = alloc->id;
    memory.bytes = (alloc->bytes + 4095) / 4096 * 4096;
    index_of_buffer[alloc->id % OBJECTS_MAX] = alloc->journal + 1;
    int fd = memory_new(memory.bytes);
    answer(packet, CGM_MSG_MEMORY, &memory.base, &fd, 1);
    close(fd);
}

/* Who waits for a child to let go of his own memory waits as for a lock of the system. */
static void wait_in_kernel(void)
{
    if (syscall(SYS_clone, CLONE_VFORK | SIGCHLD, NULL, NULL, NULL, NULL) == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
}

static void on_adopt(struct cgm_packet *packet, const ProtobufCMessage *message)
{
    const Cgm__BufferAdopt *adopt = (const Cgm__BufferAdopt *)message;
    int held = 0;
    if (fault("hold", "BufferAdopt", false, &held) && (uint64_t)held == adopt->id) {
        atomic_store(&journal->mapping, adopt->id);
        wait_in_kernel();
    }
    index_of_buffer[adopt->id % OBJECTS_MAX] = adopt->journal + 1;
    note("adopt %ju generation %u tainted %d fds %u\n", (uintmax_t)adopt->id, adopt->generation,
         adopt->tainted, packet->n_fds);
    answer_ok(packet);
}

static void on_plan_add(struct cgm_packet *packet, const ProtobufCMessage *message)
{
    const Cgm__PlanAdd *add = (const Cgm__PlanAdd *)message;
    Cgm__PlanCreate *request = cgm__plan_create__unpack(NULL, add->request.len, add->request.data);
    Cgm__PlanAdded added = CGM__PLAN_ADDED__INIT;
    int fds[CGM_COMM_SIZE_MAX];
    added.algorithm = 0;
    added.reason = (char *)(uintptr_t) "it is a fake";
    added.user_rows = request->m;
    added.user_cols = request->n;
    added.user_bytes = added.workspace_bytes = request->m * request->n * 4;
    added.chunks = (uint32_t)add->n_buffer_ids;
    for (size_t i = 0; i < add->n_buffer_ids; i++)
        fds[i] = memory_new(added.user_bytes);
    note("plan %016jx ranks %zu\n", (uintmax_t)add->id, add->n_buffer_ids);
    answer(packet, CGM_MSG_PLAN_ADDED, &added.base, fds, (unsigned)add->n_buffer_ids);
    for (size_t i = 0; i < add->n_buffer_ids; i++)
        close(fds[i]);
    cgm__plan_create__free_unpacked(request, NULL);
}

static void on_plan_measure(struct cgm_packet *packet, const ProtobufCMessage *message)
{
    const Cgm__PlanMeasure *measure = (const Cgm__PlanMeasure *)message;
    Cgm__PlanCreate *request =
        cgm__plan_create__unpack(NULL, measure->request.len, measure->request.data);
    Cgm__PlanMeasured measured = CGM__PLAN_MEASURED__INIT;
    measured.bytes = request->m * request->n * 4 * 64 + 4096; /* for any number of ranks */
    note("measured %ju\n", (uintmax_t)measured.bytes);
    answer(packet, CGM_MSG_PLAN_MEASURED, &measured.base, NULL, 0);
    cgm__plan_create__free_unpacked(request, NULL);
}

static void complete(uint64_t session, uint64_t ticket)
{
    Cgm__CompletionForward forward = CGM__COMPLETION_FORWARD__INIT;
    struct cgm_cqe cqe = {.ticket = ticket};
    forward.session = session;
    forward.cqe.data = (uint8_t *)&cqe;
    forward.cqe.len = sizeof(cqe);
    cgm_packet_send(LINK, CGM_MSG_COMPLETION_FORWARD, 0, &forward.base, NULL, 0);
}

static void on_submit(struct cgm_packet *packet, const ProtobufCMessage *message)
{
    const Cgm__SubmitForward *forward = (const Cgm__SubmitForward *)message;
    struct cgm_entry entry;
    memcpy(&entry, forward->entry.data, sizeof(entry));
    uint32_t index = index_of_buffer[entry.operand[CGM_OPERAND_OUT].id % OBJECTS_MAX];
    int ending = 0;
    if (fault("ending", "SubmitForward", true, &ending)) {
        atomic_store(&journal->ending_comm, entry.comm);
        atomic_store(&journal->ending_number, (uint64_t)ending);
    }
    answer_ok(packet);
    if (entry.opcode == CGM_OPCODE_NOOP) {
        complete(forward->session, entry.ticket);
        return;
    }
    if (index)
        atomic_fetch_add(&journal->writers[index - 1], 1);
    atomic_store(&journal->comm_high[index_of_comm], entry.comm_number);
}

static void on_query(struct cgm_packet *packet, const ProtobufCMessage *message)
{
    char *keys[] = {(char *)(uintptr_t) "jobs_done"}, *values[] = {(char *)(uintptr_t) "7"};
    Cgm__Row row = CGM__ROW__INIT, *rows[] = {&row};
    Cgm__QueryReply reply = CGM__QUERY_REPLY__INIT;
    (void)message;
    row.n_key = row.n_value = 1;
    row.key = keys;
    row.value = values;
    reply.n_row = 1;
    reply.row = rows;
    answer(packet, CGM_MSG_QUERY_REPLY, &reply.base, NULL, 0);
}

/* Each level once, as long as it stays. */
static void on_ping(struct cgm_packet *packet, const ProtobufCMessage *message)
{
    static uint32_t last;
    const Cgm__Ping *ping = (const Cgm__Ping *)message;
    if (ping->has_log_level && ping->log_level != last) {
        last = ping->log_level;
        note("log_level %u\n", last);
    }
    answer_ok(packet);
}

static const struct {
    int type;
    void (*handle)(struct cgm_packet *packet, const ProtobufCMessage *message);
} rows[] = {
    {CGM_MSG_EXECUTOR_SETUP, on_setup},
    {CGM_MSG_SESSION_ADD, on_session_add},
    {CGM_MSG_COMM_ADD, on_comm_add},
    {CGM_MSG_BUFFER_ALLOC, on_alloc},
    {CGM_MSG_BUFFER_ADOPT, on_adopt},
    {CGM_MSG_PLAN_ADD, on_plan_add},
    {CGM_MSG_PLAN_MEASURE, on_plan_measure},
    {CGM_MSG_SUBMIT_FORWARD, on_submit},
    {CGM_MSG_QUERY, on_query},
    {CGM_MSG_PING, on_ping},
};

static void handle(struct cgm_packet *packet, const ProtobufCMessage *message)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].type == packet->header.type) {
            rows[i].handle(packet, message);
            return;
        }
    answer_ok(packet);
}

static void answer_error(const struct cgm_packet *packet, int status, char *detail)
{
    Cgm__Error error = CGM__ERROR__INIT;
    error.status = status;
    error.detail = detail;
    answer(packet, CGM_MSG_ERROR, &error.base, NULL, 0);
}

static void refuse(const struct cgm_packet *packet, const char *name)
{
    char path[512], text[200] = "";
    snprintf(path, sizeof(path), "%s/refuse.%s", folder, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (read(fd, text, sizeof(text) - 1) < 0)
        exit(9);
    close(fd);
    unlink(path);
    answer_error(packet, CGM_NOT_SUPPORTED, text);
    _exit(1);
}

static void tell_trouble(enum cgm_trouble trouble)
{
    Cgm__ExecutorTrouble event = CGM__EXECUTOR_TROUBLE__INIT;
    event.trouble = trouble;
    event.detail = (char *)(uintptr_t) "device 0: the test wants it";
    if (cgm_packet_send(LINK, CGM_MSG_EXECUTOR_TROUBLE, 0, &event.base, NULL, 0) != CGM_OK)
        exit(8);
}

/* A device may end a job at any moment. */
static void send_garbage_late(void)
{
    if (send(LINK, "garbage", 7, MSG_NOSIGNAL) < 0)
        exit(8);
    while (!atomic_load(&last_ring.header->dead))
        usleep(100);
    cgm_ring_set_done(&last_ring, 0, 1, CGM_OK);
    note("late\n");
}

/* True when a fault took the place of the answer. */
static bool misbehave(const struct cgm_packet *packet, const char *name, bool dropped)
{
    int status = CGM_INTERNAL;
    refuse(packet, name);
    if (fault("die", name, true, NULL))
        _exit(5);
    if (fault("lose", name, true, NULL)) {
        tell_trouble(CGM_TROUBLE_DEVICE_LOST);
        _exit(5);
    }
    if (fault("stuck", name, true, NULL)) {
        tell_trouble(CGM_TROUBLE_STUCK);
        for (;;)
            pause();
    }
    if (dropped)
        return true;
    if (fault("slow", name, false, NULL))
        usleep(300000);
    if (fault("late", name, true, NULL)) {
        send_garbage_late();
        return true;
    }
    if (fault("garbage", name, true, NULL))
        return send(LINK, "garbage", 7, MSG_NOSIGNAL) > 0;
    if (!fault("error", name, false, &status))
        return false;
    answer_error(packet, status, (char *)(uintptr_t) "the test wants it");
    return true;
}

int main(void)
{
    static struct cgm_packet packet;
    folder = getenv("FAKE_EXECUTOR_DIR");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (folder && cgm_packet_recv(LINK, 0, &packet) == CGM_OK) {
        const char *name = cgm_message_name(packet.header.type);
        ProtobufCMessage *message = cgm_packet_unpack(&packet);
        if (!message)
            return 4;
        /* Who sees the line may take the fault away. */
        bool dropped = fault("drop", name, false, NULL);
        note("%s\n", name);
        if (!misbehave(&packet, name, dropped))
            handle(&packet, message);
        cgm_message_free(message);
        cgm_packet_close_fds(&packet);
    }
    return 0;
}
