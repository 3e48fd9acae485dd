#include "daemon/broker/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/broker/log.h"
#include "daemon/broker/own_table.h"
#include "proto/messages.h"
#include "proto/status.h"

void cgm_lock_init(struct cgm_lock *lock)
{
    memset(lock, 0, sizeof(*lock));
    lock->fd = lock->kept_fd = -1;
}

/* ---- what is in the file: a line with the pid, and one with the socket ------------------------
 */

static void read_line(int fd, unsigned which, char *ret_line, size_t size)
{
    char text[128] = "";
    const char *line = text;
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    for (; which > 0 && line; which--)
        line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL;
    snprintf(ret_line, size, "%.*s", line ? (int)strcspn(line, "\n") : 0, line ? line : "");
}

/* The number alone may be another file's by now. */
static bool describe(const char *socket_path, char *ret_text, size_t size)
{
    struct stat st;
    if (lstat(socket_path, &st) < 0 || !S_ISSOCK(st.st_mode))
        return false;
    snprintf(ret_text, size, "%ju %jd.%09ld", (uintmax_t)st.st_ino, (intmax_t)st.st_mtim.tv_sec,
             (long)st.st_mtim.tv_nsec);
    return true;
}

bool cgm_lock_left(const struct cgm_lock *lock, const char *socket_path)
{
    char text[sizeof(lock->left)];
    return lock->left[0] && describe(socket_path, text, sizeof(text)) &&
           strcmp(text, lock->left) == 0;
}

/* ---- taking it --------------------------------------------------------------------------------
 */

static int name_the_other(int fd, const char *socket_path, char *ret_detail, size_t size)
{
    char pid[16];
    read_line(fd, 0, pid, sizeof(pid));
    return cgm_detail(ret_detail, size, CGM_EXISTS, "another daemon%s%s%s listens on %s",
                      pid[0] ? " (pid " : "", pid, pid[0] ? ")" : "", socket_path);
}

/* True when the path still leads to the file that we locked: its owner before us may have removed
 * it between our open and our lock. */
static bool is_current(const struct cgm_lock *lock)
{
    struct stat st;
    return lstat(lock->path, &st) == 0 && st.st_ino == lock->inode && st.st_dev == lock->device;
}

/* What is written to must be no pipe, and under no other name another file that matters. */
static int check_kind(int fd, struct cgm_lock *lock, char *ret_detail, size_t size)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return cgm_status_of_errno(errno);
    lock->device = st.st_dev;
    lock->inode = st.st_ino;
    if (S_ISREG(st.st_mode) && st.st_nlink <= 1)
        return CGM_OK;
    return cgm_detail(ret_detail, size, CGM_IO,
                      "%s is no file, or has another name too; remove it, or name another place "
                      "with --socket",
                      lock->path);
}

static int open_file(struct cgm_lock *lock, char *ret_detail, size_t size, int *ret_fd)
{
    /* Whoever may open it may lock it, and keep every daemon from this socket. */
    int fd =
        open(lock->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
    if (fd < 0)
        return cgm_detail(ret_detail, size, cgm_status_of_errno(errno),
                          "cannot open %s: %s; --socket or $COMMGEMM_SOCKET names another place",
                          lock->path, strerror(errno));
    int status = check_kind(fd, lock, ret_detail, size);
    if (status != CGM_OK)
        close(fd);
    *ret_fd = fd;
    return status;
}

int cgm_lock_take(struct cgm_lock *lock, const char *socket_path, char *ret_detail, size_t size)
{
    snprintf(lock->path, sizeof(lock->path), "%s.lock", socket_path);
    for (;;) {
        int fd = -1, status = open_file(lock, ret_detail, size, &fd);
        if (status != CGM_OK)
            return status;
        if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
            name_the_other(fd, socket_path, ret_detail, size);
            close(fd);
            return CGM_EXISTS;
        }
        if (is_current(lock)) {
            lock->fd = fd;
            read_line(fd, 1, lock->left, sizeof(lock->left));
            if (ftruncate(fd, 0) < 0 || dprintf(fd, "%d\n", (int)getpid()) < 0)
                cgm_log_warning("socket %s: cannot write the lock file", socket_path);
            return CGM_OK;
        }
        close(fd);
    }
}

/* ---- keeping it -------------------------------------------------------------------------------
 */

static void await(sem_t *semaphore)
{
    while (sem_wait(semaphore) < 0 && errno == EINTR)
        continue;
}

/* Killed with the process, it leaves its table at once: it waits for nothing but the end. */
static void *keeper_main(void *argument)
{
    struct cgm_lock *lock = argument;
    int fd = lock->kept_fd;
    pthread_setname_np(pthread_self(), "cgm-lock");
    lock->alone = cgm_own_table(fd);
    sem_post(&lock->settled);
    await(&lock->over);
    close(fd);
    return NULL;
}

int cgm_lock_keep(struct cgm_lock *lock, const char *socket_path, char *ret_detail, size_t size)
{
    char text[sizeof(lock->left)];
    if (describe(socket_path, text, sizeof(text)) && dprintf(lock->fd, "%s\n", text) < 0)
        cgm_log_warning("socket %s: cannot write the lock file", socket_path);
    sem_init(&lock->settled, 0, 0);
    sem_init(&lock->over, 0, 0);
    lock->kept_fd = lock->fd;
    lock->kept = cgm_own_table_start(keeper_main, lock, &lock->keeper) == 0;
    if (!lock->kept) {
        sem_destroy(&lock->settled);
        sem_destroy(&lock->over);
        return cgm_detail(ret_detail, size, CGM_NO_MEMORY, "no thread to keep %s", lock->path);
    }
    await(&lock->settled);
    if (lock->alone)
        close(lock->fd);
    lock->fd = -1;
    return CGM_OK;
}

void cgm_lock_give(struct cgm_lock *lock)
{
    if (lock->fd < 0 && !lock->kept)
        return;
    if (is_current(lock))
        unlink(lock->path);
    if (lock->fd >= 0)
        close(lock->fd);
    if (lock->kept) {
        sem_post(&lock->over);
        pthread_join(lock->keeper, NULL);
        sem_destroy(&lock->settled);
        sem_destroy(&lock->over);
    }
    lock->fd = -1;
    lock->kept = false;
}
