/* Gives out small numbers, the lowest free one first: the indices of the journal. */
#ifndef CGM_INDICES_H
#define CGM_INDICES_H

#include <stdint.h>

struct cgm_indices {
    uint64_t *taken; /* one bit each */
    uint32_t count, used, first_free_word;
};

int cgm_indices_init(struct cgm_indices *indices, uint32_t count); /* OK or NO_MEMORY */
void cgm_indices_fini(struct cgm_indices *indices);

/* OK, or QUOTA when all are taken. */
int cgm_indices_take(struct cgm_indices *indices, uint32_t *ret_index);
void cgm_indices_give(struct cgm_indices *indices, uint32_t index);

#endif
