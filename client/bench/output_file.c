#include "client/bench/output_file.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/bench/bench.h"
#include "proto/status.h"

FILE *cgm_output_open(const char *path)
{
    errno = 0;
    return fopen(path, "we");
}

static void discard(const char *path)
{
    struct stat st;
    if (lstat(path, &st) == 0 && S_ISREG(st.st_mode))
        unlink(path);
}

int cgm_output_finish(FILE *out, bool failed, const char *option, const char *path,
                      char *ret_detail)
{
    int error = errno;
    failed |= !out || ferror(out);
    if (out && fclose(out) != 0 && !failed) {
        failed = true;
        error = errno;
    }
    if (!failed)
        return CGM_OK;
    if (out)
        discard(path);
    snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "--%s %s: cannot write: %s", option, path,
             strerror(error));
    return CGM_IO;
}
