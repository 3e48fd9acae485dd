#include "daemon/broker/user_log.h"

#include <stdarg.h>
#include <stdio.h>

#include "daemon/broker/quota.h"

void cgm_user_log_left_out(uid_t uid, uint64_t lines)
{
    cgm_log_warning("uid %u: %ju lines about what it did were left out", (unsigned)uid,
                    (uintmax_t)lines);
}

void cgm_user_log(struct cgm_broker *broker, uid_t uid, enum cgm_log_level level,
                  const char *format, ...)
{
    char line[512];
    uint64_t left_out;
    va_list arguments;
    if (!cgm_log_wants(level) || !cgm_quota_has_line(broker, uid, &left_out))
        return;
    if (left_out > 0)
        cgm_user_log_left_out(uid, left_out);
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    cgm_log(level, "%s", line);
}
