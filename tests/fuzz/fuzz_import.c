/* A client's memory as the CPU backend opens it: segments of any kind, with fds of every kind and
 * any range, are refused with words, or every byte of what was opened is there. Byte 0: the number
 * of segments and whether they are for reading only; then 4 bytes for each. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/executor/cpu/cpu.h"
#include "proto/messages.h"
#include "proto/status.h"
#include "tests/fuzz/fuzz.h"

#define SEGMENT_BYTES 4u
#define PAGE 4096u
#define FD_KINDS 8

/* Made once: memory of 8 pages sealed in several ways, less memory, and what is none. */
static int fds[FD_KINDS];

static int memory(unsigned seals, uint64_t bytes)
{
    int fd = memfd_create("segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    FUZZ_CHECK(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    FUZZ_CHECK(fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

static void make_fds(void)
{
    char path[32];
    int pair[2];
    fds[0] = memory(F_SEAL_SHRINK, 8 * PAGE);
    fds[1] = memory(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, 8 * PAGE);
    fds[2] = memory(F_SEAL_SHRINK | F_SEAL_WRITE, 8 * PAGE);
    fds[3] = memory(0, 8 * PAGE);
    fds[4] = memory(F_SEAL_SHRINK, PAGE + 100);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[0]);
    fds[5] = open(path, O_RDONLY | O_CLOEXEC);
    FUZZ_CHECK(fds[5] >= 0 && pipe2(pair, O_CLOEXEC) == 0);
    fds[6] = pair[0];
    fds[7] = -1;
}

static uint64_t number(uint8_t byte)
{
    static const uint64_t odd[] = {1,          100,        UINT64_MAX, UINT64_MAX - PAGE + 1,
                                   1ull << 63, 1ull << 32, PAGE - 1,   1ull << 46};
    return byte < 200 ? (uint64_t)(byte % 12) * PAGE : odd[byte % 8];
}

static uint32_t make_segments(const uint8_t *data, size_t size, uint32_t count,
                              struct cgm_memory_segment *ret_segments)
{
    uint32_t n = 0;
    for (; n < count && size >= SEGMENT_BYTES; n++, data += SEGMENT_BYTES, size -= SEGMENT_BYTES)
        ret_segments[n] = (struct cgm_memory_segment){.kind = data[0] < 224 ? 1 : data[0] % 4u,
                                                      .fd = fds[data[1] % FD_KINDS],
                                                      .offset = number(data[2]),
                                                      .length = number(data[3])};
    return n;
}

static void use(const struct cgm_mem *mem, const struct cgm_memory_segment *segments, uint32_t n,
                bool read_only)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += segments[i].length;
    FUZZ_CHECK(mem->bytes == bytes && mem->read_only == read_only);
    for (uint64_t at = 0; at < bytes; at += PAGE) {
        volatile char *byte = mem->base + at;
        char value = *byte;
        if (!read_only)
            *byte = value;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct cgm_backend backend = {.devices = 1};
    struct cgm_memory_segment segments[CGM_IMPORT_SEGMENTS_MAX];
    struct cgm_mem *mem = NULL;
    char detail[256] = "";
    if (fds[0] == 0)
        make_fds();
    if (size < 1)
        return -1;
    bool read_only = data[0] & 1;
    uint32_t n = make_segments(data + 1, size - 1, 1 + (data[0] >> 1) % 8u, segments);
    int status =
        cgm_cpu_mem_import(&backend, 0, segments, n, read_only, detail, sizeof(detail), &mem);
    FUZZ_CHECK(memchr(detail, '\0', sizeof(detail)));
    FUZZ_CHECK((status == CGM_OK) == (mem != NULL) && (status == CGM_OK || detail[0]));
    if (status != CGM_OK)
        return 0;
    use(mem, segments, n, read_only);
    cgm_cpu_mem_free(mem);
    return 0;
}
