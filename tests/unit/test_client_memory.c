/* A process without memory for what the daemon answers. */
#include "tests/unit/client_fixture.h"

#include <stdatomic.h>

static atomic_bool fails;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
#define FAILS 1

void *__libc_malloc(size_t bytes);

static bool is_watcher(void)
{
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof(name));
    return strcmp(name, "commgemm-watch") == 0;
}

/* The next one of the thread that takes in answers. */
__attribute__((visibility("default"))) void *malloc(size_t bytes)
{
    if (!atomic_load(&fails) || !is_watcher())
        return __libc_malloc(bytes);
    atomic_store(&fails, false);
    return NULL;
}
#else
#define FAILS 0
#endif

/* A job that the daemon has taken is one: nothing gets out of step. */
static void test_an_ok_is_one_without_memory(void **state)
{
    struct fixture f;
    struct commgemm_completion done;
    (void)state;
    if (!FAILS)
        skip();
    fixture_open(&f, NULL, 4, 1, 0);
    for (uint64_t i = 1; i <= 4; i++) {
        atomic_store(&fails, i % 2 == 0);
        assert_true(submit_noop(f.client, FAKE_HOLD_MS) == i);
        assert_false(atomic_load(&fails));
    }
    fake_kill_executor(f.fake);
    for (uint64_t i = 1; i <= 4; i++) {
        assert_ok(commgemm_wait(f.client, i, 30000, &done));
        assert_int_equal(done.status, COMMGEMM_EXECUTOR_LOST);
    }
    fixture_close(&f);
}

/* What it has made cannot be known without its answer. */
static void test_other_answers(void **state)
{
    struct fixture f;
    uint64_t comm;
    (void)state;
    if (!FAILS)
        skip();
    fixture_open(&f, NULL, 4, 1, 0);
    atomic_store(&fails, true);
    assert_refused(commgemm_comm_join_simple(f.client, "mesh", 1, 0, &comm), COMMGEMM_NO_MEMORY,
                   "no memory for the reply to CommJoin");
    assert_ok(commgemm_comm_join_simple(f.client, "mesh2", 1, 0, &comm));
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_ok_is_one_without_memory),
        cmocka_unit_test(test_other_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
