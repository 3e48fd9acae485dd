#include "daemon/executor/notices.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "proto/status.h"

static uint64_t ns_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t key_of(uint32_t uid)
{
    return (uint64_t)uid + 1; /* 0 is none of a map's keys, and root is a user */
}

int cgm_notice_init(struct cgm_notice *notice, struct cgm_map *users, uint32_t uid)
{
    struct cgm_notices *user = cgm_map_get(users, key_of(uid));
    if (!user) {
        user = calloc(1, sizeof(*user));
        if (!user || cgm_map_add(users, key_of(uid), user) != CGM_OK) {
            free(user);
            return CGM_NO_MEMORY;
        }
    }
    user->rings++;
    *notice = (struct cgm_notice){.user = user};
    return CGM_OK;
}

void cgm_notice_fini(struct cgm_notice *notice, struct cgm_map *users, uint32_t uid)
{
    if (!notice->user)
        return;
    cgm_notice_pass(notice);
    if (--notice->user->rings == 0)
        free(cgm_map_remove(users, key_of(uid)));
    notice->user = NULL;
}

/* Rings ask in the order in which the poller goes through them: who comes behind the one that was
 * served is the next to have the turn, and none is passed over for ever. */
uint64_t cgm_notice_ask(const struct cgm_notice *notice, uint64_t now_ns)
{
    struct cgm_notices *user = notice->user;
    if (!notice->slow)
        return 0;
    uint64_t rest_ns = cgm_allowance_rest_ns(&user->allowance, now_ns);
    if (rest_ns == 0 && (!user->turn || user->turn == notice))
        return 0;
    if (!user->turn)
        user->turn = notice;
    return now_ns + rest_ns;
}

void cgm_notice_pass(const struct cgm_notice *notice)
{
    if (notice->user->turn == notice)
        notice->user->turn = NULL;
}

/* The clock also runs while others have the processor, which is not the client's fault. What was
 * spent of a processor says nothing else, but asking for it takes as long as a send. */
void cgm_notice_sent(struct cgm_notice *notice, uint64_t took_ns, uint64_t spent_ns,
                     uint64_t now_ns)
{
    struct cgm_notices *user = notice->user;
    /* A clock of processor time may be coarse, and then jumps by more than has passed. */
    uint64_t ns = spent_ns < took_ns ? spent_ns : took_ns;
    if (ns > CGM_NOTICE_LONG_NS) {
        cgm_allowance_take_all(&user->allowance, ns, CGM_NOTICES_PERCENT, now_ns);
        notice->slow = true;
    } else if (notice->slow && cgm_allowance_is_whole(&user->allowance, now_ns)) {
        notice->slow = false;
    }
    if (took_ns > CGM_NOTICE_LONG_NS)
        user->measured_until_ns = now_ns + CGM_NOTICES_MEASURED_NS;
}

void cgm_notice_send(struct cgm_notice *notice, int fd)
{
    uint64_t begin_ns = ns_of(CLOCK_MONOTONIC), spent_ns = 0;
    bool measured = notice->slow || begin_ns < notice->user->measured_until_ns;
    if (measured)
        spent_ns = ns_of(CLOCK_THREAD_CPUTIME_ID);
    (void)!send(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (measured)
        spent_ns = ns_of(CLOCK_THREAD_CPUTIME_ID) - spent_ns;
    uint64_t now_ns = ns_of(CLOCK_MONOTONIC);
    cgm_notice_sent(notice, now_ns - begin_ns, spent_ns, now_ns);
}
