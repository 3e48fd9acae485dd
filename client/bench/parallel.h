/* A loop over numbers 0 .. count - 1, in blocks, on several threads. */
#ifndef CGM_BENCH_PARALLEL_H
#define CGM_BENCH_PARALLEL_H

#include <stdint.h>

/* body(context, block, begin, end) for every block of at most `block_size` numbers, each once, from
 * any of `threads` threads, the caller's among them. */
void cgm_parallel(uint64_t threads, uint64_t count, uint64_t block_size,
                  void (*body)(void *context, uint64_t block, uint64_t begin, uint64_t end),
                  void *context);

#endif
