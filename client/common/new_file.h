/* A file that takes its name when it is complete: what stood there before stays until then, and
 * for good when that fails. The new one has the old one's mode and group. Written in its place is
 * what is no file of the caller's alone (a pipe, a device, a link, another user's, one that is
 * mounted there, one with several names, a list of access or a group that he cannot give), or lies
 * where he may not make files. */
#ifndef CGM_NEW_FILE_H
#define CGM_NEW_FILE_H

#include <stdio.h>

struct cgm_new_file {
    int fd;           /* to be written */
    const char *path; /* the caller's, must outlive the file */
    char *part;       /* its name until it is complete; NULL: it is written in its place */
};

/* OK, or IO or NO_MEMORY with errno. The reader of a named pipe is waited for, but not longer than
 * 10 s: then it is IO, with ENXIO. */
int cgm_new_file_open(const char *path, struct cgm_new_file *ret_file);

/* A stream of its own onto it, to be closed before it is finished. NULL with errno. */
FILE *cgm_new_file_stream(const struct cgm_new_file *file);

/* Whether it could be opened now, as far as that is known without touching what is there. OK, or IO
 * or NO_MEMORY with errno. */
int cgm_new_file_probe(const char *path);

/* Closes it and gives it its name; OK, or IO with errno after it was discarded. */
int cgm_new_file_finish(struct cgm_new_file *file);

/* Closes and removes it; a regular file that was written in its place is left empty. Keeps errno.
 */
void cgm_new_file_discard(struct cgm_new_file *file);

#endif
