#include "client/bench/output_file.h"

#include <errno.h>
#include <string.h>

#include "client/bench/bench.h"
#include "proto/status.h"

struct cgm_output cgm_output_open(const char *path)
{
    struct cgm_output out = {.stream = NULL};
    errno = 0;
    if (cgm_new_file_open(path, &out.file) != CGM_OK)
        return out;
    out.stream = cgm_new_file_stream(&out.file);
    if (!out.stream)
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
