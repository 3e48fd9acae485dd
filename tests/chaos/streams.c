#include <stdlib.h>

#include "tests/chaos/client.h"
#include "tests/unit/fake_cuda.h"

#define RELEASE_MS 60000

void client_streams_init(struct client *c)
{
    if (c->part->streams)
        setenv("COMMGEMM_LIBCUDA", FAKE_CUDA, 1);
}

int client_stream_submit(struct client *c, uint32_t comm, const struct commgemm_job *job,
                         uint32_t late_us, uint64_t *ret_ticket)
{
    void **stream = &c->stream[comm][job->rank];
    if (!*stream)
        *stream = fake_stream_new(fake_context(job->rank % 2), 0);
    if (late_us)
        fake_stream_hold(*stream);
    int status = commgemm_submit_on_stream(c->session, job, *stream, ret_ticket);
    if (late_us) {
        chaos_sleep_us(late_us);
        fake_stream_release(*stream);
    }
    return status;
}

void client_streams_await(struct client *c)
{
    for (uint32_t i = 0; i < CHAOS_COMMS; i++)
        for (uint32_t rank = 0; rank < CHAOS_WORLD; rank++)
            if (c->stream[i][rank] && !fake_stream_is_done(c->stream[i][rank], RELEASE_MS))
                client_fail(c, "the stream of rank %u in comm %u was not released", rank, i);
    if (fake_cuda_complaint()[0])
        client_fail(c, "the driver was used wrongly: %s", fake_cuda_complaint());
}
