/* The broker's log on stderr. A line names its object first: "session 7: ...". Under systemd
 * ($JOURNAL_STREAM is set) a line begins with journald's <N>, else with the time and the level. */
#ifndef CGM_LOG_H
#define CGM_LOG_H

#include <stdbool.h>

enum cgm_log_level { CGM_LOG_ERROR, CGM_LOG_WARNING, CGM_LOG_INFO, CGM_LOG_DEBUG };

void cgm_log_set_level(enum cgm_log_level level);
bool cgm_log_wants(enum cgm_log_level level);

/* The number that syslog and systemd have for a level. */
int cgm_log_syslog_level(enum cgm_log_level level);

void cgm_log(enum cgm_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define cgm_log_error(...) cgm_log(CGM_LOG_ERROR, __VA_ARGS__)
#define cgm_log_warning(...) cgm_log(CGM_LOG_WARNING, __VA_ARGS__)
#define cgm_log_info(...) cgm_log(CGM_LOG_INFO, __VA_ARGS__)
#define cgm_log_debug(...) cgm_log(CGM_LOG_DEBUG, __VA_ARGS__)

#endif
