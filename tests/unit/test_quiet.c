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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_quiet_work_is_next)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
