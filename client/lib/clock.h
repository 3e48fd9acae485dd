/* CLOCK_MONOTONIC in nanoseconds, and deadlines made from it. */
#ifndef CGM_CLIENT_CLOCK_H
#define CGM_CLIENT_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t cgm_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* timeout_ms < 0: never. */
static inline uint64_t cgm_deadline_ns(int timeout_ms)
{
    return timeout_ms < 0 ? UINT64_MAX : cgm_now_ns() + (uint64_t)timeout_ms * 1000000u;
}

static inline struct timespec cgm_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
                             .tv_nsec = (long)(ns % 1000000000u)};
}

static inline void cgm_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
