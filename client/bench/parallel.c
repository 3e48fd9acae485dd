#include "client/bench/parallel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#define THREADS_MAX 64u

struct loop {
    uint64_t count, block_size;
    void (*body)(void *context, uint64_t block, uint64_t begin, uint64_t end);
    void *context;
    _Atomic uint64_t next;
};

static void *work(void *argument)
{
    struct loop *loop = argument;
    for (;;) {
        uint64_t block = atomic_fetch_add(&loop->next, 1), begin = block * loop->block_size;
        if (begin >= loop->count)
            return NULL;
        uint64_t end = begin + loop->block_size;
        loop->body(loop->context, block, begin, end < loop->count ? end : loop->count);
    }
}

void cgm_parallel(uint64_t threads, uint64_t count, uint64_t block_size,
                  void (*body)(void *context, uint64_t block, uint64_t begin, uint64_t end),
                  void *context)
{
    struct loop loop = {count, block_size, body, context, 0};
    pthread_t others[THREADS_MAX];
    uint64_t started = 0;
    while (started + 1 < threads && started < THREADS_MAX &&
           pthread_create(&others[started], NULL, work, &loop) == 0)
        started++;
    work(&loop);
    while (started > 0)
        pthread_join(others[--started], NULL);
}
