/* Pages of memory that a client imports. They exist before the daemon maps it: what the daemon made
 * would count as its memory, and it takes none that has holes. */
#ifndef CGM_CLIENT_PAGES_H
#define CGM_CLIENT_PAGES_H

#include "client/lib/client.h"

/* Makes those of a memfd's range that are missing, and keeps those that are there from being taken
 * back where the fd can be written; of any other fd, or a range beyond the end, the
 * daemon says what is wrong with it. NO_MEMORY names the segment. */
int cgm_pages_make(const struct commgemm_segment *segment, uint32_t index);

#endif
