/* Memory that jobs take of the executor, of which no quota counts bytes: without a look at how much
 * there is the last of it would go to whoever has most of them in flight, and the system would kill
 * the executor. For one thread. */
#ifndef CGM_SPARE_H
#define CGM_SPARE_H

#include <stdbool.h>
#include <stdint.h>

struct cgm_spare {
    uint64_t own_bytes; /* so much is left for others */
    uint64_t left;      /* of what was there at the last look */
    uint64_t next_ns;   /* when the next one may be, after one that found none */
};

/* False: there is no more of it now. What was taken and is free again need not be given back: it is
 * there at the next look. */
bool cgm_spare_take(struct cgm_spare *spare, uint64_t bytes);

#endif
