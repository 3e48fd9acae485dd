#include "proto/printable.h"

#include <stdbool.h>
#include <stddef.h>

static bool continues(unsigned char byte)
{
    return (byte & 0xc0) == 0x80;
}

/* Bytes of the character that begins here; 0: it is none, or controls a terminal. */
static size_t length_of(const unsigned char *text)
{
    if (text[0] < 0x80)
        return text[0] >= 0x20 && text[0] != 0x7f;
    size_t length = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
    if (text[0] < 0xc2 || text[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < length; i++)
        if (!continues(text[i]))
            return 0;
    bool is_control = text[0] == 0xc2 && text[1] < 0xa0;
    bool is_too_long = (text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xf0 && text[1] < 0x90);
    bool is_none = (text[0] == 0xed && text[1] >= 0xa0) || (text[0] == 0xf4 && text[1] >= 0x90);
    return is_control || is_too_long || is_none ? 0 : length;
}

void cgm_printable(char *text)
{
    while (*text) {
        size_t length = length_of((const unsigned char *)text);
        if (length == 0)
            *text = '?';
        text += length ? length : 1;
    }
}
