/* Memory objects: buffers, user buffers of plans, and imports, by id. Owned by the poller; the
 * mapper makes and frees the device memory. */
#ifndef CGM_MEMORY_H
#define CGM_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/executor/backend.h"
#include "daemon/executor/reclaim.h"
#include "daemon/executor/request.h"
#include "daemon/executor/wishes.h"

struct cgm_contents;
struct cgm_plan;

#define CGM_JOURNAL_NONE UINT32_MAX

struct cgm_memory {
    uint64_t id;
    uint32_t generation;
    uint32_t device;
    uint32_t journal;    /* CGM_JOURNAL_NONE: an import, which cannot be tainted */
    uint64_t session;    /* whose import; 0: a buffer */
    uint32_t uid;        /* whose buffer or import */
    uint32_t guest;      /* the other user who might write it; proto/guest.h */
    struct cgm_mem *mem; /* NULL: an import that was closed because it was idle */
    uint64_t bytes;      /* as asked for: the bound of every operand */
    uint64_t mem_bytes;  /* as the backend rounded up: the bound of copies, which go by words */
    bool tainted, read_only;
    bool holes;                    /* closed because of them */
    uint64_t unused_since_ns;      /* of an import without users */
    uint32_t users;                /* unfinished jobs that name it, and pins of plans */
    struct cgm_request *removal;   /* answered when the last user is gone; NULL: not removed */
    struct cgm_wish wish;          /* while it is made */
    struct cgm_plan *owner;        /* of a user buffer; NULL: a buffer or an import */
    struct cgm_contents *contents; /* of a user buffer; NULL: a buffer or an import */
    void (*on_unused)(struct cgm_memory *memory); /* of a removed plan's user buffer */
    struct cgm_reclaim reclaim;                   /* of mem, at the end */
};

/* A session's right to name a memory object in its jobs. */
struct cgm_grant {
    struct cgm_memory *memory;
    bool writable;
};

void cgm_memory_ref(struct cgm_memory *memory);
void cgm_memory_unref(struct cgm_memory *memory);

/* Takes the object out of the map and of every session's reach; its users keep it. */
void cgm_memory_forget(struct cgm_poller *poller, struct cgm_memory *memory);

/* Journal marks around a launch that writes the object. */
void cgm_memory_begin_write(struct cgm_executor *executor, const struct cgm_memory *memory);
void cgm_memory_end_write(struct cgm_executor *executor, const struct cgm_memory *memory);

/* Before the end, where there may be anything in it now. A buffer is tainted. */
void cgm_memory_taint(struct cgm_executor *executor, struct cgm_memory *memory);

/* The whole of a tainted object was rewritten by a job. */
void cgm_memory_restored(struct cgm_executor *executor, struct cgm_memory *memory);

/* Of what takes long to give back, a slice (backend.h). True: there may be more. mem: or NULL. */
bool cgm_mem_drain_slice(const struct cgm_backend_ops *ops, struct cgm_mem *mem);

/* OK, or STALE and a sentence why an import was closed. */
int cgm_memory_check_open(const struct cgm_memory *memory, const char *operand, char *ret_detail,
                          size_t detail_bytes);

/* Of an import: pages of it are missing (backend.h). _detail says so, and is STALE. */
bool cgm_memory_has_holes(const struct cgm_memory *memory, const struct cgm_backend_ops *ops);
int cgm_memory_holes_detail(const struct cgm_memory *memory, const char *operand, char *ret_detail,
                            size_t detail_bytes);

/* The broker's requests; on the poller. */
void cgm_buffer_on_alloc(struct cgm_request *request);
void cgm_buffer_on_adopt(struct cgm_request *request);
void cgm_import_on_add(struct cgm_request *request);
void cgm_memory_on_remove(struct cgm_request *request); /* BufferRemove, ImportRemove */
void cgm_memory_on_rewritten(struct cgm_request *request);
void cgm_grant_on_add(struct cgm_request *request);
void cgm_grant_on_revoke(struct cgm_request *request);

#endif
