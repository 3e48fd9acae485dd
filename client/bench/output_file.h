/* A file of results: it is complete, or it is not there. */
#ifndef CGM_OUTPUT_FILE_H
#define CGM_OUTPUT_FILE_H

#include <stdbool.h>
#include <stdio.h>

/* NULL with errno. */
FILE *cgm_output_open(const char *path);

/* Takes what cgm_output_open gave. failed: something could not even be written. IO with a detail
 * that names option and path, and then what was written is removed, unless it went elsewhere than
 * into a file. */
int cgm_output_finish(FILE *out, bool failed, const char *option, const char *path,
                      char *ret_detail);

#endif
