/* What each uid holds, and what the configuration allows it. */
#ifndef CGM_QUOTA_H
#define CGM_QUOTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct cgm_broker;

enum cgm_quota_kind {
    CGM_QUOTA_BYTES,
    CGM_QUOTA_BUFFERS,
    CGM_QUOTA_SESSIONS,
    CGM_QUOTA_PLANS,
    CGM_QUOTA_IMPORTS,
    CGM_QUOTA_COUNT,
};

/* Counts `amount` for the uid. QUOTA with a detail that says asked, used and allowed; NO_MEMORY. */
int cgm_quota_take(struct cgm_broker *broker, uid_t uid, enum cgm_quota_kind kind, uint64_t amount,
                   char *ret_detail, size_t size);
void cgm_quota_give(struct cgm_broker *broker, uid_t uid, enum cgm_quota_kind kind,
                    uint64_t amount);

/* False when only the fds are left that the daemon keeps for the packets and processes of
 * everybody: who brought this one must be refused. The lowest free number is given out first. */
bool cgm_quota_spares_fd(int fd, char *ret_detail, size_t size);
uint64_t cgm_quota_used(const struct cgm_broker *broker, uid_t uid, enum cgm_quota_kind kind);

#endif
