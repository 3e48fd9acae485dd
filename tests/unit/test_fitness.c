/* Devices that are of no use, each refused by name with what is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/executor/cuda/fitness.h"
#include "proto/status.h"

static const struct cgm_device_facts good = {
    .name = "NVIDIA H200", .major = 9, .has = {true, true, true, true}};

static void expect(const struct cgm_device_facts *facts, const char *words)
{
    char detail[256] = "";
    int status = cgm_device_judge(3, facts, detail, sizeof(detail));
    assert_int_equal(status, words ? CGM_NOT_SUPPORTED : CGM_OK);
    if (words && (!strstr(detail, words) || !strstr(detail, "device 3 (")))
        fail_msg("\"%s\" lacks \"%s\"", detail, words);
}

static void test_devices_are_judged(void **state)
{
    (void)state;
    struct cgm_device_facts facts = good;
    _Static_assert(CGM_NEED_COUNT == 4, "as many as `good` has");
    expect(&good, NULL);
    facts.name = "NVIDIA H200 MIG 1g.18gb";
    expect(&facts, "is a MIG instance, which has neither peer access nor cudaIpc; switch MIG off");
    facts = good;
    facts.major = 7;
    facts.minor = 5;
    expect(&facts, "compute capability 7.5; 8.0 or newer is needed");
    static const char *const words[] = {"virtual memory management", "file descriptor",
                                        "64-bit stream memory operations", "mapped host memory"};
    for (int i = 0; i < CGM_NEED_COUNT; i++) {
        facts = good;
        facts.has[i] = false;
        expect(&facts, words[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_devices_are_judged)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
