/* How long an entry waits behind those of other users, counted in entries: no longer because one
 * of them has many rings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/executor/cancels.h"
#include "daemon/executor/endpoint.h"
#include "daemon/executor/executor.h"
#include "daemon/executor/rings.h"
#include "proto/journal.h"
#include "proto/messages.h"
#include "proto/status.h"

#define ENTRIES 128u
#define CROWD 200u /* rings of one user */
#define CROWD_UID 65534u
#define ANOTHER_UID 1000u
#define MS 1000000u
/* Of a round's looks. */
#define MOST (CGM_RINGS_LOOKS / CGM_RINGS_LOOKS_PER_ENTRY)
#define MOST_SHARED (CGM_RINGS_LOOKS_SHARED / CGM_RINGS_LOOKS_PER_ENTRY)
/* More rounds than it takes to look at every ring of the crowd. */
#define CIRCLE (2 * CROWD / CGM_RINGS_LOOKS_SHARED + 1)

struct party {
    struct cgm_endpoint endpoint;
    uint32_t submitted;
};

struct scene {
    struct cgm_rings rings;
    struct party crowd[CROWD], another;
};

static struct cgm_journal journal;
static struct cgm_executor executor = {.journal = &journal};

static void open_party(struct scene *scene, struct party *party, uint32_t uid)
{
    struct cgm_endpoint *endpoint = &party->endpoint;
    int fd;
    *endpoint = (struct cgm_endpoint){
        .poller = &executor.poller, .uid = uid, .entries = ENTRIES, .ring_fd = -1, .notify_fd = -1};
    assert_int_equal(cgm_ring_create(ENTRIES, 1, 1, &fd), CGM_OK);
    assert_int_equal(cgm_ring_map(fd, ENTRIES, &endpoint->ring), CGM_OK);
    close(fd);
    endpoint->jobs = calloc(ENTRIES, sizeof(*endpoint->jobs));
    endpoint->tickets = calloc(ENTRIES, sizeof(*endpoint->tickets));
    endpoint->noops = cgm_noops_join(&executor.poller.noops, uid);
    assert_true(endpoint->jobs && endpoint->tickets && endpoint->noops);
    assert_int_equal(cgm_rings_add(&scene->rings, endpoint), CGM_OK);
}

static void close_party(struct scene *scene, struct party *party)
{
    struct cgm_endpoint *endpoint = &party->endpoint;
    assert_true(cgm_rings_remove(&scene->rings, endpoint));
    assert_false(cgm_rings_remove(&scene->rings, endpoint));
    cgm_ring_unmap(&endpoint->ring);
    cgm_noops_part(&executor.poller.noops, endpoint->noops);
    free(endpoint->jobs);
    free(endpoint->tickets);
}

static struct scene *scene_open(void)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    assert_non_null(scene);
    executor.poller.executor = &executor;
    for (uint32_t i = 0; i < CROWD; i++)
        open_party(scene, &scene->crowd[i], CROWD_UID);
    return scene;
}

static void scene_close(struct scene *scene)
{
    for (uint32_t i = 0; i < CROWD; i++)
        close_party(scene, &scene->crowd[i]);
    assert_true(!scene->rings.first && scene->rings.n_rings == 0 && scene->rings.n_users == 0);
    free(scene);
}

/* A job of a plan that is not there. */
static void submit(struct party *party)
{
    struct cgm_ring *ring = &party->endpoint.ring;
    uint32_t slot = party->submitted & ring->mask;
    ring->entry[slot] =
        (struct cgm_entry){.ticket = ++party->submitted, .opcode = CGM_OPCODE_RUN, .plan = 77};
    atomic_store(&ring->sq[slot], slot);
    atomic_store(&ring->header->sq_tail, party->submitted);
}

/* All that was completed is reaped, and the ring full again. */
static void fill(struct party *party)
{
    struct cgm_ring_header *header = party->endpoint.ring.header;
    atomic_store(&header->cq_head, atomic_load(&header->cq_tail));
    while (party->submitted - atomic_load(&header->cq_tail) < ENTRIES)
        submit(party);
}

static void fill_crowd(struct scene *scene)
{
    for (uint32_t i = 0; i < CROWD; i++)
        fill(&scene->crowd[i]);
}

static uint32_t taken_of_crowd(const struct scene *scene)
{
    uint32_t taken = 0;
    for (uint32_t i = 0; i < CROWD; i++)
        taken += scene->crowd[i].endpoint.accepted;
    return taken;
}

/* One round at the time; how many of the crowd's entries it took. */
static uint32_t round_at(struct scene *scene, uint64_t now_ns)
{
    uint32_t before = taken_of_crowd(scene);
    fill_crowd(scene);
    assert_true(cgm_rings_drain(&scene->rings, now_ns));
    return taken_of_crowd(scene) - before;
}

static void test_many_rings_of_one_user_are_no_more_than_one(void **state)
{
    struct scene *scene = scene_open();
    uint64_t now_ns = MS;
    (void)state;
    open_party(scene, &scene->another, ANOTHER_UID);
    for (uint32_t i = 0; i < 10; i++)
        assert_in_range(round_at(scene, now_ns += MS), 1, MOST);
    for (uint32_t i = 1; i <= 10; i++) {
        submit(&scene->another);
        assert_in_range(round_at(scene, now_ns += MS), 1, i == 1 ? MOST : MOST_SHARED);
        assert_int_equal(scene->another.endpoint.accepted, i);
    }
    /* The crowd goes on as fast as before when the other has been silent for long. */
    now_ns += CGM_RINGS_LATELY_NS + MS;
    round_at(scene, now_ns += MS);
    assert_in_range(round_at(scene, now_ns += MS), MOST_SHARED + 1, MOST);
    close_party(scene, &scene->another);
    scene_close(scene);
}

static void test_every_ring_has_its_turn(void **state)
{
    struct scene *scene = scene_open();
    (void)state;
    open_party(scene, &scene->another, ANOTHER_UID);
    for (uint32_t i = 0; i < CROWD; i++) {
        submit(&scene->another);
        round_at(scene, MS);
    }
    for (uint32_t i = 0; i < CROWD; i++) {
        struct cgm_endpoint *endpoint = &scene->crowd[i].endpoint;
        assert_in_range(endpoint->accepted, 1, 2 * MOST);
        assert_int_equal(endpoint->accepted, endpoint->last_ticket); /* in order */
    }
    close_party(scene, &scene->another);
    scene_close(scene);
}

static void test_who_is_alone_waits_for_nobody(void **state)
{
    struct scene *scene = scene_open();
    (void)state;
    assert_int_equal(round_at(scene, MS), CROWD * CGM_RINGS_ENTRIES_AT_ONCE);
    scene_close(scene);
}

/* A round that did not come to it ends with the poller's look before it sleeps. */
static void test_work_behind_many_idle_rings_is_found(void **state)
{
    struct scene *scene = scene_open();
    (void)state;
    open_party(scene, &scene->another, ANOTHER_UID);
    submit(&scene->another);
    assert_true(cgm_rings_drain(&scene->rings, MS));
    assert_false(cgm_rings_have_work(&scene->rings));
    submit(&scene->crowd[CROWD - 1]);
    assert_true(cgm_rings_have_work(&scene->rings));
    assert_true(cgm_rings_drain(&scene->rings, MS));
    assert_int_equal(scene->crowd[CROWD - 1].endpoint.accepted, 1);
    submit(&scene->crowd[CROWD / 2]);
    for (uint32_t i = 0; i < CIRCLE; i++)
        cgm_rings_drain(&scene->rings, MS);
    assert_int_equal(scene->crowd[CROWD / 2].endpoint.accepted, 1);
    close_party(scene, &scene->another);
    scene_close(scene);
}

/* ---- cancelling -----------------------------------------------------------------------------
 */

static void cancel(uint64_t session, uint64_t ticket)
{
    Cgm__CancelForward *m = malloc(sizeof(*m));
    struct cgm_request *request = calloc(1, sizeof(*request));
    assert_true(m && request);
    cgm__cancel_forward__init(m);
    m->session = session;
    m->ticket = ticket;
    request->packet = calloc(1, sizeof(*request->packet));
    request->executor = &executor;
    request->type = CGM_MSG_CANCEL_FORWARD;
    request->message = &m->base;
    cgm_cancels_on_request(request);
}

/* Of session 5, whose ring is full. */
static struct cgm_endpoint *begin_cancelling(struct scene *scene)
{
    struct party *party = &scene->crowd[0];
    party->endpoint.session = 5;
    assert_int_equal(cgm_map_add(&executor.poller.endpoints, 5, &party->endpoint), CGM_OK);
    while (party->submitted < ENTRIES)
        submit(party);
    return &party->endpoint;
}

static void end_cancelling(struct scene *scene)
{
    cgm_map_fini(&executor.poller.endpoints);
    scene_close(scene);
}

/* Nobody waits until a ring that is full of other entries is empty. */
static void test_cancel_waits_for_its_entry(void **state)
{
    struct scene *scene = scene_open();
    struct cgm_endpoint *endpoint = begin_cancelling(scene);
    (void)state;
    endpoint->ring.entry[ENTRIES - 1].opcode = CGM_OPCODE_NOOP; /* its stream never comes */
    cancel(5, ENTRIES);
    cancel(5, ENTRIES + 1);
    assert_int_equal(endpoint->accepted, 0);
    assert_non_null(endpoint->cancels);
    while (endpoint->accepted < ENTRIES)
        assert_int_equal(cgm_endpoint_drain(endpoint, 16), 16);
    assert_null(endpoint->cancels);
    assert_int_equal(endpoint->in_flight, 0);
    assert_int_equal(endpoint->ring.cq[ENTRIES - 1].status, CGM_CANCELLED);
    cancel(5, 1);
    assert_null(endpoint->cancels);
    end_cancelling(scene);
}

/* The poller's other work goes on between them, and it does not sleep before they are done. */
static void test_many_cancels_take_turns(void **state)
{
    struct scene *scene = scene_open();
    struct cgm_endpoint *endpoint = begin_cancelling(scene);
    (void)state;
    for (uint64_t ticket = 1; ticket <= ENTRIES; ticket++)
        cancel(5, ticket);
    assert_int_equal(cgm_endpoint_drain(endpoint, ENTRIES), ENTRIES);
    assert_non_null(endpoint->cancels);
    assert_true(cgm_endpoint_has_work(endpoint));
    assert_int_equal(cgm_endpoint_drain(endpoint, ENTRIES), 0);
    assert_null(endpoint->cancels);
    assert_false(cgm_endpoint_has_work(endpoint));
    end_cancelling(scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_rings_of_one_user_are_no_more_than_one),
        cmocka_unit_test(test_every_ring_has_its_turn),
        cmocka_unit_test(test_who_is_alone_waits_for_nobody),
        cmocka_unit_test(test_work_behind_many_idle_rings_is_found),
        cmocka_unit_test(test_cancel_waits_for_its_entry),
        cmocka_unit_test(test_many_cancels_take_turns),
    };
    return cmocka_run_group_tests_name("rings", tests, NULL, NULL);
}
