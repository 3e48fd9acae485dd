/* The CUDA executor where the driver is too old, has no device or does not start: it says which,
 * and the CPU backend serves. */
#include "tests/daemon/broker_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *version, *init, *text;
} cases[] = {
    {"12040", "0", "the driver is for CUDA 12.4 and this executor for 13"},
    {"99000", "100", "the CUDA driver shows no device; see nvidia-smi and CUDA_VISIBLE_DEVICES"},
    {"99000", "803", "CUDA does not start: cudaErrorSystemDriverMismatch"},
    {"99000", "802", "CUDA does not start: cudaErrorSystemNotReady"},
    {"99000", "999", "CUDA does not start: cudaErrorUnknown"},
};

static void expect_words(struct client *client, uint32_t what, const char *match, const char *key,
                         const char *words)
{
    char value[2048];
    query_value(client, what, match ? "check" : NULL, match, key, value, sizeof(value));
    if (!strstr(value, words))
        fail_msg("%s: %s lacks: %s", key, value, words);
}

static void test_the_reason_is_told_and_the_cpu_serves(void **state)
{
    (void)state;
    setenv("LD_LIBRARY_PATH", CGM_SICK_DRIVER, 1);
    setenv("COMMGEMM_LIBEXEC", CGM_BIN_DIR, 1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct daemon daemon;
        struct client client;
        setenv("SICK_DRIVER_VERSION", cases[i].version, 1);
        setenv("SICK_DRIVER_INIT", cases[i].init, 1);
        daemon_init(&daemon);
        daemon_start(&daemon, "executor=", "backend=auto", NULL);
        client_open(&client, &daemon);
        wait_for_executor(&client);
        expect_words(&client, CGM_QUERY_DOCTOR, "\"backend\"", "text", cases[i].text);
        expect_words(&client, CGM_QUERY_STATUS, NULL, "warnings", cases[i].text);
        expect_words(&client, CGM_QUERY_STATUS, NULL, "backend", "cpu");
        buffer_create(&client, "works", 1, 0, NULL);
        client_close(&client);
        daemon_stop(&daemon);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_reason_is_told_and_the_cpu_serves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
