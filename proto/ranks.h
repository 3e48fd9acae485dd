/* Ranks in a sentence. */
#ifndef CGM_RANKS_H
#define CGM_RANKS_H

#include <stddef.h>
#include <stdint.h>

/* Those of a mask: "1, 3 to 7 and 12 more", where the last says what there was no room for; size is
 * at least 16. Returns how many they are. */
unsigned cgm_ranks_text(uint64_t mask, char *ret_text, size_t size);

#endif
