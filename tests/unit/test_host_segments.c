/* Memory of clients that a backend pins: what it has only in name must fit into the node. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/executor/host/segment.h"
#include "proto/room.h"
#include "proto/status.h"
#include "proto/system.h"

#define MIB (1ull << 20)

static struct cgm_memory_segment segment_of(uint64_t bytes)
{
    struct cgm_memory_segment segment = {.kind = CGM_SEGMENT_FD, .length = bytes};
    segment.fd = memfd_create("segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(segment.fd >= 0);
    assert_int_equal(ftruncate(segment.fd, (off_t)bytes), 0);
    assert_int_equal(fcntl(segment.fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    return segment;
}

static int check(const struct cgm_memory_segment *segments, uint32_t count)
{
    char detail[256] = "";
    int status = CGM_OK;
    for (uint32_t i = 0; i < count && status == CGM_OK; i++)
        status = cgm_segment_check(&segments[i], i, false, detail, sizeof(detail));
    if (status == CGM_OK)
        status = cgm_segments_check_holes(segments, count, detail, sizeof(detail));
    if (status == CGM_NO_MEMORY)
        assert_non_null(strstr(detail, "bytes of the segments do not exist yet"));
    return status;
}

static void test_holes(void **state)
{
    uint64_t total, available;
    (void)state;
    assert_int_equal(cgm_system_memory(&total, &available), CGM_OK);
    struct cgm_memory_segment giant = segment_of(total), small = segment_of(MIB);
    assert_int_equal(check(&giant, 1), CGM_NO_MEMORY);
    assert_int_equal(check(&small, 1), CGM_OK);
    giant.length = MIB; /* only a part of it is filled */
    assert_int_equal(check(&giant, 1), CGM_OK);
    close(giant.fd);
    close(small.fd);
}

/* Each fits, and together they do not. */
static void test_holes_of_many_segments(void **state)
{
    struct cgm_memory_segment segments[16];
    uint64_t total, available;
    (void)state;
    assert_int_equal(cgm_system_memory(&total, &available), CGM_OK);
    for (int i = 0; i < 16; i++)
        segments[i] = segment_of(available / 16 / MIB * MIB + MIB);
    assert_int_equal(check(segments, 1), CGM_OK);
    assert_int_equal(check(segments, 16), CGM_NO_MEMORY);
    for (int i = 0; i < 16; i++)
        close(segments[i].fd);
}

/* What is there already needs no room. */
static void test_memory_that_is_there(void **state)
{
    (void)state;
    struct cgm_memory_segment segment = segment_of(4 * MIB);
    assert_int_equal(fallocate(segment.fd, 0, 0, 4 * MIB), 0);
    assert_int_equal(check(&segment, 1), CGM_OK);
    close(segment.fd);
}

static void test_room(void **state)
{
    uint64_t total, available;
    (void)state;
    assert_int_equal(cgm_system_memory(&total, &available), CGM_OK);
    assert_int_equal(cgm_room_check(0, 0), CGM_OK);
    assert_int_equal(cgm_room_check(available, 0), CGM_NO_MEMORY);
    assert_int_equal(cgm_room_check(UINT64_MAX, 0), CGM_NO_MEMORY);
    assert_true(cgm_room_spares(1, 0));
    assert_false(cgm_room_spares(total, 0));
    assert_false(cgm_room_spares(available - MIB, total));
    assert_true(cgm_room_limit() <= total);
}

/* How much there is cannot be known then, and whoever asks has to give up something first. */
static void test_without_file_descriptors(void **state)
{
    uint64_t total, available;
    struct rlimit limit, none;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int status = cgm_system_memory(&total, &available), checked = cgm_room_check(0, 0);
    bool spares = cgm_room_spares(1, 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(status, CGM_NO_MEMORY);
    assert_int_equal(checked, CGM_NO_MEMORY);
    assert_true(spares);
}

static bool is_a_mapping(const char *base, uint64_t bytes)
{
    char line[512], begin[64];
    bool found = false;
    FILE *file = fopen("/proc/self/maps", "re");
    assert_non_null(file);
    snprintf(begin, sizeof(begin), "%jx-%jx ", (uintmax_t)(uintptr_t)base,
             (uintmax_t)((uintptr_t)base + bytes));
    while (fgets(line, sizeof(line), file))
        found |= strncmp(line, begin, strlen(begin)) == 0;
    fclose(file);
    return found;
}

/* Parts of one memfd, the last one first: without something in between they were one. */
static void test_each_is_a_mapping(void **state)
{
    enum { PARTS = 8 };
    char *bases[PARTS];
    (void)state;
    struct cgm_memory_segment segment = segment_of(PARTS * MIB);
    segment.length = MIB;
    for (int i = PARTS - 1; i >= 0; i--) {
        segment.offset = (uint64_t)i * MIB;
        bases[i] = cgm_segments_map(&segment, 1, MIB, PROT_READ | PROT_WRITE, MAP_SHARED);
        assert_non_null(bases[i]);
    }
    for (int i = 0; i < PARTS; i++)
        assert_true(is_a_mapping(bases[i], MIB));
    for (int i = 0; i < PARTS; i++)
        munmap(bases[i], MIB);
    close(segment.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_holes),
        cmocka_unit_test(test_holes_of_many_segments),
        cmocka_unit_test(test_memory_that_is_there),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_without_file_descriptors),
        cmocka_unit_test(test_each_is_a_mapping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
