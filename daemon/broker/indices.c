#include "daemon/broker/indices.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/status.h"

int cgm_indices_init(struct cgm_indices *indices, uint32_t count)
{
    assert(count % 64 == 0);
    *indices = (struct cgm_indices){.count = count};
    indices->taken = calloc(count / 64, sizeof(uint64_t));
    return indices->taken ? CGM_OK : CGM_NO_MEMORY;
}

void cgm_indices_fini(struct cgm_indices *indices)
{
    free(indices->taken);
    memset(indices, 0, sizeof(*indices));
}

int cgm_indices_take(struct cgm_indices *indices, uint32_t *ret_index)
{
    if (indices->used == indices->count)
        return CGM_QUOTA;
    uint32_t word = indices->first_free_word;
    while (indices->taken[word] == UINT64_MAX)
        word++;
    unsigned bit = (unsigned)__builtin_ctzll(~indices->taken[word]);
    indices->taken[word] |= 1ull << bit;
    indices->first_free_word = word;
    indices->used++;
    *ret_index = word * 64 + bit;
    return CGM_OK;
}

void cgm_indices_give(struct cgm_indices *indices, uint32_t index)
{
    uint32_t word = index / 64;
    assert(indices->taken[word] & 1ull << index % 64);
    indices->taken[word] &= ~(1ull << index % 64);
    indices->used--;
    if (word < indices->first_free_word)
        indices->first_free_word = word;
}
