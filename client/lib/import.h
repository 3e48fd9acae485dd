/* Imports, whoever knows their segments. */
#ifndef CGM_CLIENT_IMPORT_H
#define CGM_CLIENT_IMPORT_H

#include "client/lib/client.h"

/* What the daemon is told about an import besides its segments. */
struct cgm_import_origin {
    int device;       /* the daemon's number; -1: by uuid, or device 0 */
    const char *uuid; /* of the device; NULL: by number */
    int read_only;
    uint64_t address; /* in this process; 0: unknown */
    uint64_t driver_buffer_id;
    /* As in wire.h, of the reply; NULL: nothing happens. */
    void (*take)(void *argument, int type, struct cgm_reply *reply);
    void *argument;
};

int cgm_import_create(commgemm_client *client, const struct commgemm_segment *segments,
                      uint32_t n_segments, const struct cgm_import_origin *origin, uint64_t *ret_id,
                      uint32_t *ret_generation);

int cgm_import_release(commgemm_client *client, uint64_t id);

#endif
