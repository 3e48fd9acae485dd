/* Memory of others on a device: memfds, exported memory, IPC handles. */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "daemon/executor/cuda/cuda.h"
#include "tests/gpu/gpu_fixture.h"

static int import(const struct cgm_memory_segment *segments, uint32_t count, const char *words,
                  struct cgm_mem **ret_mem)
{
    char detail[CGM_CQE_DETAIL] = "";
    int status =
        ops->mem_import(backend, 0, segments, count, false, detail, sizeof(detail), ret_mem);
    if (status != CGM_OK)
        print_message("%s: %s\n", cgm_status_name(status), detail);
    if (words)
        assert_non_null(strstr(detail, words));
    return status;
}

static void copy_through(struct cgm_mem *mem, uint64_t offset, const struct memory *to)
{
    struct lane lane;
    lane_open(&lane, 0);
    struct cgm_copy copy = {.label = label,
                            .dst = view_of(to->mem, 0, 1, 1024, 1024, CGM_DTYPE_FP32),
                            .src = view_of(mem, offset, 1, 1024, 1024, CGM_DTYPE_FP32)};
    assert_int_equal(ops->copy(lane.queue, &copy), CGM_OK);
    lane_finish(&lane);
    lane_close(&lane);
}

static void copy_what_may_only_be_read(const struct cgm_memory_segment *segment,
                                       const struct memory *to, const float *expected)
{
    char detail[CGM_CQE_DETAIL] = "";
    struct lane lane;
    struct cgm_mem *mem;
    struct host_view view = to->view;
    int status = ops->mem_import(backend, 0, segment, 1, true, detail, sizeof(detail), &mem);
    if (status != CGM_OK)
        fail_msg("reading only: %s: %s", cgm_status_name(status), detail);
    copy_through(mem, 0, to);
    host_view_pull(&view, 0, 4096);
    assert_memory_equal(view.base, expected, 4096);
    lane_open(&lane, 0);
    struct cgm_copy back = {.label = label,
                            .dst = view_of(mem, 0, 1, 1024, 1024, CGM_DTYPE_FP32),
                            .src = view_of(to->mem, 0, 1, 1024, 1024, CGM_DTYPE_FP32)};
    assert_int_equal(ops->copy(lane.queue, &back), CGM_INVALID_ARGUMENT);
    lane_finish(&lane);
    lane_close(&lane);
    ops->mem_free(mem);
}

static void test_memfds_are_imported(void **state)
{
    (void)state;
    struct memory to;
    struct cgm_mem *mem;
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(fallocate(fd, 0, 0, 65536), 0);
    struct cgm_memory_segment segment = {.kind = 1, .fd = fd, .offset = 4096, .length = 8192};
    assert_int_equal(import(&segment, 1, "F_SEAL_SHRINK", &mem), CGM_INVALID_ARGUMENT);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    float *base = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (int i = 0; i < 65536 / 4; i++)
        base[i] = (float)i;
    segment.length = 65536;
    assert_int_equal(import(&segment, 1, "reach beyond the 65536 bytes", &mem),
                     CGM_INVALID_ARGUMENT);
    segment.length = 8192;
    assert_int_equal(import(&segment, 1, NULL, &mem), CGM_OK);
    memory_open(&to, 0, MIB);
    copy_through(mem, 4096, &to);
    host_view_pull(&to.view, 0, 4096);
    assert_memory_equal(to.view.base, base + 2048, 4096);
    ops->mem_free(mem);
    copy_what_may_only_be_read(&segment, &to, base + 1024);
    memory_close(&to);
    munmap(base, 65536);
    close(fd);
}

/* Sealed memory of the host, seen from here and imported. */
struct host_import {
    int fd;
    unsigned char *base;
    struct cgm_mem *mem;
};

static void host_import_open(struct host_import *host, size_t bytes)
{
    host->fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(fallocate(host->fd, 0, 0, (off_t)bytes), 0);
    assert_int_equal(fcntl(host->fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    host->base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, host->fd, 0);
    assert_ptr_not_equal(host->base, MAP_FAILED);
    struct cgm_memory_segment segment = {.kind = 1, .fd = host->fd, .offset = 0, .length = bytes};
    assert_int_equal(import(&segment, 1, NULL, &host->mem), CGM_OK);
}

static void host_import_close(struct host_import *host, size_t bytes)
{
    ops->mem_free(host->mem);
    munmap(host->base, bytes);
    close(host->fd);
}

/* Whoever enqueues one is not held by what is ahead of it. */
static void test_copies_within_the_host_wait_in_the_stream(void **state)
{
    static const uint64_t rows[] = {1, 64};
    struct host_import from, to;
    struct lane copier, signaller;
    struct cgm_flag *flag;
    (void)state;
    host_import_open(&from, MIB);
    host_import_open(&to, MIB);
    lane_open(&copier, 0);
    lane_open(&signaller, 0);
    assert_int_equal(ops->flag_new(backend, 0, CGM_FLAG_DEVICE, &flag), CGM_OK);
    for (unsigned i = 0; i < 2; i++) {
        struct cgm_copy copy = {.label = label,
                                .dst = view_of(to.mem, 0, rows[i], 1024, 1040, CGM_DTYPE_FP32),
                                .src = view_of(from.mem, 64, rows[i], 1024, 1024, CGM_DTYPE_FP32)};
        memset(from.base, 17 + (int)i, MIB);
        memset(to.base, 0, MIB);
        assert_int_equal(ops->wait(copier.queue, flag, i + 1, &label), CGM_OK);
        assert_int_equal(ops->copy(copier.queue, &copy), CGM_OK);
        assert_int_equal(to.base[0], 0);
        assert_int_equal(ops->signal(signaller.queue, flag, i + 1), CGM_OK);
        lane_finish(&copier);
        assert_int_equal(to.base[0], from.base[0]);
        assert_int_equal(to.base[(rows[i] - 1) * 4160 + 4095], from.base[0]);
        assert_int_equal(to.base[4096], 0);
    }
    lane_close(&copier);
    lane_close(&signaller);
    ops->flag_free(flag);
    host_import_close(&from, MIB);
    host_import_close(&to, MIB);
}

static void test_exported_memory_is_imported(void **state)
{
    (void)state;
    struct memory from, to;
    struct cgm_mem *mem;
    int fd;
    memory_open(&from, 0, 4 * MIB);
    memory_open(&to, 0, MIB);
    for (size_t i = 0; i < 4 * MIB; i++)
        from.view.base[i] = (unsigned char)(i * 7 + i / 4096);
    host_view_push(&from.view, 0, 4 * MIB);
    assert_int_equal(ops->mem_export(from.mem, &fd), CGM_OK);
    struct cgm_memory_segment segments[2] = {
        {.kind = 1, .fd = fd, .offset = 2 * MIB, .length = 2 * MIB},
        {.kind = 1, .fd = fd, .offset = 0, .length = 4 * MIB}};
    assert_int_equal(import(segments, 2, NULL, &mem), CGM_OK);
    assert_int_equal(ops->mem_bytes(mem), 6 * MIB);
    copy_through(mem, 3 * MIB, &to);
    host_view_pull(&to.view, 0, 4096);
    assert_memory_equal(to.view.base, from.view.base + MIB, 4096);
    ops->mem_free(mem);
    segments[0].length = MIB;
    assert_int_equal(import(segments, 2, "gap", &mem), CGM_INVALID_ARGUMENT);
    segments[1].length = MIB;
    assert_int_equal(import(&segments[1], 1, "all of it", &mem), CGM_INVALID_ARGUMENT);
    close(fd);
    memory_close(&from);
    memory_close(&to);
}

/* Nothing of the client's is made here, unless nobody can watch for it. */
static void test_holes_are_refused(void **state)
{
    (void)state;
    struct cgm_mem *mem = NULL;
    struct stat info;
    int watch = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    if (watch < 0) {
        print_message("userfaultfd is not to be had here\n");
        skip();
    }
    close(watch);
    int fd = memfd_create("holes", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, 65536), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    struct cgm_memory_segment segment = {.kind = 1, .fd = fd, .length = 65536};
    assert_int_not_equal(import(&segment, 1, "65536 of them may be holes", &mem), CGM_OK);
    if (mem)
        ops->mem_free(mem);
    assert_int_equal(fstat(fd, &info), 0);
    assert_int_equal(info.st_blocks, 0);
    assert_int_equal(fallocate(fd, 0, 0, 65536), 0);
    assert_int_equal(import(&segment, 1, NULL, &mem), CGM_OK);
    ops->mem_free(mem);
    close(fd);
}

static void test_bad_segments_are_refused_by_name(void **state)
{
    (void)state;
    struct cgm_mem *mem;
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    struct cgm_memory_segment segment = {.kind = 2, .length = 4096};
    assert_int_equal(import(&segment, 1, "cudaIpc handle", &mem), CGM_INVALID_ARGUMENT);
    for (int i = 0; i < 5; i++) {
        for (size_t j = 0; j < sizeof(segment.handle); j++)
            segment.handle[j] = (uint8_t)cgm_random_below(&rng, 256);
        assert_int_not_equal(import(&segment, 1, "cudaIpc handle", &mem), CGM_OK);
    }
    segment = (struct cgm_memory_segment){.kind = 1, .fd = pipes[0], .length = 4096};
    assert_int_equal(import(&segment, 1, "neither a memfd", &mem), CGM_INVALID_ARGUMENT);
    segment.kind = 9;
    assert_int_equal(import(&segment, 1, "kind is 9", &mem), CGM_INVALID_ARGUMENT);
    assert_int_equal(import(&segment, 0, "0 segments", &mem), CGM_INVALID_ARGUMENT);
    close(pipes[0]);
    close(pipes[1]);
    ops->check(backend); /* the devices live */
}

/* Another process: makes cudaMalloc memory full of a pattern, and lends its handle. */
static int exporter_main(void)
{
    cudaIpcMemHandle_t handle;
    void *memory;
    char end;
    if (cudaSetDevice(0) || cudaMalloc(&memory, 4 * MIB) || cudaMemset(memory, 0x3c, 4 * MIB) ||
        cudaDeviceSynchronize() || cudaIpcGetMemHandle(&handle, memory))
        return 1;
    if (write(1, &handle, sizeof(handle)) != sizeof(handle))
        return 1;
    (void)!read(0, &end, 1);
    return 0;
}

static pid_t exporter_start(int *ret_to, int *ret_from)
{
    int to[2], from[2];
    assert_int_equal(pipe2(to, O_CLOEXEC) | pipe2(from, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        execl("/proc/self/exe", "exporter", "--exporter", (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    *ret_to = to[1];
    *ret_from = from[0];
    return pid;
}

static void test_ipc_handles_of_others_are_opened(void **state)
{
    (void)state;
    struct cgm_memory_segment segment = {.kind = 2, .offset = 2 * MIB, .length = MIB};
    struct cgm_mem *mem, *again;
    struct memory copy;
    int to, from, status;
    pid_t pid = exporter_start(&to, &from);
    assert_int_equal(read(from, segment.handle, sizeof(segment.handle)), sizeof(segment.handle));
    assert_int_equal(import(&segment, 1, NULL, &mem), CGM_OK);
    assert_int_equal(import(&segment, 1, NULL, &again), CGM_OK);
    ops->mem_free(again); /* the first import goes on */
    memory_open(&copy, 0, MIB);
    copy_through(mem, 512, &copy);
    host_view_pull(&copy.view, 0, 4096);
    for (int i = 0; i < 4096; i++)
        assert_int_equal(copy.view.base[i], 0x3c);
    segment.length = 4 * MIB;
    struct cgm_mem *beyond;
    assert_int_equal(import(&segment, 1, "beyond the", &beyond), CGM_INVALID_ARGUMENT);
    ops->mem_free(mem);
    memory_close(&copy);
    close(to);
    close(from);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--exporter") == 0)
        return exporter_main();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memfds_are_imported),
        cmocka_unit_test(test_holes_are_refused),
        cmocka_unit_test(test_copies_within_the_host_wait_in_the_stream),
        cmocka_unit_test(test_exported_memory_is_imported),
        cmocka_unit_test(test_bad_segments_are_refused_by_name),
        cmocka_unit_test(test_ipc_handles_of_others_are_opened),
    };
    take_filter(argc, argv);
    return cmocka_run_group_tests(tests, open_backend, close_backend);
}
