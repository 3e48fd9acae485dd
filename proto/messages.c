#include "proto/messages.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const ProtobufCMessageDescriptor *cgm_message_descriptor(int type)
{
    switch (type) {
#define X(number, SYMBOL, name, Type)                                                              \
    case number:                                                                                   \
        return &cgm__##name##__descriptor;
        CGM_MESSAGES(X)
#undef X
    default:
        return NULL;
    }
}

const char *cgm_message_name(int type)
{
    const ProtobufCMessageDescriptor *descriptor = cgm_message_descriptor(type);
    return descriptor ? descriptor->short_name : "unknown";
}

static int name_char_is_valid(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("._:-", c) != NULL);
}

int cgm_name_is_valid(const char *name)
{
    size_t length = strnlen(name, CGM_NAME_BYTES_MAX + 1);
    if (length == 0 || length > CGM_NAME_BYTES_MAX || strchr(".-:", name[0]))
        return 0;
    for (size_t i = 0; i < length; i++)
        if (!name_char_is_valid(name[i]))
            return 0;
    return 1;
}

/* In brackets: the analyzer has a macro of this name. */
int(cgm_detail)(char *ret_detail, size_t size, int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(ret_detail, size, format, arguments);
    va_end(arguments);
    return status;
}
