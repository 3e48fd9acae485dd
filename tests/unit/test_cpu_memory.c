/* Memory of the CPU backend: allocation, export, adoption, imports and what they refuse. */
#include "tests/unit/cpu_matrix.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "proto/messages.h"
#include "tests/proc_entries.h"

#define PAGE 4096u
#define SEAL_ALL (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static struct cgm_backend *backend;
static char detail[200];

static int setup(void **state)
{
    (void)state;
    backend = fixture_open(0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ops->close(backend);
    return 0;
}

static int memfd(uint64_t bytes, int seals)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    if (seals)
        assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static void test_alloc_rounds_zeroes_and_exports(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        uint64_t bytes = pick(1, 100000);
        struct cgm_mem *mem, *again;
        int fd = -1;
        assert_int_equal(ops->mem_alloc(backend, (uint32_t)pick(0, 3), bytes, 0, &mem), CGM_OK);
        assert_true(ops->mem_bytes(mem) == (bytes + PAGE - 1) / PAGE * PAGE);
        assert_int_equal(ops->mem_export(mem, &fd), CGM_OK);
        assert_int_equal(fcntl(fd, F_GET_SEALS), SEAL_ALL);
        assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
        char *seen = fixture_map(mem);
        for (uint64_t at = 0; at < ops->mem_bytes(mem); at++)
            assert_int_equal(seen[at], 0);
        seen[bytes - 1] = (char)pick(1, 255);
        ops->mem_free(mem);
        assert_int_equal(ops->mem_adopt(backend, 1, fd, bytes, &again), CGM_OK);
        close(fd);
        char *after = fixture_map(again);
        assert_memory_equal(seen, after, ops->mem_bytes(again));
        munmap(seen, ops->mem_bytes(again));
        munmap(after, ops->mem_bytes(again));
        ops->mem_free(again);
    }
}

static void test_alloc_refuses(void **state)
{
    (void)state;
    struct cgm_mem *mem;
    assert_int_equal(ops->mem_alloc(backend, 0, 0, 0, &mem), CGM_INVALID_ARGUMENT);
    assert_int_equal(ops->mem_alloc(backend, 4, 1, 0, &mem), CGM_INVALID_ARGUMENT);
    assert_int_equal(ops->mem_alloc(backend, 0, UINT64_MAX, 0, &mem), CGM_INVALID_ARGUMENT);
    assert_int_equal(ops->mem_alloc(backend, 0, CGM_BUFFER_BYTES_MAX, 0, &mem), CGM_NO_MEMORY);
    assert_int_equal(ops->mem_alloc(backend, 0, 1, CGM_MEMORY_IPC, &mem), CGM_NOT_SUPPORTED);
}

static void test_adopt_refuses(void **state)
{
    (void)state;
    struct cgm_mem *mem;
    int open = memfd(2 * PAGE, 0), small = memfd(PAGE, SEAL_ALL);
    assert_int_equal(ops->mem_adopt(backend, 0, open, PAGE, &mem), CGM_INVALID_ARGUMENT);
    assert_int_equal(ops->mem_adopt(backend, 0, small, PAGE + 1, &mem), CGM_INVALID_ARGUMENT);
    assert_int_equal(ops->mem_adopt(backend, 0, small, 0, &mem), CGM_INVALID_ARGUMENT);
    assert_int_equal(ops->mem_adopt(backend, 9, small, 1, &mem), CGM_INVALID_ARGUMENT);
    assert_int_equal(ops->mem_adopt(backend, 0, -1, PAGE, &mem), CGM_INVALID_ARGUMENT);
    close(open);
    close(small);
}

static struct cgm_memory_segment segment_of(int fd, uint64_t offset, uint64_t length)
{
    return (struct cgm_memory_segment){.kind = 1, .fd = fd, .offset = offset, .length = length};
}

/* Random segments of random memfds, imported, and copied out as one long row. */
static void test_import_concatenates(void **state)
{
    (void)state;
    struct cgm_queue *queue = fixture_queue(backend, 0);
    for (int i = 0; i < 30; i++) {
        struct cgm_memory_segment segments[CGM_IMPORT_SEGMENTS_MAX];
        char *expected = malloc(CGM_IMPORT_SEGMENTS_MAX * 3 * PAGE);
        uint32_t n = (uint32_t)(i ? pick(1, 8) : CGM_IMPORT_SEGMENTS_MAX);
        uint64_t bytes = 0;
        for (uint32_t s = 0; s < n; s++) {
            uint64_t pages = pick(1, 3), offset = pick(0, 4) * PAGE;
            int fd = memfd(offset + pages * PAGE, F_SEAL_SHRINK);
            segments[s] = segment_of(fd, offset, pages * PAGE);
            for (uint64_t at = 0; at < pages * PAGE; at++)
                expected[bytes + at] = (char)cgm_random_next(&rng);
            assert_true(pwrite(fd, expected + bytes, pages * PAGE, (off_t)offset) > 0);
            bytes += pages * PAGE;
        }
        struct cgm_mem *mem, *out;
        bool read_only = pick(0, 1);
        assert_int_equal(
            ops->mem_import(backend, 1, segments, n, read_only, detail, sizeof(detail), &mem),
            CGM_OK);
        for (uint32_t s = 0; s < n; s++)
            close(segments[s].fd);
        assert_true(ops->mem_bytes(mem) == bytes);
        assert_int_equal(ops->mem_alloc(backend, 0, bytes, 0, &out), CGM_OK);
        struct cgm_view whole = {mem, 0, 1, bytes / 2, bytes / 2, CGM_DTYPE_BF16};
        struct cgm_copy copy = {.dst = whole, .src = whole}, back = {.dst = whole, .src = whole};
        copy.dst.mem = back.src.mem = out;
        assert_int_equal(ops->copy(queue, &copy), CGM_OK);
        assert_int_equal(ops->copy(queue, &back), read_only ? CGM_INVALID_ARGUMENT : CGM_OK);
        fixture_drain(backend, queue);
        char *seen = fixture_map(out);
        assert_memory_equal(seen, expected, bytes);
        int fd = -1;
        assert_int_equal(ops->mem_export(mem, &fd), CGM_NOT_SUPPORTED);
        munmap(seen, bytes);
        ops->mem_free(out);
        ops->mem_free(mem);
        free(expected);
    }
    ops->queue_free(queue);
}

/* Refused with `status` and words that name the segment and contain `word`. A good segment stands
 * before the bad one. */
static void refused(struct cgm_memory_segment bad, bool read_only, int status, const char *word)
{
    int good = memfd(PAGE, SEAL_ALL);
    struct cgm_memory_segment segments[2] = {segment_of(good, 0, PAGE), bad};
    struct cgm_mem *mem = NULL;
    memset(detail, 0, sizeof(detail));
    int got = ops->mem_import(backend, 0, segments, 2, read_only, detail, sizeof(detail), &mem);
    if (got != status || !strstr(detail, word) || !strstr(detail, "segment 1"))
        fail_msg("status %d, detail \"%s\", expected %d and \"%s\"", got, detail, status, word);
    assert_null(mem);
    close(good);
}

/* Another open file of the same memory. */
static int reopened(int fd, int flags)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int other = open(path, flags | O_CLOEXEC);
    assert_true(other >= 0);
    return other;
}

static void test_import_refuses_wrong_fds(void **state)
{
    (void)state;
    char path[] = "/tmp/cgm-test-XXXXXX";
    int pipes[2], pair[2];
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    const int file = mkstemp(path);
    const int fds[] = {pipes[0],
                       pipes[1],
                       pair[0],
                       pair[1],
                       eventfd(0, 0),
                       open("/dev/zero", O_RDWR),
                       open("/proc/self/status", O_RDONLY),
                       open("/", O_RDONLY),
                       open("/", O_PATH)};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        assert_true(fds[i] >= 0);
        refused(segment_of(fds[i], 0, PAGE), true, CGM_INVALID_ARGUMENT, "not a memfd");
        close(fds[i]);
    }
    /* On a tmpfs a file is a memfd that has a name, and cannot be sealed. */
    refused(segment_of(file, 0, PAGE), true, CGM_INVALID_ARGUMENT, "memfd");
    close(file);
    unlink(path);
    refused(segment_of(-1, 0, PAGE), false, CGM_INVALID_ARGUMENT, "not a memfd");
    refused(segment_of(9999, 0, PAGE), false, CGM_INVALID_ARGUMENT, "not a memfd");
    int open_ended = memfd(4 * PAGE, 0), growing = memfd(4 * PAGE, F_SEAL_GROW);
    refused(segment_of(open_ended, 0, PAGE), false, CGM_INVALID_ARGUMENT, "F_SEAL_SHRINK");
    refused(segment_of(growing, 0, PAGE), false, CGM_INVALID_ARGUMENT, "F_SEAL_SHRINK");
    close(open_ended);
    close(growing);
}

static void test_import_refuses_wrong_access(void **state)
{
    (void)state;
    int fd = memfd(2 * PAGE, F_SEAL_SHRINK);
    int reading = reopened(fd, O_RDONLY), writing = reopened(fd, O_WRONLY);
    int sealed = memfd(PAGE, F_SEAL_SHRINK | F_SEAL_WRITE);
    struct cgm_memory_segment segment = segment_of(reading, 0, PAGE);
    struct cgm_mem *mem;
    refused(segment, false, CGM_PERMISSION, "read-only");
    refused(segment_of(writing, 0, PAGE), true, CGM_PERMISSION, "reading");
    refused(segment_of(sealed, 0, PAGE), false, CGM_PERMISSION, "sealed");
    assert_int_equal(ops->mem_import(backend, 0, &segment, 1, true, detail, sizeof(detail), &mem),
                     CGM_OK);
    ops->mem_free(mem);
    close(fd), close(reading), close(writing), close(sealed);
}

static void test_import_refuses_wrong_fields(void **state)
{
    (void)state;
    int fd = memfd(4 * PAGE, SEAL_ALL), vast = memfd(1ull << 47, SEAL_ALL);
    struct cgm_memory_segment handle = {.kind = 2, .fd = fd, .length = PAGE};
    struct cgm_memory_segment unknown = {.kind = 3, .fd = fd, .length = PAGE};
    struct cgm_mem *mem = NULL;
    refused(handle, false, CGM_NOT_SUPPORTED, "cudaIpc");
    refused(unknown, false, CGM_INVALID_ARGUMENT, "kind is 3");
    refused(segment_of(fd, 1, PAGE), false, CGM_INVALID_ARGUMENT, "offset is 1");
    refused(segment_of(fd, 0, 0), false, CGM_INVALID_ARGUMENT, "length is 0");
    refused(segment_of(fd, 0, PAGE + 8), false, CGM_INVALID_ARGUMENT, "length is 4104");
    refused(segment_of(fd, 0, 5 * PAGE), false, CGM_INVALID_ARGUMENT, "16384 bytes");
    refused(segment_of(fd, 4 * PAGE, PAGE), false, CGM_INVALID_ARGUMENT, "16384 bytes");
    refused(segment_of(fd, -(uint64_t)PAGE, PAGE), false, CGM_INVALID_ARGUMENT, "16384 bytes");
    refused(segment_of(fd, PAGE, -(uint64_t)PAGE), false, CGM_INVALID_ARGUMENT, "16384 bytes");
    refused(segment_of(vast, 0, 1ull << 47), false, CGM_INVALID_ARGUMENT, "length is");
    assert_int_equal(ops->mem_import(backend, 0, NULL, 0, false, detail, sizeof(detail), &mem),
                     CGM_INVALID_ARGUMENT);
    assert_int_equal(ops->mem_import(backend, 0, &handle, CGM_IMPORT_SEGMENTS_MAX + 1, false,
                                     detail, sizeof(detail), &mem),
                     CGM_INVALID_ARGUMENT);
    handle.kind = 1;
    assert_int_equal(ops->mem_import(backend, 4, &handle, 1, false, detail, sizeof(detail), &mem),
                     CGM_INVALID_ARGUMENT);
    close(fd);
    close(vast);
}

/* Lines of this process's map that belong to memfds. */
static unsigned mappings(void)
{
    char line[512];
    unsigned count = 0;
    FILE *file = fopen("/proc/self/maps", "re");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file))
        count += strstr(line, "memfd:") != NULL;
    fclose(file);
    return count;
}

static void use_everything(void)
{
    struct cgm_queue *queue = fixture_queue(backend, 0);
    struct tensor a, out;
    int fd = memfd(PAGE, SEAL_ALL);
    struct cgm_memory_segment good = segment_of(fd, 0, PAGE), bad = segment_of(fd, 0, 2 * PAGE);
    struct cgm_memory_segment both[2] = {good, bad};
    struct cgm_mem *mem;
    tensor_init(&a, backend, 20, 20, CGM_DTYPE_BF16, CGM_FILL_NORMAL);
    tensor_init(&out, backend, 20, 20, CGM_DTYPE_FP16, CGM_FILL_NORMAL);
    struct cgm_gemm gemm = {.a = a.view, .b = a.view, .out = out.view};
    assert_int_equal(ops->gemm(queue, &gemm), CGM_OK);
    ops->queue_free(queue);
    assert_int_equal(ops->mem_import(backend, 0, &good, 1, false, detail, sizeof(detail), &mem),
                     CGM_OK);
    ops->mem_free(mem);
    assert_int_not_equal(ops->mem_import(backend, 0, both, 2, false, detail, sizeof(detail), &mem),
                         CGM_OK);
    assert_int_not_equal(ops->mem_adopt(backend, 0, fd, 2 * PAGE, &mem), CGM_OK);
    close(fd);
    tensor_fini(&a);
    tensor_fini(&out);
}

static void test_nothing_is_left(void **state)
{
    (void)state;
    use_everything();
    unsigned fds = proc_entries(getpid(), "fd"), maps = mappings(),
             tasks = proc_entries(getpid(), "task");
    for (int i = 0; i < 20; i++)
        use_everything();
    assert_int_equal(proc_entries(getpid(), "fd"), fds);
    for (int naps = 0; proc_entries(getpid(), "task") > tasks; naps++) {
        assert_true(naps < 1000); /* a thread that was joined is seen a moment longer */
        usleep(10000);
    }
    assert_int_equal(mappings(), maps);
}

int main(void)
{
    fixture_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc_rounds_zeroes_and_exports),
        cmocka_unit_test(test_alloc_refuses),
        cmocka_unit_test(test_adopt_refuses),
        cmocka_unit_test(test_import_concatenates),
        cmocka_unit_test(test_import_refuses_wrong_fds),
        cmocka_unit_test(test_import_refuses_wrong_access),
        cmocka_unit_test(test_import_refuses_wrong_fields),
        cmocka_unit_test(test_nothing_is_left),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
