/* The machine's memory. */
#ifndef CGM_CPU_SYSTEM_H
#define CGM_CPU_SYSTEM_H

#include <stdint.h>

/* OK, or IO when /proc/meminfo cannot be read. */
int cgm_system_memory(uint64_t *ret_total_bytes, uint64_t *ret_available_bytes);

#endif
