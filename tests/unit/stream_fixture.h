/* What the tests of jobs in the order of streams share: a session over a fake driver, and a stream.
 */
#ifndef STREAM_FIXTURE_H
#define STREAM_FIXTURE_H

#include "tests/unit/client_fixture.h"
#include "tests/unit/fake_cuda.h"

#define BOUND_MS 60000

/* Both words' registration, and a stream of context 0. */
struct streams {
    struct fixture f;
    void *stream;
};

static inline void streams_open(struct streams *s, const struct fake_options *fake,
                                uint32_t entries, unsigned depth)
{
    setenv("COMMGEMM_LIBCUDA", FAKE_CUDA, 1);
    fake_context_set(fake_context(1));
    fixture_open(&s->f, fake, entries, 0, 20000);
    s->stream = fake_stream_new(fake_context(0), depth);
}

static inline void streams_close(struct streams *s)
{
    fixture_close(&s->f);
    fake_stream_free(s->stream);
    assert_string_equal(fake_cuda_complaint(), "");
    assert_int_equal(fake_cuda_registered(), 0);
    fake_context_set(NULL);
}

static inline struct commgemm_job noop(uint64_t deadline_ms, int detached)
{
    struct commgemm_job job;
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_NOOP;
    job.deadline_ms = deadline_ms;
    job.detached = detached;
    return job;
}

static inline int submit(struct streams *s, void *stream, uint64_t deadline_ms, int detached,
                         uint64_t *ret_ticket)
{
    struct commgemm_job job = noop(deadline_ms, detached);
    return commgemm_submit_on_stream(s->f.client, &job, stream, ret_ticket);
}

static inline uint64_t submit_ok(struct streams *s, void *stream, uint64_t deadline_ms)
{
    uint64_t ticket = 0;
    assert_ok(submit(s, stream, deadline_ms, 0, &ticket));
    return ticket;
}

static inline int status_of(struct streams *s, uint64_t ticket)
{
    struct commgemm_completion done;
    int status = commgemm_wait(s->f.client, ticket, BOUND_MS, &done);
    assert_true(status == COMMGEMM_OK || status == COMMGEMM_DAEMON_LOST);
    return done.status;
}

static inline void assert_released(void *stream)
{
    assert_true(fake_stream_is_done(stream, BOUND_MS));
}

#endif
