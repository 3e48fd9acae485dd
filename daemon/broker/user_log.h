/* Lines of the log that clients cause, as many as they like: each user has so many, that nobody
 * fills a disk or makes journald leave out what others need to know. */
#ifndef CGM_USER_LOG_H
#define CGM_USER_LOG_H

#include <stdint.h>
#include <sys/types.h>

#include "daemon/broker/log.h"

struct cgm_broker;

/* As cgm_log, at the uid's cost. */
void cgm_user_log(struct cgm_broker *broker, uid_t uid, enum cgm_log_level level,
                  const char *format, ...) __attribute__((format(printf, 4, 5)));

void cgm_user_log_left_out(uid_t uid, uint64_t lines);

#endif
