/* Queues and the streams behind them: priorities, how many there can be, and that those which must
 * run side by side do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "daemon/executor/cuda/queue.h"
#include "tests/gpu/gpu_fixture.h"

static int make(int priority, uint32_t beside, struct cgm_queue **ret_queue)
{
    return ops->queue_new(backend, 0, priority, beside, ret_queue);
}

static void test_priorities_are_the_streams(void **state)
{
    struct cgm_device_info info;
    (void)state;
    assert_int_equal(ops->device_info(backend, 0, &info), CGM_OK);
    print_message("priorities 0 to %d, %u multiprocessors\n", info.priority_greatest, info.sms);
    assert_true(info.priority_greatest < 0 && info.sms > 0);
    for (int priority = -7; priority <= 7; priority++) {
        struct cgm_queue *queue;
        int expected = priority > 0 ? 0 : priority, got = 1;
        expected = expected < info.priority_greatest ? info.priority_greatest : expected;
        assert_int_equal(make(priority, 0, &queue), CGM_OK);
        assert_int_equal(cudaStreamGetPriority(queue->stream->handle, &got), cudaSuccess);
        assert_int_equal(got, expected);
        ops->queue_free(queue);
    }
}

/* Every queue but the last waits for the one that was made after it. */
static void check_side_by_side(struct cgm_queue **queues, uint32_t count)
{
    struct cgm_flag *flags[CGM_CUDA_STREAMS + 1], *done;
    uint64_t until = now_ns() + 10000000000ull;
    assert_int_equal(ops->flag_new(backend, 0, CGM_FLAG_HOST, &done), CGM_OK);
    for (uint32_t i = 0; i <= count; i++)
        assert_int_equal(ops->flag_new(backend, 0, CGM_FLAG_DEVICE, &flags[i]), CGM_OK);
    for (uint32_t i = 0; i < count; i++) {
        ops->set_run(queues[i], NULL);
        if (i + 1 < count)
            assert_int_equal(ops->wait(queues[i], flags[i + 1], 1, &label), CGM_OK);
        assert_int_equal(ops->signal(queues[i], i == 0 ? done : flags[i], 1), CGM_OK);
    }
    while (ops->flag_read(done) < 1)
        if (now_ns() > until)
            fail_msg("%u queues do not run side by side", count);
    for (uint32_t i = 0; i <= count; i++)
        ops->flag_free(flags[i]);
    ops->flag_free(done);
}

static void test_as_many_as_a_comm_may_have(void **state)
{
    struct cgm_queue *queues[2 * CGM_CUDA_STREAMS], *more;
    (void)state;
    assert_int_equal(ops->queues_max, CGM_CUDA_STREAMS);
    for (uint32_t i = 0; i < 2 * CGM_CUDA_STREAMS; i++)
        assert_int_equal(make(0, i % CGM_CUDA_STREAMS, &queues[i]), CGM_OK);
    assert_int_equal(make(0, CGM_CUDA_STREAMS, &more), CGM_NOT_SUPPORTED);
    check_side_by_side(queues, CGM_CUDA_STREAMS);
    check_side_by_side(queues + CGM_CUDA_STREAMS, CGM_CUDA_STREAMS);
    for (uint32_t i = 0; i < 2 * CGM_CUDA_STREAMS; i++)
        ops->queue_free(queues[i]);
}

static void test_streams_of_another_priority_make_room(void **state)
{
    struct cgm_queue *queues[CGM_CUDA_STREAMS], *urgent[4];
    (void)state;
    for (uint32_t i = 0; i < CGM_CUDA_STREAMS; i++)
        assert_int_equal(make(0, i, &queues[i]), CGM_OK);
    ops->queue_free(queues[0]);
    ops->queue_free(queues[1]);
    assert_int_equal(make(-3, 0, &urgent[0]), CGM_OK);
    assert_int_equal(make(-3, 1, &urgent[1]), CGM_OK);
    assert_int_equal(urgent[0]->stream->priority, -3);
    assert_int_equal(urgent[1]->stream->priority, -3);
    /* A third with that priority would share with one of the two. */
    assert_int_equal(make(-3, 2, &urgent[2]), CGM_OK);
    assert_int_equal(urgent[2]->stream->priority, 0);
    check_side_by_side(urgent, 3);
    assert_int_equal(make(-3, 1, &urgent[3]), CGM_OK);
    assert_ptr_equal(urgent[3]->stream, urgent[0]->stream);
    for (uint32_t i = 0; i < 4; i++)
        ops->queue_free(urgent[i]);
    for (uint32_t i = 2; i < CGM_CUDA_STREAMS; i++)
        ops->queue_free(queues[i]);
}

/* Whoever has them all keeps nobody else from his plans. */
static void test_all_streams_have_another_priority(void **state)
{
    struct cgm_queue *urgent[CGM_CUDA_STREAMS], *queues[CGM_CUDA_STREAMS];
    (void)state;
    for (uint32_t i = 0; i < CGM_CUDA_STREAMS; i++)
        assert_int_equal(make(-5, i, &urgent[i]), CGM_OK);
    for (uint32_t i = 0; i < CGM_CUDA_STREAMS; i++)
        assert_int_equal(make(0, i, &queues[i]), CGM_OK);
    check_side_by_side(queues, CGM_CUDA_STREAMS);
    for (uint32_t i = 0; i < CGM_CUDA_STREAMS; i++) {
        ops->queue_free(urgent[i]);
        ops->queue_free(queues[i]);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_priorities_are_the_streams),
        cmocka_unit_test(test_as_many_as_a_comm_may_have),
        cmocka_unit_test(test_streams_of_another_priority_make_room),
        cmocka_unit_test(test_all_streams_have_another_priority),
    };
    take_filter(argc, argv);
    return cmocka_run_group_tests(tests, open_backend, close_backend);
}
