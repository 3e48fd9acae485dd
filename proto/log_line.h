/* A line of the daemon's log, be it the broker's or the executor's: both write to the same stderr.
 * It begins, under systemd ($JOURNAL_STREAM is set), with journald's <N>, else with the time of day
 * and the level. Levels are syslog's: 3 error, 4 warning, 6 info, 7 debug. */
#ifndef CGM_LOG_LINE_H
#define CGM_LOG_LINE_H

#include <stdarg.h>
#include <stddef.h>

/* Returns the number of characters, less than size; size at least 32. */
int cgm_log_line_begin(char *text, size_t size, int syslog_level);

/* One line; what is too long is cut off. who: "", or a prefix. From any thread; never waits
 * (log_sink.h). */
void cgm_log_line_write(int syslog_level, const char *who, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));

#endif
