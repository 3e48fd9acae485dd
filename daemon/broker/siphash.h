/* SipHash-2-4: a hash with a secret key. Who does not know the key can neither tell what a message
 * hashes to nor find two messages that hash to the same. Aumasson and Bernstein, 2012. */
#ifndef CGM_SIPHASH_H
#define CGM_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t cgm_siphash(const uint64_t key[2], const uint8_t *bytes, size_t size);

#endif
