/* What an object is charged, when it becomes more and when it cannot. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/quota.h"
#include "proto/status.h"

#define USER 1001u
#define ALLOWED 100u

static void test_more_than_there_is_room_for(void **state)
{
    static struct cgm_broker broker;
    struct cgm_charge plan = {{0}};
    char detail[256];
    (void)state;
    cgm_config_init(&broker.config);
    broker.config.quota_bytes = ALLOWED;
    plan.amount[CGM_QUOTA_BYTES] = 60;
    assert_int_equal(cgm_quota_take(&broker, USER, &plan, detail, sizeof(detail)), CGM_OK);
    assert_int_equal(
        cgm_quota_raise(&broker, USER, &plan, CGM_QUOTA_BYTES, 120, detail, sizeof(detail)),
        CGM_QUOTA);
    assert_non_null(strstr(detail, "asked for 120, used 0, allowed 100"));
    assert_int_equal(plan.amount[CGM_QUOTA_BYTES], 60);
    assert_int_equal(cgm_quota_used(&broker, USER, CGM_QUOTA_BYTES), 60);
    assert_int_equal(
        cgm_quota_raise(&broker, USER, &plan, CGM_QUOTA_BYTES, ALLOWED, detail, sizeof(detail)),
        CGM_OK);
    assert_int_equal(plan.amount[CGM_QUOTA_BYTES], ALLOWED);
    assert_int_equal(cgm_quota_used(&broker, USER, CGM_QUOTA_BYTES), ALLOWED);
    cgm_quota_give(&broker, USER, &plan);
    assert_int_equal(cgm_quota_used(&broker, USER, CGM_QUOTA_BYTES), 0);
    cgm_quota_fini(&broker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_more_than_there_is_room_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
