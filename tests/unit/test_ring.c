/* Who looks through the entries of a ring that others write: what of them is believed, and what
 * looking costs. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "client/lib/plans.h"
#include "client/lib/submit.h"
#include "proto/ring.h"
#include "proto/status.h"

#define ENTRIES CGM_RING_ENTRIES_MAX
#define FEW CGM_RING_ENTRIES_MIN
#define ENTRIES_OF_PAGE (4096u / sizeof(struct cgm_entry))
#define LOOKS 200000

static bool all_swapped; /* what mincore() says of a page then, whether it was written or not */

int __real_mincore(void *address, size_t bytes, unsigned char *ret_there);
int __wrap_mincore(void *address, size_t bytes, unsigned char *ret_there);

int __wrap_mincore(void *address, size_t bytes, unsigned char *ret_there)
{
    int status = __real_mincore(address, bytes, ret_there);
    if (all_swapped)
        memset(ret_there, 0, (bytes + 4095) / 4096);
    return status;
}

static void open_ring(uint32_t entries, struct cgm_ring *ret_ring, int *ret_fd)
{
    assert_int_equal(cgm_ring_create(entries, 1, 1, ret_fd), CGM_OK);
    assert_int_equal(cgm_ring_map(*ret_fd, entries, ret_ring), CGM_OK);
}

static int64_t blocks_of(int fd)
{
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    return st.st_blocks;
}

static void count(void *context, uint32_t slot, const struct cgm_entry *entry)
{
    (void)slot;
    (void)entry;
    ++*(unsigned *)context;
}

/* ---- pages ------------------------------------------------------------------------------------
 */

static void test_what_was_not_written_stays_a_hole(void **state)
{
    struct cgm_ring ring;
    unsigned visited = 0;
    int fd;
    (void)state;
    open_ring(ENTRIES, &ring, &fd);
    ring.entry[0].ticket = 1;
    ring.entry[ENTRIES - 1].ticket = 2;
    int64_t blocks = blocks_of(fd);
    cgm_ring_each_entry(&ring, fd, count, &visited);
    assert_int_equal(visited, 2);
    all_swapped = true;
    cgm_ring_each_entry(&ring, fd, count, &visited);
    all_swapped = false;
    assert_int_equal(visited, 4);
    assert_int_equal(blocks_of(fd), blocks);
    cgm_ring_unmap(&ring);
    close(fd);
}

/* Streams wait for them. */
static void test_jobs_in_swap_are_ended(void **state)
{
    struct cgm_ring ring;
    int32_t status;
    int fd;
    (void)state;
    open_ring(ENTRIES, &ring, &fd);
    for (uint32_t slot = 0; slot < ENTRIES; slot += 3 * ENTRIES_OF_PAGE) {
        ring.entry[slot].comm = slot % 2 ? 5 : 6;
        ring.entry[slot].comm_number = slot + 1;
        ring.entry[slot].ticket = slot + 1;
    }
    all_swapped = true;
    cgm_ring_end_well(&ring, fd, 6, 1);
    cgm_ring_kill(&ring, fd, CGM_EXECUTOR_LOST);
    all_swapped = false;
    for (uint32_t slot = 0; slot < ENTRIES; slot += 3 * ENTRIES_OF_PAGE) {
        assert_true(cgm_ring_done(&ring, slot, slot + 1, &status));
        assert_int_equal(status, slot == 0 ? CGM_OK : CGM_EXECUTOR_LOST);
    }
    cgm_ring_unmap(&ring);
    close(fd);
}

/* ---- a writer ---------------------------------------------------------------------------------
 */

struct writer {
    struct cgm_lane lane;
    struct cgm_jobs jobs;
    _Atomic bool stops;
};

/* One job after the other in the same slot: the ticket of each is its number and its comm's id. */
static void *write_entries(void *argument)
{
    struct writer *writer = argument;
    struct cgm_comm comm = {.id = 0};
    struct cgm_plan plan = {.comm = &comm};
    struct cgm_slot slot = {.lane = &writer->lane, .plan = &plan};
    const struct commgemm_job job = {.kind = COMMGEMM_JOB_BARRIER};
    for (uint64_t ticket = 1; !atomic_load(&writer->stops); ticket++) {
        slot.entry_ticket = slot.comm_number = comm.id = ticket;
        cgm_submit_push(&writer->jobs, &slot, &job);
    }
    return NULL;
}

static void check(void *context, uint32_t slot, const struct cgm_entry *entry)
{
    ++*(unsigned *)context;
    assert_int_equal(slot, 0);
    assert_int_equal(entry->comm_number, entry->ticket);
    assert_int_equal(entry->comm, entry->ticket);
}

static void test_an_entry_is_of_one_job(void **state)
{
    struct writer writer = {.lane = {.wake_fd = -1, .entries = FEW}};
    struct cgm_ring ring;
    pthread_t thread;
    int fd;
    unsigned visited = 0;
    (void)state;
    open_ring(FEW, &ring, &fd);
    assert_int_equal(cgm_ring_map(fd, FEW, &writer.lane.ring), CGM_OK);
    atomic_store(&ring.header->sq_need_wakeup, 0);
    assert_int_equal(pthread_create(&thread, NULL, write_entries, &writer), 0);
    for (int i = 0; i < LOOKS; i++)
        cgm_ring_each_entry(&ring, fd, check, &visited);
    assert_true(visited > 0);
    atomic_store(&writer.stops, true);
    pthread_join(thread, NULL);
    cgm_ring_unmap(&writer.lane.ring);
    cgm_ring_unmap(&ring);
    close(fd);
}

/* ---- who ends a job ---------------------------------------------------------------------------
 */

/* An executor that goes on for a moment after it was given up. */
static void test_a_dead_ring_is_not_completed(void **state)
{
    struct cgm_ring ring;
    int32_t status;
    int fd;
    (void)state;
    open_ring(FEW, &ring, &fd);
    ring.entry[0].ticket = 1;
    assert_true(cgm_ring_complete(&ring, 0, 1, CGM_OK));
    ring.entry[1].ticket = 2;
    ring.entry[2].ticket = 3;
    assert_int_equal(cgm_ring_end(&ring, 1, 2, CGM_EXECUTOR_LOST), CGM_EXECUTOR_LOST);
    assert_false(cgm_ring_complete(&ring, 1, 2, CGM_OK));
    cgm_ring_declare_dead(&ring, CGM_EXECUTOR_LOST);
    assert_false(cgm_ring_complete(&ring, 2, 3, CGM_OK));
    assert_int_equal(cgm_ring_end(&ring, 0, 1, CGM_EXECUTOR_LOST), CGM_OK);
    assert_true(cgm_ring_done(&ring, 1, 2, &status));
    assert_int_equal(status, CGM_EXECUTOR_LOST);
    assert_false(cgm_ring_done(&ring, 2, 3, &status));
    cgm_ring_unmap(&ring);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_not_written_stays_a_hole),
        cmocka_unit_test(test_jobs_in_swap_are_ended),
        cmocka_unit_test(test_an_entry_is_of_one_job),
        cmocka_unit_test(test_a_dead_ring_is_not_completed),
    };
    return cmocka_run_group_tests_name("ring", tests, NULL, NULL);
}
