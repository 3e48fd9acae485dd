/* A file that takes its name when it is complete: what stood there before stays until then, and
 * for good when that fails. What is no regular file, a pipe, a device or a link, keeps its place
 * and is written there. */
#ifndef CGM_NEW_FILE_H
#define CGM_NEW_FILE_H

#include <stdbool.h>

struct cgm_new_file {
    int fd;           /* to be written */
    const char *path; /* the caller's, must outlive the file */
    char *part;       /* its name until it is complete; NULL: it is written in its place */
};

/* OK, or IO or NO_MEMORY with errno. Waits for no reader of a pipe. */
int cgm_new_file_open(const char *path, struct cgm_new_file *ret_file);

/* Closes it and gives it its name; OK, or IO with errno after it was discarded. */
int cgm_new_file_finish(struct cgm_new_file *file);

/* Closes and removes it; a regular file behind a link is left empty. Keeps errno. */
void cgm_new_file_discard(struct cgm_new_file *file);

#endif
