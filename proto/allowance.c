#include "proto/allowance.h"

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void take(struct cgm_allowance *allowance, uint64_t ns, uint64_t percent, uint64_t now_ns,
                 uint64_t owed_ns)
{
    const uint64_t most_ns = CGM_ALLOWANCE_SAVED_NS + owed_ns;
    uint64_t whole_ns = later(allowance->whole_ns, now_ns) + sooner(ns, most_ns) * 100 / percent;
    allowance->whole_ns = sooner(whole_ns, now_ns + most_ns);
}

void cgm_allowance_take(struct cgm_allowance *allowance, uint64_t ns, uint64_t percent,
                        uint64_t now_ns)
{
    take(allowance, ns, percent, now_ns, CGM_ALLOWANCE_OWED_NS);
}

void cgm_allowance_take_all(struct cgm_allowance *allowance, uint64_t ns, uint64_t percent,
                            uint64_t now_ns)
{
    take(allowance, ns, percent, now_ns, CGM_ALLOWANCE_OWED_ALL_NS);
}

uint64_t cgm_allowance_rest_ns(const struct cgm_allowance *allowance, uint64_t now_ns)
{
    uint64_t from_ns = now_ns + CGM_ALLOWANCE_SAVED_NS;
    return allowance->whole_ns > from_ns ? allowance->whole_ns - from_ns : 0;
}

bool cgm_allowance_is_whole(const struct cgm_allowance *allowance, uint64_t now_ns)
{
    return allowance->whole_ns <= now_ns;
}
