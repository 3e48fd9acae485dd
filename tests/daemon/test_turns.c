/* Large memory is made in turns: what others ask for meanwhile comes in between. That is seen in
 * the order of the answers; times do not count. It is given back by a thread of each user. */
#include "executor_fixture.h"

#include <signal.h>
#include <sys/stat.h>

#include "tests/send_signal.h"

#define MIB (1ull << 20)
#define LARGE (256 * MIB)
#define MIDDLE (16 * MIB)
#define SMALL 4096u
#define N_LARGE 3u

enum { FIRST_ID = 10, MIDDLE_ID = 100, SMALL_ID };

static uint32_t send_remove(struct fixture *f, uint64_t id)
{
    Cgm__BufferRemove m = CGM__BUFFER_REMOVE__INIT;
    m.id = id;
    fixture_send(f, CGM_MSG_BUFFER_REMOVE, &m.base, NULL, 0);
    return f->serial;
}

/* The next answer is this one. ret_fd: its memory; NULL: it has none. */
static void expect_answer(struct fixture *f, uint32_t serial, int *ret_fd)
{
    fixture_receive(f);
    assert_int_equal(f->packet.header.serial, serial);
    assert_int_equal(f->packet.header.type, ret_fd ? CGM_MSG_MEMORY : CGM_MSG_OK);
    if (ret_fd)
        *ret_fd = cgm_packet_take_fd(&f->packet, 0);
}

/* In any order. */
static void expect_answers(struct fixture *f, const uint32_t *serials, uint32_t count)
{
    uint32_t seen = 0;
    for (uint32_t i = 0; i < count; i++) {
        fixture_receive(f);
        assert_int_equal(f->packet.header.type, CGM_MSG_OK);
        for (uint32_t k = 0; k < count; k++)
            seen |= (uint32_t)(serials[k] == f->packet.header.serial) << k;
    }
    assert_int_equal(seen, (1u << count) - 1);
}

static uint64_t bytes_there(int fd)
{
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

static void test_users_take_turns(void **state)
{
    (void)state;
    struct fixture f;
    uint32_t serials[N_LARGE + 1];
    int fds[N_LARGE], fd, little;
    fixture_open(&f, 60000, 60000, 0);
    assert_int_equal(send_signal(f.pid, SIGSTOP), 0); /* all of it is there when it begins */
    for (uint32_t i = 0; i < N_LARGE; i++)
        serials[i] = fixture_buffer_send(&f, FIRST_ID + i, LARGE, 1);
    uint32_t middle = fixture_buffer_send(&f, MIDDLE_ID, MIDDLE, 2),
             small = fixture_buffer_send(&f, SMALL_ID, SMALL, 3);
    assert_int_equal(send_signal(f.pid, SIGCONT), 0);
    expect_answer(&f, small, &little);
    assert_true(bytes_there(little) == SMALL);
    expect_answer(&f, middle, &fd);
    assert_true(bytes_there(fd) == MIDDLE);
    close(fd);
    for (uint32_t i = 0; i < N_LARGE; i++) {
        expect_answer(&f, serials[i], &fds[i]);
        assert_true(bytes_there(fds[i]) == LARGE);
    }
    assert_int_equal(send_signal(f.pid, SIGSTOP), 0);
    for (uint32_t i = 0; i < N_LARGE; i++)
        serials[i] = send_remove(&f, FIRST_ID + i);
    serials[N_LARGE] = send_remove(&f, SMALL_ID);
    assert_int_equal(send_signal(f.pid, SIGCONT), 0);
    expect_answers(&f, serials, N_LARGE + 1);
    for (uint32_t i = 0; i < N_LARGE; i++) {
        assert_true(bytes_there(fds[i]) == 0); /* whoever still has it */
        close(fds[i]);
    }
    assert_true(bytes_there(little) == 0);
    close(little);
    fixture_close(&f);
}

/* All of it exists, and nobody but the executor has it. */
static void import_add(struct fixture *f, uint64_t session, uint64_t id, uint64_t bytes)
{
    Cgm__ImportAdd m = CGM__IMPORT_ADD__INIT;
    uint32_t kind = 1;
    uint64_t offset = 0;
    ProtobufCBinaryData handle = {0, NULL};
    int fd = memfd_create("import", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(fallocate(fd, 0, 0, (off_t)bytes), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    m.session = session;
    m.id = id;
    m.generation = 1;
    m.n_kind = m.n_offset = m.n_length = m.n_handle = 1;
    m.kind = &kind;
    m.offset = &offset;
    m.length = &bytes;
    m.handle = &handle;
    fixture_ok(f, CGM_MSG_IMPORT_ADD, &m.base, &fd, 1);
    close(fd);
}

/* As much as all of it would keep the mapper busy for long after its client has gone. */
static void test_a_session_ends_while_its_buffer_is_made(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_session s;
    Cgm__BufferAlloc alloc = CGM__BUFFER_ALLOC__INIT;
    Cgm__SessionRemove remove = CGM__SESSION_REMOVE__INIT;
    fixture_open(&f, 60000, 60000, 0);
    fixture_session_open(&f, 1, &s);
    alloc.id = alloc.journal = FIRST_ID;
    alloc.generation = 1;
    alloc.bytes = 4 * LARGE;
    alloc.has_session = 1;
    alloc.session = remove.session = 1;
    assert_int_equal(send_signal(f.pid, SIGSTOP), 0);
    fixture_send(&f, CGM_MSG_BUFFER_ALLOC, &alloc.base, NULL, 0);
    uint32_t serial = f.serial;
    fixture_send(&f, CGM_MSG_SESSION_REMOVE, &remove.base, NULL, 0);
    assert_int_equal(send_signal(f.pid, SIGCONT), 0);
    assert_int_equal(fixture_reply(&f, serial), CGM_CANCELLED);
    fixture_session_close(&s);
    fixture_close(&f);
}

/* The same for the memory of a plan, with its comm. */
static void test_a_comm_ends_while_its_plan_is_made(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_session s;
    Cgm__PlanCreate ask = CGM__PLAN_CREATE__INIT;
    Cgm__CommRemove remove = CGM__COMM_REMOVE__INIT;
    fixture_open(&f, 60000, 60000, 0);
    fixture_session_open(&f, 1, &s);
    fixture_comm_add(&f, 1, (const uint64_t[]){1}, 1, 60000, 0);
    ask.comm = remove.comm = 1;
    ask.op = CGM_OP_AG_GEMM;
    ask.method = CGM_METHOD_NONE;
    ask.comm_type = CGM_COMM_TYPE_AG;
    ask.k = 1024;
    ask.m = 4 * LARGE / sizeof(float) / ask.k;
    ask.n = 16;
    assert_int_equal(send_signal(f.pid, SIGSTOP), 0);
    uint32_t serial = fixture_plan_send(&f, 1, &ask, 1);
    remove.status = CGM_PEER_LOST;
    fixture_send(&f, CGM_MSG_COMM_REMOVE, &remove.base, NULL, 0);
    assert_int_equal(send_signal(f.pid, SIGCONT), 0);
    assert_int_equal(fixture_reply(&f, serial), CGM_CANCELLED);
    assert_string_equal(f.why, "plan: its comm ended while it was being made");
    /* Before anything of it was made. */
    assert_int_equal(fixture_plan_try(&f, 2, &ask, 1), CGM_CANCELLED);
    assert_string_equal(f.why, "plan: its comm ended while it was being made");
    fixture_session_close(&s);
    fixture_close(&f);
}

static uint32_t send_import_remove(struct fixture *f, uint64_t id)
{
    Cgm__ImportRemove m = CGM__IMPORT_REMOVE__INIT;
    m.id = id;
    fixture_send(f, CGM_MSG_IMPORT_REMOVE, &m.base, NULL, 0);
    return f->serial;
}

/* Memory that the clients have, too. */
static void test_imports_of_two_users(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_session sessions[2];
    uint32_t serials[N_LARGE + 1];
    fixture_open(&f, 60000, 60000, 0);
    for (uint32_t i = 0; i < 2; i++)
        fixture_session_open_as(&f, 1 + i, 1000 + i, &sessions[i]);
    for (uint32_t i = 0; i < N_LARGE; i++)
        import_add(&f, 1, FIRST_ID + i, LARGE);
    import_add(&f, 2, SMALL_ID, SMALL);
    for (uint32_t i = 0; i < N_LARGE; i++)
        serials[i] = send_import_remove(&f, FIRST_ID + i);
    serials[N_LARGE] = send_import_remove(&f, SMALL_ID);
    expect_answers(&f, serials, N_LARGE + 1);
    for (uint32_t i = 0; i < 2; i++)
        fixture_session_close(&sessions[i]);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_users_take_turns),
        cmocka_unit_test(test_imports_of_two_users),
        cmocka_unit_test(test_a_session_ends_while_its_buffer_is_made),
        cmocka_unit_test(test_a_comm_ends_while_its_plan_is_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
