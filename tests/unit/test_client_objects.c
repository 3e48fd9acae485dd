/* Comms, buffers, imports, plans and queries: what is sent, what comes back, what is refused. */
#include "tests/unit/client_fixture.h"

#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void test_comms(void **state)
{
    struct fixture f;
    struct commgemm_join_options join;
    uint32_t ranks[] = {0, 3};
    uint64_t comm = 0, other = 0;
    (void)state;
    fixture_open(&f, NULL, 4, 0, 0);
    assert_ok(commgemm_comm_create(f.client, NULL, 64, 0, &comm));
    assert_refused(commgemm_comm_create(f.client, "taken", 2, 0, &other), COMMGEMM_EXISTS,
                   "name is taken: taken");
    assert_refused(commgemm_comm_create(f.client, "a b", 2, 0, &other), COMMGEMM_INVALID_ARGUMENT,
                   "name is \"a b\"");
    assert_refused(commgemm_comm_create(f.client, "a", 65, 0, &other), COMMGEMM_INVALID_ARGUMENT,
                   "size is 65; it must be 1 to 64");
    assert_refused(commgemm_comm_create(f.client, "a", 1, 01000, &other), COMMGEMM_INVALID_ARGUMENT,
                   "mode is 01000");
    assert_ok(commgemm_comm_join_simple(f.client, "c", 2, 1, &other));
    assert_refused(commgemm_comm_join_simple(f.client, "c", 2, 2, &other),
                   COMMGEMM_INVALID_ARGUMENT, "ranks[0] is 2; it must be 0 to 1");
    commgemm_join_options_init(&join);
    join.ranks = ranks;
    join.n_ranks = 2;
    assert_refused(commgemm_comm_join(f.client, &join, &other), COMMGEMM_INVALID_ARGUMENT, "comm");
    join.comm = comm;
    assert_ok(commgemm_comm_join(f.client, &join, &other));
    assert_int_equal(other, comm);
    ranks[1] = 0;
    assert_refused(commgemm_comm_join(f.client, &join, &other), COMMGEMM_INVALID_ARGUMENT,
                   "ranks[1] is 0, as one before it");
    join.ranks = NULL;
    assert_refused(commgemm_comm_join(f.client, &join, &other), COMMGEMM_INVALID_ARGUMENT, "ranks");
    join.create = 1;
    assert_refused(commgemm_comm_join(f.client, &join, &other), COMMGEMM_INVALID_ARGUMENT,
                   "create");
    assert_ok(commgemm_comm_leave(f.client, comm));
    fixture_close(&f);
}

static void test_leaving_a_comm_forgets_its_plans(void **state)
{
    struct fixture f;
    struct commgemm_plan plans[40];
    struct commgemm_job job;
    uint64_t ticket;
    (void)state;
    fixture_open(&f, NULL, 4, 0, 0);
    uint64_t comms[] = {comm_make(f.client), comm_make(f.client)};
    for (int i = 0; i < 40; i++)
        plan_make(f.client, comms[i % 2], COMMGEMM_OP_GEMM, 1 + (uint64_t)i, &plans[i]);
    assert_ok(commgemm_comm_leave(f.client, comms[1]));
    assert_ok(commgemm_plan_destroy(f.client, plans[38].id));
    commgemm_job_init(&job);
    for (int i = 0; i < 40; i++) {
        job.plan = plans[i].id;
        int wanted = i % 2 == 0 && i != 38 ? COMMGEMM_OK : COMMGEMM_NOT_FOUND;
        assert_status(commgemm_submit(f.client, &job, &ticket), wanted);
        if (wanted == COMMGEMM_OK)
            assert_ok(commgemm_wait(f.client, ticket, -1, NULL));
    }
    fixture_close(&f);
}

/* A completion's reason outlives the plan. */
static void test_a_plan_may_go_while_its_job_runs(void **state)
{
    struct fixture f;
    struct commgemm_plan plan;
    struct commgemm_completion done;
    struct commgemm_job job;
    uint64_t ticket;
    uint32_t count = 0;
    (void)state;
    fixture_open(&f, NULL, 4, 0, 0);
    plan_make(f.client, comm_make(f.client), COMMGEMM_OP_GEMM, 8, &plan);
    commgemm_job_init(&job);
    job.plan = plan.id;
    job.deadline_ms = FAKE_HOLD_MS;
    assert_ok(commgemm_submit(f.client, &job, &ticket));
    assert_ok(commgemm_plan_destroy_all(f.client, &count));
    assert_int_equal(count, 2);
    assert_ok(commgemm_comm_leave(f.client, plan.comm));
    fake_release(f.fake);
    assert_ok(commgemm_wait(f.client, ticket, -1, &done));
    assert_int_equal(done.plan, plan.id);
    assert_string_equal(done.reason, "the fake broker's favourite");
    fixture_close(&f);
}

static void test_buffers(void **state)
{
    struct fixture f;
    struct commgemm_buffer buffer, again;
    unsigned char *first, *second;
    (void)state;
    fixture_open(&f, NULL, 4, 0, 0);
    assert_ok(commgemm_buffer_create(f.client, "b", 10000, -1, 0640, 0, &buffer));
    assert_int_equal(buffer.bytes, 10000);
    assert_int_equal(buffer.generation, 3);
    assert_true(buffer.writable && !buffer.tainted);
    assert_ok(commgemm_buffer_map(f.client, &buffer, (void **)&first));
    assert_ok(commgemm_buffer_map(f.client, &buffer, (void **)&second));
    first[9999] = 42;
    assert_int_equal(second[9999], 42);
    assert_ok(commgemm_buffer_unmap(second, buffer.bytes));
    assert_ok(commgemm_buffer_open(f.client, NULL, buffer.id, 1, &again));
    assert_int_equal(again.id, buffer.id);
    assert_false(again.writable);
    assert_ok(commgemm_buffer_close(f.client, buffer.id));
    assert_refused(commgemm_buffer_map(f.client, &buffer, (void **)&second), COMMGEMM_NOT_FOUND,
                   "closed");
    assert_int_equal(first[9999], 42);
    assert_ok(commgemm_buffer_unmap(first, buffer.bytes));
    assert_ok(commgemm_buffer_destroy(f.client, "b"));
    assert_ok(commgemm_buffer_destroy_id(f.client, buffer.id));
    assert_ok(commgemm_buffer_rewritten(f.client, &buffer));
    fixture_close(&f);
}

/* What has the number of its fd by then is somebody else's, another open of it among them. */
static void test_buffers_that_are_closed(void **state)
{
    struct fixture f;
    struct commgemm_buffer buffer, again;
    char bytes[4] = "new", before[4] = "old";
    void *address;
    (void)state;
    fixture_open(&f, NULL, 4, 0, 0);
    assert_ok(commgemm_buffer_create(f.client, NULL, 4096, -1, 0, 0, &buffer));
    assert_ok(commgemm_buffer_close(f.client, buffer.id));
    int fd = memfd_create("another", MFD_CLOEXEC);
    if (fd != buffer.fd)
        assert_int_equal(dup2(fd, buffer.fd), buffer.fd);
    assert_int_equal(pwrite(fd, before, sizeof(before), 0), sizeof(before));
    for (int is_open = 0; is_open < 2; is_open++) {
        assert_refused(commgemm_buffer_write(f.client, &buffer, 0, bytes, sizeof(bytes)),
                       COMMGEMM_NOT_FOUND, "closed");
        assert_refused(commgemm_buffer_read(f.client, &buffer, 0, bytes, sizeof(bytes)),
                       COMMGEMM_NOT_FOUND, "closed");
        assert_refused(commgemm_buffer_map(f.client, &buffer, &address), COMMGEMM_NOT_FOUND,
                       "closed");
        assert_string_equal(bytes, "new");
        assert_int_equal(pread(fd, before, sizeof(before), 0), sizeof(before));
        assert_string_equal(before, "old");
        assert_ok(commgemm_buffer_open(f.client, NULL, buffer.id, 0, &again));
    }
    assert_ok(commgemm_buffer_write(f.client, &again, 0, bytes, sizeof(bytes)));
    /* Not even when another open of it that may only read has that number. */
    assert_ok(commgemm_buffer_open(f.client, NULL, buffer.id, 1, &again));
    struct commgemm_buffer before_that = again;
    before_that.writable = 1;
    assert_refused(commgemm_buffer_write(f.client, &before_that, 0, bytes, sizeof(bytes)),
                   COMMGEMM_NOT_FOUND, "closed");
    close(fd);
    if (fd != buffer.fd)
        close(buffer.fd);
    fixture_close(&f);
}

static void test_buffers_refused(void **state)
{
    struct fixture f;
    struct commgemm_buffer buffer = {.id = 5, .bytes = 100, .fd = -1}, *none = NULL;
    void *address;
    (void)state;
    fixture_open(&f, NULL, 4, 0, 0);
    assert_refused(commgemm_buffer_create(f.client, NULL, 0, -1, 0, 0, &buffer),
                   COMMGEMM_INVALID_ARGUMENT, "bytes is 0; it must be 1 to");
    assert_refused(commgemm_buffer_create(f.client, NULL, 1, -2, 0, 0, &buffer),
                   COMMGEMM_INVALID_ARGUMENT, "device is -2");
    assert_refused(commgemm_buffer_create(f.client, NULL, 1, 0, 0, 2, &buffer),
                   COMMGEMM_INVALID_ARGUMENT, "flags is 0x2");
    assert_refused(commgemm_buffer_create(f.client, NULL, 1, 0, 0, 0, none),
                   COMMGEMM_INVALID_ARGUMENT, "ret_buffer");
    assert_refused(commgemm_buffer_open(f.client, NULL, 0, 0, &buffer), COMMGEMM_INVALID_ARGUMENT,
                   "name is NULL and id is 0");
    assert_refused(commgemm_buffer_destroy(f.client, NULL), COMMGEMM_INVALID_ARGUMENT, "name");
    assert_refused(commgemm_buffer_rewritten(f.client, none), COMMGEMM_INVALID_ARGUMENT, "buffer");
    assert_refused(commgemm_tune_clear(f.client, NULL), COMMGEMM_INVALID_ARGUMENT, "ret_count");
    assert_refused(commgemm_tune_import(f.client, (const char *const[]){NULL}, 1),
                   COMMGEMM_INVALID_ARGUMENT, "records");
    assert_refused(commgemm_buffer_map(f.client, &buffer, &address), COMMGEMM_NOT_SUPPORTED,
                   "no fd");
    assert_refused(commgemm_buffer_unmap(NULL, 1), COMMGEMM_INVALID_ARGUMENT, "address");
    fixture_close(&f);
}

static void test_imports(void **state)
{
    struct fixture f;
    struct commgemm_segment segments[65];
    uint64_t id;
    uint32_t generation;
    int memory = memfd_create("import", MFD_CLOEXEC | MFD_ALLOW_SEALING), pipe_ends[2];
    (void)state;
    assert_int_equal(ftruncate(memory, 4096), 0);
    assert_int_equal(pipe(pipe_ends), 0);
    fixture_open(&f, NULL, 4, 0, 0);
    memset(segments, 0, sizeof(segments));
    for (int i = 0; i < 65; i++)
        segments[i] = (struct commgemm_segment){.kind = i % 3 ? COMMGEMM_SEGMENT_FD
                                                              : COMMGEMM_SEGMENT_CUDA_IPC,
                                                .fd = memory,
                                                .length = 4096};
    assert_ok(commgemm_import(f.client, segments, 64, -1, 0, &id, &generation));
    assert_int_equal(generation, 64);
    assert_refused(commgemm_import(f.client, segments, 65, -1, 0, &id, &generation),
                   COMMGEMM_INVALID_ARGUMENT, "n_segments is 65; it must be 1 to 64");
    segments[1].fd = pipe_ends[0];
    assert_refused(commgemm_import(f.client, segments, 2, -1, 0, &id, &generation),
                   COMMGEMM_INVALID_ARGUMENT, "which is no memory");
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    assert_refused(commgemm_import(f.client, segments, 2, -1, 0, &id, &generation),
                   COMMGEMM_INVALID_ARGUMENT, "segments[1].fd");
    segments[1].fd = memory;
    segments[1].length = 4095;
    assert_refused(commgemm_import(f.client, segments, 2, -1, 0, &id, &generation),
                   COMMGEMM_INVALID_ARGUMENT, "segments[1]");
    segments[1].length = UINT64_MAX - 4095;
    segments[1].offset = 4096;
    assert_refused(commgemm_import(f.client, segments, 2, -1, 0, &id, &generation),
                   COMMGEMM_INVALID_ARGUMENT, "segments[1]");
    segments[0].kind = 9;
    assert_refused(commgemm_import(f.client, segments, 1, -1, 0, &id, &generation),
                   COMMGEMM_INVALID_ARGUMENT, "segments[0].kind is 9");
    assert_ok(commgemm_import_release(f.client, id));
    fixture_close(&f);
    close(memory);
}

static void refuse_fd(const struct fixture *f, int fd, const char *why)
{
    const struct commgemm_segment segment = {.kind = COMMGEMM_SEGMENT_FD, .fd = fd, .length = 4096};
    uint64_t id;
    uint32_t generation;
    assert_refused(commgemm_import(f->client, &segment, 1, -1, 0, &id, &generation),
                   COMMGEMM_INVALID_ARGUMENT, why);
    close(fd);
}

/* Before its pages are made, of which there may be none. */
static void test_an_import_of_huge_pages(void **state)
{
    struct fixture f;
    int fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
    (void)state;
    if (fd < 0)
        skip();
    assert_int_equal(ftruncate(fd, 64 << 20), 0);
    fixture_open(&f, NULL, 4, 0, 0);
    refuse_fd(&f, fd, "which has huge pages; a memfd without MFD_HUGETLB is needed");
    fixture_close(&f);
}

/* The system knows fds that it passes to nobody. */
static void test_an_import_that_cannot_be_sent(void **state)
{
    struct fixture f;
    struct io_uring_params params = {0};
    int fd = (int)syscall(SYS_io_uring_setup, 1, &params);
    (void)state;
    if (fd < 0)
        skip();
    fixture_open(&f, NULL, 4, 0, 0);
    refuse_fd(&f, fd, "ImportCreate has an fd that cannot be passed to another process");
    fixture_close(&f);
}

static void test_plans(void **state)
{
    struct fixture f;
    struct commgemm_plan_options options;
    struct commgemm_plan plan, equal;
    struct commgemm_chunk chunk;
    (void)state;
    fixture_open(&f, NULL, 4, 0, 0);
    commgemm_plan_options_init(&options);
    options.comm = comm_make(f.client);
    options.op = COMMGEMM_OP_GEMM_RS;
    options.m = options.n = options.k = 64;
    assert_ok(commgemm_plan_create(f.client, &options, &plan));
    assert_ok(commgemm_plan_create(f.client, &options, &equal));
    assert_int_equal(plan.id, equal.id);
    assert_int_equal(plan.op, COMMGEMM_OP_GEMM_RS);
    assert_int_equal(plan.algorithm, 3);
    assert_int_equal(plan.comm, options.comm);
    assert_int_equal(plan.workspace_bytes, COMMGEMM_COMM_RS); /* the comm_type that was sent */
    assert_ok(commgemm_plan_chunk(f.client, plan.id, 2, 3, &chunk));
    assert_int_equal(chunk.buffer, 77);
    assert_int_equal(chunk.offset_bytes, 300);
    assert_int_equal(chunk.rows, 2);
    assert_int_equal(chunk.dtype, COMMGEMM_BF16);
    options.method = 9;
    assert_refused(commgemm_plan_create(f.client, &options, &plan), COMMGEMM_INVALID_ARGUMENT,
                   "method is 9; it must be the number of one of none, bulk");
    options.method = COMMGEMM_METHOD_AUTO;
    options.op = -1;
    assert_refused(commgemm_plan_create(f.client, &options, &plan), COMMGEMM_INVALID_ARGUMENT,
                   "op is -1");
    options.op = COMMGEMM_OP_GEMM;
    options.use_ce = 2;
    assert_refused(commgemm_plan_create(f.client, &options, &plan), COMMGEMM_INVALID_ARGUMENT,
                   "use_ce is 2; it must be -1 (the default), 0 or 1");
    options.use_ce = -1;
    options.set_sm_margin = -2;
    assert_refused(commgemm_plan_create(f.client, &options, &plan), COMMGEMM_INVALID_ARGUMENT,
                   "set_sm_margin is -2");
    options.set_sm_margin = -1;
    options.n_counts = 4;
    assert_refused(commgemm_plan_create(f.client, &options, &plan), COMMGEMM_INVALID_ARGUMENT,
                   "counts is NULL, and n_counts is 4");
    options.n_counts = 4097;
    assert_refused(commgemm_plan_create(f.client, &options, &plan), COMMGEMM_INVALID_ARGUMENT,
                   "n_counts is 4097; it must be at most 4096");
    options.n_counts = 0;
    options.k = 1ull << 31;
    assert_refused(commgemm_plan_create(f.client, &options, &plan), COMMGEMM_INVALID_ARGUMENT,
                   "k is 2147483648");
    fixture_close(&f);
}

static void test_queries(void **state)
{
    struct fixture f;
    char *json = NULL;
    (void)state;
    fixture_open(&f, NULL, 4, 0, 0);
    assert_ok(commgemm_query(f.client, "plans", &json));
    const char *row = "{\"id\":18446744073709551615,\"a \\\"key\\\"\":[{\"x\": null}, -1.5e3],"
                      "\"executor_life\":1}";
    char wanted[512];
    snprintf(wanted, sizeof(wanted), "{\"version\":1,\"plans\":[%s,%s]}", row, row);
    assert_string_equal(json, wanted);
    free(json);
    json = NULL;
    assert_refused(commgemm_query(f.client, "jobs", &json), COMMGEMM_BAD_MESSAGE, "not JSON");
    assert_refused(commgemm_query(f.client, "cats", &json), COMMGEMM_INVALID_ARGUMENT,
                   "what is \"cats\"; it must be one of status, sessions");
    assert_refused(commgemm_query(f.client, NULL, &json), COMMGEMM_INVALID_ARGUMENT, "what");
    assert_null(json);
    assert_ok(commgemm_drain(f.client, 0));
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comms),
        cmocka_unit_test(test_leaving_a_comm_forgets_its_plans),
        cmocka_unit_test(test_a_plan_may_go_while_its_job_runs),
        cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_buffers_that_are_closed),
        cmocka_unit_test(test_buffers_refused),
        cmocka_unit_test(test_imports),
        cmocka_unit_test(test_an_import_of_huge_pages),
        cmocka_unit_test(test_an_import_that_cannot_be_sent),
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_queries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
