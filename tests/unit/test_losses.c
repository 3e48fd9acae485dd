/* What ends with a session ends piece by piece, and the sessions in turns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/executor/endpoint.h"
#include "daemon/executor/executor.h"
#include "daemon/executor/losses.h"
#include "proto/journal.h"
#include "proto/messages.h"
#include "proto/status.h"

#define NOOPS CGM_RING_ENTRIES_DEFAULT
#define MANY 10u /* fewer pieces say nothing */

static struct cgm_journal journal;
static const struct cgm_backend_ops ops = {.name = "none"};
static struct cgm_executor executor = {.journal = &journal, .ops = &ops};
static struct cgm_poller *const poller = &executor.poller;
static int broker;

static struct cgm_request *request_of(ProtobufCMessage *message)
{
    struct cgm_request *request = calloc(1, sizeof(*request));
    assert_non_null(request);
    request->packet = calloc(1, sizeof(*request->packet));
    assert_non_null(request->packet);
    request->executor = &executor;
    request->message = message;
    return request;
}

/* Without a ring, with as many noops as it may have. */
static void add_session(uint64_t session)
{
    Cgm__SessionAdd *m = malloc(sizeof(*m));
    assert_non_null(m);
    cgm__session_add__init(m);
    m->session = session;
    cgm_endpoint_on_add(request_of(&m->base));
    struct cgm_endpoint *endpoint = cgm_map_get(&poller->endpoints, session);
    assert_non_null(endpoint);
    for (uint32_t i = 0; i < NOOPS; i++) {
        endpoint->jobs[i] = (struct cgm_job){.endpoint = endpoint, .ticket = i + 1};
        endpoint->tickets[i] = i + 1;
        cgm_noops_enter(&poller->noops, &endpoint->jobs[i]);
    }
    endpoint->used_jobs = endpoint->in_flight = NOOPS;
}

static void remove_session(uint64_t session)
{
    Cgm__SessionRemove *m = malloc(sizeof(*m));
    assert_non_null(m);
    cgm__session_remove__init(m);
    m->session = session;
    cgm_endpoint_on_remove(request_of(&m->base));
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
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    cgm_worker_stop(&executor.sweeper);
    close(broker);
    close(executor.link);
    return 0;
}

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
    assert_null(poller->noops.first);
    assert_null(cgm_map_get(&poller->endpoints, 1));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_session_ends_in_pieces),
        cmocka_unit_test(test_sessions_take_turns),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
