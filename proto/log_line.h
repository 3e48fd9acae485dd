/* How a line of the daemon's log begins, be it the broker's or the executor's: both write to the
 * same stderr. Under systemd ($JOURNAL_STREAM is set) with journald's <N>, else with the time of
 * day and the level. */
#ifndef CGM_LOG_LINE_H
#define CGM_LOG_LINE_H

#include <stddef.h>

/* syslog_level: 3 error, 4 warning, 6 info, 7 debug. Returns the number of characters, less than
 * size; size at least 32. */
int cgm_log_line_begin(char *text, size_t size, int syslog_level);

#endif
