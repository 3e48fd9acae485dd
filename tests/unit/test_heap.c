/* What was freed between blocks that stay goes back to the system. */
#include "daemon/executor/heap.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/process_memory.h"

#define BLOCKS 4000u
#define BYTES 30000u
#define BLOCKS_KIB (BLOCKS * (uint64_t)BYTES / 1024)

static char *kept[BLOCKS], *gone[BLOCKS];

/* In an arena of its own, as a thread of the executor has. */
static void *fill_and_free(void *unused)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        gone[i] = malloc(BYTES);
        kept[i] = malloc(16);
        memset(gone[i], 1, BYTES);
    }
    for (unsigned i = 0; i < BLOCKS; i++)
        free(gone[i]);
    return unused;
}

static void test_pages_between_others_are_given_back(void **state)
{
    pthread_t thread;
    (void)state;
    if (!CGM_MEMORY_IS_PLAIN) {
        print_message("a sanitizer has a heap of its own\n");
        skip();
    }
    assert_int_equal(pthread_create(&thread, NULL, fill_and_free, NULL), 0);
    pthread_join(thread, NULL);
    uint64_t before = process_kib(getpid(), "RssAnon:");
    assert_true(before > BLOCKS_KIB);
    cgm_heap_look();
    assert_true(process_kib(getpid(), "RssAnon:") < before - BLOCKS_KIB / 2);
    for (unsigned i = 0; i < BLOCKS; i++)
        free(kept[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages_between_others_are_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
