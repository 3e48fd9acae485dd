#include "proto/status.h"

#include <errno.h>
#include <stddef.h>

struct status_row {
    int number;
    const char *name, *text, *cause, *fix;
    enum cgm_exit exit_class;
};

static const struct status_row rows[] = {
#define CGM_STATUS_ROW(number, NAME, text, cause, fix, exit_class)                                 \
    {number, #NAME, text, cause, fix, CGM_EXIT_##exit_class},
    CGM_STATUSES(CGM_STATUS_ROW)
#undef CGM_STATUS_ROW
};

static const struct status_row unknown = {
    0, "UNKNOWN", "unknown status", "the number comes from a newer release", "", CGM_EXIT_FAILED};

/* Row i holds status -i: the table is written in that order, and a unit test holds it to it. */
static const struct status_row *status_row(int status)
{
    if (status > 0 || status <= -(int)(sizeof(rows) / sizeof(rows[0])))
        return &unknown;
    return &rows[-status];
}

const char *cgm_status_name(int status)
{
    return status_row(status)->name;
}

const char *cgm_status_text(int status)
{
    return status_row(status)->text;
}

const char *cgm_status_cause(int status)
{
    return status_row(status)->cause;
}

const char *cgm_status_fix(int status)
{
    return status_row(status)->fix;
}

enum cgm_exit cgm_status_exit(int status)
{
    return status_row(status)->exit_class;
}

int cgm_status_of_errno(int error)
{
    switch (error) {
    case 0:
        return CGM_OK;
    case EACCES:
    case EPERM:
        return CGM_PERMISSION;
    case ENOMEM:
    case ENOSPC:
    case EFBIG:
    case EMFILE:
    case ENFILE:
        return CGM_NO_MEMORY;
    case ENOENT:
    case ECONNREFUSED:
        return CGM_NOT_RUNNING;
    case ECONNRESET:
    case EPIPE:
        return CGM_DAEMON_LOST;
    case EINVAL:
        return CGM_INVALID_ARGUMENT;
    default:
        return CGM_IO;
    }
}
