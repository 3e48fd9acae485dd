/* What threads of one session, and processes of one user, do to the same object at once: whichever
 * the daemon heard first, both sides count the same, and a call that fails undoes its own work and
 * no other's. */
#include "tests/daemon/broker_fixture.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "commgemm.h"
#include "tests/daemon/enter.h"
#include "tests/own_limit.h"

#define BYTES 4096u

struct scene {
    struct daemon daemon;
    struct client witness;
    commgemm_client *client;
};

/* Without the client, for who forks first. */
static int scene_start(void **state)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    daemon_init(&scene->daemon);
    daemon_start(&scene->daemon, REAL_EXECUTOR, "log_level=warning", NULL);
    client_open(&scene->witness, &scene->daemon);
    *state = scene;
    return 0;
}

static int scene_set_up(void **state)
{
    scene_start(state);
    struct scene *scene = *state;
    scene->client = enter(&scene->daemon);
    return 0;
}

static int scene_tear_down(void **state)
{
    struct scene *scene = *state;
    commgemm_disconnect(scene->client);
    client_close(&scene->witness);
    daemon_stop(&scene->daemon);
    free(scene);
    return 0;
}

/* ---- in turns ---------------------------------------------------------------------------------
 */

/* One thread undoes what the other does, both at the same time, again and again. */
struct turns {
    int (*undo)(commgemm_client *client, uint64_t id);
    commgemm_client *client;
    unsigned count;
    uint64_t id;
    pthread_barrier_t begin, end;
    int status; /* of the undo */
    pthread_t thread;
};

static void *undo_in_turns(void *argument)
{
    struct turns *turns = argument;
    for (unsigned i = 0; i < turns->count; i++) {
        pthread_barrier_wait(&turns->begin);
        turns->status = turns->undo(turns->client, turns->id);
        pthread_barrier_wait(&turns->end);
    }
    return NULL;
}

static void turns_start(struct turns *turns)
{
    pthread_barrier_init(&turns->begin, NULL, 2);
    pthread_barrier_init(&turns->end, NULL, 2);
    assert_int_equal(pthread_create(&turns->thread, NULL, undo_in_turns, turns), 0);
}

static void turns_end(struct turns *turns)
{
    pthread_join(turns->thread, NULL);
    pthread_barrier_destroy(&turns->begin);
    pthread_barrier_destroy(&turns->end);
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void test_a_close_beside_an_open(void **state)
{
    const struct scene *scene = *state;
    struct turns turns = {.undo = commgemm_buffer_close, .client = scene->client, .count = 3000};
    struct commgemm_buffer buffer;
    assert_int_equal(commgemm_buffer_create(turns.client, "turns", BYTES, -1, 0, 0, &buffer),
                     COMMGEMM_OK);
    turns.id = buffer.id;
    turns_start(&turns);
    for (unsigned i = 0; i < turns.count; i++) {
        pthread_barrier_wait(&turns.begin);
        assert_int_equal(commgemm_buffer_open(turns.client, "turns", 0, 0, &buffer), COMMGEMM_OK);
        pthread_barrier_wait(&turns.end);
        assert_int_equal(turns.status, COMMGEMM_OK);
        bool was_open = is_open(buffer.fd);
        int status = commgemm_buffer_close(turns.client, turns.id);
        assert_int_equal(status, was_open ? COMMGEMM_OK : COMMGEMM_NOT_FOUND);
        assert_int_equal(commgemm_buffer_open(turns.client, "turns", 0, 0, &buffer), COMMGEMM_OK);
    }
    turns_end(&turns);
    assert_int_equal(commgemm_buffer_close(turns.client, turns.id), COMMGEMM_OK);
    assert_int_equal(commgemm_buffer_destroy(turns.client, "turns"), COMMGEMM_OK);
}

static void plan_options(commgemm_client *client, const char *name,
                         struct commgemm_plan_options *ret_options)
{
    commgemm_plan_options_init(ret_options);
    assert_int_equal(commgemm_comm_join_simple(client, name, 1, 0, &ret_options->comm),
                     COMMGEMM_OK);
    ret_options->op = COMMGEMM_OP_AG;
    ret_options->m = ret_options->n = 8;
}

/* Both sides say the same. */
static bool is_held(commgemm_client *client, uint64_t plan)
{
    struct commgemm_chunk chunk;
    struct commgemm_job job;
    uint64_t ticket;
    int known = commgemm_plan_chunk(client, plan, 0, 0, &chunk);
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_BARRIER;
    job.plan = plan;
    assert_int_equal(commgemm_submit(client, &job, &ticket), known);
    if (known == COMMGEMM_OK)
        assert_int_equal(commgemm_wait(client, ticket, WAIT_S * 1000, NULL), COMMGEMM_OK);
    else
        assert_int_equal(known, COMMGEMM_NOT_FOUND);
    return known == COMMGEMM_OK;
}

static void test_a_plan_is_destroyed_beside_its_create(void **state)
{
    const struct scene *scene = *state;
    struct turns turns = {.undo = commgemm_plan_destroy, .client = scene->client, .count = 1000};
    struct commgemm_plan_options options;
    struct commgemm_plan plan;
    unsigned held = 0;
    plan_options(turns.client, "turns", &options);
    assert_int_equal(commgemm_plan_create(turns.client, &options, &plan), COMMGEMM_OK);
    turns.id = plan.id;
    turns_start(&turns);
    for (unsigned i = 0; i < turns.count; i++) {
        pthread_barrier_wait(&turns.begin);
        assert_int_equal(commgemm_plan_create(turns.client, &options, &plan), COMMGEMM_OK);
        pthread_barrier_wait(&turns.end);
        assert_int_equal(turns.status, COMMGEMM_OK);
        held += is_held(turns.client, turns.id);
        assert_int_equal(commgemm_plan_create(turns.client, &options, &plan), COMMGEMM_OK);
        assert_true(is_held(turns.client, turns.id));
    }
    turns_end(&turns);
    print_message("created last %u times\n", held);
}

static void test_a_comm_is_left_beside_a_create_of_its_plan(void **state)
{
    const struct scene *scene = *state;
    struct turns turns = {.undo = commgemm_comm_leave, .client = scene->client, .count = 300};
    struct commgemm_plan_options options;
    struct commgemm_plan plan;
    char name[32];
    turns_start(&turns);
    for (unsigned i = 0; i < turns.count; i++) {
        snprintf(name, sizeof(name), "turn%u", i);
        plan_options(turns.client, name, &options);
        assert_int_equal(commgemm_plan_create(turns.client, &options, &plan), COMMGEMM_OK);
        turns.id = options.comm;
        uint64_t id = plan.id;
        pthread_barrier_wait(&turns.begin);
        int status = commgemm_plan_create(turns.client, &options, &plan);
        pthread_barrier_wait(&turns.end);
        assert_true(status == COMMGEMM_OK || status == COMMGEMM_NOT_FOUND);
        assert_int_equal(turns.status, COMMGEMM_OK);
        assert_false(is_held(turns.client, id));
    }
    turns_end(&turns);
}

/* ---- without a place for the fd ---------------------------------------------------------------
 */

enum { OPENERS = 4, OPENINGS = 1500 };

struct opener {
    commgemm_client *client;
    uint64_t id;
    unsigned opened, refused, wrong;
    pthread_t thread;
};

/* There is room for one fd: whoever has it is the only one who has the buffer open. */
static void *open_and_close(void *argument)
{
    struct opener *opener = argument;
    struct commgemm_buffer buffer;
    for (unsigned i = 0; i < OPENINGS; i++) {
        int status = commgemm_buffer_open(opener->client, NULL, opener->id, 0, &buffer);
        opener->refused += status == COMMGEMM_NO_MEMORY;
        if (status == COMMGEMM_NO_MEMORY)
            continue;
        opener->opened++;
        opener->wrong += status != COMMGEMM_OK;
        opener->wrong += commgemm_buffer_rewritten(opener->client, &buffer) != COMMGEMM_OK;
        opener->wrong += commgemm_buffer_close(opener->client, opener->id) != COMMGEMM_OK;
    }
    return NULL;
}

static void test_opens_without_a_place(void **state)
{
    const struct scene *scene = *state;
    struct opener openers[OPENERS];
    struct commgemm_buffer buffer;
    commgemm_client *keeper = enter(&scene->daemon);
    unsigned opened = 0, refused = 0, wrong = 0;
    assert_int_equal(commgemm_buffer_create(keeper, NULL, BYTES, -1, 0, 0, &buffer), COMMGEMM_OK);
    rlim_t before = own_limit_fds(1);
    for (unsigned i = 0; i < OPENERS; i++) {
        openers[i] = (struct opener){.client = scene->client, .id = buffer.id};
        pthread_create(&openers[i].thread, NULL, open_and_close, &openers[i]);
    }
    for (unsigned i = 0; i < OPENERS; i++) {
        pthread_join(openers[i].thread, NULL);
        opened += openers[i].opened;
        refused += openers[i].refused;
        wrong += openers[i].wrong;
    }
    own_limit_set(RLIMIT_NOFILE, before);
    print_message("%u opened, %u refused\n", opened, refused);
    assert_int_equal(wrong, 0);
    assert_true(opened > 0);
    commgemm_disconnect(keeper);
}

/* ---- two processes ----------------------------------------------------------------------------
 */

enum { NAMES = 100 };

static void name_of(unsigned i, char *ret_name, size_t size)
{
    snprintf(ret_name, size, "shared%u", i);
}

/* Creates each name when it is told to, and never has a place for the fd. */
static void create_in_vain(const struct daemon *daemon, int peer)
{
    commgemm_client *client;
    struct commgemm_buffer buffer;
    char name[32], byte;
    if (try_to_enter(daemon->socket, &client) != COMMGEMM_OK)
        _exit(1);
    own_limit_fds(0);
    for (unsigned i = 0; read(peer, &byte, 1) == 1; i++) {
        name_of(i, name, sizeof(name));
        int status = commgemm_buffer_create(client, name, BYTES, -1, 0, 0, &buffer);
        byte = status == COMMGEMM_NO_MEMORY;
        if (write(peer, &byte, 1) != 1)
            break;
    }
    _exit(0);
}

static pid_t start_creator(const struct daemon *daemon, int *ret_peer)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(pair[0]);
        create_in_vain(daemon, pair[1]);
    }
    close(pair[1]);
    *ret_peer = pair[0];
    return pid;
}

/* While the other process creates it, and lets go of it. True: this one has had it. */
static bool have_one(commgemm_client *client, const char *name, bool anew,
                     struct commgemm_buffer *ret_buffer)
{
    int status = COMMGEMM_NOT_FOUND;
    for (unsigned i = 0; i < 200 && status != COMMGEMM_OK; i++)
        status = anew ? commgemm_buffer_destroy(client, name)
                      : commgemm_buffer_open(client, name, 0, 0, ret_buffer);
    if (status == COMMGEMM_OK && anew)
        status = commgemm_buffer_create(client, name, BYTES, -1, 0, 0, ret_buffer);
    return status == COMMGEMM_OK;
}

static void expect_named(commgemm_client *client, const char *name, uint64_t id)
{
    struct commgemm_buffer again;
    assert_int_equal(commgemm_buffer_open(client, name, 0, 0, &again), COMMGEMM_OK);
    assert_int_equal(again.id, id);
    assert_int_equal(commgemm_buffer_close(client, id), COMMGEMM_OK);
    assert_int_equal(commgemm_buffer_destroy(client, name), COMMGEMM_OK);
}

static void create_beside_one_in_vain(struct scene *scene, bool anew)
{
    struct commgemm_buffer buffer;
    char name[32], byte = 0;
    int peer, ended;
    unsigned had = 0;
    pid_t pid = start_creator(&scene->daemon, &peer);
    scene->client = enter(&scene->daemon);
    for (unsigned i = 0; i < NAMES; i++) {
        name_of(i, name, sizeof(name));
        assert_int_equal(write(peer, &byte, 1), 1);
        bool have = have_one(scene->client, name, anew, &buffer);
        assert_int_equal(read(peer, &byte, 1), 1);
        if (have)
            expect_named(scene->client, name, buffer.id);
        had += have;
        commgemm_buffer_destroy(scene->client, name);
    }
    close(peer);
    assert_int_equal(waitpid(pid, &ended, 0), pid);
    assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
    print_message("had it %u times of %d\n", had, NAMES);
}

/* Whoever has opened it keeps its name. */
static void test_an_open_beside_a_create_in_vain(void **state)
{
    create_beside_one_in_vain(*state, false);
}

/* What has the name now is another buffer. */
static void test_one_made_anew_beside_a_create_in_vain(void **state)
{
    create_beside_one_in_vain(*state, true);
}

int main(void)
{
#define AT_ONCE(test) cmocka_unit_test_setup_teardown(test, scene_set_up, scene_tear_down)
#define BEFORE_FORK(test) cmocka_unit_test_setup_teardown(test, scene_start, scene_tear_down)
    const struct CMUnitTest tests[] = {
        AT_ONCE(test_a_close_beside_an_open),
        AT_ONCE(test_a_plan_is_destroyed_beside_its_create),
        AT_ONCE(test_a_comm_is_left_beside_a_create_of_its_plan),
        AT_ONCE(test_opens_without_a_place),
        BEFORE_FORK(test_an_open_beside_a_create_in_vain),
        BEFORE_FORK(test_one_made_anew_beside_a_create_in_vain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
