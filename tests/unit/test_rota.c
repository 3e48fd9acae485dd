/* Whose turn it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "proto/rota.h"

#define ENTRIES 6

struct scene {
    struct cgm_rota rota;
    struct cgm_rota_entry entries[ENTRIES];
};

static void add(struct scene *scene, unsigned i, uint32_t uid)
{
    scene->entries[i].uid = uid;
    cgm_rota_add(&scene->rota, &scene->entries[i]);
}

static void expect(struct scene *scene, unsigned i, bool through)
{
    assert_ptr_equal(scene->rota.first, &scene->entries[i]);
    cgm_rota_move_on(&scene->rota, through);
}

static void test_users_one_after_the_other(void **state)
{
    struct scene scene = {{NULL}, {{0}}};
    (void)state;
    add(&scene, 0, 7);
    add(&scene, 1, 7);
    add(&scene, 2, 7);
    add(&scene, 3, 8);
    add(&scene, 4, 9);
    expect(&scene, 0, true);
    expect(&scene, 3, true);
    expect(&scene, 4, true);
    expect(&scene, 1, true);
    expect(&scene, 2, true);
    assert_null(scene.rota.first);
}

static void test_what_goes_on_keeps_its_place(void **state)
{
    struct scene scene = {{NULL}, {{0}}};
    (void)state;
    add(&scene, 0, 7);
    add(&scene, 1, 7);
    add(&scene, 2, 8);
    expect(&scene, 0, false);
    expect(&scene, 2, false);
    expect(&scene, 0, true);
    add(&scene, 3, 7); /* behind those of its user */
    expect(&scene, 2, true);
    expect(&scene, 1, false);
    expect(&scene, 1, true);
    expect(&scene, 3, true);
    assert_null(scene.rota.first);
}

static void test_whoever_comes_back_is_the_last(void **state)
{
    struct scene scene = {{NULL}, {{0}}};
    (void)state;
    add(&scene, 0, 7);
    add(&scene, 1, 8);
    expect(&scene, 0, true);
    add(&scene, 2, 7);
    add(&scene, 3, 8);
    expect(&scene, 1, true);
    expect(&scene, 2, true);
    expect(&scene, 3, true);
    assert_null(scene.rota.first);
    add(&scene, 0, 7);
    expect(&scene, 0, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_users_one_after_the_other),
        cmocka_unit_test(test_what_goes_on_keeps_its_place),
        cmocka_unit_test(test_whoever_comes_back_is_the_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
