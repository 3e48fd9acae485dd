#include "daemon/executor/heap.h"

#include <malloc.h>
#include <stddef.h>
#include <time.h>

#define EVERY_S 10
#define WORTH_IT (32u << 20)

static struct {
    time_t next_s;
    size_t least; /* free bytes: of those the pages were given back, or never there */
} looked;

void cgm_heap_look(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec < looked.next_s)
        return;
    looked.next_s = now.tv_sec + EVERY_S;
    size_t free_bytes = mallinfo2().fordblks;
    if (free_bytes > looked.least + WORTH_IT) {
        malloc_trim(0);
        looked.least = free_bytes;
    } else if (free_bytes < looked.least) {
        looked.least = free_bytes;
    }
}
