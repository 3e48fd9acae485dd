/* Launches of many ranks are enqueued rank by rank, and another user's come in between. That is
 * seen in the order of the ends; times do not count. */
#include "executor_fixture.h"

#define RANKS 8u
#define COMMS 3u
#define SIDE 4u
#define COLS 16u /* of a rank: the executor takes 15 ms to enqueue each of its products */
#define BUFFER_BYTES 65536u

enum { NARROW = 1, WIDE }; /* users, and their sessions and buffers */
enum { NARROW_COMM = 1, FIRST_WIDE_COMM };

struct user {
    struct fixture_session s;
    struct host_view view;
};

static void user_open(struct fixture *f, struct user *user, uint32_t id)
{
    fixture_session_open_as(f, id, id, &user->s);
    fixture_buffer(f, id, BUFFER_BYTES, &user->s, &user->view);
}

static void user_close(struct user *user)
{
    fixture_session_close(&user->s);
    host_view_close(&user->view);
}

/* A comm of a user's alone, and a plan of the same number. */
static void comm_open(struct fixture *f, uint32_t user, uint32_t id, uint32_t ranks)
{
    uint64_t sessions[RANKS];
    for (uint32_t rank = 0; rank < ranks; rank++)
        sessions[rank] = user;
    fixture_comm_add_as(f, id, user, sessions, ranks, FIXTURE_WAIT_MS, 0);
    if (ranks > 1)
        fixture_plan(f, id, id, CGM_OP_AG_GEMM, CGM_ALGO_SPLIT_PIPELINED_AG_P2P, SIDE * ranks,
                     COLS * ranks, SIDE, ranks);
    else
        fixture_plan(f, id, id, CGM_OP_GEMM_AR, CGM_ALGO_NO_OVERLAP, SIDE, SIDE, SIDE, ranks);
}

static void submit(struct user *user, uint32_t comm, uint32_t ranks)
{
    for (uint32_t rank = 0; rank < ranks; rank++) {
        struct cgm_entry e = {
            .ticket = ++user->s.ticket,
            .plan = comm,
            .comm_number = 1,
            .opcode = CGM_OPCODE_RUN,
            .rank = rank,
            .rows = SIDE * ranks,
        };
        e.operand[CGM_OPERAND_LHS] = (struct cgm_operand){user->s.id, 0, 0, 1, 0};
        e.operand[CGM_OPERAND_RHS] = (struct cgm_operand){user->s.id, 16384, 0, 1, 0};
        e.operand[CGM_OPERAND_OUT] = (struct cgm_operand){user->s.id, 32768, 0, 1, 0};
        fixture_push(&user->s, (uint32_t)(e.ticket % FIXTURE_ENTRIES), &e, 1);
    }
}

static uint32_t count_ended(const struct user *user)
{
    return atomic_load(&user->s.ring.header->cq_tail) - atomic_load(&user->s.ring.header->cq_head);
}

/* Two ranks of each wide job are on the device. In the order of coming the narrow one would be
 * behind them all, when all wide jobs but the last have ended. */
static void test_nobody_waits_for_all_ranks_of_others(void **state)
{
    struct fixture f;
    struct user wide, narrow;
    (void)state;
    fixture_open(&f, FIXTURE_WAIT_MS, FIXTURE_WAIT_MS, 0);
    user_open(&f, &narrow, NARROW);
    user_open(&f, &wide, WIDE);
    comm_open(&f, NARROW, NARROW_COMM, 1);
    for (uint32_t i = 0; i < COMMS; i++)
        comm_open(&f, WIDE, FIRST_WIDE_COMM + i, RANKS);
    uint64_t before = f.journal->jobs_launched;
    for (uint32_t i = 0; i < COMMS; i++)
        submit(&wide, FIRST_WIDE_COMM + i, RANKS);
    for (int i = 0; i < FIXTURE_WAIT_MS && f.journal->jobs_launched - before < COMMS * RANKS; i++)
        usleep(1000);
    submit(&narrow, NARROW_COMM, 1);
    struct cgm_cqe cqe = fixture_reap(&narrow.s);
    uint32_t ended = count_ended(&wide);
    print_message("%u of %u ended before\n", ended, COMMS * RANKS);
    assert_string_equal(cqe.detail, "");
    assert_true(ended <= RANKS);
    for (uint32_t i = 0; i < COMMS * RANKS; i++)
        assert_int_equal(fixture_reap(&wide.s).status, CGM_OK);
    user_close(&wide);
    user_close(&narrow);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nobody_waits_for_all_ranks_of_others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
