/* What ends with a session or a comm ends piece by piece, and several of them in turns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/executor/algorithm.h"
#include "daemon/executor/comm.h"
#include "daemon/executor/endpoint.h"
#include "daemon/executor/executor.h"
#include "daemon/executor/gang.h"
#include "daemon/executor/losses.h"
#include "daemon/executor/plan.h"
#include "daemon/executor/runway.h"
#include "proto/journal.h"
#include "proto/messages.h"
#include "proto/packet.h"
#include "proto/status.h"
#include "tests/unit/request_fixture.h"

#define NOOPS CGM_RING_ENTRIES_DEFAULT
#define MANY 10u /* fewer pieces say nothing */

static struct cgm_journal journal;
static uint64_t always(const struct cgm_flag *flag)
{
    (void)flag;
    return UINT64_MAX;
}

/* Queues are through as soon as they have been given anything. */
static const struct cgm_backend_ops ops = {.name = "none", .flag_read = always};
static struct cgm_worker device; /* without a thread */
static struct cgm_executor executor = {.journal = &journal, .ops = &ops, .devices = &device};
static struct cgm_poller *const poller = &executor.poller;
static int broker;

/* Without a ring, with as many noops as it may have. */
static void add_session_of(uint64_t session, uint32_t uid)
{
    Cgm__SessionAdd *m = malloc(sizeof(*m));
    assert_non_null(m);
    cgm__session_add__init(m);
    m->session = session;
    m->uid = uid;
    cgm_endpoint_on_add(request_of(&executor, 0, &m->base));
    struct cgm_endpoint *endpoint = cgm_map_get(&poller->endpoints, session);
    assert_non_null(endpoint);
    for (uint32_t i = 0; i < NOOPS; i++) {
        endpoint->jobs[i] = (struct cgm_job){.endpoint = endpoint, .ticket = i + 1};
        endpoint->tickets[i] = i + 1;
        cgm_noops_enter(&poller->noops, &endpoint->jobs[i]);
    }
    endpoint->used_jobs = endpoint->in_flight = NOOPS;
}

static void add_session(uint64_t session)
{
    add_session_of(session, 0);
}

static void remove_session(uint64_t session)
{
    Cgm__SessionRemove *m = malloc(sizeof(*m));
    assert_non_null(m);
    cgm__session_remove__init(m);
    m->session = session;
    cgm_endpoint_on_remove(request_of(&executor, 0, &m->base));
}

/* 0: it is gone. */
static uint32_t in_flight(uint64_t session)
{
    const struct cgm_endpoint *endpoint = cgm_map_get(&poller->endpoints, session);
    return endpoint ? endpoint->in_flight : 0;
}

/* The events of jobs that ended. */
static void drain(void)
{
    char packet[1024];
    while (recv(broker, packet, sizeof(packet), MSG_DONTWAIT) > 0)
        continue;
}

static int open_all(void **state)
{
    int pair[2];
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    broker = pair[0];
    executor.link = pair[1];
    poller->executor = &executor;
    cgm_task_list_init(&poller->inbox);
    assert_int_equal(cgm_worker_start(&executor.sweeper, "sweeper", 0), CGM_OK);
    cgm_sweeps_init(&executor.sweeps);
    assert_int_equal(cgm_worker_start(&executor.mapper, "mapper", 0), CGM_OK);
    cgm_turns_init(&executor.steps, &executor.mapper);
    cgm_turns_init(&executor.slices, &executor.mapper);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    cgm_worker_stop(&executor.mapper);
    cgm_worker_stop(&executor.sweeper);
    close(broker);
    close(executor.link);
    return 0;
}

/* ---- sessions ---------------------------------------------------------------------------------
 */

static void test_a_session_ends_in_pieces(void **state)
{
    uint32_t pieces = 0;
    (void)state;
    add_session(1);
    remove_session(1);
    for (uint32_t left = NOOPS; in_flight(1) > 0; left = in_flight(1), pieces++) {
        assert_true(left - in_flight(1) <= NOOPS / MANY);
        cgm_losses_step(poller);
        drain();
    }
    assert_true(pieces >= MANY);
    assert_null(poller->losses);
    assert_int_equal(poller->noops.n_noops, 0);
    assert_null(cgm_map_get(&poller->endpoints, 1));
}

/* Of users, however many each has. */
static void test_noops_take_turns(void **state)
{
    (void)state;
    for (uint64_t i = 1; i <= 3; i++)
        add_session_of(i, 1);
    add_session_of(4, 2);
    assert_true(cgm_noops_step(&poller->noops, 1));
    uint32_t first = in_flight(1) + in_flight(2) + in_flight(3), other = in_flight(4);
    assert_true((first < 3 * NOOPS) != (other < NOOPS));
    assert_true(cgm_noops_step(&poller->noops, 1));
    assert_true(in_flight(1) + in_flight(2) + in_flight(3) < 3 * NOOPS);
    assert_true(in_flight(4) < NOOPS);
    drain();
    for (uint64_t i = 1; i <= 4; i++)
        remove_session(i);
    while (poller->losses) {
        cgm_losses_step(poller);
        drain();
    }
    assert_int_equal(poller->noops.n_noops, 0);
    assert_int_equal(poller->noops.n_looks, 0);
    assert_null(poller->noops.first);
}

static void test_sessions_take_turns(void **state)
{
    (void)state;
    add_session(2);
    add_session(3);
    remove_session(2);
    remove_session(3);
    for (uint32_t i = 0; i < 2; i++) {
        cgm_losses_step(poller);
        drain();
    }
    assert_in_range(in_flight(2), 1, NOOPS - 1);
    assert_int_equal(in_flight(3), in_flight(2));
    while (poller->losses) {
        cgm_losses_step(poller);
        drain();
    }
    assert_null(cgm_map_get(&poller->endpoints, 2));
    assert_null(cgm_map_get(&poller->endpoints, 3));
}

/* ---- comms ------------------------------------------------------------------------------------
 */

#define WORLD 2u
#define GANGS 600u
#define A_HANDFUL 5u /* of gangs, in a step */
#define ENTRIES 1024u

/* A comm, a plan and the sessions that hold the ranks. Their streams never come, so that what fails
 * ends at once. */
struct party {
    uint64_t id;
    struct cgm_comm *comm; /* of this id; freed when it was removed */
    struct cgm_plan plan;
    uint64_t last_number[WORLD];
    struct cgm_endpoint endpoint[WORLD];
    struct cgm_job jobs[WORLD][GANGS];
    uint64_t tickets[WORLD][GANGS];
};

static const struct cgm_algorithm algorithm = {.name = "none"};
static struct cgm_memory user; /* nothing lies there */
static struct party party, another;
static uint32_t serial; /* of the last request */

static uint64_t session_of(const struct party *p, uint32_t rank)
{
    return p->id * 100 + rank;
}

static struct cgm_comm *comm_new(uint64_t id)
{
    struct cgm_comm *comm = calloc(1, sizeof(*comm));
    assert_non_null(comm);
    comm->window = calloc(CGM_COMM_WINDOW, sizeof(*comm->window));
    assert_non_null(comm->window);
    comm->id = id;
    comm->poller = poller;
    comm->size = WORLD;
    assert_int_equal(cgm_map_add(&poller->comms, id, comm), CGM_OK);
    return comm;
}

static void party_open(struct party *p, uint64_t id)
{
    memset(p, 0, sizeof(*p));
    p->id = id;
    p->comm = comm_new(id);
    p->plan = (struct cgm_plan){.comm = p->comm, .algorithm = &algorithm, .user = {&user, &user}};
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        struct cgm_endpoint *endpoint = &p->endpoint[rank];
        int fd;
        p->comm->sessions[rank] = endpoint->session = session_of(p, rank);
        endpoint->poller = poller;
        endpoint->jobs = p->jobs[rank];
        endpoint->tickets = p->tickets[rank];
        assert_int_equal(cgm_ring_create(ENTRIES, endpoint->session, 1, &fd), CGM_OK);
        assert_int_equal(cgm_ring_join(fd, ENTRIES, &endpoint->ring), CGM_OK);
        close(fd);
    }
}

static struct cgm_job *next_job(struct party *p, uint32_t rank)
{
    struct cgm_endpoint *endpoint = &p->endpoint[rank];
    uint32_t slot = endpoint->used_jobs++;
    assert_true(slot < GANGS);
    endpoint->jobs[slot] = (struct cgm_job){.endpoint = endpoint,
                                            .plan = &p->plan,
                                            .ticket = slot + 1,
                                            .slot = slot,
                                            .opcode = CGM_OPCODE_RUN,
                                            .rank = rank};
    endpoint->tickets[slot] = slot + 1;
    endpoint->in_flight++;
    cgm_plan_ref(&p->plan);
    return &endpoint->jobs[slot];
}

static void submit(struct party *p, uint32_t rank, uint32_t count)
{
    while (count-- > 0) {
        struct cgm_job *job = next_job(p, rank);
        job->comm_number = ++p->last_number[rank];
        cgm_gang_submit(job);
    }
}

static void submit_local(struct party *p, uint32_t rank, uint32_t count)
{
    while (count-- > 0)
        cgm_gang_submit_local(next_job(p, rank));
}

static uint32_t left(const struct party *p, uint32_t rank)
{
    return p->endpoint[rank].in_flight;
}

static uint32_t all_left(const struct party *p)
{
    return left(p, 0) + left(p, 1);
}

static void lose_rank(struct party *p, uint32_t rank)
{
    cgm_comm_session_lost(p->comm, session_of(p, rank));
}

static void remove_comm(uint64_t id)
{
    Cgm__CommRemove *m = malloc(sizeof(*m));
    assert_non_null(m);
    cgm__comm_remove__init(m);
    m->comm = id;
    m->status = CGM_CANCELLED;
    struct cgm_request *request = request_of(&executor, 0, &m->base);
    request->serial = ++serial;
    cgm_comm_on_remove(request);
}

/* The type of what answers the last request; 0: nothing has come yet. */
static int answer(int flags)
{
    struct cgm_packet packet;
    while (recv(broker, NULL, 0, MSG_PEEK | flags) >= 0)
        if (cgm_packet_recv(broker, 0, &packet) == CGM_OK && packet.header.serial == serial)
            return packet.header.type;
    return 0;
}

/* Pieces until nothing of a comm is to fail any more, each a handful at most. */
static uint32_t finish_losses(struct party *p)
{
    uint32_t pieces = 0;
    for (uint32_t before = all_left(p); poller->losses; before = all_left(p), pieces++) {
        cgm_losses_step(poller);
        assert_true(before - all_left(p) <= A_HANDFUL);
    }
    return pieces;
}

static void expect_failed(const struct party *p, uint32_t rank, int status, const char *detail)
{
    const struct cgm_endpoint *endpoint = &p->endpoint[rank];
    assert_int_equal(endpoint->in_flight, 0);
    assert_int_equal(endpoint->cq_tail, endpoint->used_jobs);
    for (uint32_t i = 0; i < endpoint->cq_tail; i++) {
        assert_int_equal(endpoint->ring.cq[i].status, status);
        assert_non_null(strstr(endpoint->ring.cq[i].detail, detail));
    }
}

static void party_close(struct party *p)
{
    if (cgm_map_get(&poller->comms, p->id)) {
        remove_comm(p->id);
        finish_losses(p);
        assert_int_equal(answer(0), CGM_MSG_OK);
    }
    assert_int_equal(all_left(p), 0);
    assert_int_equal(p->plan.users, 0);
    assert_null(poller->gangs);
    assert_null(poller->losses);
    for (uint32_t rank = 0; rank < WORLD; rank++)
        cgm_ring_unmap(&p->endpoint[rank].ring);
}

static void test_a_lost_rank_fails_numbers_in_pieces(void **state)
{
    (void)state;
    party_open(&party, 1);
    submit(&party, 0, GANGS);
    lose_rank(&party, 1);
    assert_int_equal(left(&party, 0), GANGS);
    assert_true(finish_losses(&party) >= GANGS / A_HANDFUL);
    expect_failed(&party, 0, CGM_PEER_LOST, "rank 1 of comm 1 is gone");
    party_close(&party);
}

static void test_a_lost_rank_fails_its_own_in_pieces(void **state)
{
    (void)state;
    party_open(&party, 1);
    submit_local(&party, 0, GANGS);
    lose_rank(&party, 0);
    assert_true(finish_losses(&party) >= GANGS / A_HANDFUL);
    expect_failed(&party, 0, CGM_PEER_LOST, "rank 0 of comm 1 is gone");
    party_close(&party);
}

/* Those of others lie between the lost one's. */
static void test_what_others_do_alone_stays(void **state)
{
    (void)state;
    party_open(&party, 1);
    for (uint32_t i = 0; i < GANGS; i++) {
        submit_local(&party, 0, 1);
        submit_local(&party, 1, 1);
    }
    lose_rank(&party, 1);
    assert_true(finish_losses(&party) >= GANGS / A_HANDFUL);
    expect_failed(&party, 1, CGM_PEER_LOST, "rank 1 of comm 1 is gone");
    assert_int_equal(left(&party, 0), GANGS);
    party_close(&party);
}

static void test_who_comes_later_fails_at_once(void **state)
{
    (void)state;
    party_open(&party, 1);
    submit_local(&party, 1, 1);
    lose_rank(&party, 1);
    submit_local(&party, 1, 1);
    submit(&party, 1, 1);
    assert_int_equal(left(&party, 1), 1);
    finish_losses(&party);
    submit_local(&party, 1, 1);
    expect_failed(&party, 1, CGM_PEER_LOST, "rank 1 of comm 1 is gone");
    submit(&party, 0, 1);
    expect_failed(&party, 0, CGM_PEER_LOST, "rank 1 of comm 1 is gone");
    submit_local(&party, 0, 1);
    assert_int_equal(left(&party, 0), 1);
    party_close(&party);
}

static void test_a_removed_comm_is_there_until_the_last_piece(void **state)
{
    (void)state;
    party_open(&party, 1);
    submit_local(&party, 0, GANGS / 2);
    submit_local(&party, 1, GANGS / 2);
    submit(&party, 0, GANGS / 2);
    submit(&party, 1, GANGS / 4);
    remove_comm(1);
    assert_null(cgm_map_get(&poller->comms, 1));
    while (poller->losses) {
        assert_int_equal(answer(MSG_DONTWAIT), 0);
        assert_true(party.comm->users > 0);
        cgm_losses_step(poller);
    }
    assert_int_equal(answer(0), CGM_MSG_OK);
    expect_failed(&party, 0, CGM_CANCELLED, "the comm was removed");
    expect_failed(&party, 1, CGM_CANCELLED, "the comm was removed");
    party_close(&party);
}

static uint32_t count_moving(void)
{
    uint32_t count = 0;
    for (const struct cgm_gang *gang = poller->moving; gang;
         gang = gang->links[CGM_GANGS_MOVING].next)
        count++;
    return count;
}

/* There may be thousands, and a round of the poller goes through all that move. */
static void test_what_is_held_does_not_move(void **state)
{
    (void)state;
    cgm_task_list_init(&device.list);
    party_open(&party, 1);
    for (uint32_t i = 0; i < A_HANDFUL; i++) {
        atomic_store(&party.endpoint[0].ring.ready[i], i + 1);
        submit_local(&party, 0, 1);
    }
    assert_int_equal(count_moving(), A_HANDFUL);
    party.comm->runway.queued[0] = CGM_QUEUE_ROOM;
    for (uint32_t i = 0; i < A_HANDFUL && poller->moving; i++)
        cgm_gang_step(poller->moving, 1, false);
    assert_null(poller->moving);
    assert_int_equal(left(&party, 0), A_HANDFUL);
    party.comm->runway.queued[0] = 0;
    for (uint32_t i = 0; i < A_HANDFUL; i++) {
        assert_ptr_equal(poller->holding, party.comm);
        assert_true(cgm_runway_step(poller, 1));
        assert_int_equal(count_moving(), 1);
        cgm_gang_step(poller->moving, 1, false);
        assert_int_equal(left(&party, 0), A_HANDFUL - 1 - i);
    }
    assert_null(poller->holding);
    atomic_store(&poller->enqueuing, 0); /* no thread of the device did it */
    cgm_task_list_fini(&device.list);
    remove_comm(1);
    assert_int_equal(answer(0), CGM_MSG_OK);
    party_close(&party);
}

static void test_comms_take_turns(void **state)
{
    (void)state;
    party_open(&party, 1);
    party_open(&another, 2);
    submit(&party, 0, GANGS);
    submit_local(&another, 0, GANGS);
    lose_rank(&party, 1);
    remove_comm(2);
    for (uint32_t i = 0; i < MANY; i++) {
        cgm_losses_step(poller);
        cgm_losses_step(poller);
        assert_in_range(left(&party, 0), 1, GANGS - 1);
        assert_int_equal(left(&another, 0), left(&party, 0));
    }
    while (poller->losses)
        cgm_losses_step(poller);
    assert_int_equal(answer(0), CGM_MSG_OK);
    expect_failed(&party, 0, CGM_PEER_LOST, "rank 1 of comm 1 is gone");
    expect_failed(&another, 0, CGM_CANCELLED, "the comm was removed");
    party_close(&party);
    party_close(&another);
}

/* Each is the one that would be next: it is cancelled between two pieces. */
static void test_what_ends_by_itself_is_not_looked_at(void **state)
{
    (void)state;
    party_open(&party, 1);
    submit_local(&party, 0, GANGS);
    lose_rank(&party, 0);
    uint32_t pieces = 0;
    for (; party.comm->failing; pieces++) {
        cgm_losses_step(poller);
        if (party.comm->failing)
            cgm_gang_cancel(party.comm->failing->jobs[0], "cancelled");
    }
    assert_in_range(pieces, GANGS / (A_HANDFUL + 1), GANGS);
    finish_losses(&party);
    assert_int_equal(left(&party, 0), 0);
    party_close(&party);
}

/* When all are gone by themselves, there is nothing to fail. */
static void test_all_may_end_by_themselves(void **state)
{
    (void)state;
    party_open(&party, 1);
    submit_local(&party, 0, GANGS);
    remove_comm(1);
    cgm_losses_step(poller);
    for (uint32_t i = 0; i < GANGS; i++)
        if (party.tickets[0][i] != 0)
            cgm_gang_cancel(&party.jobs[0][i], "cancelled");
    assert_int_equal(left(&party, 0), 0);
    assert_int_equal(answer(MSG_DONTWAIT), 0);
    cgm_losses_step(poller);
    assert_int_equal(answer(0), CGM_MSG_OK);
    party_close(&party);
}

/* What the first loss had passed by is the second one's. */
static void test_a_second_lost_rank_starts_over(void **state)
{
    (void)state;
    party_open(&party, 1);
    for (uint32_t i = 0; i < GANGS; i++) {
        submit_local(&party, 0, 1);
        submit_local(&party, 1, 1);
    }
    lose_rank(&party, 1);
    while (left(&party, 1) > GANGS / 2)
        cgm_losses_step(poller);
    assert_int_equal(left(&party, 0), GANGS);
    lose_rank(&party, 0);
    assert_true(finish_losses(&party) >= GANGS / A_HANDFUL);
    expect_failed(&party, 0, CGM_PEER_LOST, "rank 1 of comm 1 is gone");
    expect_failed(&party, 1, CGM_PEER_LOST, "rank 1 of comm 1 is gone");
    party_close(&party);
}

static void test_a_comm_is_removed_in_the_middle(void **state)
{
    (void)state;
    party_open(&party, 1);
    submit_local(&party, 0, GANGS);
    submit_local(&party, 1, GANGS);
    lose_rank(&party, 0);
    while (left(&party, 0) > GANGS / 2)
        cgm_losses_step(poller);
    remove_comm(1);
    uint32_t first = serial;
    while (all_left(&party) > GANGS / 2)
        cgm_losses_step(poller);
    remove_comm(1); /* again */
    assert_int_equal(answer(MSG_DONTWAIT), CGM_MSG_ERROR);
    serial = first;
    assert_int_equal(answer(MSG_DONTWAIT), 0);
    finish_losses(&party);
    assert_int_equal(answer(0), CGM_MSG_OK);
    expect_failed(&party, 0, CGM_PEER_LOST, "rank 0 of comm 1 is gone");
    expect_failed(&party, 1, CGM_PEER_LOST, "rank 0 of comm 1 is gone");
    party_close(&party);
    serial++;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_session_ends_in_pieces),
        cmocka_unit_test(test_noops_take_turns),
        cmocka_unit_test(test_sessions_take_turns),
        cmocka_unit_test(test_a_lost_rank_fails_numbers_in_pieces),
        cmocka_unit_test(test_a_lost_rank_fails_its_own_in_pieces),
        cmocka_unit_test(test_what_others_do_alone_stays),
        cmocka_unit_test(test_who_comes_later_fails_at_once),
        cmocka_unit_test(test_a_removed_comm_is_there_until_the_last_piece),
        cmocka_unit_test(test_what_is_held_does_not_move),
        cmocka_unit_test(test_comms_take_turns),
        cmocka_unit_test(test_what_ends_by_itself_is_not_looked_at),
        cmocka_unit_test(test_all_may_end_by_themselves),
        cmocka_unit_test(test_a_second_lost_rank_starts_over),
        cmocka_unit_test(test_a_comm_is_removed_in_the_middle),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
