/* Launches are held for quiet work, which therefore waits for nothing that the mapper has to do for
 * somebody else. */
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "daemon/executor/executor.h"
#include "daemon/executor/quiet.h"
#include "proto/status.h"

#define REQUESTS 100u

static struct cgm_executor executor;
static struct cgm_poller *const poller = &executor.poller;
static sem_t begun, may_end;
static unsigned requests_done, requests_before; /* before the quiet work */
static bool is_done;

static void long_run(struct cgm_task *task)
{
    (void)task;
    sem_post(&begun);
    sem_wait(&may_end);
}

static void request_run(struct cgm_task *task)
{
    (void)task;
    requests_done++;
}

static void quiet_run(struct cgm_quiet *quiet)
{
    (void)quiet;
    requests_before = requests_done;
}

static void quiet_done(struct cgm_quiet *quiet)
{
    (void)quiet;
    is_done = true;
}

static void test_quiet_work_is_next(void **state)
{
    static struct cgm_task long_one = {.run = long_run}, requests[REQUESTS];
    struct cgm_quiet quiet = {.run = quiet_run, .done = quiet_done};
    (void)state;
    sem_init(&begun, 0, 0);
    sem_init(&may_end, 0, 0);
    poller->executor = &executor;
    cgm_task_list_init(&poller->inbox);
    assert_int_equal(cgm_worker_start(&executor.mapper, "mapper", 0), CGM_OK);
    cgm_worker_post(&executor.mapper, &long_one);
    for (unsigned i = 0; i < REQUESTS; i++) {
        requests[i].run = request_run;
        cgm_worker_post(&executor.mapper, &requests[i]);
    }
    sem_wait(&begun);
    assert_false(cgm_quiet_holds(poller));
    cgm_quiet_post(poller, &quiet);
    assert_true(cgm_quiet_holds(poller));
    assert_true(cgm_quiet_step(poller));
    sem_post(&may_end);
    cgm_worker_flush(&executor.mapper);
    assert_int_equal(requests_done, REQUESTS);
    assert_int_equal(requests_before, 0);
    while (!is_done)
        cgm_task_list_run(&poller->inbox);
    assert_false(cgm_quiet_holds(poller));
    cgm_worker_stop(&executor.mapper);
    cgm_task_list_fini(&poller->inbox);
}

/* ---- aborts --------------------------------------------------------------------------------- */

static unsigned aborts_asked;
static bool abort_runs;

static bool abort_waits(struct cgm_backend *backend)
{
    (void)backend;
    assert_int_equal(atomic_load(&poller->enqueuing), 0);
    aborts_asked++;
    return abort_runs;
}

static void test_an_abort_meets_no_launch_and_needs_no_mapper(void **state)
{
    static const struct cgm_backend_ops ops = {.abort_waits = abort_waits};
    struct cgm_quiet quiet = {.run = quiet_run, .done = quiet_done};
    (void)state;
    *poller = (struct cgm_poller){.executor = &executor, .aborting = true};
    executor.ops = &ops;
    abort_runs = true;
    atomic_store(&poller->enqueuing, 1);
    assert_true(cgm_quiet_holds(poller));
    assert_false(cgm_quiet_step(poller));
    assert_int_equal(aborts_asked, 0);
    atomic_store(&poller->enqueuing, 0);
    poller->quiet_runs = true; /* on a mapper that waits for the abort */
    cgm_quiet_post(poller, &quiet);
    assert_false(cgm_quiet_step(poller));
    assert_int_equal(aborts_asked, 1);
    assert_true(cgm_quiet_holds(poller));
    poller->quiet_first = NULL;
    abort_runs = false;
    assert_false(cgm_quiet_step(poller));
    assert_int_equal(aborts_asked, 2);
    assert_false(cgm_quiet_holds(poller));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quiet_work_is_next),
        cmocka_unit_test(test_an_abort_meets_no_launch_and_needs_no_mapper),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
