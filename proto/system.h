/* The machine's memory and processor. */
#ifndef CGM_SYSTEM_H
#define CGM_SYSTEM_H

#include <stddef.h>
#include <stdint.h>

/* OK, or IO when /proc/meminfo cannot be read. */
int cgm_system_memory(uint64_t *ret_total_bytes, uint64_t *ret_available_bytes);

/* NO_MEMORY unless the node can spare so much and still leave some to others: who asks for too much
 * is refused, not killed with whoever is in the way. */
int cgm_system_check_room(uint64_t bytes);

/* "Intel(R) Xeon(R) ...", or as much as is known. */
void cgm_system_processor(char *ret_model, size_t size);

#endif
