/* The clients of fuzz_executor.c at their side of their rings: entries that obey no rule, and
 * whatever a hostile client may write. */
#ifndef CGM_TESTS_FUZZ_RING_CLIENT_H
#define CGM_TESTS_FUZZ_RING_CLIENT_H

#include <stdbool.h>

#include "proto/packet.h"
#include "proto/ring.h"
#include "tests/fuzz/records.h"

#define RINGS 4u /* sessions 1 to 4; others submit by message */
#define RING_ENTRIES 4u

/* The generation of a memory, as clients are told it; 0: there is none. */
typedef uint32_t ring_generation_fn(uint64_t memory);

/* Makes the ring of a session, and the fds that SessionAdd hands over. */
void ring_client_open(uint64_t session, struct cgm_packet *packet);
/* The executor has them: the client maps its ring, and seals it or not. */
void ring_client_join(uint64_t session, bool seals);
void ring_client_close(uint64_t session);

/* What the library does, with an entry that it would not make. */
void ring_client_submit(const struct fuzz_record *record, ring_generation_fn *generation_of);
void ring_client_ready_and_reap(const struct fuzz_record *record);

/* What a hostile client may write, at any time. */
void ring_client_scribble(const struct fuzz_record *record);

#endif
