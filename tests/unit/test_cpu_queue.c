/* Flags, order, aborts, room and phases of the CPU backend's queues. */
#include "tests/unit/cpu_matrix.h"

#include <dirent.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "daemon/executor/cpu/queue.h"

#ifndef PR_FUTEX_HASH
#define PR_FUTEX_HASH 78
#endif
#ifndef PR_FUTEX_HASH_GET_SLOTS
#define PR_FUTEX_HASH_GET_SLOTS 2
#endif

static const struct cgm_label no_label;

/* One tensor of one element, and helpers to move it between memories. */
static struct cgm_view cell(struct cgm_mem *mem, uint64_t index)
{
    return (struct cgm_view){mem, index * sizeof(float), 1, 1, 1, CGM_DTYPE_FP32};
}

static int enqueue_add(struct cgm_queue *queue, struct cgm_view dst, struct cgm_view a,
                       struct cgm_view b)
{
    struct cgm_reduce reduce = {.dst = dst, .n_src = 2, .src = {a, b}};
    return ops->reduce(queue, &reduce);
}

#define QUEUES 6
#define ROUNDS 60

/* Every queue in turn adds 1 to a cell; each waits for the one before it. Enqueued in random order,
 * delayed at random: the result is right only if every wait and signal holds. */
static void test_chain_across_queues(void **state)
{
    (void)state;
    struct cgm_backend *backend = fixture_open(300);
    struct cgm_queue *queues[QUEUES];
    struct cgm_flag *flag = fixture_flag(backend, CGM_FLAG_DEVICE);
    struct cgm_flag *done = fixture_flag(backend, CGM_FLAG_HOST);
    struct cgm_mem *mem;
    assert_int_equal(ops->mem_alloc(backend, 0, 4096, 0, &mem), CGM_OK);
    float *values = (float *)(void *)fixture_map(mem);
    values[1] = 1;
    for (int i = 0; i < QUEUES; i++)
        queues[i] = fixture_queue(backend, (uint32_t)i % 4);
    for (int first = (int)pick(0, QUEUES - 1), i = QUEUES - 1; i >= 0; i--) {
        int q = (first + i) % QUEUES;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            uint64_t turn = round * QUEUES + (uint64_t)q;
            assert_int_equal(ops->wait(queues[q], flag, turn, &no_label), CGM_OK);
            assert_int_equal(enqueue_add(queues[q], cell(mem, 0), cell(mem, 0), cell(mem, 1)),
                             CGM_OK);
            assert_int_equal(ops->signal(queues[q], flag, turn + 1), CGM_OK);
        }
    }
    assert_int_equal(ops->wait(queues[0], flag, QUEUES * ROUNDS, &no_label), CGM_OK);
    assert_int_equal(ops->signal(queues[0], done, 7), CGM_OK);
    fixture_await(done, 7);
    assert_true(values[0] == QUEUES * ROUNDS);
    munmap(values, ops->mem_bytes(mem));
    for (int i = 0; i < QUEUES; i++)
        ops->queue_free(queues[i]);
    ops->flag_free(flag);
    ops->flag_free(done);
    ops->mem_free(mem);
    ops->close(backend);
}

/* Far more operations than the ring has records, while the queue is held by a wait. */
static void *release_later(void *argument)
{
    struct cgm_queue *queue = ((void **)argument)[0];
    struct timespec pause = {0, 20000000};
    nanosleep(&pause, NULL);
    assert_int_equal(ops->signal(queue, ((void **)argument)[1], 1), CGM_OK);
    return NULL;
}

static void test_room(void **state)
{
    (void)state;
    enum { COUNT = 3 * CGM_QUEUE_RECORDS };
    struct cgm_backend *backend = fixture_open(0);
    struct cgm_queue *queue = fixture_queue(backend, 0), *other = fixture_queue(backend, 1);
    struct cgm_flag *gate = fixture_flag(backend, CGM_FLAG_DEVICE);
    struct cgm_mem *mem;
    assert_int_equal(ops->mem_alloc(backend, 0, 4096, 0, &mem), CGM_OK);
    float *values = (float *)(void *)fixture_map(mem);
    values[1] = 1;
    pthread_t thread;
    void *argument[2] = {other, gate};
    assert_int_equal(pthread_create(&thread, NULL, release_later, argument), 0);
    assert_int_equal(ops->wait(queue, gate, 1, &no_label), CGM_OK);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(enqueue_add(queue, cell(mem, 0), cell(mem, 0), cell(mem, 1)), CGM_OK);
    fixture_drain(backend, queue);
    pthread_join(thread, NULL);
    assert_true(values[0] == COUNT);
    munmap(values, ops->mem_bytes(mem));
    ops->queue_free(queue);
    ops->queue_free(other);
    ops->flag_free(gate);
    ops->mem_free(mem);
    ops->close(backend);
}

/* An aborted run: the wait gives up, work is skipped, signals and poison happen. */
static void test_abort(void **state)
{
    (void)state;
    struct cgm_backend *backend = fixture_open(0);
    struct cgm_queue *queue = fixture_queue(backend, 0);
    struct cgm_flag *never = fixture_flag(backend, CGM_FLAG_DEVICE);
    struct cgm_flag *done = fixture_flag(backend, CGM_FLAG_HOST);
    for (uint64_t i = 1; i <= 20; i++) {
        struct cgm_run run = {.status = CGM_OK};
        struct tensor src, dst, out;
        tensor_init(&src, backend, 3, 4, CGM_DTYPE_FP16, CGM_FILL_NORMAL);
        tensor_init(&dst, backend, 3, 4, CGM_DTYPE_FP16, CGM_FILL_NORMAL);
        tensor_init(&out, backend, 1, 1, CGM_DTYPE_FP32, CGM_FILL_NORMAL);
        ops->set_run(queue, &run);
        struct cgm_copy copy = {.dst = dst.view, .src = src.view};
        assert_int_equal(ops->wait(queue, never, 1, &no_label), CGM_OK);
        assert_int_equal(ops->copy(queue, &copy), CGM_OK);
        assert_int_equal(ops->poison(queue, &out.view), CGM_OK);
        assert_int_equal(ops->signal(queue, done, i), CGM_OK);
        struct timespec pause = {0, (long)pick(0, 3000000)};
        nanosleep(&pause, NULL);
        assert_true(ops->flag_read(done) == i - 1);
        atomic_store(&run.status, CGM_WATCHDOG);
        fixture_await(done, i);
        assert_memory_equal(dst.before, dst.bytes, dst.n_bytes);
        float value;
        memcpy(&value, tensor_at(&out, 0, 0), sizeof(value));
        assert_true(value != value);
        tensor_fini(&src);
        tensor_fini(&dst);
        tensor_fini(&out);
    }
    ops->queue_free(queue);
    ops->flag_free(never);
    ops->flag_free(done);
    ops->close(backend);
}

static void check_phase(const struct cgm_phase *phase, int kind, struct cgm_label label)
{
    assert_int_equal(phase->kind, kind);
    assert_int_equal(phase->device, 3);
    assert_int_equal(phase->rank, label.rank);
    assert_int_equal(phase->queue, label.queue);
    assert_int_equal(phase->chunk, label.chunk);
    assert_int_equal(phase->peer_or_zero, label.peer);
    assert_true(phase->begin_ns <= phase->end_ns);
    assert_true(phase->end_ns < 60000000000u);
}

static void test_phases(void **state)
{
    (void)state;
    struct cgm_backend *backend = fixture_open(0);
    struct cgm_queue *queue = fixture_queue(backend, 3);
    struct cgm_phase phases[5] = {{.rank = 999}};
    struct cgm_run run = {.begin_ns = cgm_cpu_now_ns(), .phases = phases, .phases_max = 4};
    struct tensor t;
    tensor_init(&t, backend, 8, 8, CGM_DTYPE_FP32, CGM_FILL_NORMAL);
    struct cgm_label label = {.rank = 5, .queue = 1, .chunk = 9, .peer = 2};
    struct cgm_view upper = t.view, lower = t.view;
    upper.rows = lower.rows = 4;
    lower.offset_bytes += 4 * t.view.stride * sizeof(float);
    struct cgm_copy copy = {.label = label, .dst = upper, .src = lower};
    struct cgm_reduce reduce = {.label = label, .dst = upper, .n_src = 1, .src = {lower}};
    struct cgm_gemm gemm = {.label = label, .a = t.view, .b = t.view, .out = t.view};
    gemm.a.rows = gemm.out.rows = 1;
    gemm.out.offset_bytes += 7 * t.view.stride * sizeof(float);
    ops->set_run(queue, &run);
    assert_int_equal(ops->copy(queue, &copy), CGM_OK);
    assert_int_equal(ops->reduce(queue, &reduce), CGM_OK);
    assert_int_equal(ops->poison(queue, &upper), CGM_OK);
    assert_int_equal(ops->gemm(queue, &gemm), CGM_OK);
    assert_int_equal(ops->copy(queue, &copy), CGM_OK);
    fixture_drain(backend, queue);
    assert_int_equal(run.n_phases, 5);
    check_phase(&phases[0], CGM_PHASE_COPY, label);
    check_phase(&phases[1], CGM_PHASE_REDUCE, label);
    check_phase(&phases[2], CGM_PHASE_FILL, no_label);
    check_phase(&phases[3], CGM_PHASE_GEMM, label);
    assert_true(phases[0].end_ns <= phases[1].begin_ns && phases[4].end_ns == 0);
    ops->queue_free(queue);
    tensor_fini(&t);
    ops->close(backend);
}

static void test_several_waits(void **state)
{
    (void)state;
    struct cgm_backend *backend = fixture_open(0);
    struct cgm_queue *queue = fixture_queue(backend, 3);
    struct cgm_queue *other = fixture_queue(backend, 0);
    struct cgm_flag *done = fixture_flag(backend, CGM_FLAG_HOST);
    struct cgm_wait waits[CGM_FLAGS_AT_ONCE];
    struct cgm_flag_value signals[CGM_FLAGS_AT_ONCE];
    struct timespec pause = {0, 2000000};
    for (uint32_t i = 0; i < CGM_FLAGS_AT_ONCE; i++)
        waits[i] = (struct cgm_wait){{fixture_flag(backend, CGM_FLAG_DEVICE), i + 1}, no_label};
    uint32_t last = (uint32_t)pick(0, CGM_FLAGS_AT_ONCE - 1);
    assert_int_equal(ops->wait_all(queue, waits, CGM_FLAGS_AT_ONCE), CGM_OK);
    assert_int_equal(ops->signal(queue, done, 1), CGM_OK);
    for (uint32_t i = 0; i < CGM_FLAGS_AT_ONCE; i++)
        signals[i] = (struct cgm_flag_value){waits[i].until.flag, i + 1 - (i == last)};
    assert_int_equal(ops->signal_all(other, signals, CGM_FLAGS_AT_ONCE), CGM_OK);
    fixture_drain(backend, other);
    nanosleep(&pause, NULL);
    assert_true(ops->flag_read(done) == 0);
    assert_int_equal(ops->signal(other, waits[last].until.flag, last + 1), CGM_OK);
    fixture_await(done, 1);
    ops->queue_free(queue);
    ops->queue_free(other);
    for (uint32_t i = 0; i < CGM_FLAGS_AT_ONCE; i++)
        ops->flag_free(waits[i].until.flag);
    ops->flag_free(done);
    ops->close(backend);
}

/* A wait is a phase when it held the queue. Whether it did is up to the system's scheduler, so it
 * is tried until it did. */
static void test_wait_phase(void **state)
{
    (void)state;
    struct cgm_backend *backend = fixture_open(0);
    struct cgm_queue *queue = fixture_queue(backend, 3), *other = fixture_queue(backend, 0);
    struct cgm_flag *flag = fixture_flag(backend, CGM_FLAG_DEVICE);
    struct cgm_label label = {.rank = 5, .queue = 1, .chunk = 9, .peer = 2};
    struct cgm_phase phase;
    struct cgm_run run = {.begin_ns = cgm_cpu_now_ns(), .phases = &phase, .phases_max = 1};
    ops->set_run(queue, &run);
    for (uint64_t i = 1; i <= 500 && run.n_phases == 0; i++) {
        struct timespec pause = {0, 2000000};
        assert_int_equal(ops->wait(queue, flag, i, &label), CGM_OK);
        nanosleep(&pause, NULL);
        assert_int_equal(ops->signal(other, flag, i), CGM_OK);
        fixture_drain(backend, queue);
    }
    assert_int_equal(run.n_phases, 1);
    check_phase(&phase, CGM_PHASE_WAIT, label);
    assert_int_equal(ops->wait(queue, flag, 1, &label), CGM_OK);
    fixture_drain(backend, queue);
    assert_int_equal(run.n_phases, 1);
    ops->queue_free(queue);
    ops->queue_free(other);
    ops->flag_free(flag);
    ops->close(backend);
}

static void on_wake(void *context)
{
    sem_post(context);
}

/* The value is there before the wake; device flags wake nobody. */
static void test_host_flag_wakes(void **state)
{
    (void)state;
    sem_t woken;
    sem_init(&woken, 0, 0);
    struct cgm_backend_options options = {.devices = 2, .wake = on_wake, .wake_context = &woken};
    struct cgm_backend *backend;
    char detail[200];
    assert_int_equal(ops->open(&options, detail, sizeof(detail), &backend), CGM_OK);
    assert_int_equal(ops->device_count(backend), 2);
    struct cgm_queue *queue = fixture_queue(backend, 1);
    struct cgm_flag *host = fixture_flag(backend, CGM_FLAG_HOST);
    struct cgm_flag *device = fixture_flag(backend, CGM_FLAG_DEVICE);
    for (uint64_t i = 1; i <= 1000; i++) {
        assert_int_equal(ops->signal(queue, device, i), CGM_OK);
        assert_int_equal(ops->signal(queue, host, i), CGM_OK);
        while (sem_wait(&woken) != 0)
            ;
        assert_true(ops->flag_read(host) == i);
        assert_true(ops->flag_read(device) == i);
    }
    ops->queue_free(queue);
    assert_int_equal(sem_trywait(&woken), -1);
    ops->flag_free(host);
    ops->flag_free(device);
    ops->close(backend);
    sem_destroy(&woken);
}

/* What a job waits for is often not a product: threads that compute give way to those that do not.
 */
static void test_threads_give_way(void **state)
{
    (void)state;
    struct cgm_backend *backend = fixture_open(0);
    struct cgm_queue *queue = fixture_queue(backend, 0);
    struct cgm_flag *done = fixture_flag(backend, CGM_FLAG_HOST);
    assert_int_equal(ops->signal(queue, done, 1), CGM_OK);
    fixture_await(done, 1);
    int own = getpriority(PRIO_PROCESS, 0), nicer = 0;
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    assert_non_null(tasks);
    while ((entry = readdir(tasks))) {
        int thread = atoi(entry->d_name);
        nicer += thread > 0 && getpriority(PRIO_PROCESS, (id_t)thread) > own;
    }
    closedir(tasks);
    assert_true(nicer == 1 || own == 19);
    ops->queue_free(queue);
    ops->flag_free(done);
    ops->close(backend);
}

/* R, S and so on, of the thread of this name; 0: there is none. */
static char state_of_thread(const char *name)
{
    char path[64], comm[16], state = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (const struct dirent *entry; (entry = readdir(tasks));) {
        snprintf(path, sizeof(path), "/proc/self/task/%.10s/stat", entry->d_name);
        FILE *file = fopen(path, "re");
        char found = 0;
        if (file && fscanf(file, "%*d (%15[^)]) %c", comm, &found) == 2 && strcmp(comm, name) == 0)
            state = found;
        if (file)
            fclose(file);
    }
    closedir(tasks);
    return state;
}

/* A comm of many ranks has hundreds, and most of them have nothing to do for long. */
static void test_new_queues_sleep(void **state)
{
    (void)state;
    struct cgm_backend_options options = {.spin_ns = UINT64_C(3600000000000)};
    struct timespec pause = {0, 1000000};
    struct cgm_backend *backend = NULL;
    char detail[200];
    assert_int_equal(ops->open(&options, detail, sizeof(detail), &backend), CGM_OK);
    struct cgm_queue *queue = fixture_queue(backend, 3);
    while (state_of_thread("cgm-queue-3") != 'S')
        nanosleep(&pause, NULL);
    ops->queue_free(queue);
    ops->close(backend);
}

static void test_open_refuses(void **state)
{
    (void)state;
    struct cgm_backend_options options = {.devices = 65};
    struct cgm_backend *backend = NULL;
    struct cgm_queue *queue;
    struct cgm_flag *flag;
    struct cgm_device_info info;
    char detail[200];
    assert_int_equal(ops->open(&options, detail, sizeof(detail), &backend), CGM_INVALID_ARGUMENT);
    assert_non_null(strstr(detail, "65"));
    assert_non_null(strstr(detail, "64"));
    backend = fixture_open(0);
    assert_int_equal(ops->device_count(backend), 4);
    assert_int_equal(ops->queue_new(backend, 4, 0, 0, &queue), CGM_INVALID_ARGUMENT);
    assert_int_equal(ops->flag_new(backend, 4, CGM_FLAG_HOST, &flag), CGM_INVALID_ARGUMENT);
    assert_int_equal(ops->device_info(backend, 4, &info), CGM_INVALID_ARGUMENT);
    assert_int_equal(ops->device_info(backend, 3, &info), CGM_OK);
    assert_string_equal(info.uuid, "CPU-3");
    assert_true(info.bytes_total >= info.bytes_free && info.bytes_free > 0);
    assert_true(ops->allocations(backend) == 0);
    ops->close(backend);
}

/* Thousands of threads may wait at a time, of several users. */
static void test_a_signal_wakes_nobody_else(void **state)
{
    enum { FLAGS = 4000 };
    static struct cgm_flag *flags[FLAGS];
    (void)state;
    struct cgm_backend *backend = fixture_open(0);
    for (int i = 0; i < FLAGS; i++) {
        flags[i] = fixture_flag(backend, CGM_FLAG_DEVICE);
        assert_true(i == 0 || flags[i]->park != flags[0]->park);
    }
    for (int i = 0; i < FLAGS; i++)
        ops->flag_free(flags[i]);
    ops->close(backend);
}

/* A wake looks at all who sleep in one slot of the system's. */
static void test_sleepers_have_slots(void **state)
{
    (void)state;
    ops->close(fixture_open(0));
    int slots = prctl(PR_FUTEX_HASH, PR_FUTEX_HASH_GET_SLOTS, 0, 0, 0);
    if (slots <= 0) /* this system has one table for all processes */
        skip();
    assert_in_range(slots, 1024, 1 << 20);
}

int main(void)
{
    fixture_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain_across_queues),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_phases),
        cmocka_unit_test(test_several_waits),
        cmocka_unit_test(test_wait_phase),
        cmocka_unit_test(test_host_flag_wakes),
        cmocka_unit_test(test_threads_give_way),
        cmocka_unit_test(test_new_queues_sleep),
        cmocka_unit_test(test_a_signal_wakes_nobody_else),
        cmocka_unit_test(test_sleepers_have_slots),
        cmocka_unit_test(test_open_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
