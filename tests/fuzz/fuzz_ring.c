/* A ring whose memory anybody has scribbled over: cgm_ring_map refuses it or every slot can be
 * used. Byte 0: log2 of the entries it is made with; byte 1: of those it is mapped with; bytes 2
 * and 3: where the rest of the input is written, in 8-byte words. */
#include <string.h>
#include <unistd.h>

#include "proto/ring.h"
#include "proto/status.h"
#include "tests/fuzz/fuzz.h"

#define PREFIX_BYTES 4u
#define LOG2_MAX 6u

static void use_slot(struct cgm_ring *ring, uint32_t slot)
{
    struct cgm_entry entry;
    int32_t status;
    cgm_ring_load_entry(ring, slot, 0, &entry);
    cgm_ring_load_entry(ring, slot, 1, &entry);
    cgm_ring_set_done(ring, slot, entry.ticket, CGM_CANCELLED);
    FUZZ_CHECK(cgm_ring_done(ring, slot, entry.ticket, &status) && status == CGM_CANCELLED);
    ring->phase[(size_t)slot * CGM_PHASES_PER_JOB + CGM_PHASES_PER_JOB - 1].end_ns = 1;
    memset(&ring->cq[slot], 0xff, sizeof(ring->cq[slot]));
    atomic_store(&ring->ready[slot], 1);
    atomic_store(&ring->sq[slot], slot);
}

static void use_ring(int fd, uint32_t entries)
{
    struct cgm_ring ring;
    int status = cgm_ring_map(fd, entries, &ring);
    if (status != CGM_OK)
        return;
    FUZZ_CHECK(ring.entries == entries && ring.mask == entries - 1);
    cgm_ring_kill(&ring, fd, CGM_EXECUTOR_LOST);
    cgm_ring_kill(&ring, fd, CGM_DAEMON_LOST);
    for (uint32_t slot = 0; slot < entries; slot++)
        use_slot(&ring, slot);
    cgm_ring_unmap(&ring);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd;
    if (size < PREFIX_BYTES)
        return -1;
    uint32_t made = 1u << (1 + data[0] % LOG2_MAX), mapped = 1u << (1 + data[1] % LOG2_MAX);
    size_t bytes = cgm_ring_bytes(made), offset = (data[2] | (size_t)data[3] << 8) * 8;
    FUZZ_CHECK(cgm_ring_create(made, 1, 1, &fd) == CGM_OK);
    size -= PREFIX_BYTES;
    if (offset < bytes) {
        size_t room = bytes - offset;
        size_t n = size < room ? size : room;
        FUZZ_CHECK(pwrite(fd, data + PREFIX_BYTES, n, (off_t)offset) == (ssize_t)n);
    }
    use_ring(fd, mapped);
    use_ring(fd, made);
    close(fd);
    return 0;
}
