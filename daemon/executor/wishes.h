/* What is being made for sessions, slice by slice: when a session ends, nobody wants it any more,
 * and making it goes no further. Any thread. */
#ifndef CGM_WISHES_H
#define CGM_WISHES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct cgm_wish {
    struct cgm_wish *next, *previous;
    uint64_t session; /* 0: nobody's that could end */
    _Atomic bool over;
};

struct cgm_wishes {
    pthread_mutex_t lock;
    struct cgm_wish *first;
};

void cgm_wishes_init(struct cgm_wishes *wishes);

/* The session is not known to have ended. */
void cgm_wishes_add(struct cgm_wishes *wishes, uint64_t session, struct cgm_wish *wish);
void cgm_wishes_remove(struct cgm_wishes *wishes, struct cgm_wish *wish);
void cgm_wishes_session_lost(struct cgm_wishes *wishes, uint64_t session);

static inline bool cgm_wish_is_over(const struct cgm_wish *wish)
{
    return atomic_load_explicit(&wish->over, memory_order_relaxed);
}

#endif
