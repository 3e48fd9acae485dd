/* Two users of one daemon, each a process of its own: what one may do with the other's objects. */
#include "tests/daemon/broker_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "commgemm.h"
#include "tests/fault/product.h"
#include "tests/send_signal.h"

#define ANN 21001u
#define BOB 21002u
#define BYTES 4096u
#define WAIT_MS (WAIT_S * 1000)
#define JOBS 20u

/* In the children: says what does not hold, and ends. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "uid %u, line %d: not %s; %s\n", getuid(), __LINE__, #condition,       \
                    commgemm_last_error());                                                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* What the two tell each other, and how far they are. */
struct shared {
    char socket[128];
    uint64_t seed;
    _Atomic int ann_is_at, bob_is_at;
    uint64_t private_id, import_id, plan_id, session, closed_comm;
};

static void wait_for_step(const _Atomic int *where, int step)
{
    for (int naps = 0; atomic_load(where) < step; naps++) {
        CHECK(naps < WAIT_S * 1000);
        usleep(1000);
    }
}

static commgemm_client *connect_to(const struct shared *shared)
{
    struct commgemm_connect_options options;
    commgemm_client *client;
    commgemm_connect_options_init(&options);
    options.socket = shared->socket;
    CHECK(commgemm_connect(&options, &client) == COMMGEMM_OK);
    CHECK(commgemm_wait_executor(client, WAIT_MS) == COMMGEMM_OK);
    return client;
}

static void plan_new(commgemm_client *client, uint64_t comm, int op, struct commgemm_plan *ret_plan)
{
    struct commgemm_plan_options options;
    commgemm_plan_options_init(&options);
    options.comm = comm;
    options.op = op;
    options.m = PRODUCT_M;
    options.n = PRODUCT_N;
    options.k = PRODUCT_K;
    CHECK(commgemm_plan_create(client, &options, ret_plan) == COMMGEMM_OK);
}

static void buffer_new(commgemm_client *client, const char *name, uint32_t mode,
                       struct commgemm_buffer *ret_buffer)
{
    CHECK(commgemm_buffer_create(client, name, BYTES, -1, mode, 0, ret_buffer) == COMMGEMM_OK);
    CHECK(commgemm_buffer_write(client, ret_buffer, 0, "Ann's\0\0", 8) == COMMGEMM_OK);
}

static bool says(commgemm_client *client, const struct commgemm_buffer *buffer, const char *text)
{
    char bytes[8];
    CHECK(commgemm_buffer_read(client, buffer, 0, bytes, sizeof(bytes)) == COMMGEMM_OK);
    return strcmp(bytes, text) == 0;
}

/* ---- together ---------------------------------------------------------------------------------
 */

static float *map(commgemm_client *client, struct commgemm_buffer *ret_buffer)
{
    void *address;
    CHECK(commgemm_buffer_create(client, NULL, PRODUCT_BYTES_MAX, -1, 0, 0, ret_buffer) ==
          COMMGEMM_OK);
    CHECK(commgemm_buffer_map(client, ret_buffer, &address) == COMMGEMM_OK);
    return address;
}

/* A rank reads the plan's user buffers of all ranks, and writes its own alone. */
static void try_user_buffers(commgemm_client *client, const struct commgemm_plan *plan,
                             uint32_t rank)
{
    struct commgemm_chunk own, other;
    struct commgemm_buffer buffer;
    CHECK(commgemm_plan_chunk(client, plan->id, rank, COMMGEMM_WHOLE_BUFFER, &own) == COMMGEMM_OK);
    CHECK(commgemm_plan_chunk(client, plan->id, !rank, COMMGEMM_WHOLE_BUFFER, &other) ==
          COMMGEMM_OK);
    CHECK(commgemm_buffer_open(client, NULL, own.buffer, 0, &buffer) == COMMGEMM_OK);
    CHECK(commgemm_buffer_write(client, &buffer, 0, "mine\0\0\0", 8) == COMMGEMM_OK);
    CHECK(commgemm_buffer_open(client, NULL, other.buffer, 0, &buffer) == COMMGEMM_PERMISSION);
    CHECK(commgemm_buffer_open(client, NULL, other.buffer, 1, &buffer) == COMMGEMM_OK);
    CHECK(commgemm_buffer_write(client, &buffer, 0, "mine\0\0\0", 8) != COMMGEMM_OK);
    CHECK(mmap(NULL, BYTES, PROT_WRITE, MAP_SHARED, buffer.fd, 0) == MAP_FAILED);
}

/* Both are ranks of a comm that lets them in, with memory of their own. */
static void work_together(commgemm_client *client, struct shared *shared, uint32_t rank)
{
    struct commgemm_join_options join;
    struct commgemm_buffer lhs, rhs, out;
    struct commgemm_plan plan;
    uint64_t comm, ticket;
    float *a = map(client, &lhs), *b = map(client, &rhs), *c = map(client, &out);
    commgemm_join_options_init(&join);
    join.name = "both";
    join.create = 1;
    join.size = PRODUCT_WORLD;
    join.mode = 0606;
    join.ranks = &rank;
    join.n_ranks = 1;
    CHECK(commgemm_comm_join(client, &join, &comm) == COMMGEMM_OK);
    plan_new(client, comm, COMMGEMM_OP_AG_GEMM, &plan);
    try_user_buffers(client, &plan, rank);
    for (uint64_t i = 0; i < JOBS; i++) {
        struct commgemm_completion done;
        struct commgemm_job job;
        product_lhs(COMMGEMM_OP_AG_GEMM, shared->seed + i, rank, a);
        product_rhs(COMMGEMM_OP_AG_GEMM, shared->seed + i, rank, b);
        commgemm_job_init(&job);
        job.plan = plan.id;
        job.rank = rank;
        job.lhs = commgemm_operand_at(&lhs, 0);
        job.rhs = commgemm_operand_at(&rhs, 0);
        job.out = commgemm_operand_at(&out, 0);
        CHECK(commgemm_submit(client, &job, &ticket) == COMMGEMM_OK);
        CHECK(commgemm_wait(client, ticket, WAIT_MS, &done) == COMMGEMM_OK);
        CHECK(done.status == COMMGEMM_OK);
        commgemm_completion_fini(&done);
        CHECK(product_is_right(COMMGEMM_OP_AG_GEMM, shared->seed + i, rank, c));
    }
}

/* ---- Ann owns things --------------------------------------------------------------------------
 */

static void be_ann(struct shared *shared)
{
    commgemm_client *client = connect_to(shared);
    struct commgemm_buffer private, readable, common;
    struct commgemm_segment segment = {.kind = COMMGEMM_SEGMENT_FD, .length = BYTES};
    struct commgemm_info info;
    struct commgemm_plan plan;
    uint64_t comm;
    uint32_t generation;
    buffer_new(client, "ann.private", 0600, &private);
    buffer_new(client, "ann.readable", 0604, &readable);
    buffer_new(client, "ann.common", 0606, &common);
    segment.fd = memfd_create("ann", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(ftruncate(segment.fd, BYTES) == 0 && fcntl(segment.fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    CHECK(commgemm_import(client, &segment, 1, -1, 0, &shared->import_id, &generation) ==
          COMMGEMM_OK);
    CHECK(commgemm_comm_join_simple(client, "ann.alone", 1, 0, &comm) == COMMGEMM_OK);
    plan_new(client, comm, COMMGEMM_OP_GEMM, &plan);
    CHECK(commgemm_comm_create(client, "ann.closed", 2, 0, &shared->closed_comm) == COMMGEMM_OK);
    CHECK(commgemm_get_info(client, &info) == COMMGEMM_OK);
    shared->private_id = private.id;
    shared->plan_id = plan.id;
    shared->session = info.session;
    atomic_store(&shared->ann_is_at, 1);
    work_together(client, shared, 0);
    wait_for_step(&shared->bob_is_at, 1);
    CHECK(says(client, &private, "Ann's") && says(client, &readable, "Ann's"));
    CHECK(says(client, &common, "Bob's"));
    CHECK(commgemm_import_release(client, shared->import_id) == COMMGEMM_OK);
    CHECK(commgemm_plan_destroy(client, plan.id) == COMMGEMM_OK);
    CHECK(commgemm_buffer_destroy(client, "ann.private") == COMMGEMM_OK);
    commgemm_disconnect(client);
}

/* ---- Bob tries --------------------------------------------------------------------------------
 */

static void try_buffers(commgemm_client *client, const struct shared *shared)
{
    struct commgemm_buffer buffer;
    char path[32];
    CHECK(commgemm_buffer_open(client, "ann.private", 0, 0, &buffer) == COMMGEMM_PERMISSION);
    CHECK(commgemm_buffer_open(client, "ann.private", 0, 1, &buffer) == COMMGEMM_PERMISSION);
    CHECK(commgemm_buffer_open(client, NULL, shared->private_id, 1, &buffer) ==
          COMMGEMM_PERMISSION);
    CHECK(commgemm_buffer_create(client, "ann.private", BYTES, -1, 0, 0, &buffer) ==
          COMMGEMM_EXISTS);
    CHECK(commgemm_buffer_destroy(client, "ann.private") == COMMGEMM_PERMISSION);
    CHECK(commgemm_buffer_destroy(client, "ann.common") == COMMGEMM_PERMISSION);
    CHECK(commgemm_buffer_open(client, "ann.readable", 0, 0, &buffer) == COMMGEMM_PERMISSION);
    CHECK(commgemm_buffer_open(client, "ann.readable", 0, 1, &buffer) == COMMGEMM_OK);
    CHECK(says(client, &buffer, "Ann's"));
    CHECK(commgemm_buffer_write(client, &buffer, 0, "Bob's\0\0", 8) != COMMGEMM_OK);
    CHECK(mmap(NULL, BYTES, PROT_WRITE, MAP_SHARED, buffer.fd, 0) == MAP_FAILED);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", buffer.fd);
    CHECK(open(path, O_RDWR | O_CLOEXEC) < 0 && errno == EACCES);
    CHECK(fchmod(buffer.fd, 0666) < 0);
    CHECK(commgemm_buffer_open(client, "ann.common", 0, 0, &buffer) == COMMGEMM_OK);
    CHECK(commgemm_buffer_write(client, &buffer, 0, "Bob's\0\0", 8) == COMMGEMM_OK);
}

static int run(commgemm_client *client, const struct commgemm_plan *plan, uint64_t lhs,
               const struct commgemm_buffer *own)
{
    struct commgemm_job job;
    struct commgemm_completion done;
    uint64_t ticket;
    commgemm_job_init(&job);
    job.plan = plan->id;
    job.lhs = commgemm_operand_at(own, 0);
    job.lhs.id = lhs;
    job.rhs = commgemm_operand_at(own, 0);
    job.out = commgemm_operand_at(own, PRODUCT_BYTES_MAX);
    CHECK(commgemm_submit(client, &job, &ticket) == COMMGEMM_OK);
    CHECK(commgemm_wait(client, ticket, WAIT_MS, &done) == COMMGEMM_OK);
    commgemm_completion_fini(&done);
    return done.status;
}

/* By their ids, which are no secret. */
static void try_jobs(commgemm_client *client, const struct shared *shared)
{
    struct commgemm_buffer own;
    struct commgemm_plan plan;
    uint64_t comm;
    CHECK(commgemm_buffer_create(client, NULL, 2 * PRODUCT_BYTES_MAX, -1, 0, 0, &own) ==
          COMMGEMM_OK);
    CHECK(commgemm_comm_join_simple(client, "bob.alone", 1, 0, &comm) == COMMGEMM_OK);
    plan_new(client, comm, COMMGEMM_OP_GEMM, &plan);
    CHECK(run(client, &plan, own.id, &own) == COMMGEMM_OK);
    CHECK(run(client, &plan, shared->private_id, &own) == COMMGEMM_NOT_FOUND);
    CHECK(run(client, &plan, shared->import_id, &own) == COMMGEMM_NOT_FOUND);
}

static void try_the_rest(commgemm_client *client, const struct shared *shared)
{
    struct commgemm_join_options join;
    struct commgemm_chunk chunk;
    struct commgemm_killed killed;
    const char *record = "at=1";
    uint32_t rank = 0, cleared;
    uint64_t comm;
    commgemm_join_options_init(&join);
    join.comm = shared->closed_comm;
    join.ranks = &rank;
    join.n_ranks = 1;
    CHECK(commgemm_comm_join(client, &join, &comm) == COMMGEMM_PERMISSION);
    CHECK(commgemm_comm_leave(client, shared->closed_comm) == COMMGEMM_NOT_FOUND);
    CHECK(commgemm_plan_destroy(client, shared->plan_id) == COMMGEMM_NOT_FOUND);
    CHECK(commgemm_plan_chunk(client, shared->plan_id, 0, 0, &chunk) == COMMGEMM_NOT_FOUND);
    CHECK(commgemm_import_release(client, shared->import_id) == COMMGEMM_NOT_FOUND);
    CHECK(commgemm_drain(client, 0) == COMMGEMM_PERMISSION);
    CHECK(commgemm_kill_session(client, shared->session, &killed) == COMMGEMM_PERMISSION);
    CHECK(commgemm_tune_clear(client, &cleared) == COMMGEMM_PERMISSION);
    CHECK(commgemm_tune_import(client, &record, 1) == COMMGEMM_PERMISSION);
    CHECK(commgemm_tune_import(client, &record, 0) == COMMGEMM_PERMISSION);
}

static void be_bob(struct shared *shared)
{
    commgemm_client *client = connect_to(shared);
    wait_for_step(&shared->ann_is_at, 1);
    try_buffers(client, shared);
    try_jobs(client, shared);
    try_the_rest(client, shared);
    work_together(client, shared, 1);
    atomic_store(&shared->bob_is_at, 1);
    commgemm_disconnect(client);
}

/* ---- the two ----------------------------------------------------------------------------------
 */

static pid_t start_as(uid_t uid, void (*be)(struct shared *shared), struct shared *shared)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    CHECK(setgroups(0, NULL) == 0 && setresgid(uid, uid, uid) == 0 &&
          setresuid(uid, uid, uid) == 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    be(shared);
    _exit(0);
}

static void test_two_users(void **state)
{
    struct daemon daemon;
    int status;
    (void)state;
    skip_unless_root();
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    daemon_init(&daemon);
    daemon_start(&daemon, REAL_EXECUTOR, "devices=2", "socket_mode=0666", NULL);
    snprintf(shared->socket, sizeof(shared->socket), "%s", daemon.socket);
    shared->seed = (uint64_t)time(NULL);
    print_message("seed %ju\n", (uintmax_t)shared->seed);
    pid_t ann = start_as(ANN, be_ann, shared), bob = start_as(BOB, be_bob, shared);
    assert_int_equal(waitpid(bob, &status, 0), bob);
    assert_int_equal(status, 0);
    assert_int_equal(waitpid(ann, &status, 0), ann);
    assert_int_equal(status, 0);
    daemon_stop(&daemon);
    munmap(shared, sizeof(*shared));
}

/* Bob has made a comm that lets everybody in, of a name that others will use. */
static void test_a_comm_is_no_trap(void **state)
{
    struct daemon daemon;
    struct client bob, ann, root;
    Cgm__CommCreate create = CGM__COMM_CREATE__INIT;
    (void)state;
    skip_unless_root();
    daemon_init(&daemon);
    daemon_start(&daemon, "socket_mode=0666", NULL);
    client_open_as(BOB, &bob, &daemon);
    client_open_as(ANN, &ann, &daemon);
    client_open(&root, &daemon);
    create.name = (char *)(uintptr_t) "tp";
    create.size = 2;
    create.has_mode = 1;
    create.mode = 0666;
    message_free(client_call(&bob, CGM_MSG_COMM_CREATE, &create.base, NULL, 0, CGM_MSG_COMM_REPLY));
    uint32_t at_bob = send_join(&bob, "tp", 2, 0, 0);
    expect_error(client_reply(&ann, send_join(&ann, "tp", 2, 1, 0)), CGM_PERMISSION,
                 "belongs to uid 21002");
    expect_error(client_reply(&root, send_join(&root, "tp", 2, 1, 0)), CGM_PERMISSION,
                 "belongs to uid 21002");
    Cgm__CommJoin join = CGM__COMM_JOIN__INIT;
    uint32_t rank = 1;
    join.name = create.name;
    join.n_ranks = 1;
    join.ranks = &rank;
    message_free(client_call(&ann, CGM_MSG_COMM_JOIN, &join.base, NULL, 0, CGM_MSG_COMM_REPLY));
    message_free(client_reply(&bob, at_bob));
    client_close(&root);
    client_close(&ann);
    client_close(&bob);
    daemon_stop(&daemon);
}

/* Whoever may open the lock file may lock it, and then no daemon starts on that socket. */
static void test_nobody_else_locks_the_daemon_out(void **state)
{
    struct daemon daemon;
    char lock[128];
    (void)state;
    skip_unless_root();
    daemon_init(&daemon);
    chmod(daemon.folder, 0755);
    daemon_start(&daemon, NULL);
    snprintf(lock, sizeof(lock), "%s.lock", daemon.socket);
    assert_int_equal(send_signal(daemon.pid, SIGKILL), 0);
    assert_int_equal(daemon_wait(&daemon), 1000 + SIGKILL);
    assert_int_equal(seteuid(BOB), 0);
    int fd = open(lock, O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        flock(fd, LOCK_EX | LOCK_NB);
    assert_int_equal(seteuid(0), 0);
    daemon_start(&daemon, NULL);
    daemon_stop(&daemon);
    if (fd >= 0)
        close(fd);
}

static bool has_user_namespaces(void)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(unshare(CLONE_NEWUSER) < 0);
    return waitpid(pid, &status, 0) == pid && status == 0;
}

/* A daemon in a container sees one uid for all whom its namespace does not know: each of them would
 * be the owner of what the others made. */
static void test_strangers_to_a_container(void **state)
{
    static const uid_t uids[] = {ANN, BOB};
    struct daemon daemon;
    struct client client, root;
    (void)state;
    skip_unless_root();
    if (!has_user_namespaces())
        skip();
    daemon_init(&daemon);
    daemon.contained = true;
    daemon_start(&daemon, "socket_mode=0666", NULL);
    for (size_t i = 0; i < sizeof(uids) / sizeof(uids[0]); i++) {
        client_connect_as(uids[i], &client, &daemon);
        expect_error(client_event(&client, CGM_MSG_ERROR), CGM_PERMISSION, "user namespace");
        assert_true(client_is_closed(&client));
        client_close(&client);
    }
    client_open(&root, &daemon);
    client_close(&root);
    daemon_stop(&daemon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_users),
                                       cmocka_unit_test(test_a_comm_is_no_trap),
                                       cmocka_unit_test(test_nobody_else_locks_the_daemon_out),
                                       cmocka_unit_test(test_strangers_to_a_container)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
