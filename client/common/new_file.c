#include "client/common/new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "proto/status.h"

#define ACL "system.posix_acl_access"
#define TRIES 16 /* at names that nobody can know */
#define READER_WAIT_MS 10000
#define READER_NAP_MS 20

/* What is there now; the errno of lstat, 0 for something. */
struct before {
    int error;
    struct stat info;
};

static struct before look(const char *path)
{
    struct before before = {.error = 0};

    if (lstat(path, &before.info) != 0)
        before.error = errno;
    return before;
}

static bool has_acl(const char *path)
{
    return lgetxattr(path, ACL, NULL, 0) > 0;
}

/* Of a file that is mounted over another, as containers do: nothing can take its name. */
static bool is_mounted(const char *path)
{
    struct statx info;

    return statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, 0, &info) == 0 &&
           info.stx_attributes & STATX_ATTR_MOUNT_ROOT;
}

static bool keeps_its_place(const char *path, const struct before *before)
{
    return before->error == 0 &&
           (!S_ISREG(before->info.st_mode) || before->info.st_nlink > 1 ||
            before->info.st_uid != geteuid() || has_acl(path) || is_mounted(path));
}

/* To create is asked for only where nothing is: in a folder of everybody's that is refused for what
 * is another's (fs.protected_regular). */
static int open_or_create(const char *path)
{
    static const int flags = O_WRONLY | O_TRUNC | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    int fd = open(path, flags);

    return fd < 0 && errno == ENOENT ? open(path, flags | O_CREAT, 0666) : fd;
}

/* A named pipe has a reader by then, or gets one soon. */
static int open_in_place(const char *path)
{
    static const struct timespec nap = {.tv_nsec = READER_NAP_MS * 1000000};
    int fd, left_ms = READER_WAIT_MS;

    while ((fd = open_or_create(path)) < 0 && errno == ENXIO && left_ms > 0) {
        nanosleep(&nap, NULL);
        left_ms -= READER_NAP_MS;
    }
    if (fd >= 0)
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    return fd;
}

/* In the folder of `path`; a short name fits wherever that one does. NULL with errno. */
static char *name_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    int folder = slash != NULL ? (int)(slash - path) + 1 : 0;
    uint64_t number;
    char *part;

    if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
        return NULL;
    if (asprintf(&part, "%.*s.commgemm-%016llx", folder, path, (unsigned long long)number) < 0) {
        errno = ENOMEM;
        return NULL;
    }
    return part;
}

/* The name and the fd of a new file beside `path`; -1 with errno. */
static int open_part(const char *path, mode_t mode, char **ret_part)
{
    int fd = -1;

    for (int i = 0; i < TRIES && fd < 0; i++) {
        char *part = name_part(path);
        if (part == NULL)
            return -1;
        fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd >= 0) {
            *ret_part = part;
            return fd;
        }
        free(part);
        if (errno != EEXIST)
            return -1;
    }
    return -1;
}

static bool may_write(const char *path)
{
    return faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) == 0;
}

/* That it has of its folder, which the old one has not. */
static bool drop_acl(int fd)
{
    return fremovexattr(fd, ACL) == 0 || errno == ENODATA || errno == EOPNOTSUPP;
}

/* Who could not read the old one cannot read this, at any moment. */
static bool take_over_mode(int fd, const struct stat *before)
{
    struct stat info;
    bool is_same = fstat(fd, &info) == 0 && info.st_gid == before->st_gid;

    return (is_same || fchown(fd, (uid_t)-1, before->st_gid) == 0) && drop_acl(fd) &&
           fchmod(fd, before->st_mode & 0777u) == 0;
}

/* In the place of a file that is there; where none can be made beside it, or none that is like it,
 * that one is written. */
static int open_instead(struct cgm_new_file *file, const struct stat *before)
{
    if (!may_write(file->path))
        return -1;
    file->fd = open_part(file->path, 0600, &file->part);
    if (file->fd >= 0 && take_over_mode(file->fd, before))
        return file->fd;
    if (file->fd < 0 && errno != EACCES && errno != EPERM && errno != EROFS)
        return -1;
    cgm_new_file_discard(file);
    return open_in_place(file->path);
}

int cgm_new_file_open(const char *path, struct cgm_new_file *ret_file)
{
    struct cgm_new_file file = {.fd = -1, .path = path};
    struct before before = look(path);

    if (keeps_its_place(path, &before))
        file.fd = open_in_place(path);
    else if (before.error == 0)
        file.fd = open_instead(&file, &before.info);
    else
        file.fd = open_part(path, 0666, &file.part);
    if (file.fd < 0)
        return errno == ENOMEM ? CGM_NO_MEMORY : CGM_IO;
    *ret_file = file;
    return CGM_OK;
}

FILE *cgm_new_file_stream(const struct cgm_new_file *file)
{
    int fd = fcntl(file->fd, F_DUPFD_CLOEXEC, 0);
    FILE *stream = fd < 0 ? NULL : fdopen(fd, "w");

    if (stream == NULL && fd >= 0)
        close(fd);
    return stream;
}

static int refuse(int error)
{
    errno = error;
    return CGM_IO;
}

int cgm_new_file_probe(const char *path)
{
    struct before before = look(path);
    char *part = NULL;

    if (before.error == 0 && S_ISDIR(before.info.st_mode))
        return refuse(EISDIR);
    if (before.error == 0 && (may_write(path) || (S_ISLNK(before.info.st_mode) && errno == ENOENT)))
        return CGM_OK;
    if (before.error != ENOENT)
        return refuse(before.error == 0 ? errno : before.error);
    int fd = open_part(path, 0600, &part);
    if (fd < 0)
        return CGM_IO;
    close(fd);
    unlink(part);
    free(part);
    return CGM_OK;
}

static void end(struct cgm_new_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
    free(file->part);
    file->part = NULL;
}

int cgm_new_file_finish(struct cgm_new_file *file)
{
    int fd = file->fd;

    file->fd = -1;
    if (close(fd) != 0 || (file->part != NULL && rename(file->part, file->path) != 0)) {
        cgm_new_file_discard(file);
        return CGM_IO;
    }
    end(file);
    return CGM_OK;
}

void cgm_new_file_discard(struct cgm_new_file *file)
{
    int error = errno;
    struct stat info;

    if (file->part != NULL)
        unlink(file->part);
    else if (file->fd >= 0 && fstat(file->fd, &info) == 0 && S_ISREG(info.st_mode))
        (void)!ftruncate(file->fd, 0);
    end(file);
    errno = error;
}
