/* Registry, names and indices against plain arrays, with random steps. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/broker/indices.h"
#include "daemon/broker/names.h"
#include "daemon/broker/registry.h"
#include "proto/status.h"

#define IDS 200u
#define NAMES 100u

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

/* Ids that count up, objects that go from the front, from the back and from the middle. */
static void test_registry_of_counters(void **state)
{
    struct cgm_registry registry = {0};
    enum { LAST = 5000 };
    static char objects[LAST + 1];
    uint64_t added = 0;
    (void)state;
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 100; i++) {
            added++;
            assert_int_equal(cgm_registry_add(&registry, added, &objects[added]), CGM_OK);
        }
        for (int i = 0; i < 90 && registry.count > 1; i++) {
            uint64_t id = (uint64_t)rand() % added;
            if (rand() % 3 == 0)
                id = 0;
            if (!cgm_registry_next(&registry, &id))
                id = added;
            cgm_registry_remove(&registry, id);
            assert_null(cgm_registry_find(&registry, id));
        }
        size_t count = 0;
        uint64_t before = 0, at = 0;
        const char *object;
        for (; (object = cgm_registry_next(&registry, &at)); before = at, count++) {
            assert_true(at > before);
            assert_ptr_equal(object, &objects[at]);
        }
        assert_int_equal(count, registry.count);
        assert_true(registry.capacity <= 4 * LAST);
    }
    cgm_registry_fini(&registry);
}

/* A session that held very many objects ends: nothing that is moved is moved for each of them. */
static void test_a_million_objects_go(void **state)
{
    struct cgm_registry registry = {0};
    enum { MANY = 1000000 };
    char object;
    (void)state;
    for (uint64_t id = 1; id <= MANY; id++)
        assert_int_equal(cgm_registry_add(&registry, id, &object), CGM_OK);
    for (uint64_t id = 1; id <= MANY; id++)
        assert_non_null(cgm_registry_remove(&registry, id));
    assert_null(registry.slots);
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

static void check_names(const struct cgm_names *names, char (*spelled)[8], const bool *added)
{
    for (unsigned i = 0; i < NAMES; i++) {
        char copy[8];
        memcpy(copy, spelled[i], sizeof(copy));
        assert_ptr_equal(cgm_names_find(names, copy), added[i] ? spelled[i] : NULL);
    }
}

static void test_names(void **state)
{
    struct cgm_names names = {0};
    char spelled[NAMES][8];
    bool added[NAMES] = {false};
    (void)state;
    for (unsigned i = 0; i < NAMES; i++)
        snprintf(spelled[i], sizeof(spelled[i]), "n%u", i);
    for (int step = 0; step < 20000; step++) {
        unsigned i = (unsigned)rand() % NAMES;
        char copy[8];
        memcpy(copy, spelled[i], sizeof(copy));
        added[i] = rand() % 2;
        if (added[i]) {
            assert_int_equal(cgm_names_add(&names, spelled[i]), CGM_OK);
            assert_int_equal(cgm_names_add(&names, copy), CGM_EXISTS);
            cgm_names_remove(&names, copy); /* spelled like it, and another one */
        } else {
            cgm_names_remove(&names, spelled[i]);
        }
        if (step % 100 == 0)
            check_names(&names, spelled, added);
    }
    for (unsigned i = 0; i < NAMES; i++)
        cgm_names_remove(&names, spelled[i]);
    assert_null(names.tree);
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
        cmocka_unit_test(test_registry_of_counters),
        cmocka_unit_test(test_a_million_objects_go),
        cmocka_unit_test(test_ids_at_the_end_of_the_range),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_indices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
