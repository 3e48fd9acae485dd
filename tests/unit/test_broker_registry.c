/* Registry and indices against plain arrays, with random steps. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "daemon/broker/indices.h"
#include "daemon/broker/registry.h"
#include "proto/status.h"

#define IDS 200u

static void check_order(const struct cgm_registry *registry, char *const *expected)
{
    uint64_t cursor = 0;
    for (uint64_t id = 1; id < IDS; id++) {
        assert_ptr_equal(cgm_registry_find(registry, id), expected[id]);
        if (!expected[id])
            continue;
        assert_ptr_equal(cgm_registry_next(registry, &cursor), expected[id]);
        assert_int_equal(cursor, id);
    }
    assert_null(cgm_registry_next(registry, &cursor));
}

static void test_registry(void **state)
{
    struct cgm_registry registry = {0};
    char objects[IDS], *expected[IDS] = {0};
    (void)state;
    for (int step = 0; step < 20000; step++) {
        uint64_t id = 1 + (uint64_t)rand() % (IDS - 1);
        if (rand() % 2) {
            int status = cgm_registry_add(&registry, id, &objects[id]);
            assert_int_equal(status, expected[id] ? CGM_EXISTS : CGM_OK);
            expected[id] = &objects[id];
        } else {
            assert_ptr_equal(cgm_registry_remove(&registry, id), expected[id]);
            expected[id] = NULL;
        }
        if (step % 100 == 0)
            check_order(&registry, expected);
    }
    check_order(&registry, expected);
    cgm_registry_fini(&registry);
}

static void test_ids_at_the_end_of_the_range(void **state)
{
    struct cgm_registry registry = {0};
    int object;
    uint64_t cursor = UINT64_MAX - 1;
    (void)state;
    assert_int_equal(cgm_registry_add(&registry, UINT64_MAX, &object), CGM_OK);
    assert_ptr_equal(cgm_registry_next(&registry, &cursor), &object);
    assert_null(cgm_registry_next(&registry, &cursor));
    assert_ptr_equal(cgm_registry_remove(&registry, UINT64_MAX), &object);
    assert_null(registry.slots);
}

static void test_indices(void **state)
{
    struct cgm_indices indices;
    bool taken[128] = {0};
    uint32_t used = 0, index;
    (void)state;
    assert_int_equal(cgm_indices_init(&indices, 128), CGM_OK);
    for (int step = 0; step < 20000; step++) {
        uint32_t wanted = (uint32_t)rand() % 128;
        if (rand() % 3) {
            int status = cgm_indices_take(&indices, &index);
            assert_int_equal(status, used == 128 ? CGM_QUOTA : CGM_OK);
            if (status != CGM_OK)
                continue;
            for (uint32_t i = 0; i < index; i++)
                assert_true(taken[i]);
            assert_false(taken[index]);
            taken[index] = true;
            used++;
        } else if (taken[wanted]) {
            cgm_indices_give(&indices, wanted);
            taken[wanted] = false;
            used--;
        }
        assert_int_equal(indices.used, used);
    }
    cgm_indices_fini(&indices);
}

int main(void)
{
    unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    srand(seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_registry),
        cmocka_unit_test(test_ids_at_the_end_of_the_range),
        cmocka_unit_test(test_indices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
