#include "daemon/broker/admission.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/hang_up.h"
#include "daemon/broker/quota.h"
#include "daemon/broker/session.h"
#include "daemon/broker/user_log.h"
#include "proto/messages.h"
#include "proto/packet.h"
#include "proto/status.h"

#define NS_PER_S 1000000000ull
#define NS_PER_MS 1000000ull
#define LOOK_AGAIN_NS NS_PER_S
/* Sessions beyond max_sessions for root and the daemon's own uid, who look what is wrong. */
#define OPERATOR_SESSIONS 16u
/* The last eighth is for users who have fewer: some who conspire do not keep all others out. */
#define FEW_SESSIONS 16u

#define UIDS 4294967295u /* that there are */
#define ANYBODY 65534u   /* where the system does not say */

/* The first bytes, as a text; "" when it cannot be read. */
static void read_text(const char *path, char *ret_text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, ret_text, size - 1);
    if (fd >= 0)
        close(fd);
    ret_text[n > 0 ? n : 0] = '\0';
}

void cgm_admission_init(struct cgm_broker *broker)
{
    char map[128], number[32];
    unsigned uid = ANYBODY, count;
    broker->anybody = (uid_t)-1;
    read_text("/proc/self/uid_map", map, sizeof(map));
    if (sscanf(map, "%*u %*u %u", &count) != 1 || count == UIDS)
        return;
    read_text("/proc/sys/kernel/overflowuid", number, sizeof(number));
    sscanf(number, "%u", &uid);
    broker->anybody = uid;
}

/* What one of them made would be all of theirs. */
static int check_known(const struct cgm_broker *broker, uid_t uid, char *ret_detail, size_t size)
{
    if (broker->anybody == (uid_t)-1 || uid != broker->anybody)
        return CGM_OK;
    return cgm_detail(ret_detail, size, CGM_PERMISSION,
                      "uid %u is that of every user whom the daemon's user namespace does not map: "
                      "map yours there, or run the daemon outside of the container",
                      (unsigned)uid);
}

static int check_sessions(const struct cgm_broker *broker, uid_t uid, char *ret_detail, size_t size)
{
    bool is_operator = uid == 0 || uid == geteuid();
    uint64_t limit = broker->config.max_sessions + (is_operator ? OPERATOR_SESSIONS : 0);
    uint64_t kept = is_operator ? 0 : limit / 8;
    uint64_t used = broker->sessions.count + broker->linger.sessions;
    uint64_t own = cgm_quota_used(broker, uid, CGM_QUOTA_SESSIONS);
    if (used >= limit)
        return cgm_detail(ret_detail, size, CGM_QUOTA,
                          "max_sessions: asked for 1, used %ju, allowed %ju", (uintmax_t)used,
                          (uintmax_t)limit);
    if (used >= limit - kept && own >= FEW_SESSIONS)
        return cgm_detail(ret_detail, size, CGM_QUOTA,
                          "max_sessions: asked for 1, used %ju, allowed %ju, of which the last %ju "
                          "are for users with fewer than %u; uid %u has %ju",
                          (uintmax_t)used, (uintmax_t)limit, (uintmax_t)kept, FEW_SESSIONS,
                          (unsigned)uid, (uintmax_t)own);
    return CGM_OK;
}

int cgm_admission_check(struct cgm_broker *broker, int fd, struct ucred *ret_peer,
                        struct cgm_charge *ret_charge, char *ret_detail, size_t size)
{
    socklen_t length = sizeof(*ret_peer);
    *ret_charge = (struct cgm_charge){{[CGM_QUOTA_SESSIONS] = 1, [CGM_QUOTA_FDS] = 1}};
    *ret_peer = (struct ucred){.uid = (uid_t)-1};
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ret_peer, &length) < 0)
        return cgm_detail(ret_detail, size, cgm_status_of_errno(errno), "it has no credentials");
    int status = check_known(broker, ret_peer->uid, ret_detail, size);
    if (status == CGM_OK)
        status = cgm_quota_connect(broker, ret_peer->uid, ret_detail, size);
    if (status == CGM_OK && !cgm_quota_spares_fd(fd, ret_detail, size))
        status = CGM_NO_MEMORY;
    if (status == CGM_OK)
        status = check_sessions(broker, ret_peer->uid, ret_detail, size);
    if (status == CGM_OK)
        status = cgm_quota_take(broker, ret_peer->uid, ret_charge, ret_detail, size);
    return status;
}

void cgm_admission_refuse(struct cgm_broker *broker, int fd, const struct ucred *peer, int status,
                          const char *detail)
{
    Cgm__Error error = CGM__ERROR__INIT;
    cgm_user_log(broker, peer->uid, CGM_LOG_DEBUG, "socket %s: pid %d of uid %u was refused: %s",
                 broker->listener.path, (int)peer->pid, (unsigned)peer->uid, detail);
    error.status = status;
    error.detail = (char *)(uintptr_t)detail;
    if (cgm_linger_has_room(broker, peer->uid, fd))
        cgm_packet_send(fd, CGM_MSG_ERROR, 0, &error.base, NULL, 0);
    cgm_linger_refuse(broker, peer->uid, fd);
}

void cgm_admission_drop(void *owner, int fd)
{
    struct cgm_broker *broker = owner;
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t length = sizeof(peer);
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length);
    cgm_user_log(broker, peer.uid, CGM_LOG_WARNING,
                 "socket %s: no file descriptors left, pid %d of uid %u was refused",
                 broker->listener.path, (int)peer.pid, (unsigned)peer.uid);
    cgm_hang_up_refused(broker, peer.uid, fd);
}

/* ---- those who say nothing --------------------------------------------------------------------
 */

static void on_timer(uv_timer_t *timer)
{
    cgm_admission_await_hello(timer->data);
}

static void end_silent(struct cgm_session *session, uint64_t timeout_s)
{
    char detail[80];
    snprintf(detail, sizeof(detail), "Hello did not come within %ju s", (uintmax_t)timeout_s);
    cgm_session_refuse(session, 0, CGM_TIMEOUT, detail);
}

/* What it has sent lies there, since its user has to wait: it is not silent. */
static bool has_spoken(const struct cgm_session *session)
{
    int bytes;
    return ioctl(session->connection.fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

/* Ids count up, so that the first one that is not due is the next one. */
void cgm_admission_await_hello(struct cgm_broker *broker)
{
    uint64_t timeout_s = broker->config.hello_timeout, now_ns = cgm_lived_ns(broker), at = 0;
    uint64_t due_ns = 0, next_ns = UINT64_MAX;
    struct cgm_session *session;
    if (uv_is_active((uv_handle_t *)&broker->hello_timer))
        return;
    while (due_ns <= now_ns && (session = cgm_registry_next(&broker->sessions, &at))) {
        if (session->greeted)
            continue;
        due_ns = session->connected_ns + timeout_s * NS_PER_S;
        if (due_ns > now_ns)
            next_ns = next_ns < due_ns ? next_ns : due_ns;
        else if (has_spoken(session))
            next_ns = now_ns + LOOK_AGAIN_NS;
        else
            end_silent(session, timeout_s);
    }
    if (next_ns != UINT64_MAX)
        uv_timer_start(&broker->hello_timer, on_timer, (next_ns - now_ns) / NS_PER_MS + 1, 0);
}
