#include "client/lib/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/include/commgemm.h"
#include "proto/messages.h"
#include "proto/printable.h"

static _Thread_local char last_error[CGM_ERROR_BYTES];

const char *commgemm_last_error(void)
{
    return last_error;
}

/* Names in brackets: the analyzer has macros of these names. */
int(cgm_fail)(int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof(last_error), format, arguments);
    va_end(arguments);
    cgm_printable(last_error); /* of others' words, too: programs show it on terminals */
    return status;
}

int(cgm_fail_plain)(int status)
{
    return cgm_fail(status, "%s", cgm_status_text(status));
}

void cgm_error_keep(struct cgm_kept_error *ret_kept)
{
    memcpy(ret_kept->text, last_error, strlen(last_error) + 1);
}

void cgm_error_restore(const struct cgm_kept_error *kept)
{
    memcpy(last_error, kept->text, strlen(kept->text) + 1);
}

int(cgm_check_pointer)(const void *pointer, const char *name)
{
    if (pointer)
        return CGM_OK;
    return cgm_fail(CGM_INVALID_ARGUMENT, "%s is NULL", name);
}

int cgm_check_name(const char *name, const char *field, int needed)
{
    if (!name)
        return needed ? cgm_fail(CGM_INVALID_ARGUMENT, "%s is NULL; a name is needed", field)
                      : CGM_OK;
    if (cgm_name_is_valid(name))
        return CGM_OK;
    return cgm_fail(CGM_INVALID_ARGUMENT,
                    "%s is \"%.80s\"; it must be 1 to %u characters of [A-Za-z0-9._:-] and begin "
                    "with a letter, a digit or _",
                    field, name, CGM_NAME_BYTES_MAX);
}

int cgm_check_mode(unsigned mode)
{
    if (mode <= 0777)
        return CGM_OK;
    return cgm_fail(CGM_INVALID_ARGUMENT, "mode is %#o; it must be 0 to 0777", mode);
}

int cgm_check_struct(const void *given, size_t size, const char *init, void *ret_copy,
                     const void **ret_known)
{
    size_t given_size;
    memcpy(&given_size, given, sizeof(given_size));
    *ret_known = given;
    if (given_size == size)
        return CGM_OK;
    if (given_size < sizeof(size_t) || given_size > size)
        return cgm_fail(CGM_INVALID_ARGUMENT,
                        "struct_size is %zu; library %s knows %zu to %zu: set it with %s() of a "
                        "header that is not newer than the library",
                        given_size, commgemm_version(), sizeof(size_t), size, init);
    memcpy(ret_copy, given, given_size);
    *ret_known = ret_copy;
    return CGM_OK;
}
