/* Listings of jobs: all of them, page by page, and of a round of the poller's no more than a page,
 * however many ask and whatever lies there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/executor/endpoint.h"
#include "daemon/executor/executor.h"
#include "daemon/executor/plan.h"
#include "daemon/executor/query.h"
#include "proto/journal.h"
#include "proto/messages.h"
#include "proto/status.h"
#include "tests/unit/request_fixture.h"

#define SESSIONS 40u
#define ENTRIES 64u
#define ROWS_AT_ONCE 50u /* no page has more */
#define PAGES_MAX 10000u
#define QUERIES 20u

static struct cgm_journal journal;
static const struct cgm_backend_ops ops = {.name = "none"};
static struct cgm_executor executor = {.journal = &journal, .ops = &ops};
static struct cgm_poller *const poller = &executor.poller;
static int broker;
static struct cgm_packet packet;

static void add_session(uint64_t session)
{
    Cgm__SessionAdd *m = malloc(sizeof(*m));
    assert_non_null(m);
    cgm__session_add__init(m);
    m->session = session;
    cgm_endpoint_on_add(request_of(&executor, 0, &m->base));
    assert_non_null(cgm_map_get(&poller->endpoints, session));
}

/* Without a ring; noops, as if their streams had not come. */
static void add_jobs(uint64_t session, uint32_t jobs)
{
    struct cgm_endpoint *endpoint = cgm_map_get(&poller->endpoints, session);
    for (uint32_t i = 0; i < jobs; i++) {
        struct cgm_job *job = &endpoint->jobs[endpoint->used_jobs];
        *job = (struct cgm_job){.endpoint = endpoint, .ticket = i + 1};
        endpoint->tickets[endpoint->used_jobs++] = i + 1;
        endpoint->in_flight++;
        cgm_noops_enter(&poller->noops, job);
    }
}

static void remove_session(uint64_t session)
{
    Cgm__SessionRemove *m = malloc(sizeof(*m));
    assert_non_null(m);
    cgm__session_remove__init(m);
    m->session = session;
    cgm_endpoint_on_remove(request_of(&executor, 0, &m->base));
    while (poller->losses)
        cgm_losses_step(poller);
    assert_null(cgm_map_get(&poller->endpoints, session));
}

static void ask(uint32_t serial, uint32_t what, uint64_t after)
{
    Cgm__Query *m = malloc(sizeof(*m));
    assert_non_null(m);
    cgm__query__init(m);
    m->what = what;
    m->has_after = after != 0;
    m->after = after;
    cgm_query_on_query(request_of(&executor, serial, &m->base));
}

/* The caller's; NULL: there is none. */
static Cgm__QueryReply *take_answer(uint32_t serial)
{
    do /* events of jobs that end lie there, too */
        if (cgm_packet_recv(broker, MSG_DONTWAIT, &packet) != CGM_OK)
            return NULL;
    while (packet.header.type != CGM_MSG_QUERY_REPLY);
    assert_int_equal(packet.header.serial, serial);
    Cgm__QueryReply *reply = (Cgm__QueryReply *)cgm_packet_unpack(&packet);
    assert_non_null(reply);
    return reply;
}

static uint64_t number_of(const Cgm__Row *row, const char *key)
{
    for (size_t i = 0; i < row->n_key; i++)
        if (strcmp(row->key[i], key) == 0)
            return strtoull(row->value[i], NULL, 10);
    fail_msg("no %s", key);
    return 0;
}

static void expect(const Cgm__Row *row, const char *key, const char *value)
{
    for (size_t i = 0; i < row->n_key; i++)
        if (strcmp(row->key[i], key) == 0)
            assert_string_equal(row->value[i], value);
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
    for (uint64_t session = 1; session <= SESSIONS; session++)
        add_session(1 + (session * 7) % SESSIONS); /* in any order */
    for (uint64_t session = 2; session <= SESSIONS; session++)
        add_jobs(session, ENTRIES);
    return 0;
}

/* Every job of every session once. */
static void test_all_jobs_are_listed(void **state)
{
    uint64_t after = 0, rows = 0, last = 0;
    bool more = true;
    (void)state;
    for (uint32_t page = 1; more; page++) {
        assert_in_range(page, 1, PAGES_MAX);
        ask(page, CGM_QUERY_JOBS, after);
        assert_true(cgm_query_step(poller));
        Cgm__QueryReply *reply = take_answer(page);
        assert_non_null(reply);
        assert_in_range(reply->n_row, 0, ROWS_AT_ONCE);
        for (size_t i = 0; i < reply->n_row; i++) {
            uint64_t now = number_of(reply->row[i], "session") * (ENTRIES + 1) +
                           number_of(reply->row[i], "ticket");
            assert_true(now > last);
            last = now;
        }
        rows += reply->n_row;
        more = reply->has_next;
        if (more)
            assert_true(reply->next > after);
        after = reply->next;
        cgm_message_free(&reply->base);
    }
    assert_int_equal(rows, (SESSIONS - 1) * ENTRIES);
}

/* From every cursor there is an end. */
static void test_any_cursor_ends(void **state)
{
    static const uint64_t cursors[] = {1, 8191, 8192, 8193, 1ull << 40, UINT64_MAX - 1, UINT64_MAX};
    (void)state;
    for (size_t i = 0; i < sizeof(cursors) / sizeof(cursors[0]); i++) {
        uint64_t after = cursors[i];
        for (bool more = true; more;) {
            ask(7, CGM_QUERY_JOBS, after);
            assert_true(cgm_query_step(poller));
            Cgm__QueryReply *reply = take_answer(7);
            assert_non_null(reply);
            more = reply->has_next;
            assert_true(!more || reply->next > after);
            after = reply->next;
            cgm_message_free(&reply->base);
        }
    }
}

static void test_one_at_a_time(void **state)
{
    (void)state;
    assert_false(cgm_query_step(poller));
    for (uint32_t i = 1; i <= QUERIES; i++)
        ask(i, i % 2 ? CGM_QUERY_JOBS : CGM_QUERY_ALGORITHMS, 0);
    for (uint32_t i = 1; i <= QUERIES; i++) {
        assert_null(take_answer(i));
        assert_true(cgm_query_step(poller));
        Cgm__QueryReply *reply = take_answer(i);
        assert_non_null(reply);
        cgm_message_free(&reply->base);
    }
    assert_false(cgm_query_step(poller));
}

/* A session that went is no end of a listing that had come to it. */
static void test_listing_goes_on_behind_who_went(void **state)
{
    (void)state;
    ask(1, CGM_QUERY_JOBS, 0);
    assert_true(cgm_query_step(poller));
    Cgm__QueryReply *reply = take_answer(1);
    assert_non_null(reply);
    assert_int_equal(number_of(reply->row[reply->n_row - 1], "session"), 2);
    assert_true(reply->has_next);
    remove_session(2);
    ask(2, CGM_QUERY_JOBS, reply->next);
    cgm_message_free(&reply->base);
    assert_true(cgm_query_step(poller));
    reply = take_answer(2);
    assert_non_null(reply);
    assert_int_equal(number_of(reply->row[0], "session"), 3);
    assert_int_equal(number_of(reply->row[0], "ticket"), 1);
    cgm_message_free(&reply->base);
}

/* Not all that name a plan run it. */
static void test_jobs_are_named(void **state)
{
    static const char *const names[] = {"\"noop\"", "\"bulk_ag\"", "\"copy_in\"", "\"barrier\""};
    static const struct cgm_algorithm algorithm = {.name = "bulk_overlap_ag"};
    static struct cgm_comm comm = {.id = 7};
    static struct cgm_plan plan = {.comm = &comm, .algorithm = &algorithm};
    struct cgm_endpoint *endpoint = cgm_map_get(&poller->endpoints, 1);
    (void)state;
    plan.spec.op = CGM_OP_BULK_AG;
    add_jobs(1, 4);
    for (uint32_t i = 0; i < 4; i++) {
        endpoint->jobs[i].opcode = i;
        endpoint->jobs[i].plan = i == CGM_OPCODE_NOOP ? NULL : &plan;
    }
    ask(1, CGM_QUERY_JOBS, 0);
    assert_true(cgm_query_step(poller));
    Cgm__QueryReply *reply = take_answer(1);
    assert_non_null(reply);
    for (uint32_t i = 0; i < 4; i++) {
        expect(reply->row[i], "op", names[i]);
        expect(reply->row[i], "algorithm", i == CGM_OPCODE_RUN ? "\"bulk_overlap_ag\"" : "\"\"");
        endpoint->jobs[i].plan = NULL;
    }
    cgm_message_free(&reply->base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_jobs_are_listed),
        cmocka_unit_test(test_any_cursor_ends),
        cmocka_unit_test(test_one_at_a_time),
        cmocka_unit_test(test_listing_goes_on_behind_who_went),
        cmocka_unit_test(test_jobs_are_named),
    };
    return cmocka_run_group_tests_name("query", tests, open_all, NULL);
}
