/* How the broker tells that it has stood still: here it sleeps where the loop means not to wait. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/standstill.h"

#define STILL_MS 250
#define LATE_MS 100 /* which is no standstill yet */
#define NS_PER_MS 1000000u
#define ENOUGH 10

static int broker_open(void **state)
{
    struct cgm_broker *broker = calloc(1, sizeof(*broker));
    assert_non_null(broker);
    uv_loop_init(&broker->loop);
    cgm_standstill_init(broker);
    cgm_lived_ns(broker); /* the first look */
    *state = broker;
    return 0;
}

static int broker_close(void **state)
{
    struct cgm_broker *broker = *state;
    uv_close((uv_handle_t *)&broker->standstill.before_wait, NULL);
    uv_run(&broker->loop, UV_RUN_DEFAULT);
    uv_loop_close(&broker->loop);
    free(broker);
    return 0;
}

static void test_the_clock_stands_still(void **state)
{
    struct cgm_broker *broker = *state;
    uint64_t before_ns = cgm_clock_ns(), lived_ns = cgm_lived_ns(broker);
    usleep(STILL_MS * 1000);
    lived_ns = cgm_lived_ns(broker) - lived_ns;
    uint64_t passed_ns = cgm_clock_ns() - before_ns;
    assert_true(lived_ns + STILL_MS * NS_PER_MS <= passed_ns);
}

static void on_timer(uv_timer_t *timer)
{
    uv_close((uv_handle_t *)timer, NULL);
}

/* A wait that is meant is none, unless it takes much longer, as on a loaded machine; nor in the
 * loop's first turn, when it has descriptors that it does not watch yet. */
static void test_waiting_is_living(void **state)
{
    struct cgm_broker *broker = *state;
    uv_timer_t *timer = &broker->hello_timer;
    uint64_t before_ns = cgm_clock_ns();
    uv_timer_init(&broker->loop, timer);
    uv_timer_start(timer, on_timer, STILL_MS, 0);
    while (uv_is_active((uv_handle_t *)timer))
        uv_run(&broker->loop, UV_RUN_ONCE);
    cgm_lived_ns(broker);
    if (cgm_clock_ns() - before_ns < (STILL_MS + LATE_MS) * NS_PER_MS)
        assert_true(broker->standstill.total_ns == 0);
}

/* Who is late always does not wait for ever. */
static void test_patience_has_an_end(void **state)
{
    struct cgm_broker *broker = *state;
    struct cgm_patience patience;
    unsigned renewed = 0;
    cgm_patience_begin(broker, &patience);
    for (; renewed < ENOUGH; renewed++) {
        usleep(STILL_MS * 1000);
        if (!cgm_patience_is_renewed(broker, &patience))
            break;
    }
    assert_in_range(renewed, 1, ENOUGH - 1);
    cgm_patience_begin(broker, &patience);
    usleep(STILL_MS * 1000);
    assert_true(cgm_patience_is_renewed(broker, &patience));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_clock_stands_still, broker_open, broker_close),
        cmocka_unit_test_setup_teardown(test_waiting_is_living, broker_open, broker_close),
        cmocka_unit_test_setup_teardown(test_patience_has_an_end, broker_open, broker_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
