#include "proto/parameter.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
#define X(SYMBOL, name, text) #name,
    CGM_PARAMETERS(X)
#undef X
};

const char *cgm_parameter_name(int parameter)
{
    return parameter >= 0 && parameter < CGM_PARAMETER_COUNT ? names[parameter] : NULL;
}

cgm_variant cgm_variant_of(enum cgm_parameter parameter, uint32_t value)
{
    return ((uint32_t)parameter + 1) << 16 | value;
}

bool cgm_variant_get(cgm_variant variant, enum cgm_parameter *ret_parameter, uint32_t *ret_value)
{
    if (variant >> 16 == 0 || variant >> 16 > CGM_PARAMETER_COUNT)
        return false;
    *ret_parameter = (enum cgm_parameter)((variant >> 16) - 1);
    *ret_value = variant & CGM_VARIANT_VALUE_MAX;
    return true;
}

void cgm_variant_write(cgm_variant variant, char ret_text[CGM_VARIANT_TEXT])
{
    enum cgm_parameter parameter;
    uint32_t value;
    ret_text[0] = '\0';
    if (cgm_variant_get(variant, &parameter, &value))
        snprintf(ret_text, CGM_VARIANT_TEXT, "%s=%u", names[parameter], value);
}

static int find_name(const char *text, size_t length)
{
    for (int i = 0; i < CGM_PARAMETER_COUNT; i++)
        if (strlen(names[i]) == length && memcmp(names[i], text, length) == 0)
            return i;
    return -1;
}

bool cgm_variant_read(const char *text, cgm_variant *ret_variant)
{
    size_t length = strcspn(text, "=");
    int parameter = find_name(text, length);
    char *end;
    if (parameter < 0 || text[length] != '=' || !isdigit((unsigned char)text[length + 1]))
        return false;
    unsigned long value = strtoul(text + length + 1, &end, 10);
    if (*end != '\0' || value > CGM_VARIANT_VALUE_MAX)
        return false;
    *ret_variant = cgm_variant_of((enum cgm_parameter)parameter, (uint32_t)value);
    return true;
}
