/* Memory of one operand that both the client and the daemon's devices reach. */
#ifndef CGM_BENCH_TENSOR_H
#define CGM_BENCH_TENSOR_H

#include <stdbool.h>
#include <stdint.h>

#include "commgemm.h"

#include "client/common/window.h"

struct cgm_tensor {
    uint64_t id; /* of a buffer or an import; 0: none */
    uint32_t generation;
    void *address; /* in this process */
    uint64_t bytes;
    struct cgm_window window; /* of a buffer; address is its */
};

/* An unnamed buffer of the daemon, or memory of this process that the daemon imports. It goes with
 * the session. Status; commgemm_last_error() or errno's text is in ret_detail (of `size`). */
int cgm_tensor_new(commgemm_client *client, bool import, uint64_t bytes, int device,
                   char *ret_detail, size_t size, struct cgm_tensor *ret_tensor);

/* Between the address and what the devices see; they do nothing where that is the same memory.
 * Status; commgemm_last_error() has the detail. */
int cgm_tensor_push(const struct cgm_tensor *tensor);
int cgm_tensor_pull(const struct cgm_tensor *tensor);

/* Numbers that nothing produces: NaN in every element. To be pushed, like every change. */
void cgm_tensor_poison(const struct cgm_tensor *tensor, int dtype);

/* N(0, 1) rounded to the type. */
void cgm_tensor_fill(const struct cgm_tensor *tensor, int dtype, uint64_t seed);

#endif
