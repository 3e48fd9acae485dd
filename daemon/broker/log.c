#include "daemon/broker/log.h"

#include <stdarg.h>

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

void cgm_log(enum cgm_log_level level, const char *format, ...)
{
    va_list arguments;
    if (!cgm_log_wants(level))
        return;
    va_start(arguments, format);
    cgm_log_line_write(syslog_levels[level], "", format, arguments);
    va_end(arguments);
}
