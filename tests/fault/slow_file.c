#include "tests/fault/slow_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/send_signal.h"

#define REQUEST_BYTES (128u * 1024)
#define COUNTS_BYTES (2 * sizeof(_Atomic unsigned))
#define LIFE_S 90 /* when a test hangs, everything goes on after it */

static void answer(int device, const struct fuse_in_header *request, int error, const void *body,
                   size_t bytes)
{
    struct fuse_out_header header = {
        .len = (uint32_t)(sizeof(header) + bytes), .error = -error, .unique = request->unique};
    struct iovec parts[] = {{&header, sizeof(header)}, {(void *)(uintptr_t)body, bytes}};
    (void)!writev(device, parts, 2);
}

/* The root of the file system is the file. */
static void serve(struct slow_file *file, int device, const struct fuse_in_header *request)
{
    struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION,
                                 .minor = FUSE_KERNEL_MINOR_VERSION,
                                 .max_background = 16,
                                 .congestion_threshold = 12,
                                 .max_write = 4096};
    struct fuse_attr_out attributes = {
        .attr_valid = 3600,
        .attr = {.ino = FUSE_ROOT_ID, .size = 1, .mode = S_IFREG | 0666, .nlink = 1}};
    struct fuse_open_out opened = {.fh = 1};
    if (request->opcode == FUSE_INIT)
        answer(device, request, 0, &init, sizeof(init));
    else if (request->opcode == FUSE_GETATTR)
        answer(device, request, 0, &attributes, sizeof(attributes));
    else if (request->opcode == FUSE_OPEN)
        answer(device, request, 0, &opened, sizeof(opened));
    else if (request->opcode == FUSE_READ)
        atomic_fetch_add(file->reads, 1);
    else if (request->opcode == FUSE_FLUSH)
        atomic_fetch_add(file->closes, 1);
    else if (request->opcode != FUSE_FORGET && request->opcode != FUSE_INTERRUPT)
        answer(device, request, ENOSYS, NULL, 0);
}

/* Its end is the end of the file system, and of every wait: nothing outlives it. */
static void serve_all(struct slow_file *file, int device)
{
    static _Alignas(8) char bytes[REQUEST_BYTES];
    ssize_t n;
    while ((n = read(device, bytes, sizeof(bytes))) > 0 || (n < 0 && errno == EINTR))
        if (n >= (ssize_t)sizeof(struct fuse_in_header))
            serve(file, device, (const struct fuse_in_header *)(const void *)bytes);
}

static bool mount_at(const char *path, int device)
{
    char options[96];
    int point = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (point >= 0)
        close(point);
    snprintf(options, sizeof(options), "fd=%d,rootmode=100000,user_id=0,group_id=0,allow_other",
             device);
    return mount("slow_file", path, "fuse", MS_NOSUID | MS_NODEV, options) == 0;
}

bool slow_file_start(struct slow_file *file, const char *path)
{
    snprintf(file->path, sizeof(file->path), "%s", path);
    file->reads =
        mmap(NULL, COUNTS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (file->reads == MAP_FAILED)
        return false;
    file->closes = file->reads + 1;
    int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (device >= 0 && mount_at(path, device)) {
        file->server = fork();
        if (file->server == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            alarm(LIFE_S);
            serve_all(file, device);
            _exit(0);
        }
        close(device);
        return file->server > 0;
    }
    if (device >= 0)
        close(device);
    munmap(file->reads, COUNTS_BYTES);
    unlink(path);
    return false;
}

int slow_file_open(const struct slow_file *file)
{
    return open(file->path, O_RDWR | O_CLOEXEC);
}

void *slow_file_map(const struct slow_file *file)
{
    struct stat st; /* brings its size, without which it has no page */
    int fd = slow_file_open(file);
    if (fd < 0 || fstat(fd, &st) < 0)
        return NULL;
    void *page = mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    return page == MAP_FAILED ? NULL : page;
}

void slow_file_stop(struct slow_file *file)
{
    send_signal(file->server, SIGKILL);
    waitpid(file->server, NULL, 0);
    munmap(file->reads, COUNTS_BYTES);
    umount2(file->path, MNT_DETACH);
    unlink(file->path);
}
