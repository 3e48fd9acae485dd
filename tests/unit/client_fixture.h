/* What the tests of the client library share: a fake broker and a session on it. */
#ifndef CLIENT_FIXTURE_H
#define CLIENT_FIXTURE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdbool.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/include/commgemm.h"
#include "tests/unit/fake_broker.h"

#define assert_ok(call) assert_status(call, COMMGEMM_OK)
#define assert_status(call, wanted)                                                                \
    do {                                                                                           \
        int status_ = (call);                                                                      \
        if (status_ != (wanted))                                                                   \
            fail_msg("%s: %s (%s); wanted %s", #call, commgemm_status_name(status_),               \
                     commgemm_last_error(), commgemm_status_name(wanted));                         \
    } while (0)

/* The call fails with this status, and the detail says this. */
#define assert_refused(call, wanted, text)                                                         \
    do {                                                                                           \
        assert_status(call, wanted);                                                               \
        if (!strstr(commgemm_last_error(), text))                                                  \
            fail_msg("%s: \"%s\" does not contain \"%s\"", #call, commgemm_last_error(), text);    \
    } while (0)

struct fixture {
    struct fake_broker *fake;
    commgemm_client *client;
    struct commgemm_connect_options options;
};

static inline void fixture_open(struct fixture *fixture, const struct fake_options *fake,
                                uint32_t entries, int no_ring, uint64_t spin_ns)
{
    fixture->fake = fake_start(fake);
    commgemm_connect_options_init(&fixture->options);
    fixture->options.socket = fake_socket(fixture->fake);
    fixture->options.ring_entries = entries;
    fixture->options.no_ring = no_ring;
    fixture->options.spin_ns = spin_ns;
    assert_ok(commgemm_connect(&fixture->options, &fixture->client));
}

static inline void fixture_close(struct fixture *fixture)
{
    commgemm_disconnect(fixture->client);
    assert_string_equal(fake_complaint(fixture->fake), "");
    fake_stop(fixture->fake);
}

static inline uint64_t submit_noop(commgemm_client *client, uint64_t deadline_ms)
{
    struct commgemm_job job;
    uint64_t ticket = 0;
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_NOOP;
    job.deadline_ms = deadline_ms;
    assert_ok(commgemm_submit(client, &job, &ticket));
    return ticket;
}

static inline void plan_make(commgemm_client *client, uint64_t comm, int op, uint64_t m,
                             struct commgemm_plan *ret_plan)
{
    struct commgemm_plan_options options;
    commgemm_plan_options_init(&options);
    options.comm = comm;
    options.op = op;
    options.m = options.n = options.k = m;
    assert_ok(commgemm_plan_create(client, &options, ret_plan));
}

/* Two ranks of a comm of four. */
static inline uint64_t comm_make(commgemm_client *client)
{
    struct commgemm_join_options join;
    const uint32_t ranks[] = {1, 2};
    uint64_t comm;
    commgemm_join_options_init(&join);
    join.name = "comm";
    join.create = 1;
    join.size = 4;
    join.ranks = ranks;
    join.n_ranks = 2;
    assert_ok(commgemm_comm_join(client, &join, &comm));
    return comm;
}

static inline double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline void seed_random(void)
{
    const char *given = getenv("TEST_SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL) ^ getpid();
    print_message("TEST_SEED=%u\n", seed);
    srand(seed);
}

#endif
