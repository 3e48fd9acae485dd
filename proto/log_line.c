#include "proto/log_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "proto/log_sink.h"
#include "proto/printable.h"

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

void cgm_log_line_write(int syslog_level, const char *who, const char *format, va_list arguments)
{
    char line[1024];
    size_t room = sizeof(line) - 1; /* the last one is for the end of the line */
    size_t used = (size_t)cgm_log_line_begin(line, sizeof(line), syslog_level);
    used += (size_t)snprintf(line + used, room - used, "%s", who);
    int more = vsnprintf(line + used, room - used, format, arguments);
    used += more < 0 ? 0 : (size_t)more;
    if (used > room - 1)
        used = room - 1;
    line[used] = '\0';
    cgm_printable(line); /* so that it is one line */
    line[used++] = '\n';
    cgm_log_sink_write(line, used);
}
