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
#include <unistd.h>

#include "proto/status.h"

#define TRIES 16 /* at names that nobody can know */

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

static bool keeps_its_place(const struct before *before)
{
    return before->error == 0 && (!S_ISREG(before->info.st_mode) || before->info.st_nlink > 1 ||
                                  before->info.st_uid != geteuid());
}

/* A pipe that nobody reads is refused; after that its reader is waited for. */
static int open_in_place(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);

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
static int open_part(const char *path, char **ret_part)
{
    int fd = -1;

    for (int i = 0; i < TRIES && fd < 0; i++) {
        char *part = name_part(path);
        if (part == NULL)
            return -1;
        fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
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

/* As new_file, but for a file that is there and where no other can be made beside it. */
static int open_beside(struct cgm_new_file *file, const struct before *before)
{
    bool is_there = before->error == 0;

    if (is_there && !may_write(file->path))
        return -1;
    int fd = open_part(file->path, &file->part);
    if (fd < 0 && is_there && (errno == EACCES || errno == EPERM || errno == EROFS))
        return open_in_place(file->path);
    if (fd >= 0 && is_there)
        fchmod(fd, before->info.st_mode & 0777u);
    return fd;
}

int cgm_new_file_open(const char *path, struct cgm_new_file *ret_file)
{
    struct cgm_new_file file = {.path = path};
    struct before before = look(path);

    file.fd = keeps_its_place(&before) ? open_in_place(path) : open_beside(&file, &before);
    if (file.fd < 0)
        return errno == ENOMEM ? CGM_NO_MEMORY : CGM_IO;
    *ret_file = file;
    return CGM_OK;
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
    int fd = open_part(path, &part);
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
