/* Plans whose first run is under way: a few are looked after in every round of the poller's, many
 * only now and then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/executor/executor.h"
#include "daemon/executor/plan.h"

#define MANY (4 * CGM_WARMING_FEW)
#define ROUNDS 100u

static unsigned reads;

static uint64_t flag_read(const struct cgm_flag *flag)
{
    (void)flag;
    reads++;
    return 0;
}

static const struct cgm_backend_ops ops = {.name = "none", .flag_read = flag_read};
static struct cgm_executor executor = {.ops = &ops};
static struct cgm_poller *const poller = &executor.poller;
static struct cgm_comm comm = {.size = 1};
static struct cgm_plan plans[MANY];
static struct cgm_flight flights[MANY];

static void warm(unsigned count)
{
    poller->executor = &executor;
    poller->warming = NULL;
    comm.poller = poller;
    for (unsigned i = 0; i < count; i++) {
        flights[i] = (struct cgm_flight){
            .plan = &plans[i], .ranks_mask = 1, .epoch = 1, .next_look_ns = UINT64_MAX};
        flights[i].launch.ops = &ops;
        plans[i].comm = &comm;
        plans[i].flight = &flights[i];
        plans[i].next_warming = poller->warming;
        poller->warming = &plans[i];
    }
    poller->n_warming = count;
    poller->next_warming_look_ns = 0;
    reads = 0;
}

static void test_a_few_are_in_every_round(void **state)
{
    (void)state;
    warm(CGM_WARMING_FEW);
    for (unsigned i = 0; i < ROUNDS; i++)
        assert_false(cgm_plan_step_warming(poller));
    assert_int_equal(reads, ROUNDS * CGM_WARMING_FEW);
}

static void test_many_are_looked_after_now_and_then(void **state)
{
    uint64_t begin_ns = cgm_now_ns();
    (void)state;
    warm(MANY);
    for (unsigned i = 0; i < ROUNDS; i++)
        assert_false(cgm_plan_step_warming(poller));
    uint64_t looks = 1 + (cgm_now_ns() - begin_ns) / CGM_WARMING_LOOK_NS;
    assert_in_range(reads, MANY, looks * MANY);
    reads = 0;
    usleep(CGM_WARMING_LOOK_NS / 1000);
    assert_false(cgm_plan_step_warming(poller));
    assert_int_equal(reads, MANY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_few_are_in_every_round),
        cmocka_unit_test(test_many_are_looked_after_now_and_then),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
