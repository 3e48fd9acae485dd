/* Collectives by the device's library, for plans that have a group (algorithm.h): one call on each
 * rank's compute queue. A library wants rows that lie next to each other, so it depends on the
 * launch whether it can; every rank looks at the whole launch and decides alike. */
#ifndef CGM_LIBRARY_H
#define CGM_LIBRARY_H

#include "daemon/executor/algo/emit.h"

/* Whether the launch's collective is the library's. */
bool cgm_library_takes(const struct cgm_launch *launch);

/* All-gather: every rank's lhs to its place on every rank (cgm_gathered_chunk). */
void cgm_library_gather(struct cgm_emit *emit);

/* dst = this rank's block of the sum of all ranks' cgm_scatter_source [+ bias] [+ dst]. */
void cgm_library_scatter(struct cgm_emit *emit, const struct cgm_view *dst);

/* out = the sum of all ranks' cgm_scatter_source [+ bias] [+ out]. */
void cgm_library_reduce(struct cgm_emit *emit);

#endif
