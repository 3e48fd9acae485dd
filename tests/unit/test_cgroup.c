/* Limits of memory of control groups, of made-up systems in a folder of the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/cgroup.h"
#include "proto/room.h"
#include "proto/status.h"

#define V2 "/sys/fs/cgroup"
#define V1 "/sys/fs/cgroup/memory"
#define MOUNT_V2 "31 23 0:26 / " V2 " rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
#define MOUNT_V1 "35 31 0:32 / " V1 " rw,relatime - cgroup cgroup rw,memory\n"
#define MOUNT_CPU "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
#define OTHERS                                                                                     \
    "22 27 0:21 / /proc rw - proc proc rw\n27 1 254:0 / / rw - ext4 /dev/vda rw,discard\n"

struct system {
    char base[64];
    struct cgm_cgroup_tree tree;
};

/* Folders on the way are made. */
static void put(const struct system *system, const char *path, const char *text)
{
    char whole[PATH_MAX];
    snprintf(whole, sizeof(whole), "%s%s", system->base, path);
    for (char *slash = strchr(whole + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(whole, 0700);
        *slash = '/';
    }
    FILE *file = fopen(whole, "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int set_up(void **state)
{
    struct system *system = test_calloc(1, sizeof(*system));
    snprintf(system->base, sizeof(system->base), "/tmp/cgm-cgroup-XXXXXX");
    assert_non_null(mkdtemp(system->base));
    *state = system;
    return 0;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info, (void)kind, (void)place;
    return remove(path);
}

static int tear_down(void **state)
{
    struct system *system = *state;
    assert_int_equal(nftw(system->base, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    test_free(system);
    return 0;
}

static void find(struct system *system, const char *mounts, const char *groups)
{
    put(system, "/proc/self/mountinfo", mounts);
    put(system, "/proc/self/cgroup", groups);
    assert_int_equal(cgm_cgroup_find(system->base, &system->tree), CGM_OK);
}

static struct cgm_cgroup own(const struct system *system)
{
    struct cgm_cgroup group;
    assert_true(cgm_cgroup_own(&system->tree, &group));
    return group;
}

static void expect_name(const struct cgm_cgroup *group, const char *wanted)
{
    char name[128];
    cgm_cgroup_name(group, name, sizeof(name));
    assert_string_equal(name, wanted);
}

static void expect_limit(const struct cgm_cgroup *group, const char *wanted_file, uint64_t wanted)
{
    const char *file = NULL;
    uint64_t bytes = 0;
    assert_true(cgm_cgroup_limit(group, &bytes, &file));
    assert_string_equal(file, wanted_file);
    assert_int_equal(bytes, wanted);
}

static void expect_no_limit(const struct cgm_cgroup *group)
{
    const char *file;
    uint64_t bytes;
    assert_false(cgm_cgroup_limit(group, &bytes, &file));
}

static void expect_used(const struct cgm_cgroup *group, uint64_t wanted)
{
    uint64_t bytes = 0;
    assert_true(cgm_cgroup_used(group, &bytes));
    assert_int_equal(bytes, wanted);
}

static void test_version_2(void **state)
{
    struct system *system = *state;
    put(system, V2 "/system.slice/d.service/memory.max", "1000000\n");
    put(system, V2 "/system.slice/d.service/memory.high", "max\n");
    put(system, V2 "/system.slice/d.service/memory.current", "700000\n");
    put(system, V2 "/system.slice/d.service/memory.stat",
        "anon 5\nfile 400000\nshmem 100000\nfile_mapped 1\ninactive_anon 100000\n"
        "inactive_file 200000\nactive_file 100000\nunevictable 0\nslab_reclaimable 50000\n");
    find(system, OTHERS MOUNT_V2, "0::/system.slice/d.service\n");
    struct cgm_cgroup group = own(system);
    expect_name(&group, "/system.slice/d.service");
    expect_limit(&group, "memory.max", 1000000);
    expect_used(&group, 700000);
    assert_int_equal(cgm_cgroup_reclaimable(&group), 300000);
}

static void test_what_is_high_counts(void **state)
{
    struct system *system = *state;
    put(system, V2 "/a/memory.max", "1000000\n");
    put(system, V2 "/a/memory.high", "800000\n");
    find(system, MOUNT_V2, "0::/a\n");
    struct cgm_cgroup group = own(system);
    expect_limit(&group, "memory.high", 800000);
}

static void test_version_1(void **state)
{
    struct system *system = *state;
    put(system, V1 "/d/memory.limit_in_bytes", "2000000\n");
    put(system, V1 "/d/memory.usage_in_bytes", "1500000\n");
    put(system, V1 "/d/memory.stat",
        "cache 1\ninactive_file 7\nactive_file 7\nhierarchical_memory_limit 2000000\n"
        "total_inactive_file 1000\ntotal_active_file 2000\n");
    find(system, MOUNT_CPU MOUNT_V1, "9:name=systemd:/x\n4:cpuset,memory:/d\n1:cpu:/e\n0::/f\n");
    struct cgm_cgroup group = own(system);
    expect_name(&group, "/d");
    expect_limit(&group, "memory.limit_in_bytes", 2000000);
    expect_used(&group, 1500000);
    assert_int_equal(cgm_cgroup_reclaimable(&group), 3000);
}

/* With both mounted memory is v1's, in whatever order they are. */
static void test_both_versions(void **state)
{
    static const char *const orders[] = {MOUNT_V1 MOUNT_V2, MOUNT_V2 MOUNT_V1};
    struct system *system = *state;
    put(system, V1 "/d/memory.limit_in_bytes", "2000000\n");
    for (int i = 0; i < 2; i++) {
        find(system, orders[i], "4:memory:/d\n0::/f\n");
        struct cgm_cgroup group = own(system);
        expect_limit(&group, "memory.limit_in_bytes", 2000000);
    }
}

static void test_groups_above(void **state)
{
    struct system *system = *state;
    put(system, V2 "/memory.max", "5000\n");
    put(system, V2 "/a/memory.max", "max\n");
    put(system, V2 "/a/b/memory.max", "4000\n");
    find(system, MOUNT_V2, "0::/a/b/c\n");
    struct cgm_cgroup group = own(system);
    expect_no_limit(&group);
    assert_true(cgm_cgroup_up(&group));
    expect_limit(&group, "memory.max", 4000);
    expect_name(&group, "/a/b");
    assert_true(cgm_cgroup_up(&group));
    expect_no_limit(&group);
    assert_true(cgm_cgroup_up(&group));
    expect_limit(&group, "memory.max", 5000);
    expect_name(&group, "/");
    assert_false(cgm_cgroup_up(&group));
}

/* Known as the own group's, not again as that of each group above. */
static void test_limit_of_a_group_out_of_sight(void **state)
{
    static const char stat[] = "hierarchical_memory_limit 3000\n";
    struct system *system = *state;
    put(system, V1 "/b/memory.limit_in_bytes", "9223372036854771712\n");
    put(system, V1 "/b/memory.stat", stat);
    put(system, V1 "/memory.stat", stat);
    find(system, MOUNT_V1, "4:memory:/b\n");
    struct cgm_cgroup group = own(system);
    expect_limit(&group, "hierarchical_memory_limit", 3000);
    assert_true(cgm_cgroup_up(&group));
    expect_no_limit(&group);
}

/* As a container sees its own group where the system's names are not hidden from it. */
static void test_a_mount_of_a_group(void **state)
{
    static const char mount[] = "9 8 0:26 /pod/box /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
    static const struct {
        const char *line, *name;
    } cases[] = {
        {"0::/pod/box\n", "/pod/box"},   {"0::/pod/box/in\n", "/pod/box/in"},
        {"0::/pod/boxes\n", "/pod/box"}, {"0::/elsewhere\n", "/pod/box"},
        {"0::/\n", "/pod/box"},          {"0::/pod/box/../other\n", "/pod/box"},
    };
    struct system *system = *state;
    put(system, V2 "/memory.max", "6000\n");
    put(system, V2 "/in/memory.max", "6000\n");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        find(system, mount, cases[i].line);
        struct cgm_cgroup group = own(system);
        expect_limit(&group, "memory.max", 6000);
        expect_name(&group, cases[i].name);
    }
}

/* The kernel escapes blanks in names of mounts. */
static void test_odd_names(void **state)
{
    struct system *system = *state;
    put(system, "/odd place/a:b c/memory.max", "6000\n");
    find(system, "9 8 0:26 / /odd\\040place rw - cgroup2 cgroup rw\n", "0::/a:b c\n");
    struct cgm_cgroup group = own(system);
    expect_limit(&group, "memory.max", 6000);
}

/* The process may be moved at any time. */
static void test_another_group_later(void **state)
{
    struct system *system = *state;
    put(system, V2 "/b/memory.max", "6000\n");
    find(system, MOUNT_V2, "0::/a\n");
    struct cgm_cgroup group = own(system);
    expect_no_limit(&group);
    put(system, "/proc/self/cgroup", "0::/b\n");
    group = own(system);
    expect_limit(&group, "memory.max", 6000);
}

static void test_garbage(void **state)
{
    static const char *const texts[] = {"",          "\n",    "max\n", "none\n",
                                        "-1\n",      "12x\n", " 12\n", "99999999999999999999999\n",
                                        "\xff\xfe\n"};
    struct system *system = *state;
    uint64_t bytes;
    find(system, MOUNT_V2, "0::/a\n");
    struct cgm_cgroup group = own(system);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        put(system, V2 "/a/memory.max", texts[i]);
        expect_no_limit(&group);
    }
    put(system, V2 "/a/memory.current", "much\n");
    assert_false(cgm_cgroup_used(&group, &bytes));
    put(system, V2 "/a/memory.stat", "inactive_file\nactive_file x\nxinactive_file 8\n\n\n");
    assert_int_equal(cgm_cgroup_reclaimable(&group), 0);
    put(system, V2 "/a/memory.stat", "active_file 18446744073709551615\ninactive_file 8");
    assert_int_equal(cgm_cgroup_reclaimable(&group), 8);
}

static void test_garbage_among_the_mounts(void **state)
{
    static const char *const mounts[] = {"",
                                         "\n\n",
                                         " - ",
                                         " - cgroup2 cgroup2 rw\n",
                                         "1 2 3 4 - cgroup2 cgroup2 rw\n",
                                         "1 2 3 / " V2 " rw - cgroup2\n",
                                         "1 2 3 / " V2 " rw cgroup2 cgroup2 rw\n",
                                         "1 2 3 / " V1 " rw - cgroup cgroup rw,memoryless\n",
                                         MOUNT_CPU OTHERS};
    struct system *system = *state;
    struct cgm_cgroup group;
    for (size_t i = 0; i < sizeof(mounts) / sizeof(mounts[0]); i++) {
        find(system, mounts[i], "4:memory:/d\n0::/\n");
        assert_null(system->tree.version);
        assert_false(cgm_cgroup_own(&system->tree, &group));
    }
}

static void test_garbage_among_the_groups(void **state)
{
    static const char *const groups[] = {"", "\n", "0\n", "0:\n", "0:x:/a\n", "4:cpu:/a\n"};
    struct system *system = *state;
    struct cgm_cgroup group;
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
        find(system, MOUNT_V2, groups[i]);
        assert_false(cgm_cgroup_own(&system->tree, &group));
    }
}

/* Layers of a container's file system can make a line of any length. */
static void test_a_long_line(void **state)
{
    struct system *system = *state;
    size_t n = 100000;
    char *mounts = test_malloc(n + 1 + sizeof(MOUNT_V2));
    memset(mounts, 'x', n);
    mounts[n] = '\n';
    strcpy(mounts + n + 1, MOUNT_V2);
    put(system, V2 "/a/memory.max", "6000\n");
    find(system, mounts, "0::/a\n");
    test_free(mounts);
    struct cgm_cgroup group = own(system);
    expect_limit(&group, "memory.max", 6000);
}

static void test_long_names_are_cut(void **state)
{
    struct system *system = *state;
    char name[16];
    find(system, MOUNT_V2, "0::/system.slice/commgemmd.service\n");
    struct cgm_cgroup group = own(system);
    cgm_cgroup_name(&group, name, sizeof(name));
    assert_string_equal(name, "...emmd.service");
}

/* ---- what they leave ---- */

#define PLENTY (1ull << 50)

static struct cgm_room room_of(const struct system *system, uint64_t own_bytes, uint64_t enough)
{
    struct cgm_room room = {.total_bytes = PLENTY, .available_bytes = PLENTY};
    cgm_room_narrow(&system->tree, own_bytes, enough, &room);
    return room;
}

static void limit_to(const struct system *system, const char *group, const char *limit,
                     const char *used, const char *cache)
{
    char path[128], text[64];
    snprintf(path, sizeof(path), V2 "%s/memory.max", group);
    put(system, path, limit);
    snprintf(path, sizeof(path), V2 "%s/memory.current", group);
    put(system, path, used);
    snprintf(path, sizeof(path), V2 "%s/memory.stat", group);
    snprintf(text, sizeof(text), "active_file %s\n", cache);
    put(system, path, text);
}

static void test_what_is_left(void **state)
{
    struct system *system = *state;
    limit_to(system, "/a", "160000", "60000", "0");
    find(system, MOUNT_V2, "0::/a\n");
    struct cgm_room room = room_of(system, 0, UINT64_MAX);
    assert_string_equal(room.group, "/a");
    assert_string_equal(room.file, "memory.max");
    assert_int_equal(room.total_bytes, 160000);
    assert_int_equal(room.available_bytes, 100000);
    assert_int_equal(room.reserved_bytes, 10000); /* a sixteenth */
    assert_int_equal(cgm_room_left(&room), 90000);
    room = room_of(system, 30000, UINT64_MAX);
    assert_int_equal(cgm_room_left(&room), 70000);
    room = room_of(system, 1000000, UINT64_MAX); /* half, at most */
    assert_int_equal(cgm_room_left(&room), 20000);
}

/* A cache that fills all is no reason to refuse; it is not looked at where enough is left. */
static void test_pages_to_be_taken_back_are_free(void **state)
{
    struct system *system = *state;
    limit_to(system, "/a", "160000", "160000", "90000");
    find(system, MOUNT_V2, "0::/a\n");
    struct cgm_room room = room_of(system, 0, UINT64_MAX);
    assert_int_equal(cgm_room_left(&room), 80000);
    limit_to(system, "/a", "160000", "60000", "50000");
    room = room_of(system, 0, 90000);
    assert_int_equal(cgm_room_left(&room), 90000);
    room = room_of(system, 0, 90001);
    assert_int_equal(cgm_room_left(&room), 140000);
    limit_to(system, "/a", "160000", "60000", "99999999");
    room = room_of(system, 0, UINT64_MAX);
    assert_int_equal(room.available_bytes, 160000);
}

static void test_the_least_of_all_groups_counts(void **state)
{
    struct system *system = *state;
    limit_to(system, "/a/b", "160000", "1000", "0");
    limit_to(system, "/a", "320000", "290000", "0"); /* by others */
    find(system, MOUNT_V2, "0::/a/b\n");
    struct cgm_room room = room_of(system, 0, UINT64_MAX);
    assert_string_equal(room.group, "/a");
    assert_int_equal(cgm_room_left(&room), 10000);
    limit_to(system, "/a", "320000", "2000", "0");
    room = room_of(system, 0, UINT64_MAX);
    assert_string_equal(room.group, "/a/b");
}

/* A limit may be set below what is used already. */
static void test_nothing_is_left(void **state)
{
    struct system *system = *state;
    limit_to(system, "/a", "160000", "170000", "0");
    find(system, MOUNT_V2, "0::/a\n");
    struct cgm_room room = room_of(system, 0, UINT64_MAX);
    assert_int_equal(cgm_room_left(&room), 0);
    limit_to(system, "/a", "0", "10", "0");
    room = room_of(system, 0, UINT64_MAX);
    assert_int_equal(cgm_room_left(&room), 0);
    assert_string_equal(room.group, "/a");
}

static void test_the_node_has_less(void **state)
{
    struct system *system = *state;
    struct cgm_room room = {.total_bytes = 1000, .available_bytes = 500, .reserved_bytes = 100};
    limit_to(system, "/a", "160000", "1000", "0");
    find(system, MOUNT_V2, "0::/a\n");
    cgm_room_narrow(&system->tree, 0, UINT64_MAX, &room);
    assert_null(room.file);
    assert_int_equal(cgm_room_left(&room), 400);
}

/* A limit without what is used of it says nothing. */
static void test_half_of_it_is_there(void **state)
{
    struct system *system = *state;
    put(system, V2 "/a/memory.max", "1000\n");
    find(system, MOUNT_V2, "0::/a\n");
    struct cgm_room room = room_of(system, 0, UINT64_MAX);
    assert_null(room.file);
}

static void test_words(void **state)
{
    struct system *system = *state;
    char words[CGM_ROOM_WORDS];
    limit_to(system, "/a", "160000", "60000", "0");
    find(system, MOUNT_V2, "0::/a\n");
    struct cgm_room room = room_of(system, 0, UINT64_MAX);
    cgm_room_words(&room, words, sizeof(words));
    assert_string_equal(words, "90000 bytes are left of 160000, the limit of control group /a "
                               "(memory.max), beside 10000 that are kept");
}

/* ---- what is absent ---- */

static void test_nothing_is_there(void **state)
{
    struct system *system = *state;
    struct cgm_cgroup group;
    assert_int_equal(cgm_cgroup_find(system->base, &system->tree), CGM_OK);
    assert_null(system->tree.version);
    assert_false(cgm_cgroup_own(&system->tree, &group));
    put(system, "/proc/self/mountinfo", MOUNT_V2);
    assert_int_equal(cgm_cgroup_find(system->base, &system->tree), CGM_OK);
    assert_false(cgm_cgroup_own(&system->tree, &group));
}

/* Whatever it has. */
static void test_this_system(void **state)
{
    struct cgm_cgroup_tree tree;
    struct cgm_cgroup group;
    const char *file;
    uint64_t bytes;
    (void)state;
    assert_int_equal(cgm_cgroup_find("", &tree), CGM_OK);
    for (bool more = cgm_cgroup_own(&tree, &group); more; more = cgm_cgroup_up(&group))
        if (cgm_cgroup_limit(&group, &bytes, &file))
            assert_non_null(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        CASE(test_version_2),
        CASE(test_what_is_high_counts),
        CASE(test_version_1),
        CASE(test_both_versions),
        CASE(test_groups_above),
        CASE(test_limit_of_a_group_out_of_sight),
        CASE(test_a_mount_of_a_group),
        CASE(test_odd_names),
        CASE(test_another_group_later),
        CASE(test_garbage),
        CASE(test_garbage_among_the_mounts),
        CASE(test_garbage_among_the_groups),
        CASE(test_a_long_line),
        CASE(test_long_names_are_cut),
        CASE(test_what_is_left),
        CASE(test_pages_to_be_taken_back_are_free),
        CASE(test_the_least_of_all_groups_counts),
        CASE(test_nothing_is_left),
        CASE(test_the_node_has_less),
        CASE(test_half_of_it_is_there),
        CASE(test_words),
        CASE(test_nothing_is_there),
        cmocka_unit_test(test_this_system),
#undef CASE
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
