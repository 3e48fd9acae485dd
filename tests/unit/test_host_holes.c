/* What is touched of memory that its owner has given back: told, and given back again, however much
 * it is. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/executor/host/holes.h"
#include "tests/userfaultfd.h"

#define MIB (1ull << 20)
#define STRIDE (4 * MIB)
#define PLACES 600u
#define BYTES (PLACES * STRIDE)

/* In a process of its own: cmocka has a handler for the signal, too. */
#define CHECK(condition) check(condition, #condition, __LINE__)

static char *memory;
static struct cgm_hole_watch *watch;

static void check(bool holds, const char *condition, int line)
{
    if (holds)
        return;
    fprintf(stderr, "line %d: %s\n", line, condition);
    _exit(1);
}

static int open_scene(void)
{
    int fd = memfd_create("holes", MFD_CLOEXEC);
    CHECK(ftruncate(fd, BYTES) == 0);
    memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(memory != MAP_FAILED);
    watch = cgm_holes_watch(memory, BYTES);
    CHECK(watch != NULL);
    return fd;
}

/* Of the memory alone. */
static unsigned count_maps(void)
{
    char line[512];
    unsigned count = 0;
    FILE *file = fopen("/proc/self/maps", "re");
    CHECK(file != NULL);
    while (fgets(line, sizeof(line), file)) {
        uintptr_t base = (uintptr_t)strtoull(line, NULL, 16);
        count += base >= (uintptr_t)memory && base < (uintptr_t)memory + BYTES;
    }
    fclose(file);
    return count;
}

static unsigned pages_there(void)
{
    static unsigned char there[BYTES / 4096];
    unsigned count = 0;
    CHECK(mincore(memory, BYTES, there) == 0);
    for (size_t i = 0; i < sizeof(there); i++)
        count += there[i] & 1;
    return count;
}

static void here_and_there(void)
{
    close(open_scene());
    CHECK(cgm_holes_begin(&watch, 1));
    CHECK(!cgm_holes_missed());
    for (unsigned i = 0; i < PLACES; i++)
        memory[i * STRIDE] = 1;
    CHECK(cgm_holes_missed());
    CHECK(count_maps() == 1);
    CHECK(cgm_holes_end());
    CHECK(pages_there() == 0);
    CHECK(!cgm_holes_begin(&watch, 1)); /* it is known */
    CHECK(cgm_holes_end());
    cgm_holes_unwatch(watch);
}

/* A byte of each page. */
static void *write_all(void *argument)
{
    char *own = argument;
    cgm_holes_begin(&watch, 1);
    for (size_t i = 0; i < BYTES / 64; i += 4096)
        own[i] = 1;
    CHECK(cgm_holes_end());
    return NULL;
}

static void by_many(void)
{
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    close(open_scene());
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, write_all, memory + i) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(count_maps() == 1);
    CHECK(pages_there() == 0);
    cgm_holes_unwatch(watch);
}

static void only_what_is_missing(void)
{
    int fd = open_scene();
    CHECK(fallocate(fd, 0, 0, 4 * MIB) == 0);
    CHECK(cgm_holes_begin(&watch, 1));
    memset(memory, 7, 4 * MIB);
    CHECK(!cgm_holes_missed());
    CHECK(!cgm_holes_end());
    CHECK(cgm_holes_begin(&watch, 1));
    memory[5 * MIB] = 7;
    CHECK(cgm_holes_end());
    CHECK(cgm_holes_found(watch));
    cgm_holes_unwatch(watch);
}

/* Of two segments, in whose place nothing can be mapped: pages are made. */
static void no_room(void)
{
    static const struct rlimit none = {0, 0};
    int fd = open_scene();
    CHECK(mmap(memory + 2 * MIB, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
          memory + 2 * MIB);
    cgm_holes_unwatch(watch);
    watch = cgm_holes_watch(memory, BYTES);
    CHECK(setrlimit(RLIMIT_DATA, &none) == 0);
    CHECK(cgm_holes_begin(&watch, 1));
    for (size_t at = 2 * MIB - 8192; at < 2 * MIB + 8192; at += 4096)
        memory[at] = 1;
    CHECK(cgm_holes_end());
    CHECK(memory[2 * MIB] == 1);
    cgm_holes_unwatch(watch);
    close(fd);
}

static void in_a_child(void (*run)(void))
{
    int status;
    if (!userfaultfd_is_to_be_had())
        skip();
    pid_t pid = fork();
    if (pid == 0) {
        run();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void test_here_and_there(void **state)
{
    (void)state;
    in_a_child(here_and_there);
}

static void test_no_room(void **state)
{
    (void)state;
    in_a_child(no_room);
}

static void test_by_many(void **state)
{
    (void)state;
    in_a_child(by_many);
}

static void test_only_what_is_missing(void **state)
{
    (void)state;
    in_a_child(only_what_is_missing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_here_and_there),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_by_many),
        cmocka_unit_test(test_only_what_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
