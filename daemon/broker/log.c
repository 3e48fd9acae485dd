#include "daemon/broker/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static const struct {
    int syslog_level;
    const char *name;
} levels[] = {
    [CGM_LOG_ERROR] = {3, "error"},
    [CGM_LOG_WARNING] = {4, "warning"},
    [CGM_LOG_INFO] = {6, "info"},
    [CGM_LOG_DEBUG] = {7, "debug"},
};

static enum cgm_log_level threshold = CGM_LOG_INFO;

void cgm_log_set_level(enum cgm_log_level level)
{
    threshold = level;
}

int cgm_log_syslog_level(enum cgm_log_level level)
{
    return levels[level].syslog_level;
}

static int write_prefix(char *text, size_t size, enum cgm_log_level level)
{
    struct timespec now;
    struct tm local;
    if (getenv("JOURNAL_STREAM"))
        return snprintf(text, size, "<%d>", levels[level].syslog_level);
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &local);
    return snprintf(text, size, "%02d:%02d:%02d.%03ld %-7s ", local.tm_hour, local.tm_min,
                    local.tm_sec, now.tv_nsec / 1000000, levels[level].name);
}

/* One write() a line: lines of the executor, on the same stderr, do not mix with ours. */
void cgm_log(enum cgm_log_level level, const char *format, ...)
{
    char line[1024];
    va_list arguments;
    if (level > threshold)
        return;
    int used = write_prefix(line, sizeof(line), level);
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
