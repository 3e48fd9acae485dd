#include "daemon/broker/closer.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/quota.h"
#include "daemon/broker/user_log.h"
#include "proto/status.h"

/* Freed in some milliseconds. */
#define LARGE_BYTES (16ull << 20)

#define STACK_BYTES (256u * 1024)

struct cgm_closing {
    struct cgm_closing *next;          /* of those that are done */
    struct cgm_closing *newer, *older; /* of all; the loop's */
    struct cgm_closer *closer;
    uid_t uid;
    struct cgm_charge charge;
    bool discard;     /* unread packets first */
    unsigned threads; /* under the closer's lock: how many are at it */
    unsigned n_fds;
    _Atomic unsigned begun; /* how many fds a thread has taken; they leave the table at once */
    int fds[CGM_PACKET_FDS_ROOM];
};

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
    if (fcntl(fd, F_GET_SEALS) >= 0)
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

/* Whoever closes memory last frees it. */
static bool is_small_memory(int fd)
{
    struct stat st;
    return fcntl(fd, F_GET_SEALS) >= 0 && fstat(fd, &st) == 0 &&
           (uint64_t)st.st_blocks * 512 <= LARGE_BYTES;
}

unsigned cgm_closer_close_quick(int *fds, unsigned n_fds)
{
    unsigned left = 0;
    for (unsigned i = 0; i < n_fds; i++) {
        if (fds[i] < 0)
            continue;
        if (is_small_memory(fds[i]) || is_of_nvidia(fds[i]))
            close(fds[i]);
        else
            fds[left++] = fds[i];
    }
    return left;
}

/* A socket closed with unread packets would reset the peer, which then loses what it has not read.
 * After SHUT_RD no more packets can come in, so discarding those that are there is enough. Their
 * fds are closed by that. */
static void discard_input(int fd)
{
    char byte;
    while (recv(fd, &byte, sizeof(byte), MSG_DONTWAIT | MSG_TRUNC) > 0)
        ;
}

static void close_one(int fd, bool discard)
{
    if (discard)
        discard_input(fd);
    close(fd);
}

static void close_all(const int *fds, unsigned n_fds, bool discard)
{
    for (unsigned i = 0; i < n_fds; i++)
        close_one(fds[i], discard);
}

/* The last of the threads hands it back. */
static void leave(struct cgm_closing *closing)
{
    struct cgm_closer *closer = closing->closer;
    pthread_mutex_lock(&closer->lock);
    if (--closing->threads > 0) {
        pthread_mutex_unlock(&closer->lock);
        return;
    }
    if (closer->over) {
        free(closing);
    } else {
        closing->next = closer->done;
        closer->done = closing;
        uv_async_send(&closer->ended);
    }
    pthread_mutex_unlock(&closer->lock);
}

static void *close_run(void *argument)
{
    struct cgm_closing *closing = argument;
    for (unsigned i; (i = atomic_fetch_add(&closing->begun, 1)) < closing->n_fds;)
        close_one(closing->fds[i], closing->discard);
    leave(closing);
    return NULL;
}

static bool start_detached(struct cgm_closing *closing)
{
    pthread_attr_t attributes;
    pthread_t thread;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    int error = pthread_create(&thread, &attributes, close_run, closing);
    pthread_attr_destroy(&attributes);
    return error == 0;
}

/* One more thread, unless the others are through. */
static bool start(struct cgm_closing *closing)
{
    struct cgm_closer *closer = closing->closer;
    pthread_mutex_lock(&closer->lock);
    bool started = closing->threads > 0 || atomic_load(&closing->begun) == 0;
    if (started)
        started = start_detached(closing);
    closing->threads += started;
    pthread_mutex_unlock(&closer->lock);
    return started;
}

static void list_add(struct cgm_closer *closer, struct cgm_closing *closing)
{
    closing->older = closer->newest;
    if (closer->newest)
        closer->newest->newer = closing;
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
}

static void close_in_thread(struct cgm_broker *broker, uid_t uid, const int *fds, unsigned n_fds,
                            bool discard)
{
    const struct cgm_charge charge = {{[CGM_QUOTA_SESSIONS] = 1, [CGM_QUOTA_FDS] = n_fds}};
    struct cgm_closing *closing = malloc(sizeof(*closing));
    if (n_fds == 0 || !closing || !cgm_quota_owe(broker, uid, &charge)) {
        free(closing);
        close_all(fds, n_fds, discard);
        return;
    }
    *closing = (struct cgm_closing){.closer = &broker->closer,
                                    .uid = uid,
                                    .charge = charge,
                                    .discard = discard,
                                    .n_fds = n_fds};
    memcpy(closing->fds, fds, n_fds * sizeof(*fds));
    list_add(&broker->closer, closing);
    if (start(closing))
        return;
    cgm_user_log(broker, uid, CGM_LOG_WARNING, "no thread to close what uid %u has sent",
                 (unsigned)uid);
    list_remove(&broker->closer, closing);
    cgm_quota_give(broker, uid, &charge);
    close_all(fds, n_fds, discard);
    free(closing);
}

bool cgm_closer_hurry(struct cgm_broker *broker)
{
    bool all_begun = true;
    for (struct cgm_closing *closing = broker->closer.newest; closing; closing = closing->older) {
        unsigned begun = atomic_load(&closing->begun);
        for (; begun < closing->n_fds; begun++) {
            all_begun = false;
            if (!start(closing))
                break;
        }
    }
    return all_begun;
}

void cgm_closer_close(struct cgm_broker *broker, uid_t uid, const int *fds, unsigned n_fds)
{
    close_in_thread(broker, uid, fds, n_fds, false);
}

void cgm_closer_hang_up(struct cgm_broker *broker, uid_t uid, int fd)
{
    char byte;
    shutdown(fd, SHUT_RDWR);
    if (recv(fd, &byte, sizeof(byte), MSG_DONTWAIT | MSG_PEEK) > 0)
        close_in_thread(broker, uid, &fd, 1, true);
    else
        close(fd);
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
        list_remove(&broker->closer, closing);
        cgm_quota_give(broker, closing->uid, &closing->charge);
        free(closing);
    }
}

int cgm_closer_init(struct cgm_broker *broker)
{
    struct cgm_closer *closer = &broker->closer;
    if (uv_async_init(&broker->loop, &closer->ended, on_ended) != 0)
        return CGM_NO_MEMORY;
    closer->ended.data = broker;
    pthread_mutex_init(&closer->lock, NULL);
    return CGM_OK;
}

void cgm_closer_fini(struct cgm_broker *broker)
{
    struct cgm_closer *closer = &broker->closer;
    pthread_mutex_lock(&closer->lock);
    closer->over = true;
    for (struct cgm_closing *done; (done = closer->done);) {
        closer->done = done->next;
        free(done);
    }
    pthread_mutex_unlock(&closer->lock);
}
