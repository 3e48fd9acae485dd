#include "daemon/executor/cpu/queue.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/status.h"

#define LOOKS_PER_CLOCK 64
#define QUEUE_NICE 5

_Static_assert(CGM_QUEUE_RECORDS >= CGM_QUEUE_ROOM, "as backend.h says");
_Static_assert((CGM_QUEUE_RECORDS & (CGM_QUEUE_RECORDS - 1)) == 0, "indices are masked");

static struct cgm_record *record_at(struct cgm_queue *queue, uint32_t index)
{
    return &queue->records[(index - queue->base) & (CGM_QUEUE_RECORDS - 1)];
}

static bool has_room(struct cgm_queue *queue, uint32_t tail)
{
    return tail - atomic_load(&queue->head) < CGM_QUEUE_RECORDS;
}

static struct cgm_record *reserve(struct cgm_queue *queue)
{
    uint32_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed);
    while (!has_room(queue, tail)) {
        uint32_t key = cgm_park_prepare(&queue->room);
        if (!has_room(queue, tail))
            cgm_park_sleep(&queue->room, key, 0);
        cgm_park_finish(&queue->room);
    }
    if (atomic_load(&queue->head) == tail) /* the queue's thread looks at none */
        queue->base = tail;
    return record_at(queue, tail);
}

struct cgm_record *cgm_queue_reserve(struct cgm_queue *queue, enum cgm_record_kind kind)
{
    struct cgm_record *record =
        queue->recording ? cgm_recording_reserve(queue->recording) : reserve(queue);
    record->kind = kind;
    record->run = queue->run;
    record->label = (struct cgm_label){0};
    return record;
}

void cgm_queue_push(struct cgm_queue *queue)
{
    if (queue->recording) {
        cgm_recording_push(queue->recording);
        return;
    }
    atomic_fetch_add(&queue->tail, 1);
    cgm_park_wake(&queue->work);
}

static bool work_spinning(struct cgm_queue *queue, uint32_t head)
{
    struct cgm_spin *spin = &queue->backend->spin;
    uint64_t now_ns = cgm_cpu_now_ns(), until_ns = now_ns + queue->backend->options.spin_ns;
    do {
        for (int i = 0; i < LOOKS_PER_CLOCK; i++) {
            if (atomic_load(&queue->tail) != head)
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

static void sleep_until_work(struct cgm_queue *queue, uint32_t head)
{
    while (atomic_load(&queue->tail) == head) {
        uint32_t key = cgm_park_prepare(&queue->work);
        if (atomic_load(&queue->tail) == head)
            cgm_park_sleep(&queue->work, key, 0);
        cgm_park_finish(&queue->work);
    }
}

/* Where many queues are made, hardly one has its first work at once. */
static void await_work(struct cgm_queue *queue, uint32_t head)
{
    if (atomic_load(&queue->tail) != head)
        return;
    cgm_seat_give(&queue->seat);
    if (head == 0 || !work_spinning(queue, head))
        sleep_until_work(queue, head);
}

/* What computes gives way to the poller, which all sessions wait for, and to clients: where there
 * are more threads than processors, a job that is nearly nothing would wait behind all that
 * multiply. Linux has this for each thread, and it is always allowed. */
static void give_way(void)
{
    id_t self = (id_t)syscall(SYS_gettid);
    errno = 0;
    int before = getpriority(PRIO_PROCESS, self);
    if (errno == 0)
        setpriority(PRIO_PROCESS, self, before + QUEUE_NICE);
}

/* From outside it would be a file in /proc. */
static void take_name(const struct cgm_queue *queue)
{
    char name[16];
    snprintf(name, sizeof(name), "cgm-queue-%u", queue->device);
    prctl(PR_SET_NAME, name);
}

static void *queue_main(void *argument)
{
    struct cgm_queue *queue = argument;
    take_name(queue);
    give_way();
    for (uint32_t head = 0;; head++) {
        await_work(queue, head);
        const struct cgm_record *record = record_at(queue, head);
        if (record->kind == CGM_RECORD_STOP)
            break;
        cgm_record_run(queue, record);
        atomic_store(&queue->head, head + 1);
        cgm_park_wake(&queue->room);
    }
    cgm_seat_give(&queue->seat);
    return NULL;
}

/* Signals are for the threads that expect them. This one expects holes (host/holes.h). */
static int thread_start(struct cgm_queue *queue)
{
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&queue->thread, NULL, queue_main, queue);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == EAGAIN) /* the limit of threads */
        return CGM_NO_MEMORY;
    return error ? cgm_status_of_errno(error) : CGM_OK;
}

int cgm_cpu_queue_new(struct cgm_backend *backend, uint32_t device, int priority, uint32_t beside,
                      struct cgm_queue **ret_queue)
{
    (void)priority; /* the threads of a CPU share it as the system decides */
    (void)beside;   /* none holds up another */
    if (device >= backend->devices)
        return CGM_INVALID_ARGUMENT;
    struct cgm_queue *queue = aligned_alloc(_Alignof(struct cgm_queue), sizeof(*queue));
    if (!queue)
        return CGM_NO_MEMORY;
    memset(queue, 0, offsetof(struct cgm_queue, records));
    queue->backend = backend;
    queue->device = device;
    queue->seat.seats = &backend->seats;
    queue->delay_state = cgm_cpu_now_ns() ^ (uintptr_t)queue;
    int status = thread_start(queue);
    if (status != CGM_OK) {
        free(queue);
        return status;
    }
    *ret_queue = queue;
    return CGM_OK;
}

void cgm_cpu_queue_free(struct cgm_queue *queue)
{
    cgm_queue_reserve(queue, CGM_RECORD_STOP);
    cgm_queue_push(queue);
    pthread_join(queue->thread, NULL);
    free(queue);
}

uint32_t cgm_cpu_queue_count(const struct cgm_queue *queue)
{
    return atomic_load_explicit(&queue->tail, memory_order_relaxed);
}

uint64_t cgm_cpu_queue_worked_ns(const struct cgm_queue *queue)
{
    struct timespec worked;
    clockid_t clock;
    if (pthread_getcpuclockid(queue->thread, &clock) != 0 || clock_gettime(clock, &worked) < 0)
        return 0;
    return (uint64_t)worked.tv_sec * 1000000000u + (uint64_t)worked.tv_nsec;
}
