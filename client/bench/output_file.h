/* A file of results, which takes its name when it is complete (client/common/new_file.h). */
#ifndef CGM_OUTPUT_FILE_H
#define CGM_OUTPUT_FILE_H

#include <stdbool.h>
#include <stdio.h>

#include "client/common/new_file.h"

struct cgm_output {
    FILE *stream; /* NULL: it could not be opened */
    struct cgm_new_file file;
};

/* cgm_output_finish says what failed. path must outlive it. */
struct cgm_output cgm_output_open(const char *path);

/* failed: something could not even be written. IO with a detail that names option and path, and
 * then what was there before stays. */
int cgm_output_finish(struct cgm_output *out, bool failed, const char *option, const char *path,
                      char *ret_detail);

#endif
