/* XXH64 with seed 0, the 64-bit checksum by which contents are compared. */
#ifndef CGM_CHECKSUM_H
#define CGM_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

uint64_t cgm_checksum(const void *data, size_t size);

#endif
