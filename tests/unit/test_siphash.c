/* The vectors of the reference implementation: key 00 01 ... 0f, message 00 01 02 .... */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "daemon/broker/siphash.h"

static void test_vectors(void **state)
{
    static const struct {
        size_t size;
        uint64_t hash;
    } rows[] = {
        {0, 0x726fdb47dd0e0e31}, {1, 0x74f839c593dc67fd},  {7, 0xab0200f58b01d137},
        {8, 0x93f5f5799a932462}, {15, 0xa129ca6149be45e5},
    };
    const uint64_t key[2] = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
    uint8_t message[16];
    (void)state;
    for (size_t i = 0; i < sizeof(message); i++)
        message[i] = (uint8_t)i;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(cgm_siphash(key, message, rows[i].size), rows[i].hash);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_vectors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
