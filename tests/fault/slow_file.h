/* A file whose close() waits for its server, and whoever reads it or touches what is mapped of it,
 * too. The server never answers, for a minute and a half at most: of FUSE, spoken by hand. */
#ifndef CGM_TEST_SLOW_FILE_H
#define CGM_TEST_SLOW_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

struct slow_file {
    char path[96];
    pid_t server;
    _Atomic unsigned *reads;  /* how many have come that wait to read it */
    _Atomic unsigned *closes; /* and to close it */
};

/* False where this system or this user cannot have one. The path must not exist. */
bool slow_file_start(struct slow_file *file, const char *path);

/* Of a running one; -1 when it cannot be opened. Whoever closes it waits. */
int slow_file_open(const struct slow_file *file);

/* A page of it, which stays mapped; NULL when it cannot be had. Whoever touches it waits, also in a
 * system call, with all the locks that it has taken by then. */
void *slow_file_map(const struct slow_file *file);

/* Lets everybody go. The fds remain their owners'. */
void slow_file_stop(struct slow_file *file);

#endif
