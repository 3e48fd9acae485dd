#include "daemon/broker/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "proto/log_line.h"

static const int syslog_levels[] = {
    [CGM_LOG_ERROR] = 3,
    [CGM_LOG_WARNING] = 4,
    [CGM_LOG_INFO] = 6,
    [CGM_LOG_DEBUG] = 7,
};

static enum cgm_log_level threshold = CGM_LOG_INFO;

void cgm_log_set_level(enum cgm_log_level level)
{
    threshold = level;
}

bool cgm_log_wants(enum cgm_log_level level)
{
    return level <= threshold;
}

int cgm_log_syslog_level(enum cgm_log_level level)
{
    return syslog_levels[level];
}

/* One write() a line: lines of the executor, on the same stderr, do not mix with ours. */
void cgm_log(enum cgm_log_level level, const char *format, ...)
{
    char line[1024];
    va_list arguments;
    if (!cgm_log_wants(level))
        return;
    int used = cgm_log_line_begin(line, sizeof(line), syslog_levels[level]);
    va_start(arguments, format);
    int more = vsnprintf(line + used, sizeof(line) - (size_t)used - 1, format, arguments);
    va_end(arguments);
    used += more < 0 ? 0 : more;
    if (used > (int)sizeof(line) - 2)
        used = sizeof(line) - 2;
    line[used++] = '\n';
    if (write(STDERR_FILENO, line, (size_t)used) < 0)
        return; /* nobody left to tell */
}
