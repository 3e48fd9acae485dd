#include "proto/log_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int cgm_log_line_begin(char *text, size_t size, int syslog_level)
{
    static const char *const names[] = {
        [3] = "error", [4] = "warning", [6] = "info", [7] = "debug"};
    struct timespec now;
    struct tm local;
    if (getenv("JOURNAL_STREAM"))
        return snprintf(text, size, "<%d>", syslog_level);
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &local);
    return snprintf(text, size, "%02d:%02d:%02d.%03ld %-7s ", local.tm_hour, local.tm_min,
                    local.tm_sec, now.tv_nsec / 1000000, names[syslog_level]);
}
