/* How a user's clients are woken: by a byte into a socket whose other end is theirs. The kernel
 * tells everybody who watches that end, in the time of whoever sends, and a client may have as many
 * watch it as it may have descriptors. So sends that take long take a share of a processor, for all
 * rings of a user together, and the clients that they went to are told later, one after the other,
 * when it is used up. Owned by the poller. */
#ifndef CGM_NOTICES_H
#define CGM_NOTICES_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/executor/map.h"
#include "proto/allowance.h"

/* A send is long from here on: seven times what waking a sleeper takes. */
#define CGM_NOTICE_LONG_NS 50000u
/* What long sends may take: one rests for 20 times as long. */
#define CGM_NOTICES_PERCENT 5
/* Sends are measured for this long after one that seemed long. */
#define CGM_NOTICES_MEASURED_NS 1000000000u

/* Of a user. */
struct cgm_notices {
    struct cgm_allowance allowance;
    uint64_t measured_until_ns;
    const struct cgm_notice *turn; /* who has waited longest; NULL: nobody waits */
    uint32_t rings;                /* with the last one this goes */
};

/* Of a ring. */
struct cgm_notice {
    struct cgm_notices *user; /* NULL: there is none */
    bool slow;                /* a send took long, and that is not made up for yet */
};

/* OK or NO_MEMORY. users: from uid + 1 to struct cgm_notices. */
int cgm_notice_init(struct cgm_notice *notice, struct cgm_map *users, uint32_t uid);
/* Also of one that is all zero. */
void cgm_notice_fini(struct cgm_notice *notice, struct cgm_map *users, uint32_t uid);

/* 0: the client may be woken now; or when to ask again. */
uint64_t cgm_notice_ask(const struct cgm_notice *notice, uint64_t now_ns);
/* It does not ask any more. */
void cgm_notice_pass(const struct cgm_notice *notice);

/* Sends one byte; never blocks. */
void cgm_notice_send(struct cgm_notice *notice, int fd);

/* One was sent: what that took by the clock, and of a processor, which is not known (0) unless
 * sends are measured. */
void cgm_notice_sent(struct cgm_notice *notice, uint64_t took_ns, uint64_t spent_ns,
                     uint64_t now_ns);

#endif
