/* Many threads on one session while its executors die: every ticket ends exactly once. */
#include "tests/unit/client_fixture.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define THREADS 8
#define JOBS 400
#define BURST 6

struct worker {
    struct fixture *f;
    unsigned seed;
    uint64_t ok, lost;
    pthread_t thread;
};

static atomic_uint running;
static atomic_bool broken;

static bool submit_one(struct worker *worker, uint64_t *ret_ticket)
{
    struct commgemm_job job;
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_NOOP;
    for (;;) {
        int status = commgemm_submit(worker->f->client, &job, ret_ticket);
        if (status == COMMGEMM_OK)
            return true;
        if (status == COMMGEMM_RING_FULL)
            return false;
        if (status != COMMGEMM_EXECUTOR_LOST && status != COMMGEMM_NO_EXECUTOR)
            atomic_store(&broken, true);
        if (commgemm_wait_executor(worker->f->client, -1) != COMMGEMM_OK)
            atomic_store(&broken, true);
    }
}

static void take(struct worker *worker, uint64_t ticket)
{
    struct commgemm_completion done;
    int status;
    do
        status =
            commgemm_wait(worker->f->client, ticket, rand_r(&worker->seed) % 3 ? -1 : 1, &done);
    while (status == COMMGEMM_TIMEOUT);
    if (status != COMMGEMM_OK || done.ticket != ticket ||
        (done.status != COMMGEMM_OK && done.status != COMMGEMM_EXECUTOR_LOST))
        atomic_store(&broken, true);
    worker->ok += done.status == COMMGEMM_OK;
    worker->lost += done.status == COMMGEMM_EXECUTOR_LOST;
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    uint64_t tickets[BURST];
    for (unsigned done = 0; done < JOBS && !broken;) {
        unsigned count = 0, wanted = 1 + (unsigned)rand_r(&worker->seed) % BURST;
        while (count < wanted && submit_one(worker, &tickets[count]))
            count++;
        for (unsigned i = count; i-- > 0;)
            take(worker, tickets[i]);
        done += count;
    }
    atomic_fetch_sub(&running, 1);
    return NULL;
}

static void kill_at_random(struct fixture *f)
{
    while (atomic_load(&running) > 0) {
        usleep((unsigned)rand() % 4000);
        fake_kill_executor(f->fake);
        usleep((unsigned)rand() % 1000);
        fake_start_executor(f->fake);
    }
}

static void run(uint64_t spin_ns, uint64_t poller_spin_ns, bool poll_fd)
{
    struct fixture f;
    struct worker workers[THREADS];
    uint64_t ok = 0, lost = 0;
    int fd;
    fixture_open(&f, &(struct fake_options){.shuffle = true, .poller_spin_ns = poller_spin_ns}, 32,
                 0, spin_ns);
    if (poll_fd)
        assert_ok(commgemm_poll_fd(f.client, &fd));
    atomic_store(&running, THREADS);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.f = &f, .seed = (unsigned)rand()};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    kill_at_random(&f);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        ok += workers[i].ok;
        lost += workers[i].lost;
    }
    assert_false(broken);
    assert_ok(commgemm_wait_executor(f.client, -1));
    /* All of them gave back what they took. */
    assert_int_equal(submit_noop(f.client, FAKE_HOLD_MS), ok + lost + 1);
    print_message("%llu ended, %llu lost\n", (unsigned long long)ok, (unsigned long long)lost);
    fixture_close(&f);
}

static void test_threads_sleeping(void **state)
{
    (void)state;
    run(0, 0, false);
}

static void test_threads_spinning(void **state)
{
    (void)state;
    run(20000, 50000, false);
}

static void test_threads_with_poll_fd(void **state)
{
    (void)state;
    run(5000, 0, true);
}

static void *wait_for_last(void *argument)
{
    struct fixture *f = argument;
    uint64_t ticket = submit_noop(f->client, FAKE_HOLD_MS);
    return (void *)(intptr_t)(commgemm_wait(f->client, ticket, -1, NULL) + 1);
}

/* Everybody sleeps on a job of his own; one release must wake them all. */
static void test_all_sleepers_wake(void **state)
{
    struct fixture f;
    pthread_t threads[THREADS];
    void *result;
    (void)state;
    fixture_open(&f, NULL, 32, 0, 0);
    for (int round = 0; round < 30; round++) {
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, wait_for_last, &f), 0);
        usleep((unsigned)rand() % 3000);
        while (fake_jobs(f.fake) < (uint64_t)(round + 1) * THREADS) {
            fake_release(f.fake);
            usleep(500);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], &result);
            assert_int_equal((intptr_t)result, COMMGEMM_OK + 1);
        }
    }
    fixture_close(&f);
}

static void *wait_two_seconds(void *argument)
{
    struct fixture *f = argument;
    uint64_t ticket = submit_noop(f->client, FAKE_HOLD_MS);
    return (void *)(intptr_t)(commgemm_wait(f->client, ticket, 2000, NULL) + 1);
}

static uint32_t reap_often(struct fixture *f, int times)
{
    struct commgemm_completion done;
    uint32_t reaped = 0, count;
    for (int i = 0; i < times; i++) {
        assert_ok(commgemm_reap(f->client, &done, 1, &count));
        reaped += count;
    }
    return reaped;
}

/* One sleeps, another one polls and reaps, and reads what the sleeper would have woken up for. Who
 * comes too late to sleep finds his job reaped. */
static void test_a_sleeper_wakes_beside_one_who_reaps(void **state)
{
    struct fixture f;
    struct timespec begin, end;
    pthread_t thread;
    void *result;
    int fd;
    (void)state;
    fixture_open(&f, NULL, 32, 0, 0);
    assert_ok(commgemm_poll_fd(f.client, &fd));
    for (uint64_t round = 0; round < 300; round++) {
        assert_int_equal(pthread_create(&thread, NULL, wait_two_seconds, &f), 0);
        usleep(1000);
        clock_gettime(CLOCK_MONOTONIC, &begin);
        uint32_t reaped = 0;
        while (fake_jobs(f.fake) <= round) {
            fake_release(f.fake);
            reaped += reap_often(&f, 100);
        }
        reaped += reap_often(&f, 1000);
        pthread_join(thread, &result);
        clock_gettime(CLOCK_MONOTONIC, &end);
        assert_int_equal((intptr_t)result, (reaped ? COMMGEMM_NOT_FOUND : COMMGEMM_OK) + 1);
        assert_in_range(end.tv_sec - begin.tv_sec, 0, 1);
    }
    fixture_close(&f);
}

/* ---- tickets that nobody was given ----
 */

struct guesser {
    struct fixture *f;
    _Atomic uint64_t last; /* that was given out */
    atomic_bool over;
    pthread_t thread;
};

static void *guess(void *argument)
{
    struct guesser *guesser = argument;
    while (!atomic_load(&guesser->over)) {
        uint64_t next = atomic_load(&guesser->last) + 1;
        commgemm_wait(guesser->f->client, next, 1, NULL);
    }
    return NULL;
}

/* As long as there is room again when what has ended is taken. */
static uint64_t submit_when_there_is_room(struct fixture *f, const struct commgemm_job *job)
{
    struct commgemm_completion done[4];
    uint64_t ticket = 0;
    uint32_t count;
    int status;
    for (unsigned naps = 0; (status = commgemm_submit(f->client, job, &ticket)); naps++) {
        assert_int_equal(status, COMMGEMM_RING_FULL);
        assert_true(naps < 3000);
        usleep(1000);
        assert_ok(commgemm_reap(f->client, done, 4, &count));
    }
    return ticket;
}

/* What is submitted by message is on its way for long: it is nobody's before its ticket is. */
static void test_guessed_tickets(void **state)
{
    struct fixture f;
    struct guesser guesser = {.f = &f};
    struct commgemm_job job;
    (void)state;
    fixture_open(&f, NULL, 4, 1, 1000000); /* it sees the end before the reply is there */
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_NOOP;
    assert_int_equal(pthread_create(&guesser.thread, NULL, guess, &guesser), 0);
    for (unsigned i = 0; i < 5000; i++) {
        job.detached = i % 3 == 0;
        atomic_store(&guesser.last, submit_when_there_is_room(&f, &job));
        if (job.detached)
            assert_ok(commgemm_wait_detached(f.client, 0, 30000));
    }
    atomic_store(&guesser.over, true);
    pthread_join(guesser.thread, NULL);
    fixture_close(&f);
}

/* ---- imports beside other calls ----
 */

struct importer {
    struct fixture *f;
    struct commgemm_segment segment;
    pthread_t thread;
};

#define IMPORTS 3000
#define PLACE 4096

#ifndef MADV_PAGEOUT /* Linux 5.4 */
#define MADV_PAGEOUT 21
#endif

static void *import_often(void *argument)
{
    struct importer *importer = argument;
    uint32_t generation;
    uint64_t id;
    for (int i = 0; i < IMPORTS; i++)
        if (commgemm_import(importer->f->client, &importer->segment, 1, -1, 0, &id, &generation) ||
            commgemm_import_release(importer->f->client, id))
            atomic_store(&broken, true);
    atomic_fetch_sub(&running, 1);
    return NULL;
}

/* It is borrowed, and others may read the file by it meanwhile. */
static void test_an_imported_fd_keeps_its_place(void **state)
{
    struct fixture f;
    struct importer importers[2];
    unsigned long moved = 0;
    (void)state;
    int fd = memfd_create("import", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(fallocate(fd, 0, 0, 2 * PLACE), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    assert_int_equal(lseek(fd, PLACE, SEEK_SET), PLACE);
    fixture_open(&f, NULL, 4, 0, 0);
    broken = false;
    running = 2;
    for (int i = 0; i < 2; i++) {
        importers[i].f = &f;
        importers[i].segment = (struct commgemm_segment){
            .kind = COMMGEMM_SEGMENT_FD, .fd = fd, .length = (uint64_t)2 * PLACE};
        assert_int_equal(pthread_create(&importers[i].thread, NULL, import_often, &importers[i]),
                         0);
    }
    while (running)
        moved += lseek(fd, 0, SEEK_CUR) != PLACE;
    for (int i = 0; i < 2; i++)
        pthread_join(importers[i].thread, NULL);
    assert_int_equal(moved, 0);
    assert_int_equal(lseek(fd, 0, SEEK_CUR), PLACE);
    assert_false(broken);
    fixture_close(&f);
    close(fd);
}

/* Pages that were made for it are not the kernel's to take back. */
static void test_pages_of_an_import_stay(void **state)
{
    struct fixture f;
    struct stat info;
    uint64_t id;
    uint32_t generation;
    (void)state;
    int fd = memfd_create("import", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (64 * PLACE)), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    fixture_open(&f, NULL, 4, 0, 0);
    const struct commgemm_segment segment = {
        .kind = COMMGEMM_SEGMENT_FD, .fd = fd, .length = (64 * PLACE)};
    assert_ok(commgemm_import(f.client, &segment, 1, -1, 0, &id, &generation));
    volatile char *memory = mmap(NULL, (64 * PLACE), PROT_READ, MAP_SHARED, fd, 0);
    assert_true(memory != MAP_FAILED);
    for (size_t i = 0; i < (64 * PLACE); i += 4096)
        (void)memory[i];
    madvise((void *)(uintptr_t)memory, (64 * PLACE), MADV_PAGEOUT);
    assert_int_equal(fstat(fd, &info), 0);
    assert_true((size_t)info.st_blocks * 512 >= (64 * PLACE));
    munmap((void *)(uintptr_t)memory, (64 * PLACE));
    fixture_close(&f);
    close(fd);
}

/* ---- small stacks -----------------------------------------------------------------------------
 */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STACK_BYTES (1u << 20) /* their frames are larger */
#else
#define STACK_BYTES (48u << 10)
#endif

static int call_everything(struct fixture *f)
{
    struct commgemm_buffer buffer;
    struct commgemm_job job;
    commgemm_client *client;
    uint64_t ticket;
    char *json = NULL;
    int status = commgemm_connect(&f->options, &client);
    if (status == COMMGEMM_OK)
        commgemm_disconnect(client);
    if (status == COMMGEMM_OK)
        status = commgemm_buffer_create(f->client, NULL, 4096, -1, 0, 0, &buffer);
    if (status == COMMGEMM_OK)
        status = commgemm_buffer_close(f->client, buffer.id);
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_NOOP;
    if (status == COMMGEMM_OK)
        status = commgemm_submit(f->client, &job, &ticket);
    if (status == COMMGEMM_OK)
        status = commgemm_wait(f->client, ticket, -1, NULL);
    if (status == COMMGEMM_OK)
        status = commgemm_query(f->client, "status", &json);
    free(json);
    return status;
}

static void *run_small(void *argument)
{
    return (void *)(intptr_t)call_everything(argument);
}

/* A program's threads have the stacks that it gives them. */
static void test_small_stacks(void **state)
{
    struct fixture f;
    pthread_attr_t small;
    pthread_t thread;
    void *status;
    (void)state;
    fixture_open(&f, NULL, 4, 0, 0);
    pthread_attr_init(&small);
    assert_int_equal(pthread_attr_setstacksize(&small, STACK_BYTES), 0);
    assert_int_equal(pthread_create(&thread, &small, run_small, &f), 0);
    pthread_attr_destroy(&small);
    pthread_join(thread, &status);
    assert_int_equal((intptr_t)status, COMMGEMM_OK);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_sleeping),
        cmocka_unit_test(test_threads_spinning),
        cmocka_unit_test(test_threads_with_poll_fd),
        cmocka_unit_test(test_all_sleepers_wake),
        cmocka_unit_test(test_small_stacks),
        cmocka_unit_test(test_a_sleeper_wakes_beside_one_who_reaps),
        cmocka_unit_test(test_guessed_tickets),
        cmocka_unit_test(test_an_imported_fd_keeps_its_place),
        cmocka_unit_test(test_pages_of_an_import_stay),
    };
    seed_random();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
