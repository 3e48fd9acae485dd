/* Imports made from device pointers: one for each allocation, exported once, found by address and
 * believed while the driver says that the same allocation is still there. Ranges of VMM memory get
 * an import each, and may share mappings. Whenever something new is imported, the imports of all
 * memory that was freed meanwhile are released: they kept it from the device. */
#ifndef CGM_CLIENT_CUDA_IMPORTS_H
#define CGM_CLIENT_CUDA_IMPORTS_H

#include <pthread.h>
#include <stdint.h>

struct cgm_cuda_import;

struct cgm_cuda_imports {
    pthread_mutex_t importing; /* one new import at a time; held across messages and the driver */
    pthread_mutex_t lock;      /* guards the table; held for short stretches, taken last */
    struct cgm_cuda_import **table;
    uint32_t count, capacity;
};

void cgm_cuda_imports_init(struct cgm_cuda_imports *imports);
void cgm_cuda_imports_fini(struct cgm_cuda_imports *imports);

/* The import of this id is released by its user. */
void cgm_cuda_imports_forget(struct cgm_cuda_imports *imports, uint64_t id);

/* The daemon has closed the import of this id, as no job had named it for long: it is released, and
 * made anew when its memory is asked for again. */
void cgm_cuda_imports_on_idle(struct cgm_cuda_imports *imports, uint64_t id);

#endif
