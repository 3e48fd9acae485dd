#include "client/common/new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/status.h"

static bool is_written_in_place(const char *path)
{
    struct stat info;

    return lstat(path, &info) == 0 && !S_ISREG(info.st_mode);
}

/* A pipe that nobody reads is refused; after that its reader is waited for. */
static int open_in_place(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);

    if (fd >= 0)
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    return fd;
}

int cgm_new_file_open(const char *path, struct cgm_new_file *ret_file)
{
    struct cgm_new_file file = {.path = path};

    if (is_written_in_place(path)) {
        file.fd = open_in_place(path);
    } else {
        if (asprintf(&file.part, "%s.%d", path, (int)getpid()) < 0) {
            errno = ENOMEM;
            return CGM_NO_MEMORY;
        }
        file.fd = open(file.part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    if (file.fd < 0) {
        free(file.part);
        return CGM_IO;
    }
    *ret_file = file;
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
