#include "daemon/broker/owner.h"

#include "daemon/broker/session.h"
#include "proto/messages.h"
#include "proto/status.h"

int cgm_owner_init(struct cgm_owner *ret_owner, const struct cgm_session *session, uint32_t mode,
                   char *ret_detail, size_t size)
{
    if (mode > CGM_MODE_MAX)
        return cgm_detail(ret_detail, size, CGM_INVALID_ARGUMENT,
                          "mode is 0%o; it must be from 0 to 0%o", mode, CGM_MODE_MAX);
    *ret_owner = (struct cgm_owner){session->uid, session->gid, mode ? mode : CGM_MODE_DEFAULT};
    return CGM_OK;
}

bool cgm_owner_is(const struct cgm_owner *owner, const struct cgm_session *session)
{
    return session->uid == 0 || session->uid == owner->uid;
}

bool cgm_owner_lets(const struct cgm_owner *owner, const struct cgm_session *session, unsigned want)
{
    unsigned bits = session->gid == owner->gid ? owner->mode >> 3 : owner->mode;
    return cgm_owner_is(owner, session) || (bits & want) == want;
}

bool cgm_owner_is_trusted(const struct cgm_owner *owner, const struct cgm_session *session,
                          uint32_t mode)
{
    const uint32_t others_write = CGM_MAY_WRITE << 3 | CGM_MAY_WRITE;
    return owner->uid == session->uid || owner->uid == 0 || mode & others_write;
}
