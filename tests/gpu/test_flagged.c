/* Flagged products: right results for every type, layout and odd size; parts that wait for what a
 * copy engine brings, alone and beside a kernel that fills the device; parts that are published
 * while the rest is multiplied; a run that fails lets go; all of that from recordings, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "daemon/executor/cuda/cuda.h"
#include "tests/gpu/flagged_scene.h"

/* ---- contents ---------------------------------------------------------------------------------
 */

static void test_shapes(void **state)
{
    (void)state;
    struct lane lane;
    lane_open(&lane, 0);
    for (int i = 0; i < 160; i++) {
        struct product product;
        product_open(&product, i % 8);
        assert_int_equal(product_multiply(&lane, &product), CGM_OK);
        lane_finish(&lane);
        product_judge(&product);
        product_close(&product);
    }
    lane_close(&lane);
}

/* Twice the same to the bit, whatever the order in which blocks come. */
static void test_repeats(void **state)
{
    (void)state;
    struct lane lane;
    struct product product;
    lane_open(&lane, 0);
    for (int i = 0; i < 8; i++) {
        product_open(&product, i);
        product.gemm.accumulate = false;
        assert_int_equal(product_multiply(&lane, &product), CGM_OK);
        lane_finish(&lane);
        host_view_pull(&product.memory.view, 0, PRODUCT_BYTES);
        unsigned char *first = malloc(PRODUCT_BYTES);
        memcpy(first, product.memory.view.base, PRODUCT_BYTES);
        assert_int_equal(product_multiply(&lane, &product), CGM_OK);
        lane_finish(&lane);
        host_view_pull(&product.memory.view, 0, PRODUCT_BYTES);
        assert_memory_equal(first, product.memory.view.base, PRODUCT_BYTES);
        free(first);
        product_close(&product);
    }
    lane_close(&lane);
}

static void test_bad_parts_are_refused(void **state)
{
    (void)state;
    struct lane lane;
    struct product product;
    lane_open(&lane, 0);
    product_open(&product, 0);
    struct cgm_gemm_part part = {.a = product.a.view, .out = product.out.view};
    struct cgm_flagged_gemm flagged = {.gemm = product.gemm, .parts = &part};
    assert_int_equal(ops->flagged_gemm(lane.queue, &flagged), CGM_INVALID_ARGUMENT);
    flagged.n_parts = CGM_GEMM_PARTS_MAX + 1;
    assert_int_equal(ops->flagged_gemm(lane.queue, &flagged), CGM_INVALID_ARGUMENT);
    flagged.n_parts = 1;
    part.col = 1;
    assert_int_equal(ops->flagged_gemm(lane.queue, &flagged), CGM_INVALID_ARGUMENT);
    part.col = 0;
    part.out.rows++;
    assert_int_equal(ops->flagged_gemm(lane.queue, &flagged), CGM_INVALID_ARGUMENT);
    lane_finish(&lane);
    product_close(&product);
    lane_close(&lane);
}

/* ---- flags ------------------------------------------------------------------------------------
 */

/* A product that no library does, in so many blocks that they fill the device for milliseconds. */
static void fill_device(const struct chunks *chunks, struct lane *lane)
{
    struct cgm_gemm gemm = {.label = label, .a = chunks->b, .b = chunks->b, .out = chunks->out};
    gemm.a.rows = gemm.a.cols = gemm.b.rows = 512;
    gemm.b.cols = 4096;
    gemm.b.dtype = CGM_DTYPE_FP16;
    gemm.out = chunks->spare;
    for (int i = 0; i < 8; i++)
        assert_int_equal(ops->gemm(lane->queue, &gemm), CGM_OK);
}

/* The rows of a arrive from host memory, chunk by chunk, while the product is under way. */
static void await_chunks(struct lane *filler)
{
    struct lane lane, bringer;
    struct chunks chunks;
    lane_open(&lane, 0);
    lane_open(&bringer, 0);
    chunks_open(&chunks);
    if (filler)
        fill_device(&chunks, filler);
    assert_int_equal(chunks_multiply(&chunks, &lane), CGM_OK);
    assert_int_equal(ops->signal(lane.queue, lane.done, ++lane.epoch), CGM_OK);
    assert_false(lane_is_through(&lane, 20));
    for (uint32_t i = 0; i < CHUNKS; i++)
        chunks_bring(&chunks, &bringer, i);
    assert_true(lane_is_through(&lane, 20000));
    lane_finish(&bringer);
    if (filler)
        lane_finish(filler);
    chunks_judge(&chunks);
    chunks_close(&chunks);
    lane_close(&bringer);
    lane_close(&lane);
}

static void test_parts_await_their_rows(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        await_chunks(NULL);
}

static void test_beside_a_full_device(void **state)
{
    (void)state;
    struct lane filler;
    lane_open(&filler, 0);
    for (int i = 0; i < 3; i++)
        await_chunks(&filler);
    lane_close(&filler);
}

/* What is published is copied away at once, and is all there. */
static void test_parts_are_published(void **state)
{
    (void)state;
    struct lane lane, taker;
    struct chunks chunks;
    lane_open(&lane, 0);
    lane_open(&taker, 0);
    chunks_open(&chunks);
    for (int i = 0; i < 5; i++) {
        chunks_reset(&chunks, &lane);
        for (uint32_t c = 0; c < CHUNKS; c++)
            chunks_bring(&chunks, &lane, c);
        assert_int_equal(chunks_multiply(&chunks, &lane), CGM_OK);
        for (uint32_t c = 0; c < CHUNKS; c++)
            chunks_take(&chunks, &taker, c);
        lane_finish(&taker);
        lane_finish(&lane);
        chunks_judge_taken(&chunks);
    }
    chunks_close(&chunks);
    lane_close(&taker);
    lane_close(&lane);
}

/* Nobody brings the last chunk: the kernel waits until the run has failed, then publishes all. */
static void test_a_failed_run_lets_go(void **state)
{
    (void)state;
    struct lane lane, bringer;
    struct chunks chunks;
    lane_open(&lane, 0);
    lane_open(&bringer, 0);
    chunks_open(&chunks);
    for (uint32_t c = 0; c + 1 < CHUNKS; c++)
        chunks_bring(&chunks, &bringer, c);
    assert_int_equal(chunks_multiply(&chunks, &lane), CGM_OK);
    assert_int_equal(ops->signal(lane.queue, lane.done, ++lane.epoch), CGM_OK);
    assert_false(lane_is_through(&lane, 50));
    ops->release_waits(backend, &bringer.run); /* somebody else's */
    assert_false(lane_is_through(&lane, 20));
    atomic_store(&lane.run.status, CGM_WATCHDOG);
    ops->release_waits(backend, &lane.run);
    assert_true(lane_is_through(&lane, 2000));
    for (uint32_t c = 0; c < CHUNKS; c++) /* waits for what was published */
        chunks_take(&chunks, &bringer, c);
    lane_finish(&bringer);
    /* A product of the failed run does nothing, but publishes. */
    chunks.epoch++;
    assert_int_equal(chunks_multiply(&chunks, &lane), CGM_OK);
    ops->release_waits(backend, &lane.run);
    for (uint32_t c = 0; c < CHUNKS; c++)
        chunks_take(&chunks, &bringer, c);
    lane_finish(&bringer);
    chunks_close(&chunks);
    lane_close(&bringer);
    lane_close(&lane);
}

/* ---- recordings -------------------------------------------------------------------------------
 */

/* The product of chunks->epoch. */
static struct cgm_recording *record_chunks(const struct chunks *chunks, const struct lane *lane)
{
    struct lane stand_in = *lane;
    struct cgm_recording *recording = NULL;
    assert_int_equal(ops->record_begin(lane->queue, &stand_in.queue), CGM_OK);
    assert_int_equal(chunks_multiply(chunks, &stand_in), CGM_OK);
    assert_int_equal(ops->record_end(stand_in.queue, &recording), CGM_OK);
    return recording;
}

static void replay_chunks(struct chunks *chunks, struct lane *lane, struct lane *taker,
                          struct cgm_recording *recording, uint64_t raise)
{
    assert_int_equal(ops->replay(lane->queue, recording, raise), CGM_OK);
    for (uint32_t c = 0; c < CHUNKS; c++)
        chunks_bring(chunks, taker, c);
    for (uint32_t c = 0; c < CHUNKS; c++)
        chunks_take(chunks, taker, c);
    lane_finish(taker);
    lane_finish(lane);
    chunks_judge_taken(chunks);
}

/* Each replay waits for what comes in its turn, foreseen or not, and beside products of the same
 * stream that are not replayed. */
static void test_replays(void **state)
{
    (void)state;
    struct lane lane, taker;
    struct chunks chunks;
    lane_open(&lane, 0);
    lane_open(&taker, 0);
    chunks_open(&chunks);
    uint64_t recorded = chunks.epoch;
    struct cgm_recording *recording = record_chunks(&chunks, &lane);
    for (int i = 0; i < 12; i++) {
        chunks_reset(&chunks, &lane);
        if (i % 3 == 1) /* what is foreseen does not always come */
            ops->foresee(lane.queue, recording, chunks.epoch - recorded + i % 2);
        if (i % 4 == 3) {
            for (uint32_t c = 0; c < CHUNKS; c++)
                chunks_bring(&chunks, &taker, c);
            assert_int_equal(chunks_multiply(&chunks, &lane), CGM_OK);
            lane_finish(&taker);
            lane_finish(&lane);
            chunks_judge(&chunks);
            continue;
        }
        replay_chunks(&chunks, &lane, &taker, recording, chunks.epoch - recorded);
    }
    ops->recording_free(recording);
    chunks_close(&chunks);
    lane_close(&taker);
    lane_close(&lane);
}

/* Nobody brings anything: the kernel waits until the run has failed, then publishes all. The next
 * replay is right. */
static void test_a_failed_replay_lets_go(void **state)
{
    (void)state;
    struct lane lane, taker;
    struct chunks chunks;
    lane_open(&lane, 0);
    lane_open(&taker, 0);
    chunks_open(&chunks);
    uint64_t recorded = chunks.epoch;
    struct cgm_recording *recording = record_chunks(&chunks, &lane);
    chunks_reset(&chunks, &lane);
    assert_int_equal(ops->replay(lane.queue, recording, chunks.epoch - recorded), CGM_OK);
    assert_int_equal(ops->signal(lane.queue, lane.done, ++lane.epoch), CGM_OK);
    ops->foresee(lane.queue, recording, chunks.epoch + 1 - recorded);
    assert_false(lane_is_through(&lane, 50));
    atomic_store(&lane.run.status, CGM_WATCHDOG);
    ops->release_waits(backend, &lane.run);
    assert_true(lane_is_through(&lane, 2000));
    for (uint32_t c = 0; c < CHUNKS; c++) /* waits for what was published */
        chunks_take(&chunks, &taker, c);
    lane_finish(&taker);
    atomic_store(&lane.run.status, CGM_OK);
    lane.run.begin_ns = now_ns();
    chunks_reset(&chunks, &lane);
    replay_chunks(&chunks, &lane, &taker, recording, chunks.epoch - recorded);
    ops->recording_free(recording);
    chunks_close(&chunks);
    lane_close(&taker);
    lane_close(&lane);
}

/* What a kernel waits for may come behind other work then. */
static void test_shared_streams_outdate(void **state)
{
    (void)state;
    struct lane lanes[CGM_CUDA_STREAMS + 1];
    struct chunks chunks;
    lane_open(&lanes[0], 0);
    chunks_open(&chunks);
    struct cgm_recording *recording = record_chunks(&chunks, &lanes[0]);
    assert_false(ops->recording_is_outdated(backend, recording));
    for (uint32_t i = 1; i <= CGM_CUDA_STREAMS; i++)
        lane_open(&lanes[i], 0);
    assert_true(ops->recording_is_outdated(backend, recording));
    for (uint32_t i = 1; i <= CGM_CUDA_STREAMS; i++)
        lane_close(&lanes[i]);
    assert_false(ops->recording_is_outdated(backend, recording));
    ops->recording_free(recording);
    chunks_close(&chunks);
    lane_close(&lanes[0]);
}

int main(int argc, char **argv)
{
    take_filter(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_repeats),
        cmocka_unit_test(test_bad_parts_are_refused),
        cmocka_unit_test(test_parts_await_their_rows),
        cmocka_unit_test(test_beside_a_full_device),
        cmocka_unit_test(test_parts_are_published),
        cmocka_unit_test(test_a_failed_run_lets_go),
        cmocka_unit_test(test_replays),
        cmocka_unit_test(test_a_failed_replay_lets_go),
        cmocka_unit_test(test_shared_streams_outdate),
    };
    return cmocka_run_group_tests(tests, open_backend, close_backend);
}
