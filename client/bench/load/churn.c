/* Objects that come and go. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "client/bench/load/load.h"

#define WARM_UP 200u /* what is kept for later use is there after so many */
#define AT_ONCE 100u
#define BUFFER_BYTES 65536u
#define WAIT_MS 60000

/* ---- sessions ---------------------------------------------------------------------------------
 */

static bool open_and_close(const struct cgm_load_server *server, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        commgemm_client *client;
        if (!cgm_load_connect(server, 16, &client))
            return false;
        commgemm_disconnect(client);
    }
    return true;
}

static bool measure(struct cgm_load_server *server, uint64_t count, const char *noun,
                    bool (*run)(const struct cgm_load_server *server, uint64_t count))
{
    struct cgm_usage before[2], after[2];
    if (!run(server, WARM_UP))
        return false;
    usleep(200000);
    before[0] = cgm_load_usage(server->daemon.pid);
    before[1] = cgm_load_usage(server->executor);
    uint64_t begin_ns = cgm_load_now_ns();
    if (!run(server, count))
        return false;
    double seconds = (double)(cgm_load_now_ns() - begin_ns) / 1e9;
    char text[64];
    printf("%llu %s\n", (unsigned long long)count, noun);
    cgm_load_figure("  each", seconds / (double)count * 1e6, "us", NULL);
    cgm_load_settle(server, before, after);
    snprintf(text, sizeof(text), "%llu", (unsigned long long)count);
    cgm_load_print_usage(text, before, after);
    return cgm_load_is_back(before, after);
}

bool cgm_load_sessions(uint64_t count)
{
    struct cgm_load_server server;
    bool right = cgm_load_start(&server, 2, "connection_rate=0") &&
                 measure(&server, count, "sessions opened and closed", open_and_close);
    cgm_private_daemon_stop(&server.daemon);
    return right;
}

/* ---- buffers ----------------------------------------------------------------------------------
 */

static bool create_and_destroy_some(commgemm_client *client, uint64_t count)
{
    struct commgemm_buffer buffers[AT_ONCE];
    char name[32];
    for (uint64_t i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "load.%llu", (unsigned long long)i);
        if (commgemm_buffer_create(client, i % 2 ? name : NULL, BUFFER_BYTES, -1, 0, 0,
                                   &buffers[i]))
            return cgm_load_fail("buffer");
    }
    for (uint64_t i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "load.%llu", (unsigned long long)i);
        if (i % 2 && commgemm_buffer_destroy(client, name))
            return cgm_load_fail("destroy");
        if (commgemm_buffer_close(client, buffers[i].id))
            return cgm_load_fail("close");
    }
    return true;
}

static bool create_and_destroy(const struct cgm_load_server *server, uint64_t count)
{
    commgemm_client *client;
    bool right = cgm_load_connect(server, 16, &client);
    if (!right)
        return false;
    for (uint64_t left = count; right && left > 0;) {
        uint64_t now = left < AT_ONCE ? left : AT_ONCE;
        right = create_and_destroy_some(client, now);
        left -= now;
    }
    commgemm_disconnect(client);
    return right;
}

bool cgm_load_buffers(uint64_t count)
{
    struct cgm_load_server server;
    bool right = cgm_load_start(&server, 2, "connection_rate=0") &&
                 measure(&server, count, "buffers created and destroyed", create_and_destroy);
    cgm_private_daemon_stop(&server.daemon);
    return right;
}

/* ---- a new executor ---------------------------------------------------------------------------
 */

/* The status of a job that does nothing. */
static int run_noop(commgemm_client *client)
{
    struct commgemm_job job;
    struct commgemm_completion done;
    uint64_t ticket;
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_NOOP;
    int status = commgemm_submit(client, &job, &ticket);
    if (status == COMMGEMM_OK)
        status = commgemm_wait(client, ticket, WAIT_MS, &done);
    return status == COMMGEMM_OK ? done.status : status;
}

/* From the kill to the first job that the next one has done. The old one may still do some. */
static bool kill_and_wait(const struct cgm_load_server *server, commgemm_client *client,
                          double *ret_seconds)
{
    uint64_t begin_ns = cgm_load_now_ns();
    bool lost = false;
    int status = COMMGEMM_OK;
    kill(server->executor, SIGKILL);
    while (!lost || status != COMMGEMM_OK) {
        status = run_noop(client);
        lost = lost || status != COMMGEMM_OK;
        if (status == COMMGEMM_EXECUTOR_LOST || status == COMMGEMM_NO_EXECUTOR)
            status = commgemm_wait_executor(client, WAIT_MS) ? status : COMMGEMM_TIMEOUT;
        else if (status != COMMGEMM_OK)
            return cgm_load_fail("a noop after the executor's death");
    }
    *ret_seconds = (double)(cgm_load_now_ns() - begin_ns) / 1e9;
    return true;
}

static bool make_buffers(commgemm_client *client, uint64_t count)
{
    struct commgemm_buffer buffer;
    char name[32];
    for (uint64_t i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "load.%llu", (unsigned long long)i);
        if (commgemm_buffer_create(client, name, BUFFER_BYTES, -1, 0, 0, &buffer))
            return cgm_load_fail("buffer");
    }
    return true;
}

bool cgm_load_restart(uint64_t count)
{
    struct cgm_load_server server;
    commgemm_client *client = NULL;
    double seconds = 0;
    bool right = cgm_load_start(&server, 2, NULL) && cgm_load_connect(&server, 16, &client) &&
                 make_buffers(client, count) && kill_and_wait(&server, client, &seconds);
    if (right) {
        printf("a killed executor's successor, with %llu buffers\n", (unsigned long long)count);
        cgm_load_figure("  from the kill to the first job done", seconds * 1e3, "ms",
                        "of it 100 until it is started");
    }
    commgemm_disconnect(client);
    cgm_private_daemon_stop(&server.daemon);
    return right;
}
