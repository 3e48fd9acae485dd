/* Memory of one operand that both the client and the daemon's devices reach. */
#ifndef CGM_BENCH_TENSOR_H
#define CGM_BENCH_TENSOR_H

#include <stdbool.h>
#include <stdint.h>

#include "commgemm.h"

struct cgm_tensor {
    uint64_t id; /* of a buffer or an import; 0: none */
    uint32_t generation;
    void *address; /* in this process */
    uint64_t bytes;
};

/* An unnamed buffer of the daemon, or memory of this process that the daemon imports. It goes with
 * the session. Status; commgemm_last_error() or errno's text is in ret_detail (of `size`). */
int cgm_tensor_new(commgemm_client *client, bool import, uint64_t bytes, int device,
                   char *ret_detail, size_t size, struct cgm_tensor *ret_tensor);

/* Numbers that nothing produces: NaN in every element. */
void cgm_tensor_poison(const struct cgm_tensor *tensor, int dtype);

/* N(0, 1) rounded to the type. */
void cgm_tensor_fill(const struct cgm_tensor *tensor, int dtype, uint64_t seed);

#endif
