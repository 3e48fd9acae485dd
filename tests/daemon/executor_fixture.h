/* An executor without a broker: the test speaks to it over a socketpair and plays every client by
 * writing the rings itself. */
#ifndef EXECUTOR_FIXTURE_H
#define EXECUTOR_FIXTURE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/journal.h"
#include "proto/messages.h"
#include "proto/packet.h"
#include "proto/ring.h"
#include "proto/status.h"
#include "proto/types.h"
#include "tests/host_view.h"

#define FIXTURE_ENTRIES 64u
#define FIXTURE_WAIT_MS 60000

struct fixture_session {
    uint64_t id, ticket;
    struct cgm_ring ring;
    int wake_fd, notify_fd;
};

struct fixture {
    pid_t pid;
    int link;
    uint32_t serial, devices;
    struct cgm_journal *journal;
    struct cgm_packet packet; /* the last one received */
    char bad[256];            /* detail of the last SessionBad event */
    char why[512];            /* detail of the last Error that was replied */
};

static inline struct cgm_packet *fixture_receive(struct fixture *f)
{
    for (;;) {
        struct pollfd ready = {.fd = f->link, .events = POLLIN};
        assert_int_equal(poll(&ready, 1, FIXTURE_WAIT_MS), 1);
        assert_int_equal(cgm_packet_recv(f->link, 0, &f->packet), CGM_OK);
        if (f->packet.header.type != CGM_MSG_SESSION_BAD)
            return &f->packet;
        Cgm__SessionBad *m = (Cgm__SessionBad *)cgm_packet_unpack(&f->packet);
        snprintf(f->bad, sizeof(f->bad), "%s", m->detail);
        cgm_message_free(&m->base);
    }
}

static inline void fixture_send(struct fixture *f, int type, const ProtobufCMessage *m,
                                const int *fds, unsigned n_fds)
{
    assert_int_equal(cgm_packet_send(f->link, (uint16_t)type, ++f->serial, m, fds, n_fds), CGM_OK);
}

/* Waits for the reply to a request; the status of an Error. Others are dropped. */
static inline int fixture_reply(struct fixture *f, uint32_t serial)
{
    int status = CGM_OK;
    do
        fixture_receive(f);
    while (f->packet.header.serial != serial);
    if (f->packet.header.type == CGM_MSG_ERROR) {
        Cgm__Error *error = (Cgm__Error *)cgm_packet_unpack(&f->packet);
        status = error->status;
        snprintf(f->why, sizeof(f->why), "%s", error->detail);
        cgm_message_free(&error->base);
    }
    return status;
}

/* Sends a request and waits for its reply; returns the reply's type, and the status of an Error.
 * Replies to other requests may not be outstanding. */
static inline int fixture_call(struct fixture *f, int type, const ProtobufCMessage *m,
                               const int *fds, unsigned n_fds, int *ret_status)
{
    fixture_send(f, type, m, fds, n_fds);
    *ret_status = fixture_reply(f, f->serial);
    return f->packet.header.type;
}

static inline void fixture_ok(struct fixture *f, int type, const ProtobufCMessage *m,
                              const int *fds, unsigned n_fds)
{
    int status;
    assert_int_equal(fixture_call(f, type, m, fds, n_fds, &status), CGM_MSG_OK);
    assert_int_equal(status, CGM_OK);
}

/* $COMMGEMM_TEST_BIN where the programs were moved, else where they were built. */
static inline void fixture_exec(void)
{
    const char *folder = getenv("COMMGEMM_TEST_BIN");
    char path[4096];
    snprintf(path, sizeof(path), "%s/" CGM_TEST_EXECUTOR, folder ? folder : CGM_BIN_DIR);
    execl(path, CGM_TEST_EXECUTOR, (char *)NULL);
    _exit(127);
}

static inline uint32_t fixture_devices(const struct fixture *f)
{
    Cgm__ExecutorHello *hello = (Cgm__ExecutorHello *)cgm_packet_unpack(&f->packet);
    uint32_t devices = (uint32_t)hello->n_device_uuid;
    cgm_message_free(&hello->base);
    return devices;
}

static inline void fixture_open(struct fixture *f, uint64_t join_timeout_ms,
                                uint64_t ready_timeout_ms, uint32_t delay_us)
{
    int pair[2], status;
    memset(f, 0, sizeof(*f));
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    f->link = pair[0];
    f->pid = fork();
    if (f->pid == 0) {
        if (pair[1] != 3)
            dup2(pair[1], 3);
        else
            fcntl(3, F_SETFD, 0);
        fixture_exec();
    }
    close(pair[1]);
    int journal = memfd_create("journal", MFD_CLOEXEC);
    assert_int_equal(ftruncate(journal, sizeof(struct cgm_journal)), 0);
    f->journal =
        mmap(NULL, sizeof(struct cgm_journal), PROT_READ | PROT_WRITE, MAP_SHARED, journal, 0);
    f->journal->magic = CGM_JOURNAL_MAGIC;
    f->journal->version = CGM_JOURNAL_VERSION;
    Cgm__ExecutorSetup setup = CGM__EXECUTOR_SETUP__INIT;
    setup.version = 1;
    setup.life = 1;
    setup.devices = 4;
    setup.spin_ns = 20000;
    setup.join_timeout_ns = join_timeout_ms * 1000000;
    setup.ready_timeout_ns = ready_timeout_ms * 1000000;
    setup.has_test_delay_us = delay_us > 0;
    setup.test_delay_us = delay_us;
    assert_int_equal(fixture_call(f, CGM_MSG_EXECUTOR_SETUP, &setup.base, &journal, 1, &status),
                     CGM_MSG_EXECUTOR_HELLO);
    f->devices = fixture_devices(f);
    close(journal);
}

/* The executor ends when its broker does. */
static inline void fixture_close(struct fixture *f)
{
    int status;
    close(f->link);
    assert_int_equal(waitpid(f->pid, &status, 0), f->pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    munmap(f->journal, sizeof(struct cgm_journal));
}

static inline void fixture_session_open_as(struct fixture *f, uint64_t id, uint32_t uid,
                                           struct fixture_session *s)
{
    int fds[3], pair[2];
    memset(s, 0, sizeof(*s));
    s->id = id;
    assert_int_equal(cgm_ring_create(FIXTURE_ENTRIES, id, 1, &fds[0]), CGM_OK);
    s->wake_fd = fds[1] = eventfd(0, EFD_CLOEXEC);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    s->notify_fd = pair[0];
    fds[2] = pair[1];
    Cgm__SessionAdd add = CGM__SESSION_ADD__INIT;
    add.session = id;
    add.entries = FIXTURE_ENTRIES;
    add.uid = uid;
    fixture_ok(f, CGM_MSG_SESSION_ADD, &add.base, fds, 3);
    assert_int_equal(cgm_ring_join(fds[0], FIXTURE_ENTRIES, &s->ring), CGM_OK);
    close(fds[0]);
    close(fds[2]);
}

static inline void fixture_session_open(struct fixture *f, uint64_t id, struct fixture_session *s)
{
    fixture_session_open_as(f, id, 0, s);
}

static inline void fixture_session_remove(struct fixture *f, struct fixture_session *s)
{
    Cgm__SessionRemove m = CGM__SESSION_REMOVE__INIT;
    m.session = s->id;
    fixture_ok(f, CGM_MSG_SESSION_REMOVE, &m.base, NULL, 0);
}

static inline void fixture_session_close(struct fixture_session *s)
{
    cgm_ring_unmap(&s->ring);
    close(s->wake_fd);
    close(s->notify_fd);
}

static inline void fixture_comm_add_as(struct fixture *f, uint64_t id, uint32_t uid,
                                       const uint64_t *sessions, uint32_t size,
                                       uint64_t join_timeout_ms, uint64_t retired)
{
    uint32_t devices[CGM_COMM_SIZE_MAX];
    Cgm__CommAdd m = CGM__COMM_ADD__INIT;
    for (uint32_t i = 0; i < size; i++)
        devices[i] = i % f->devices;
    m.comm = id;
    m.has_uid = 1;
    m.uid = uid;
    m.journal = (uint32_t)id;
    m.n_sessions = m.n_devices = size;
    m.sessions = (uint64_t *)(uintptr_t)sessions;
    m.devices = devices;
    m.join_timeout_ns = join_timeout_ms * 1000000;
    atomic_store(&f->journal->comm_retired[id], retired);
    if (retired > atomic_load(&f->journal->comm_high[id]))
        atomic_store(&f->journal->comm_high[id], retired);
    fixture_ok(f, CGM_MSG_COMM_ADD, &m.base, NULL, 0);
}

static inline void fixture_comm_add(struct fixture *f, uint64_t id, const uint64_t *sessions,
                                    uint32_t size, uint64_t join_timeout_ms, uint64_t retired)
{
    fixture_comm_add_as(f, id, 0, sessions, size, join_timeout_ms, retired);
}

/* Asks for a buffer of a user's; the serial. */
static inline uint32_t fixture_buffer_send(struct fixture *f, uint64_t id, uint64_t bytes,
                                           uint32_t uid)
{
    Cgm__BufferAlloc m = CGM__BUFFER_ALLOC__INIT;
    m.id = id;
    m.generation = 1;
    m.bytes = bytes;
    m.journal = (uint32_t)id;
    m.has_uid = 1;
    m.uid = uid;
    fixture_send(f, CGM_MSG_BUFFER_ALLOC, &m.base, NULL, 0);
    return f->serial;
}

/* Zeroed memory of the executor, seen from here and granted to a session. */
static inline void fixture_grant(struct fixture *f, uint64_t session, uint64_t id, bool writable)
{
    Cgm__Grant grant = CGM__GRANT__INIT;
    grant.session = session;
    grant.id = id;
    grant.writable = writable;
    fixture_ok(f, CGM_MSG_GRANT, &grant.base, NULL, 0);
}

/* Of a plan of fixture_plan, whose ranks' sessions are 1 and so on. */
static inline void fixture_grant_user_buffers(struct fixture *f, uint64_t plan, uint32_t world)
{
    for (uint32_t r = 0; r < world; r++)
        fixture_grant(f, r + 1, plan * 1000 + r, true);
}

static inline float *fixture_buffer(struct fixture *f, uint64_t id, uint64_t bytes,
                                    const struct fixture_session *s, struct host_view *ret_view)
{
    assert_int_equal(fixture_reply(f, fixture_buffer_send(f, id, bytes, 0)), CGM_OK);
    int fd = cgm_packet_take_fd(&f->packet, 0);
    assert_int_equal(host_view_open(ret_view, fd, bytes), 0);
    close(fd);
    fixture_grant(f, s->id, id, true);
    return (float *)(void *)ret_view->base;
}

/* Asks for a plan of the comm with user buffers id * 1000 + rank; the serial. lost: as one that an
 * executor before this one had. */
static inline uint32_t fixture_plan_send_again(struct fixture *f, uint64_t id, Cgm__PlanCreate *ask,
                                               uint32_t world, bool lost)
{
    uint8_t packed[1024];
    uint64_t ids[CGM_COMM_SIZE_MAX];
    uint32_t journals[CGM_COMM_SIZE_MAX];
    Cgm__PlanAdd m = CGM__PLAN_ADD__INIT;
    for (uint32_t i = 0; i < world; i++) {
        ids[i] = id * 1000 + i;
        journals[i] = (uint32_t)(id * 1000 + i);
    }
    m.id = id;
    m.request.len = cgm__plan_create__pack(ask, packed);
    m.request.data = packed;
    m.n_buffer_ids = m.n_journals = world;
    m.buffer_ids = ids;
    m.journals = journals;
    m.has_lost = 1;
    m.lost = lost;
    fixture_send(f, CGM_MSG_PLAN_ADD, &m.base, NULL, 0);
    return f->serial;
}

static inline uint32_t fixture_plan_send(struct fixture *f, uint64_t id, Cgm__PlanCreate *ask,
                                         uint32_t world)
{
    return fixture_plan_send_again(f, id, ask, world, false);
}

/* The status of its creation. */
static inline int fixture_plan_try(struct fixture *f, uint64_t id, Cgm__PlanCreate *ask,
                                   uint32_t world)
{
    int status = fixture_reply(f, fixture_plan_send(f, id, ask, world));
    cgm_packet_close_fds(&f->packet);
    return status;
}

static inline void fixture_plan(struct fixture *f, uint64_t id, uint64_t comm, int op,
                                int algorithm, uint64_t m, uint64_t n, uint64_t k, uint32_t world)
{
    Cgm__PlanCreate ask = CGM__PLAN_CREATE__INIT;
    ask.comm = comm;
    ask.op = (uint32_t)op;
    ask.method = CGM_METHOD_AUTO;
    ask.comm_type = op == CGM_OP_AG_GEMM || op == CGM_OP_AG   ? CGM_COMM_TYPE_AG
                    : op == CGM_OP_GEMM_RS || op == CGM_OP_RS ? CGM_COMM_TYPE_RS
                                                              : CGM_COMM_TYPE_NONE;
    ask.has_algorithm = 1;
    ask.algorithm = (uint32_t)algorithm;
    ask.m = m;
    ask.n = n;
    ask.k = k;
    assert_int_equal(fixture_plan_try(f, id, &ask, world), CGM_OK);
}

/* Pushes entry.slot on the ring; ready as told. */
static inline void fixture_push(struct fixture_session *s, uint32_t slot,
                                const struct cgm_entry *entry, int ready)
{
    uint64_t one = 1;
    uint32_t tail = atomic_load(&s->ring.header->sq_tail);
    s->ring.entry[slot] = *entry;
    if (ready)
        atomic_store(&s->ring.ready[slot], entry->ticket);
    atomic_store(&s->ring.sq[tail & s->ring.mask], slot);
    atomic_store(&s->ring.header->sq_tail, tail + 1);
    if (atomic_exchange(&s->ring.header->sq_need_wakeup, 0))
        assert_int_equal(write(s->wake_fd, &one, sizeof(one)), sizeof(one));
}

/* Waits for the next completion record and reaps it. */
static inline struct cgm_cqe fixture_reap(struct fixture_session *s)
{
    uint32_t head = atomic_load(&s->ring.header->cq_head);
    for (int i = 0; i < FIXTURE_WAIT_MS && atomic_load(&s->ring.header->cq_tail) == head; i++)
        usleep(1000);
    assert_int_not_equal(atomic_load(&s->ring.header->cq_tail), head);
    struct cgm_cqe cqe = s->ring.cq[head & s->ring.mask];
    if (cqe.status == CGM_OK)
        cqe.detail[0] = '\0'; /* not written then */
    int32_t status;
    assert_true(cgm_ring_done(&s->ring, cqe.slot, cqe.ticket, &status));
    assert_int_equal(status, cqe.status);
    atomic_store(&s->ring.header->cq_head, head + 1);
    return cqe;
}

static inline int fixture_is_idle(struct fixture_session *s)
{
    return atomic_load(&s->ring.header->cq_tail) == atomic_load(&s->ring.header->cq_head);
}

#endif
