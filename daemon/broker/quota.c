#include "daemon/broker/quota.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "daemon/broker/broker.h"
#include "proto/messages.h"
#include "proto/status.h"

/* One packet of 64 and the start of an executor need fewer. */
#define FDS_RESERVED 128u

struct user {
    uint64_t used[CGM_QUOTA_COUNT];
};

static const struct {
    const char *key;
    size_t offset;
} kinds[] = {
#define X(SYMBOL, name) [CGM_QUOTA_##SYMBOL] = {#name, offsetof(struct cgm_config, name)},
    X(BYTES, quota_bytes) X(BUFFERS, quota_buffers) X(SESSIONS, quota_sessions)
        X(PLANS, quota_plans) X(IMPORTS, quota_imports)
#undef X
};

static uint64_t user_key(uid_t uid)
{
    return (uint64_t)uid + 1;
}

static uint64_t allowed(const struct cgm_broker *broker, enum cgm_quota_kind kind)
{
    uint64_t limit;
    memcpy(&limit, (const char *)&broker->config + kinds[kind].offset, sizeof(limit));
    return limit ? limit : UINT64_MAX;
}

static struct user *user_of(struct cgm_broker *broker, uid_t uid)
{
    struct user *user = cgm_registry_find(&broker->users, user_key(uid));
    if (user)
        return user;
    user = calloc(1, sizeof(*user));
    if (user && cgm_registry_add(&broker->users, user_key(uid), user) != CGM_OK) {
        free(user);
        return NULL;
    }
    return user;
}

static void forget_idle(struct cgm_broker *broker, uid_t uid, struct user *user)
{
    static const struct user idle;
    if (memcmp(user, &idle, sizeof(idle)) == 0)
        free(cgm_registry_remove(&broker->users, user_key(uid)));
}

int cgm_quota_take(struct cgm_broker *broker, uid_t uid, enum cgm_quota_kind kind, uint64_t amount,
                   char *ret_detail, size_t size)
{
    uint64_t limit = allowed(broker, kind);
    struct user *user = user_of(broker, uid);
    if (!user)
        return cgm_detail(ret_detail, size, CGM_NO_MEMORY, "the daemon has no memory left");
    if (amount > limit || user->used[kind] > limit - amount) {
        uint64_t used = user->used[kind];
        forget_idle(broker, uid, user);
        return cgm_detail(ret_detail, size, CGM_QUOTA,
                          "%s of uid %u: asked for %ju, used %ju, allowed %ju", kinds[kind].key,
                          (unsigned)uid, (uintmax_t)amount, (uintmax_t)used, (uintmax_t)limit);
    }
    user->used[kind] += amount;
    return CGM_OK;
}

void cgm_quota_give(struct cgm_broker *broker, uid_t uid, enum cgm_quota_kind kind, uint64_t amount)
{
    struct user *user = cgm_registry_find(&broker->users, user_key(uid));
    if (amount == 0)
        return;
    assert(user && user->used[kind] >= amount);
    user->used[kind] -= amount;
    forget_idle(broker, uid, user);
}

bool cgm_quota_spares_fd(int fd, char *ret_detail, size_t size)
{
    struct rlimit limit;
    if (fd < 0 || getrlimit(RLIMIT_NOFILE, &limit) < 0 ||
        (rlim_t)fd + FDS_RESERVED < limit.rlim_cur)
        return true;
    cgm_detail(ret_detail, size, 0, "the daemon has no file descriptors left; its limit is %ju",
               (uintmax_t)limit.rlim_cur);
    return false;
}

uint64_t cgm_quota_used(const struct cgm_broker *broker, uid_t uid, enum cgm_quota_kind kind)
{
    const struct user *user = cgm_registry_find(&broker->users, user_key(uid));
    return user ? user->used[kind] : 0;
}
