#include "tests/fuzz/records.h"

#include <fcntl.h>
#include <string.h>

#define RECORD sizeof(struct fuzz_record)
#define FDS_LOOKED_AT 64

void fuzz_records_each(const uint8_t *data, size_t size,
                       void (*perform)(const struct fuzz_record *record))
{
    struct fuzz_record record;
    for (unsigned n = 0; n < FUZZ_RECORDS_MAX && size >= RECORD; n++) {
        memcpy(&record, data, RECORD);
        perform(&record);
        data += RECORD;
        size -= RECORD;
    }
}

unsigned fuzz_count_fds(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < FDS_LOOKED_AT; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* ---- mutation --------------------------------------------------------------------------------
 */

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size) __attribute__((weak));

/* xorshift: the mutator must depend on nothing but the seed. */
static unsigned draw(unsigned *state, size_t below)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return below ? *state % (unsigned)below : 0;
}

static void move(uint8_t *data, size_t count, size_t to, size_t from)
{
    memmove(data + to * RECORD, data + from * RECORD, (count - from) * RECORD);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    unsigned state = seed | 1;
    size_t count = size / RECORD, most = max_size / RECORD;
    size_t at = draw(&state, count), other = draw(&state, count);
    unsigned what = draw(&state, 8);
    if (most > FUZZ_RECORDS_MAX)
        most = FUZZ_RECORDS_MAX;
    if (most == 0)
        return 0;
    if (count == 0) {
        memset(data, 0, RECORD);
        count = 1;
    } else if (what == 0 && count > 1) {
        move(data, count, at, at + 1);
        count--;
        at = draw(&state, count);
    } else if (what <= 2 && count < most) {
        move(data, count, at + 1, at);
        count++;
    } else if (what == 3) {
        uint8_t *copy = data + at * RECORD;
        memmove(copy, data + other * RECORD, RECORD);
    }
    if (what != 3)
        LLVMFuzzerMutate(data + at * RECORD, RECORD, RECORD);
    return count * RECORD;
}
