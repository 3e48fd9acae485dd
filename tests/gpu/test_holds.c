/* What the backend does while launches go on waits for no queue: a launch may be half-way, and what
 * its queues wait for not enqueued yet. What waits says so (mem_holds_up). */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/gpu/gpu_fixture.h"

#define BYTES (4 * MIB)
#define PATIENCE_S 20u /* then the program is killed */

static struct cgm_mem *later; /* what may only be freed when the queue is through */

static void free_now(struct cgm_mem *mem)
{
    assert_false(ops->mem_holds_up(mem));
    ops->mem_free(mem);
}

static void buffer(void)
{
    struct cgm_mem *mem, *again;
    int fd;
    assert_int_equal(ops->mem_alloc(backend, 0, BYTES, 0, &mem), CGM_OK);
    assert_int_equal(ops->mem_export(mem, &fd), CGM_OK);
    assert_int_equal(ops->mem_adopt(backend, 0, fd, BYTES, &again), CGM_OK);
    close(fd);
    free_now(again);
    free_now(mem);
}

static void exported_memory(void)
{
    struct cgm_mem *mem, *import = NULL;
    char detail[256];
    int fd;
    assert_int_equal(ops->mem_alloc(backend, 0, BYTES, 0, &mem), CGM_OK);
    assert_int_equal(ops->mem_export(mem, &fd), CGM_OK);
    struct cgm_memory_segment segment = {.kind = 1, .fd = fd, .length = BYTES};
    assert_int_equal(
        ops->mem_import(backend, 0, &segment, 1, false, detail, sizeof(detail), &import), CGM_OK);
    close(fd);
    free_now(import);
    free_now(mem);
}

static void import_of_a_memfd(void)
{
    char detail[256];
    int fd = memfd_create("holds", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(fallocate(fd, 0, 0, BYTES), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    struct cgm_memory_segment segment = {.kind = 1, .fd = fd, .length = BYTES};
    assert_int_equal(
        ops->mem_import(backend, 0, &segment, 1, false, detail, sizeof(detail), &later), CGM_OK);
    close(fd);
    assert_true(ops->mem_holds_up(later));
}

static void queue(void)
{
    struct lane lane;
    lane_open(&lane, 0);
    lane_finish(&lane);
    lane_close(&lane);
}

static void flags(void)
{
    struct cgm_flag *flag;
    for (int kind = CGM_FLAG_DEVICE; kind <= CGM_FLAG_HOST; kind++) {
        assert_int_equal(ops->flag_new(backend, 0, (enum cgm_flag_kind)kind, &flag), CGM_OK);
        ops->flag_free(flag);
    }
}

static void info(void)
{
    struct cgm_device_info device;
    assert_int_equal(ops->device_info(backend, 0, &device), CGM_OK);
}

static void recording(void)
{
    struct cgm_recording *made = NULL;
    struct cgm_queue *stand_in;
    struct lane lane;
    struct memory memory;
    memory_open(&memory, 0, BYTES);
    lane_open(&lane, 0);
    struct cgm_copy copy = {.label = label,
                            .dst = view_of(memory.mem, 0, 1, 1024, 1024, CGM_DTYPE_FP32),
                            .src = view_of(memory.mem, 8192, 1, 1024, 1024, CGM_DTYPE_FP32)};
    assert_int_equal(ops->record_begin(lane.queue, &stand_in), CGM_OK);
    ops->set_run(stand_in, &lane.run);
    assert_int_equal(ops->copy(stand_in, &copy), CGM_OK);
    assert_int_equal(ops->record_end(stand_in, &made), CGM_OK);
    assert_int_equal(ops->replay(lane.queue, made, 0), CGM_OK);
    lane_finish(&lane);
    ops->recording_free(made);
    lane_close(&lane);
    memory_close(&memory);
}

static void test_nothing_waits_for_a_queue(void **state)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } acts[] = {
        {"a buffer", buffer},
        {"exported memory", exported_memory},
        {"a memfd", import_of_a_memfd},
        {"a queue", queue},
        {"flags", flags},
        {"what is known of the device", info},
        {"a recording", recording},
    };
    struct cgm_flag *gate;
    struct lane waiting, opener;
    (void)state;
    lane_open(&waiting, 0);
    lane_open(&opener, 0);
    assert_int_equal(ops->flag_new(backend, 0, CGM_FLAG_DEVICE, &gate), CGM_OK);
    assert_int_equal(ops->wait(waiting.queue, gate, 1, &label), CGM_OK);
    for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++) {
        uint64_t begin_ns = now_ns();
        alarm(PATIENCE_S);
        print_message("%s\n", acts[i].name);
        acts[i].run();
        alarm(0);
        print_message("  %.2f ms\n", (double)(now_ns() - begin_ns) / 1e6);
    }
    assert_int_equal(ops->signal(opener.queue, gate, 1), CGM_OK);
    lane_finish(&waiting);
    lane_finish(&opener);
    lane_close(&waiting);
    lane_close(&opener);
    ops->flag_free(gate);
    ops->mem_free(later);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nothing_waits_for_a_queue)};
    take_filter(argc, argv);
    return cmocka_run_group_tests(tests, open_backend, close_backend);
}
