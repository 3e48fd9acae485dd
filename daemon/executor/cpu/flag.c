#include <stdlib.h>

#include "daemon/executor/cpu/cpu.h"
#include "proto/status.h"

/* Nobody wakes the waiters of a run that is aborted; they look this often. There may be thousands
 * of them. */
#define ABORT_LOOK_NS 100000000u
#define LOOKS_PER_CLOCK 64

int cgm_cpu_flag_new(struct cgm_backend *backend, uint32_t device, enum cgm_flag_kind kind,
                     struct cgm_flag **ret_flag)
{
    if (device >= backend->devices)
        return CGM_INVALID_ARGUMENT;
    struct cgm_flag *flag = calloc(1, sizeof(*flag));
    if (!flag)
        return CGM_NO_MEMORY;
    flag->backend = backend;
    flag->park = &backend->parks[atomic_fetch_add(&backend->next_park, 1) % CGM_CPU_PARKS];
    flag->kind = kind;
    *ret_flag = flag;
    return CGM_OK;
}

uint64_t cgm_cpu_flag_read(const struct cgm_flag *flag)
{
    return atomic_load_explicit(&flag->value, memory_order_acquire);
}

void cgm_cpu_flag_free(struct cgm_flag *flag)
{
    free(flag);
}

void cgm_cpu_flag_signal(struct cgm_flag *flag, uint64_t value)
{
    const struct cgm_backend_options *options = &flag->backend->options;
    struct cgm_park *park = flag->park;
    bool host = flag->kind == CGM_FLAG_HOST;
    atomic_store(&flag->value, value);
    cgm_park_wake(park);
    if (host && options->wake)
        options->wake(options->wake_context);
}

static bool wait_is_over(const struct cgm_flag *flag, uint64_t value, const struct cgm_run *run)
{
    return atomic_load(&flag->value) >= value || (run && atomic_load(&run->status) != CGM_OK);
}

static bool wait_spinning(const struct cgm_flag *flag, uint64_t value, const struct cgm_run *run)
{
    struct cgm_spin *spin = &flag->backend->spin;
    uint64_t now_ns = cgm_cpu_now_ns(), until_ns = now_ns + flag->backend->options.spin_ns;
    do {
        for (int i = 0; i < LOOKS_PER_CLOCK; i++) {
            if (wait_is_over(flag, value, run))
                return true;
            cgm_cpu_relax();
        }
        now_ns = cgm_cpu_now_ns();
        if (!cgm_spin_goes_on(spin, CGM_SPIN_ALONE_NS, now_ns))
            return false;
        /* There are more queues than processors: at once. */
        cgm_spin_yield(spin, CGM_SPIN_ALONE_NS, now_ns);
    } while (now_ns < until_ns);
    return false;
}

void cgm_cpu_flag_wait(struct cgm_flag *flag, uint64_t value, const struct cgm_run *run)
{
    if (wait_spinning(flag, value, run))
        return;
    do {
        uint32_t key = cgm_park_prepare(flag->park);
        if (!wait_is_over(flag, value, run))
            cgm_park_sleep(flag->park, key, ABORT_LOOK_NS);
        cgm_park_finish(flag->park);
    } while (!wait_is_over(flag, value, run));
}
