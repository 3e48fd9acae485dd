/* Whether an fd from outside may be mapped: a memfd that can never shrink under us, and a range
 * that lies in it; and the mapping. */
#ifndef CGM_HOST_SEGMENT_H
#define CGM_HOST_SEGMENT_H

#include "daemon/executor/backend.h"

enum cgm_segment_kind { CGM_SEGMENT_FD = 1, CGM_SEGMENT_CUDA_IPC = 2 };

/* OK, or a status and a sentence that names segment, field and limits. */
int cgm_segment_check(const struct cgm_memory_segment *segment, uint32_t index, bool read_only,
                      char *ret_detail, size_t detail_bytes);

/* How many bytes of the segments may be holes; of files of which some are elsewhere, too many. */
uint64_t cgm_segments_missing(const struct cgm_memory_segment *segments, uint32_t count);

/* NO_MEMORY and a sentence when the node has no room for what the segments have only in name: who
 * pins sparse memory fills it. */
int cgm_segments_check_holes(const struct cgm_memory_segment *segments, uint32_t count,
                             char *ret_detail, size_t detail_bytes);

/* Segments that were checked, of together so many bytes, one behind the other; protection and kind
 * as mmap() takes them. No neighbour becomes one mapping with them: it could not be unmapped, or
 * changed, without another mapping. NULL: no memory, or too many mappings. munmap() ends it. */
char *cgm_segments_map(const struct cgm_memory_segment *segments, uint32_t count, uint64_t bytes,
                       int protection, int kind);

#endif
