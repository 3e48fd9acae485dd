/* The machine's memory and processor. */
#ifndef CGM_SYSTEM_H
#define CGM_SYSTEM_H

#include <stddef.h>
#include <stdint.h>

/* OK, or IO when /proc/meminfo cannot be read. */
int cgm_system_memory(uint64_t *ret_total_bytes, uint64_t *ret_available_bytes);

/* "Intel(R) Xeon(R) ...", or as much as is known. */
void cgm_system_processor(char *ret_model, size_t size);

#endif
