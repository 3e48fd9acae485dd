#include "daemon/broker/linger.h"

#include <linux/sockios.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/hang_up.h"
#include "daemon/broker/quota.h"

/* Nobody says that a peer has read or gone, which may be a moment after its hang-up. So many are
 * looked at in a millisecond. */
#define LOOKS_PER_MS 20u
/* Who reads why he was refused does so at once: the next one may look for those that have been
 * read, but not all the time. */
#define LOOK_AGAIN_NS 1000000u
#define REFUSED_OF_USER 64u
#define REFUSED_OF_ALL 512u
#define REFUSED_OF_ANY 4u /* of a user, while those are all there */

struct cgm_lingering {
    struct cgm_lingering *next;
    uid_t uid;
    int fd;
    unsigned unread_fds;
    bool refused;           /* at nobody's cost */
    bool emptied_by_thread; /* cgm_hang_up_later */
};

static const struct cgm_charge session_charge = {{[CGM_QUOTA_SESSIONS] = 1, [CGM_QUOTA_FDS] = 1}};

static bool is_unread(int fd)
{
    int bytes;
    return ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

static void let_go(struct cgm_broker *broker, const struct cgm_lingering *what)
{
    cgm_quota_count_unread(broker, what->uid, -(int)what->unread_fds);
    if (what->emptied_by_thread)
        cgm_hang_up_emptied(broker, what->uid, what->fd);
    else if (what->refused)
        cgm_hang_up_refused(broker, what->uid, what->fd);
    else
        cgm_hang_up(broker, what->uid, what->fd);
}

static void end(struct cgm_broker *broker, struct cgm_lingering *lingering)
{
    struct cgm_linger *linger = &broker->linger;
    linger->refused -= lingering->refused;
    linger->sessions -= !lingering->refused;
    let_go(broker, lingering);
    if (!lingering->refused)
        cgm_quota_give(broker, lingering->uid, &session_charge);
    free(lingering);
}

/* Ends those that have been read, or all. */
static void end_some(struct cgm_broker *broker, bool all)
{
    for (struct cgm_lingering **at = &broker->linger.first; *at;) {
        struct cgm_lingering *lingering = *at;
        if (!all && is_unread(lingering->fd)) {
            at = &lingering->next;
            continue;
        }
        *at = lingering->next;
        end(broker, lingering);
    }
}

static void look_later(struct cgm_linger *linger);

static void on_timer(uv_timer_t *timer)
{
    struct cgm_broker *broker = timer->data;
    end_some(broker, false);
    if (broker->linger.first)
        look_later(&broker->linger);
}

static void look_later(struct cgm_linger *linger)
{
    uv_timer_start(&linger->timer, on_timer,
                   1 + (linger->sessions + linger->refused) / LOOKS_PER_MS, 0);
}

void cgm_linger_init(struct cgm_broker *broker)
{
    uv_timer_init(&broker->loop, &broker->linger.timer);
    broker->linger.timer.data = broker;
}

void cgm_linger_fini(struct cgm_broker *broker)
{
    end_some(broker, true);
}

/* False without memory. */
static bool add(struct cgm_broker *broker, const struct cgm_lingering *what)
{
    struct cgm_linger *linger = &broker->linger;
    struct cgm_lingering *lingering = malloc(sizeof(*lingering));
    if (!lingering || (!what->refused && !cgm_quota_owe(broker, what->uid, &session_charge))) {
        free(lingering);
        return false;
    }
    *lingering = *what;
    lingering->next = linger->first;
    linger->first = lingering;
    linger->refused += what->refused;
    linger->sessions += !what->refused;
    if (!uv_is_active((uv_handle_t *)&linger->timer))
        look_later(linger);
    return true;
}

static void hang_up(struct cgm_broker *broker, struct cgm_lingering what)
{
    if (is_unread(what.fd) && !broker->ending &&
        cgm_hang_up_later(broker, what.uid, what.fd, &what.emptied_by_thread) && add(broker, &what))
        return;
    let_go(broker, &what);
}

void cgm_linger_hang_up(struct cgm_broker *broker, uid_t uid, int fd, unsigned unread_fds)
{
    hang_up(broker, (struct cgm_lingering){.uid = uid, .fd = fd, .unread_fds = unread_fds});
}

void cgm_linger_refuse(struct cgm_broker *broker, uid_t uid, int fd)
{
    hang_up(broker, (struct cgm_lingering){.uid = uid, .fd = fd, .refused = true});
}

static bool are_few(const struct cgm_linger *linger, uid_t uid)
{
    size_t count = 0;
    for (const struct cgm_lingering *one = linger->first; one; one = one->next)
        count += one->refused && one->uid == uid;
    return count < (linger->refused < REFUSED_OF_ALL ? REFUSED_OF_USER : REFUSED_OF_ANY);
}

bool cgm_linger_has_room(struct cgm_broker *broker, uid_t uid, int fd)
{
    struct cgm_linger *linger = &broker->linger;
    char unused[128];
    if (!cgm_quota_spares_fd(fd, unused, sizeof(unused)))
        return false;
    if (are_few(linger, uid))
        return true;
    uint64_t now_ns = cgm_clock_ns();
    if (now_ns < linger->next_look_ns)
        return false;
    linger->next_look_ns = now_ns + LOOK_AGAIN_NS;
    end_some(broker, false);
    return are_few(linger, uid);
}
