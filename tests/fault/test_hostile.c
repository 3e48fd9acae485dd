/* Clients that break every rule they can: the daemon and its executor live on, keep nothing of
 * theirs, and serve everybody else. */
#include "tests/daemon/broker_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "proto/system.h"
#include "proto/types.h"
#include "tests/backend.h"
#include "tests/fault/spent.h"

#define LARGE_PAGE (2ull << 20)

#define PAGE 4096u
#define SPARE_THREADS 8u
#define SKIPPED 77

/* A daemon with the real executor, a witness that asks how they are, and the attacker. */
struct scene {
    struct daemon daemon;
    struct client witness, attacker;
    pid_t executor;
};

static int scene_set_up(void **state)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    daemon_init(&scene->daemon);
    daemon_start(&scene->daemon, test_backend_setting(), test_executor_setting(),
                 test_devices_setting(), NULL);
    client_open(&scene->witness, &scene->daemon);
    wait_for_executor(&scene->witness);
    scene->executor = (pid_t)status_number(&scene->witness, "executor_pid");
    client_open(&scene->attacker, &scene->daemon);
    *state = scene;
    return 0;
}

static int scene_tear_down(void **state)
{
    struct scene *scene = *state;
    client_close(&scene->attacker);
    client_close(&scene->witness);
    daemon_stop(&scene->daemon);
    free(scene);
    return 0;
}

/* Nothing has died, and buffers can still be made. */
static void expect_service(struct scene *scene)
{
    int fd;
    uint64_t id = buffer_create(&scene->witness, NULL, PAGE, 0, &fd);
    Cgm__BufferClose close_it = CGM__BUFFER_CLOSE__INIT;
    close_it.id = id;
    client_ok(&scene->witness, CGM_MSG_BUFFER_CLOSE, &close_it.base);
    close(fd);
    assert_int_equal(status_number(&scene->witness, "executor_pid"), scene->executor);
    assert_int_equal(status_number(&scene->witness, "executor_deaths"), 0);
}

static unsigned count_entries(pid_t pid, const char *kind)
{
    char path[64];
    unsigned count = 0;
    snprintf(path, sizeof(path), "/proc/%d/%s", pid, kind);
    DIR *entries = opendir(path);
    assert_non_null(entries);
    while (readdir(entries))
        count++;
    closedir(entries);
    return count;
}

static bool maps_contain(pid_t pid, const char *text)
{
    char path[64], line[512];
    bool found = false;
    snprintf(path, sizeof(path), "/proc/%d/maps", pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (!found && fgets(line, sizeof(line), file))
        found = strstr(line, text) != NULL;
    fclose(file);
    return found;
}

/* Bounded; what happens there is not told to anybody. */
static void nap_at_most(unsigned *naps)
{
    assert_true(++*naps < WAIT_S * 100);
    usleep(10000);
}

static int sealed_memfd(const char *name, uint64_t bytes)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    return fd;
}

/* ---- messages that grow on their way to the executor -------------------------------------------
 */

static void test_import_with_a_huge_handle(void **state)
{
    struct scene *scene = *state;
    static uint8_t bytes[65508]; /* the largest packet that there is */
    uint32_t kind = 1;
    uint64_t offset = 0, length = PAGE;
    ProtobufCBinaryData handle = {sizeof(bytes), bytes};
    Cgm__ImportCreate create = CGM__IMPORT_CREATE__INIT;
    create.n_kind = create.n_offset = create.n_length = create.n_handle = 1;
    create.kind = &kind;
    create.offset = &offset;
    create.length = &length;
    create.handle = &handle;
    int fd = sealed_memfd("hostile", PAGE);
    client_error(&scene->attacker, CGM_MSG_IMPORT_CREATE, &create.base, &fd, 1,
                 CGM_INVALID_ARGUMENT, "handle of segment 0 has 65508 bytes");
    close(fd);
    expect_service(scene);
}

/* One byte a dimension here, two when it is packed again. */
static void test_plan_with_a_huge_buffer_shape(void **state)
{
    struct scene *scene = *state;
    struct client *attacker = &scene->attacker;
    static uint8_t bytes[CGM_PACKET_BYTES_MAX];
    const uint32_t dimensions = 40000;
    size_t size;
    struct cgm_packet_header header;
    Cgm__PlanCreate create = CGM__PLAN_CREATE__INIT;
    create.comm = comm_join_all(attacker, "huge", 1);
    create.op = CGM_OP_GEMM;
    create.m = create.n = create.k = 16;
    assert_int_equal(
        cgm_packet_pack(CGM_MSG_PLAN_CREATE, ++attacker->serial, &create.base, 0, bytes, &size),
        CGM_OK);
    const uint8_t shape[] = {(14 << 3) | 2, (dimensions & 0x7f) | 0x80,
                             (dimensions >> 7 & 0x7f) | 0x80, dimensions >> 14};
    memcpy(bytes + size, shape, sizeof(shape));
    size += sizeof(shape) + dimensions;
    memcpy(&header, bytes, sizeof(header));
    header.body_bytes = (uint32_t)(size - sizeof(header));
    memcpy(bytes, &header, sizeof(header));
    assert_int_equal(cgm_packet_send_bytes(attacker->fd, bytes, size, NULL, 0), CGM_OK);
    expect_error(client_reply(attacker, attacker->serial), CGM_INVALID_ARGUMENT,
                 "buffer_shape has 40000 dimensions");
    expect_service(scene);
}

/* ---- going before one has come -----------------------------------------------------------------
 */

/* Leaves a comm in the moment in which the executor makes its queues. */
static void test_comm_left_while_it_is_added(void **state)
{
    struct scene *scene = *state;
    struct client *attacker = &scene->attacker;
    /* CUDA's libraries may make some of their own. */
    unsigned threads =
        count_entries(scene->executor, "task") + (test_backend_is_cuda() ? SPARE_THREADS : 0);
    uint32_t ranks[CGM_COMM_SIZE_MAX];
    for (uint32_t i = 0; i < CGM_COMM_SIZE_MAX; i++)
        ranks[i] = i;
    Cgm__CommCreate create = CGM__COMM_CREATE__INIT;
    create.size = CGM_COMM_SIZE_MAX;
    for (int round = 0; round < 10; round++) {
        Cgm__CommJoin join = CGM__COMM_JOIN__INIT;
        Cgm__CommLeave leave = CGM__COMM_LEAVE__INIT;
        struct message *reply =
            client_call(attacker, CGM_MSG_COMM_CREATE, &create.base, NULL, 0, CGM_MSG_COMM_REPLY);
        leave.id = join.id = ((Cgm__CommReply *)reply->body)->id;
        message_free(reply);
        join.has_id = 1;
        join.ranks = ranks;
        join.n_ranks = CGM_COMM_SIZE_MAX;
        client_send(attacker, CGM_MSG_COMM_JOIN, &join.base, NULL, 0);
        client_ok(attacker, CGM_MSG_COMM_LEAVE, &leave.base);
    }
    expect_service(scene); /* its allocation comes behind the queues */
    for (unsigned naps = 0; count_entries(scene->executor, "task") > threads;)
        nap_at_most(&naps);
}

/* Its sender has no fd of it any more: closing it frees it, and the loop does not wait for that. */
static void test_refused_memory_that_is_large(void **state)
{
    struct scene *scene = *state;
    uint32_t kind = 1;
    uint64_t offset = 0, length = 256u << 20;
    Cgm__ImportCreate create = CGM__IMPORT_CREATE__INIT;
    create.n_kind = create.n_offset = create.n_length = 1;
    create.kind = &kind;
    create.offset = &offset;
    create.length = &length;
    uint64_t process = spent_ns(scene->daemon.pid),
             first = spent_by_first_thread_ns(scene->daemon.pid);
    for (int i = 0; i < 8; i++) {
        int fd = memfd_create("large", MFD_CLOEXEC); /* not sealed */
        assert_int_equal(fallocate(fd, 0, 0, (off_t)length), 0);
        uint32_t serial =
            client_send(&scene->attacker, CGM_MSG_IMPORT_CREATE, &create.base, &fd, 1);
        close(fd);
        message_free(client_reply(&scene->attacker, serial));
        expect_service(scene);
    }
    process = spent_ns(scene->daemon.pid) - process;
    first = spent_by_first_thread_ns(scene->daemon.pid) - first;
    print_message("of %.1f ms the loop took %.1f\n", (double)process * 1e-6, (double)first * 1e-6);
    assert_true(first < process / 2 || first < 100000000); /* of some 300 ms that freeing takes */
}

/* Ids can be guessed: releases an import before it was answered. */
static void test_import_released_while_it_is_added(void **state)
{
    struct scene *scene = *state;
    struct client *attacker = &scene->attacker;
    uint32_t kind = 1;
    uint64_t offset = 0, length = 1u << 20;
    Cgm__ImportCreate create = CGM__IMPORT_CREATE__INIT;
    create.n_kind = create.n_offset = create.n_length = 1;
    create.kind = &kind;
    create.offset = &offset;
    create.length = &length;
    int fd = sealed_memfd("hostile", length);
    for (uint64_t id = 1; id <= 20; id++) {
        Cgm__ImportRelease release = CGM__IMPORT_RELEASE__INIT;
        release.id = id;
        uint32_t created = client_send(attacker, CGM_MSG_IMPORT_CREATE, &create.base, &fd, 1);
        uint32_t released = client_send(attacker, CGM_MSG_IMPORT_RELEASE, &release.base, NULL, 0);
        message_free(client_reply(attacker, created));
        message_free(client_reply(attacker, released));
    }
    close(fd);
    for (unsigned naps = 0; maps_contain(scene->executor, "memfd:hostile");)
        nap_at_most(&naps);
    expect_service(scene);
}

/* ---- using things up ---------------------------------------------------------------------------
 */

/* Answers with fds that nobody reads are fds of the daemon. */
static void test_reader_that_reads_no_fds(void **state)
{
    struct scene *scene = *state;
    struct client *attacker = &scene->attacker;
    int fd;
    Cgm__BufferOpen open_it = CGM__BUFFER_OPEN__INIT;
    open_it.has_id = 1;
    open_it.id = buffer_create(attacker, NULL, PAGE, 0, &fd);
    close(fd);
    unsigned most = 0;
    for (int i = 0; i < 8000; i++) {
        if (cgm_packet_send(attacker->fd, CGM_MSG_BUFFER_OPEN, 100, &open_it.base, NULL, 0) !=
            CGM_OK)
            break;
        unsigned fds = i % 100 == 0 ? count_entries(scene->daemon.pid, "fd") : 0;
        most = fds > most ? fds : most;
    }
    assert_true(client_is_closed(attacker));
    assert_in_range(most, 1, 1500);
    expect_service(scene);
}

/* More address space than there is memory, and less than quota_import_bytes. */
static void test_import_of_a_sparse_giant(void **state)
{
    struct scene *scene = *state;
    uint32_t kind = 1;
    uint64_t offset = 0, total, available;
    assert_int_equal(cgm_system_memory(&total, &available), CGM_OK);
    uint64_t length = total / LARGE_PAGE * LARGE_PAGE + LARGE_PAGE;
    Cgm__ImportCreate create = CGM__IMPORT_CREATE__INIT;
    create.n_kind = create.n_offset = create.n_length = 1;
    create.kind = &kind;
    create.offset = &offset;
    create.length = &length;
    int fd = sealed_memfd("hostile", length);
    client_error(&scene->attacker, CGM_MSG_IMPORT_CREATE, &create.base, &fd, 1, CGM_NO_MEMORY,
                 "bytes");
    close(fd);
    expect_service(scene);
}

/* A hole in huge pages is filled only while there are any: who touches it then dies of it. */
static void test_import_of_huge_pages(void **state)
{
    struct scene *scene = *state;
    uint32_t kind = 1;
    uint64_t offset = 0, length = 2u << 20;
    Cgm__ImportCreate create = CGM__IMPORT_CREATE__INIT;
    create.n_kind = create.n_offset = create.n_length = 1;
    create.kind = &kind;
    create.offset = &offset;
    create.length = &length;
    int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
    if (fd < 0) {
        print_message("this kernel has no huge pages\n");
        skip();
    }
    assert_int_equal(ftruncate(fd, (off_t)length), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    client_error(&scene->attacker, CGM_MSG_IMPORT_CREATE, &create.base, &fd, 1,
                 CGM_INVALID_ARGUMENT, "huge pages");
    close(fd);
    expect_service(scene);
}

/* A session may hold 64 fds with one import: its user runs out of them before the daemon does. */
static void test_fds_run_out(void **state)
{
    struct scene *scene = *state;
    struct client *attacker = &scene->attacker;
    uint32_t kind[CGM_IMPORT_SEGMENTS_MAX];
    uint64_t offset[CGM_IMPORT_SEGMENTS_MAX], length[CGM_IMPORT_SEGMENTS_MAX];
    int fds[CGM_IMPORT_SEGMENTS_MAX], status = CGM_OK;
    struct rlimit few = {360, 360}; /* the quota of one user is a quarter: more than an import */
    Cgm__ImportCreate create = CGM__IMPORT_CREATE__INIT;
    create.n_kind = create.n_offset = create.n_length = CGM_IMPORT_SEGMENTS_MAX;
    create.kind = kind;
    create.offset = offset;
    create.length = length;
    int fd = sealed_memfd("hostile", PAGE);
    assert_int_equal(fallocate(fd, 0, 0, PAGE), 0); /* holes cannot be pinned */
    for (uint32_t i = 0; i < CGM_IMPORT_SEGMENTS_MAX; i++) {
        kind[i] = 1;
        offset[i] = 0;
        length[i] = PAGE;
        fds[i] = fd;
    }
    assert_int_equal(prlimit(scene->daemon.pid, RLIMIT_NOFILE, &few, NULL), 0);
    for (int i = 0; i < 8 && status == CGM_OK; i++) {
        uint32_t serial = client_send(attacker, CGM_MSG_IMPORT_CREATE, &create.base, fds,
                                      CGM_IMPORT_SEGMENTS_MAX);
        struct message *reply = client_reply(attacker, serial);
        if (reply->type == CGM_MSG_ERROR)
            status = ((Cgm__Error *)reply->body)->status;
        message_free(reply);
    }
    close(fd);
    assert_int_equal(status, CGM_QUOTA);
    expect_service(scene);
}

/* Ticks of processor time that the process has used. */
static unsigned long ticks_of(pid_t pid)
{
    char path[64], text[1024];
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[n] = '\0';
    const char *rest = strrchr(text, ')');
    assert_non_null(rest);
    assert_int_equal(
        sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system),
        2);
    return user + system;
}

/* Until the session ends. */
static void send_opens(struct client *client, int count)
{
    static uint8_t packet[CGM_PACKET_BYTES_MAX];
    Cgm__BufferOpen open_it = CGM__BUFFER_OPEN__INIT;
    size_t size;
    int fd;
    open_it.has_id = 1;
    open_it.id = buffer_create(client, NULL, PAGE, 0, &fd);
    close(fd);
    assert_int_equal(cgm_packet_pack(CGM_MSG_BUFFER_OPEN, 7, &open_it.base, 0, packet, &size),
                     CGM_OK);
    while (count-- > 0 && cgm_packet_send_bytes(client->fd, packet, size, NULL, 0) == CGM_OK)
        continue;
}

static void expect_rest(const struct daemon *daemon)
{
    usleep(200000);
    unsigned long before = ticks_of(daemon->pid);
    usleep(1000000);
    unsigned long used = ticks_of(daemon->pid) - before,
                  second = (unsigned long)sysconf(_SC_CLK_TCK);
    print_message("waits with %lu %% of a processor\n", used * 100 / second);
    assert_true(used < second / 4);
}

/* A daemon that is not root may have only so many fds in flight, to all clients together; and so
 * may its executor, which ends when it cannot answer. */
static void crowd(int opens, bool all_stay)
{
    struct rlimit few = {300, 300};
    struct daemon daemon;
    struct client deaf[3], honest;
    int fd;
    daemon_init(&daemon);
    setrlimit(RLIMIT_NOFILE, &few);
    daemon_start(&daemon, REAL_EXECUTOR, NULL);
    client_open(&honest, &daemon);
    for (int i = 0; i < 3; i++) {
        client_open(&deaf[i], &daemon);
        send_opens(&deaf[i], opens);
    }
    if (all_stay)
        wait_for_status(&honest, "buffers", 3);
    expect_rest(&daemon);
    buffer_create(&honest, NULL, PAGE, 0, &fd);
    close(fd);
    assert_int_equal(status_number(&honest, "executor_deaths"), 0);
    for (int i = 0; i < 3; i++)
        client_close(&deaf[i]);
    client_close(&honest);
    daemon_stop(&daemon);
}

static void test_too_many_fds_in_flight(void **state)
{
    (void)state;
    int status;
    skip_unless_root();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) { /* a failure ends the child's tests, and so this one */
        assert_int_equal(setresgid(21003, 21003, 21003), 0);
        assert_int_equal(setresuid(21003, 21003, 21003), 0);
        if (access(CGM_BIN_DIR "/commgemmd", X_OK) != 0)
            _exit(SKIPPED);
        crowd(30, true);
        crowd(105, false);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
        print_message("nobody else can get at " CGM_BIN_DIR "\n");
        skip();
    }
    assert_int_equal(status, 0);
}

/* ---- entries -----------------------------------------------------------------------------------
 */

/* A stride that overflows everything, but that no second row uses. */
static void test_huge_stride_of_one_row(void **state)
{
    struct scene *scene = *state;
    struct client *attacker = &scene->attacker;
    struct cgm_entry entry = {.ticket = 1, .opcode = CGM_OPCODE_RUN};
    struct cgm_cqe done;
    static const int operands[] = {CGM_OPERAND_LHS, CGM_OPERAND_RHS, CGM_OPERAND_OUT};
    Cgm__PlanCreate create = CGM__PLAN_CREATE__INIT;
    create.comm = comm_join_all(attacker, "stride", 1);
    create.op = CGM_OP_GEMM;
    create.m = create.k = 1;
    create.n = 4;
    struct message *reply =
        client_call(attacker, CGM_MSG_PLAN_CREATE, &create.base, NULL, 0, CGM_MSG_PLAN_REPLY);
    entry.plan = ((Cgm__PlanReply *)reply->body)->id;
    message_free(reply);
    for (int i = 0; i < 3; i++) {
        int fd;
        uint64_t id = buffer_create(attacker, NULL, PAGE, 0, &fd);
        entry.operand[operands[i]] =
            (struct cgm_operand){.id = id, .generation = 1, .row_stride_bytes = 1ull << 62};
        close(fd);
    }
    client_submit(attacker, &entry);
    reply = client_event(attacker, CGM_MSG_COMPLETION);
    memcpy(&done, ((Cgm__Completion *)reply->body)->cqe.data, sizeof(done));
    message_free(reply);
    assert_int_equal(done.status, CGM_OK);
    expect_service(scene);
}

/* ---- the executor's one poller -----------------------------------------------------------------
 */

struct feeder {
    struct cgm_ring ring;
    int wake_fd;
    _Atomic bool stop;
};

/* Fills the ring with noops for as long as it may, and reaps without looking. */
static void *feed(void *argument)
{
    struct feeder *feeder = argument;
    struct cgm_ring *ring = &feeder->ring;
    uint64_t ticket = 0, one = 1;
    uint32_t tail = 0;
    while (!atomic_load(&feeder->stop)) {
        uint32_t done = atomic_load_explicit(&ring->header->cq_tail, memory_order_acquire);
        atomic_store_explicit(&ring->header->cq_head, done, memory_order_release);
        while (tail - done < ring->entries) {
            uint32_t slot = tail & ring->mask;
            atomic_store_explicit(&ring->sq[slot], slot, memory_order_relaxed);
            ring->entry[slot].ticket = ++ticket;
            atomic_store_explicit(&ring->ready[slot], ticket, memory_order_relaxed);
            atomic_store_explicit(&ring->header->sq_tail, ++tail, memory_order_release);
        }
        if (atomic_load(&ring->header->sq_need_wakeup))
            (void)!write(feeder->wake_fd, &one, sizeof(one));
    }
    return NULL;
}

static void test_cancel_of_a_ring_that_never_empties(void **state)
{
    struct scene *scene = *state;
    struct client *attacker = &scene->attacker;
    struct feeder feeder = {.stop = false};
    pthread_t thread;
    Cgm__Cancel cancel = CGM__CANCEL__INIT;
    struct message *reply = client_ring_set_up(attacker, 4096);
    assert_int_equal(cgm_ring_join(reply->fds[0], 4096, &feeder.ring), CGM_OK);
    feeder.wake_fd = dup(reply->fds[1]);
    message_free(reply);
    assert_int_equal(pthread_create(&thread, NULL, feed, &feeder), 0);
    usleep(20000);
    for (uint64_t i = 0; i < 20; i++) {
        cancel.ticket = UINT64_MAX - i;
        client_ok(attacker, CGM_MSG_CANCEL, &cancel.base);
        expect_service(scene);
    }
    atomic_store(&feeder.stop, true);
    pthread_join(thread, NULL);
    cgm_ring_unmap(&feeder.ring);
    close(feeder.wake_fd);
    expect_service(scene);
}

#define HOSTILE(name) cmocka_unit_test_setup_teardown(name, scene_set_up, scene_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HOSTILE(test_import_with_a_huge_handle),
        HOSTILE(test_plan_with_a_huge_buffer_shape),
        HOSTILE(test_comm_left_while_it_is_added),
        HOSTILE(test_refused_memory_that_is_large),
        HOSTILE(test_import_released_while_it_is_added),
        HOSTILE(test_reader_that_reads_no_fds),
        HOSTILE(test_import_of_a_sparse_giant),
        HOSTILE(test_import_of_huge_pages),
        cmocka_unit_test(test_too_many_fds_in_flight),
        HOSTILE(test_fds_run_out),
        HOSTILE(test_huge_stride_of_one_row),
        HOSTILE(test_cancel_of_a_ring_that_never_empties),
    };
    if (test_backend_is_cuda())
        cmocka_set_skip_filter("test_too_many_fds_in_flight"); /* it has no executor of its own */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
