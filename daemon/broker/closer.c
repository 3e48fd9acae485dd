#include "daemon/broker/closer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/listener.h"
#include "daemon/broker/nudge.h"
#include "daemon/broker/quota.h"
#include "daemon/broker/unread.h"
#include "daemon/broker/user_log.h"
#include "proto/ring.h"
#include "proto/status.h"
#include "proto/thread.h"

/* So long unread packets are read at most. A thread that gets no processor for some of that time
 * still comes to the end of what others send. */
#define NUDGES 10
/* Whether there is room for a thread, while there was none. */
#define AGAIN_MS 100
/* Threads of one user: the service may have so many, and its executor needs some. */
#define THREADS_OF_USER 16u

/* What is refused would take all fds, if it came faster than it is closed. */
#define REFUSED_MAX 256u
#define REFUSED_AGAIN 128u

/* Fds, or a mapping. */
struct cgm_closing {
    struct cgm_lane_item item;         /* of memory; first */
    struct cgm_closing *next;          /* of those that are done */
    struct cgm_closing *newer, *older; /* of all; the loop's */
    struct cgm_closer *closer;
    uid_t uid;
    struct cgm_charge charge;
    bool sent;    /* by a client that was not to: counts as what he has, not as what is ending */
    bool made;    /* by the daemon, and nothing of a client's lies in it */
    bool in_lane; /* with what else he has that is closed soon */
    bool counted; /* among his slow ones */
    bool refused; /* a socket of somebody who was */
    bool waits;   /* for a thread: his are all busy, or there is none; the loop's */
    bool started; /* his threads count one for it; the loop's */
    enum cgm_discard discard;
    unsigned threads; /* under the closer's lock: how many of its own are at it */
    struct cgm_ring ring;
    _Atomic unsigned begun; /* how many fds a thread has taken; they leave the table at once */
    unsigned n_fds;
    int fds[];
};

/* ---- what an fd is ----------------------------------------------------------------------------
 */

/* The seals are the kernel's own. */
bool cgm_closer_is_memory(int fd)
{
    return fcntl(fd, F_GET_SEALS) >= 0;
}

/* Of all drivers that serve CUDA on Linux; what they share memory by is a file of it. */
#define NVIDIA_MAJOR 195u

/* statx without synchronising asks no server of a file system. */
static bool look(int fd, struct statx *ret_info)
{
    return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, ret_info) == 0;
}

bool cgm_closer_may_be_memory(const struct cgm_broker *broker, int fd)
{
    struct statx info;
    if (cgm_closer_is_memory(fd))
        return true;
    if (!cgm_executor_is_cuda(&broker->executor) || !look(fd, &info))
        return false;
    unsigned type = info.stx_mode & S_IFMT;
    return type == 0 || type == S_IFCHR;
}

static bool is_of_nvidia(int fd)
{
    struct statx info;
    return look(fd, &info) && S_ISCHR(info.stx_mode) && info.stx_rdev_major == NVIDIA_MAJOR;
}

struct sorted {
    int memory[CGM_PACKET_FDS_ROOM], slow[CGM_PACKET_FDS_ROOM];
    unsigned n_memory, n_slow;
};

static void sort(const int *fds, unsigned n_fds, struct sorted *ret_sorted)
{
    ret_sorted->n_memory = ret_sorted->n_slow = 0;
    for (unsigned i = 0; i < n_fds; i++)
        if (fds[i] < 0)
            continue;
        else if (cgm_closer_is_memory(fds[i]) || is_of_nvidia(fds[i]))
            ret_sorted->memory[ret_sorted->n_memory++] = fds[i];
        else
            ret_sorted->slow[ret_sorted->n_slow++] = fds[i];
}

/* ---- closing ----------------------------------------------------------------------------------
 */

/* A socket closed with unread packets would reset the peer, which then loses what it has not read.
 * After SHUT_RD no more packets can come in, so discarding those that are there is enough. Their
 * fds are closed by that. Whose fds take long loses what he has not read. */
static void discard_for_a_while(int fd)
{
    char byte;
    while (cgm_nudge_count() < NUDGES &&
           recv(fd, &byte, sizeof(byte), MSG_DONTWAIT | MSG_TRUNC) > 0)
        ;
}

/* What went wrong before is told once, and hides the packet. */
static bool discard_packet(int fd)
{
    char byte;
    return recv(fd, &byte, sizeof(byte), MSG_DONTWAIT | MSG_TRUNC) >= 0 || errno == EINTR ||
           errno == ECONNRESET;
}

/* With SO_PASSCRED: also packets of no bytes, and those behind them. */
static void discard_all(int fd)
{
    while (cgm_unread_first(fd) != CGM_UNREAD_NOTHING && discard_packet(fd))
        continue;
}

static void close_one(int fd, enum cgm_discard discard)
{
    if (discard == CGM_DISCARD_A_WHILE)
        discard_for_a_while(fd);
    else if (discard == CGM_DISCARD_ALL)
        discard_all(fd);
    close(fd);
}

/* One fd, or the mapping. False: everything was begun. */
static bool close_next(struct cgm_closing *closing)
{
    unsigned i = atomic_fetch_add(&closing->begun, 1);
    if (i < closing->n_fds) {
        close_one(closing->fds[i], closing->discard);
        return true;
    }
    cgm_ring_unmap(&closing->ring);
    return false;
}

static void close_all(struct cgm_closing *closing)
{
    struct cgm_nudge nudge;
    cgm_nudge_begin(&nudge);
    while (close_next(closing))
        continue;
    cgm_nudge_end(&nudge);
}

/* Under the lock. */
static void hand_back(struct cgm_closing *closing)
{
    struct cgm_closer *closer = closing->closer;
    if (closer->over) {
        free(closing);
        return;
    }
    closing->next = closer->done;
    closer->done = closing;
    uv_async_send(&closer->ended);
}

/* ---- what is closed soon: in its user's lane --------------------------------------------------
 */

static bool close_part(struct cgm_lane_item *item)
{
    return close_next((struct cgm_closing *)item);
}

static void close_done(struct cgm_lane_item *item)
{
    struct cgm_closing *closing = (struct cgm_closing *)item;
    struct cgm_closer *closer = closing->closer;
    pthread_mutex_lock(&closer->lock);
    hand_back(closing);
    pthread_mutex_unlock(&closer->lock);
}

/* False without memory. */
static bool enter_lane(struct cgm_closing *closing)
{
    closing->item.uid = closing->uid;
    return cgm_lanes_add(&closing->closer->memory, &closing->item);
}

/* ---- what may take for ever: threads of its own -----------------------------------------------
 */

/* The last of the threads hands it back. */
static void *close_run(void *argument)
{
    struct cgm_closing *closing = argument;
    struct cgm_closer *closer = closing->closer;
    close_all(closing);
    pthread_mutex_lock(&closer->lock);
    if (--closing->threads == 0)
        hand_back(closing);
    pthread_mutex_unlock(&closer->lock);
    return NULL;
}

/* One more thread, unless the others are through. */
static bool start_thread(struct cgm_closing *closing)
{
    struct cgm_closer *closer = closing->closer;
    pthread_t thread;
    pthread_mutex_lock(&closer->lock);
    bool started = closing->threads > 0 || atomic_load(&closing->begun) == 0;
    if (started)
        started = cgm_thread_start(PTHREAD_CREATE_DETACHED, close_run, closing, &thread) == 0;
    closing->threads += started;
    pthread_mutex_unlock(&closer->lock);
    return started;
}

static bool start(struct cgm_broker *broker, struct cgm_closing *closing)
{
    if (!start_thread(closing))
        return false;
    if (!closing->started)
        cgm_quota_count_closers(broker, closing->uid, 1);
    closing->started = true;
    closing->waits = false;
    return true;
}

static bool has_all_threads(struct cgm_broker *broker, uid_t uid)
{
    return cgm_quota_count_closers(broker, uid, 0) >= THREADS_OF_USER;
}

/* In the order in which they came, as far as there is room for threads. */
static void try_again(uv_timer_t *timer)
{
    struct cgm_broker *broker = timer->data;
    for (struct cgm_closing *closing = broker->closer.oldest; closing; closing = closing->newer)
        if (closing->waits && !has_all_threads(broker, closing->uid) && !start(broker, closing)) {
            uv_timer_start(timer, try_again, AGAIN_MS, 0);
            return;
        }
}

/* On the loop it would keep everybody waiting. What the daemon has made does not take for ever. */
static void start_or_wait(struct cgm_broker *broker, struct cgm_closing *closing)
{
    closing->waits = true;
    if (has_all_threads(broker, closing->uid) || start(broker, closing))
        return; /* when one of his ends it is this one's turn */
    if (closing->made && enter_lane(closing)) {
        closing->waits = false;
        closing->in_lane = true;
        return;
    }
    if (uv_is_active((const uv_handle_t *)&broker->closer.again))
        return;
    cgm_user_log(broker, closing->uid, CGM_LOG_WARNING,
                 "no thread to close what uid %u has sent; that waits until there is one",
                 (unsigned)closing->uid);
    uv_timer_start(&broker->closer.again, try_again, AGAIN_MS, 0);
}

bool cgm_closer_hurry(struct cgm_broker *broker)
{
    bool all_begun = true;
    for (struct cgm_closing *closing = broker->closer.newest; closing; closing = closing->older) {
        unsigned begun = atomic_load(&closing->begun);
        for (; !closing->in_lane && begun < closing->n_fds; begun++) {
            all_begun = false;
            if (!start(broker, closing))
                break;
        }
    }
    return all_begun;
}

/* ---- on the loop ------------------------------------------------------------------------------
 */

static void list_add(struct cgm_closer *closer, struct cgm_closing *closing)
{
    closing->older = closer->newest;
    if (closer->newest)
        closer->newest->newer = closing;
    else
        closer->oldest = closing;
    closer->newest = closing;
}

static void list_remove(struct cgm_closer *closer, struct cgm_closing *closing)
{
    if (closing->newer)
        closing->newer->older = closing->older;
    else
        closer->newest = closing->older;
    if (closing->older)
        closing->older->newer = closing->newer;
    else
        closer->oldest = closing->newer;
}

static void count_refused(struct cgm_broker *broker, int change)
{
    unsigned refused = broker->closer.refused += (unsigned)change;
    if (refused >= REFUSED_MAX)
        cgm_listener_pause(&broker->listener, true);
    else if (refused < REFUSED_AGAIN)
        cgm_listener_pause(&broker->listener, false);
}

static void discharge(struct cgm_broker *broker, struct cgm_closing *closing)
{
    list_remove(&broker->closer, closing);
    if (closing->started)
        cgm_quota_count_closers(broker, closing->uid, -1);
    if (closing->counted)
        cgm_quota_count_slow(broker, closing->uid, -(int)closing->n_fds);
    count_refused(broker, -(int)closing->refused);
    if (closing->sent)
        cgm_quota_give(broker, closing->uid, &closing->charge);
    else
        cgm_quota_ended(broker, closing->uid, &closing->charge);
    free(closing);
}

/* False without memory. */
static bool charge(struct cgm_broker *broker, const struct cgm_closing *what)
{
    if (!cgm_quota_owe(broker, what->uid, &what->charge))
        return false;
    if (!what->sent)
        cgm_quota_end(broker, what->uid, &what->charge);
    if (what->counted)
        cgm_quota_count_slow(broker, what->uid, (int)what->n_fds);
    count_refused(broker, what->refused);
    return true;
}

/* Without memory for anything else. */
static void close_here(const struct cgm_closing *what, const int *fds)
{
    struct cgm_ring ring = what->ring;
    struct cgm_nudge nudge;
    cgm_nudge_begin(&nudge);
    for (unsigned i = 0; i < what->n_fds; i++)
        close_one(fds[i], what->discard);
    cgm_nudge_end(&nudge);
    cgm_ring_unmap(&ring);
}

static void close_behind(struct cgm_broker *broker, const struct cgm_closing *what, const int *fds)
{
    struct cgm_closing *closing = NULL;
    if (broker->closer.runs)
        closing = malloc(sizeof(*closing) + what->n_fds * sizeof(*fds));
    if (!closing || !charge(broker, what)) {
        free(closing);
        close_here(what, fds);
        return;
    }
    *closing = *what;
    closing->closer = &broker->closer;
    for (unsigned i = 0; i < what->n_fds; i++)
        closing->fds[i] = fds[i];
    list_add(&broker->closer, closing);
    if (!closing->in_lane) {
        start_or_wait(broker, closing);
    } else if (!enter_lane(closing)) {
        close_here(closing, fds);
        discharge(broker, closing);
    }
}

/* However little it is: a client can have given it attributes, or kept policies of its pages there,
 * by the million. */
static void close_memory(struct cgm_broker *broker, uid_t uid, const struct sorted *sorted)
{
    const struct cgm_closing closing = {.uid = uid,
                                        .charge = {{[CGM_QUOTA_FDS] = sorted->n_memory}},
                                        .in_lane = true,
                                        .n_fds = sorted->n_memory};
    if (sorted->n_memory > 0)
        close_behind(broker, &closing, sorted->memory);
}

static void close_slow(struct cgm_broker *broker, struct cgm_closing closing, const int *fds,
                       unsigned n_fds)
{
    closing.charge = (struct cgm_charge){{[CGM_QUOTA_SESSIONS] = 1, [CGM_QUOTA_FDS] = n_fds}};
    closing.n_fds = n_fds;
    if (n_fds > 0)
        close_behind(broker, &closing, fds);
}

static void drop(struct cgm_broker *broker, struct cgm_closing closing, const int *fds,
                 unsigned n_fds)
{
    struct sorted sorted;
    sort(fds, n_fds, &sorted);
    close_memory(broker, closing.uid, &sorted);
    close_slow(broker, closing, sorted.slow, sorted.n_slow);
}

void cgm_closer_drop(struct cgm_broker *broker, uid_t uid, const int *fds, unsigned n_fds)
{
    drop(broker, (struct cgm_closing){.uid = uid}, fds, n_fds);
}

void cgm_closer_drop_made(struct cgm_broker *broker, uid_t uid, const int *fds, unsigned n_fds)
{
    drop(broker, (struct cgm_closing){.uid = uid, .made = true}, fds, n_fds);
}

bool cgm_closer_close(struct cgm_broker *broker, uid_t uid, const int *fds, unsigned n_fds)
{
    struct sorted sorted;
    bool all_memory = true;
    for (unsigned i = 0; i < n_fds; i++)
        all_memory = all_memory && (fds[i] < 0 || cgm_closer_may_be_memory(broker, fds[i]));
    sort(fds, n_fds, &sorted);
    close_memory(broker, uid, &sorted);
    close_slow(broker, (struct cgm_closing){.uid = uid, .sent = true, .counted = true}, sorted.slow,
               sorted.n_slow);
    return all_memory;
}

void cgm_closer_unmap(struct cgm_broker *broker, uid_t uid, struct cgm_ring *ring, int fd)
{
    const struct cgm_closing closing = {
        .uid = uid,
        .charge = {{[CGM_QUOTA_JOBS] = ring->entries, [CGM_QUOTA_FDS] = 1}},
        .in_lane = true,
        .ring = *ring,
        .n_fds = fd >= 0};
    if (fd >= 0)
        close_behind(broker, &closing, &fd);
    *ring = (struct cgm_ring){0};
}

void cgm_closer_close_socket(struct cgm_broker *broker, uid_t uid, int fd, enum cgm_discard discard,
                             bool refused)
{
    close_slow(
        broker,
        (struct cgm_closing){.uid = uid, .sent = true, .discard = discard, .refused = refused}, &fd,
        1);
}

static struct cgm_closing *take_done(struct cgm_closer *closer)
{
    pthread_mutex_lock(&closer->lock);
    struct cgm_closing *done = closer->done;
    closer->done = NULL;
    pthread_mutex_unlock(&closer->lock);
    return done;
}

static void on_ended(uv_async_t *async)
{
    struct cgm_broker *broker = async->data;
    struct cgm_closing *closing = take_done(&broker->closer), *next;
    for (; closing; closing = next) {
        next = closing->next;
        discharge(broker, closing);
    }
    try_again(&broker->closer.again);
}

int cgm_closer_init(struct cgm_broker *broker)
{
    struct cgm_closer *closer = &broker->closer;
    if (uv_async_init(&broker->loop, &closer->ended, on_ended) != 0)
        return CGM_NO_MEMORY;
    uv_timer_init(&broker->loop, &closer->again);
    closer->ended.data = closer->again.data = broker;
    cgm_nudge_init();
    pthread_mutex_init(&closer->lock, NULL);
    closer->memory.part = close_part;
    closer->memory.done = close_done;
    if (cgm_lanes_start(&closer->memory) != CGM_OK)
        return CGM_NO_MEMORY;
    closer->runs = true;
    return CGM_OK;
}

/* They are closed with the process. While the others are in the list still: whoever is through with
 * one after the end frees it. */
static void forget_waiting(struct cgm_closer *closer)
{
    struct cgm_closing *closing, *older;
    for (closing = closer->newest; closing; closing = older) {
        older = closing->older;
        if (!closing->waits)
            continue;
        list_remove(closer, closing);
        free(closing);
    }
}

/* What is left in the lanes is closed with the process. What is still given is closed at once. */
void cgm_closer_fini(struct cgm_broker *broker)
{
    struct cgm_closer *closer = &broker->closer;
    struct cgm_closing *closing, *next;
    forget_waiting(closer);
    pthread_mutex_lock(&closer->lock);
    closer->over = true;
    pthread_mutex_unlock(&closer->lock);
    if (closer->runs)
        cgm_lanes_stop(&closer->memory);
    closer->runs = false;
    closer->newest = closer->oldest = NULL;
    for (closing = take_done(closer); closing; closing = next) {
        next = closing->next;
        free(closing);
    }
}
