/* Who owns a comm, a buffer or a plan, and whom its mode bits let in. */
#ifndef CGM_OWNER_H
#define CGM_OWNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { CGM_MAY_WRITE = 2, CGM_MAY_READ = 4 };

#define CGM_MODE_DEFAULT 0600u
#define CGM_MODE_MAX 0777u

struct cgm_owner {
    uid_t uid;
    gid_t gid;
    uint32_t mode;
};

struct cgm_session;

/* The session's uid and gid with a mode; 0 means the default. INVALID_ARGUMENT with a detail. */
int cgm_owner_init(struct cgm_owner *ret_owner, const struct cgm_session *session, uint32_t mode,
                   char *ret_detail, size_t size);

bool cgm_owner_is(const struct cgm_owner *owner, const struct cgm_session *session);

/* As for a file: the owner and root may do everything, then the group's bits or the others'. */
bool cgm_owner_lets(const struct cgm_owner *owner, const struct cgm_session *session,
                    unsigned want);

/* Names are everybody's, and an object that lets others in may be there to catch them: who would
 * have made it for his own uid alone, by the mode, gets his own or root's. Of root, too, which
 * cgm_owner_lets denies nothing. */
bool cgm_owner_is_trusted(const struct cgm_owner *owner, const struct cgm_session *session,
                          uint32_t mode);

#endif
