/* A CUDA driver of a few hundred lines, for tests of the client library on machines without one: a
 * shared library with the entry points that client/lib/cuda_driver.h names, over host memory, and
 * what a test steers it by. A stream is a thread with a queue; device memory is a row in a table.
 */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stdbool.h>
#include <stdint.h>

enum fake_cuda_call {
    FAKE_WRITE,
    FAKE_WAIT,
    FAKE_REGISTER,
    FAKE_IPC,
    FAKE_EXPORT,
    FAKE_PUSH,
    FAKE_CALLS
};

/* The next `skip` calls succeed, the one after gives this CUresult, and the rest succeed. */
void fake_cuda_fail(enum fake_cuda_call call, int result, int skip);

/* What was used wrongly: a stream without its context, memory unregistered under a stream, and so
 * on; or "". */
const char *fake_cuda_complaint(void);
/* Ranges that are registered now. */
unsigned fake_cuda_registered(void);

/* A context, and the calling thread's current one (NULL: none). */
void *fake_context(unsigned i);
void fake_context_set(void *context);

/* depth: operations that fit in before a call blocks; 0: no limit. */
void *fake_stream_new(void *context, unsigned depth);
/* Waits until it is empty. */
void fake_stream_free(void *stream);
/* What is in the stream from now on waits for the release, as behind a long kernel. */
void fake_stream_hold(void *stream);
void fake_stream_release(void *stream);
void fake_stream_capture(void *stream, bool capturing);
/* Operations that are not done. */
unsigned fake_stream_length(void *stream);
/* Whether all that was put in is done, after at most this long. */
bool fake_stream_is_done(void *stream, int within_ms);

struct fake_memory {
    uint64_t base, bytes; /* as the test likes; never dereferenced */
    unsigned memory_type; /* 1 host, 2 device */
    bool managed, ipc_capable, pooled, fd_capable;
    unsigned device;
    uint64_t mapping_bytes; /* VMM: of each mapping; 0: not VMM */
};
/* A new buffer id each time, for each mapping. */
void fake_memory_add(const struct fake_memory *memory);
/* All or, of VMM memory, the mapping at this address. */
void fake_memory_remove(uint64_t address);
/* Another mapping in the place of a removed one. */
void fake_memory_map(uint64_t address, uint64_t bytes);

#endif
