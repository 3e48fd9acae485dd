#include "client/bench/output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "client/bench/bench.h"
#include "proto/status.h"

struct cgm_output cgm_output_open(const char *path)
{
    struct cgm_output out = {.stream = NULL};
    errno = 0;
    if (cgm_new_file_open(path, &out.file) != CGM_OK)
        return out;
    int fd = fcntl(out.file.fd, F_DUPFD_CLOEXEC, 0); /* the stream's own */
    out.stream = fd < 0 ? NULL : fdopen(fd, "w");
    if (out.stream)
        return out;
    if (fd >= 0)
        close(fd);
    cgm_new_file_discard(&out.file);
    return out;
}

int cgm_output_finish(struct cgm_output *out, bool failed, const char *option, const char *path,
                      char *ret_detail)
{
    int error = errno;
    failed |= !out->stream || ferror(out->stream);
    if (out->stream && fclose(out->stream) != 0 && !failed) {
        failed = true;
        error = errno;
    }
    if (out->stream && failed)
        cgm_new_file_discard(&out->file);
    if (!failed && cgm_new_file_finish(&out->file) == CGM_OK)
        return CGM_OK;
    snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "--%s %s: cannot write: %s", option, path,
             strerror(failed ? error : errno));
    return CGM_IO;
}
