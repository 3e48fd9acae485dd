#include "daemon/executor/spare.h"

#include "daemon/executor/executor.h"
#include "proto/room.h"

/* A look costs some 50 us: one for hundreds of jobs. */
#define LOOK_BYTES (1u << 20)
#define NEXT_LOOK_NS 1000000u

static bool look(struct cgm_spare *spare, uint64_t bytes)
{
    uint64_t now_ns = cgm_now_ns();
    if (now_ns < spare->next_ns)
        return false;
    if (cgm_room_spares(bytes + LOOK_BYTES, spare->own_bytes)) {
        spare->left = bytes + LOOK_BYTES;
        return true;
    }
    spare->next_ns = now_ns + NEXT_LOOK_NS;
    return false;
}

bool cgm_spare_take(struct cgm_spare *spare, uint64_t bytes)
{
    if (spare->left < bytes && !look(spare, bytes))
        return false;
    spare->left -= bytes;
    return true;
}
