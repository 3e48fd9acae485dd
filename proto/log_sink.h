/* Where lines of the log go: to standard error, of the broker and of the executor, whose threads
 * never wait for whoever reads it. What finds no room is left out; how many lines that were is said
 * when there is room again. Third-party code that writes to standard error itself may wait. */
#ifndef CGM_LOG_SINK_H
#define CGM_LOG_SINK_H

#include <stddef.h>

/* Before there is a second thread. Until then lines wait for their reader. */
void cgm_log_sink_open(void);

/* A whole line with its end, of at most PIPE_BUF bytes, as one write: lines of several processes do
 * not mix. From any thread. */
void cgm_log_sink_write(const char *line, size_t size);

#endif
