/* From the text of an option's value to the field of the settings. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/common/args_table.h"
#include "proto/status.h"
#include "proto/types.h"

/* Where a value comes from and goes to. */
struct target {
    const struct cgm_option *option;
    const char *text;
    void *field;
    char *detail;
};

static int refuse(const struct target *target, const char *expected)
{
    snprintf(target->detail, CGM_ARGS_DETAIL_BYTES, "--%s is \"%s\"; it must be %s",
             target->option->name, target->text, expected);
    return CGM_INVALID_ARGUMENT;
}

static bool has_upper_limit(const struct cgm_option *option)
{
    return option->max >= option->min && (option->min != 0 || option->max != 0);
}

/* Names the kind and the option's limits: "a whole number from 1 to 64". */
static int refuse_number(const struct target *target, const char *noun)
{
    const struct cgm_option *option = target->option;
    char expected[128];

    if (has_upper_limit(option))
        snprintf(expected, sizeof(expected), "%s from %" PRId64 " to %" PRId64, noun, option->min,
                 option->max);
    else if (option->min != 0)
        snprintf(expected, sizeof(expected), "%s of at least %" PRId64, noun, option->min);
    else
        snprintf(expected, sizeof(expected), "%s", noun);
    return refuse(target, expected);
}

static bool unsigned_within(const struct cgm_option *option, uint64_t value)
{
    if (option->min > 0 && value < (uint64_t)option->min)
        return false;
    return !has_upper_limit(option) || value <= (uint64_t)option->max;
}

/* Decimal digits and nothing else. */
static bool parse_digits(const char *text, uint64_t *ret_value, const char **ret_rest)
{
    char *end;

    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0)
        return false;
    *ret_value = value;
    *ret_rest = end;
    return true;
}

static int store_int(const struct target *target)
{
    const char *digits = target->text + (*target->text == '-');
    const struct cgm_option *option = target->option;
    bool limited = option->min != 0 || option->max != 0;

    char *end;
    errno = 0;
    long long value = strtoll(target->text, &end, 10);
    if (!isdigit((unsigned char)*digits) || errno != 0 || *end != '\0' ||
        (limited && value < option->min) || (has_upper_limit(option) && value > option->max))
        return refuse_number(target, "a whole number");
    *(int64_t *)target->field = value;
    return CGM_OK;
}

static int store_uint(const struct target *target)
{
    uint64_t value;
    const char *rest;

    if (!parse_digits(target->text, &value, &rest) || *rest != '\0' ||
        !unsigned_within(target->option, value))
        return refuse_number(target, "a whole number");
    *(uint64_t *)target->field = value;
    return CGM_OK;
}

int cgm_bytes_parse(const char *text, uint64_t *ret_bytes)
{
    static const char suffixes[] = "KMGT";
    uint64_t value;
    const char *rest;
    unsigned shift = 0;

    if (!parse_digits(text, &value, &rest))
        return CGM_INVALID_ARGUMENT;
    if (*rest != '\0') {
        const char *suffix = strchr(suffixes, toupper((unsigned char)*rest));
        if (suffix == NULL || rest[1] != '\0')
            return CGM_INVALID_ARGUMENT;
        shift = 10 * (unsigned)(suffix - suffixes + 1);
    }
    if (value > UINT64_MAX >> shift)
        return CGM_INVALID_ARGUMENT;
    *ret_bytes = value << shift;
    return CGM_OK;
}

static int store_bytes(const struct target *target)
{
    uint64_t bytes;

    if (cgm_bytes_parse(target->text, &bytes) != CGM_OK || !unsigned_within(target->option, bytes))
        return refuse_number(target, "a number of bytes, also with K, M, G or T (times 1024),");
    *(uint64_t *)target->field = bytes;
    return CGM_OK;
}

static int store_real(const struct target *target)
{
    const struct cgm_option *option = target->option;
    bool limited = option->min != 0 || option->max != 0;
    char *end;

    double value = strtod(target->text, &end);
    if (end == target->text || isspace((unsigned char)*target->text) || *end != '\0' ||
        !isfinite(value) || (limited && value < (double)option->min) ||
        (has_upper_limit(option) && value > (double)option->max))
        return refuse_number(target, "a number");
    *(double *)target->field = value;
    return CGM_OK;
}

static int store_mode(const struct target *target)
{
    char *end;

    unsigned long mode = strtoul(target->text, &end, 8);
    if (*target->text < '0' || *target->text > '7' || *end != '\0' || mode == 0 || mode > 0777)
        return refuse(target, "an octal mode from 0001 to 0777, like 0640");
    *(uint32_t *)target->field = (uint32_t)mode;
    return CGM_OK;
}

static int refuse_choice(const struct target *target)
{
    char choices[CGM_ARGS_DETAIL_BYTES / 2], expected[CGM_ARGS_DETAIL_BYTES / 2 + 16];

    cgm_option_choices(target->option, ", ", choices, sizeof(choices));
    snprintf(expected, sizeof(expected), "one of %s", choices);
    return refuse(target, expected);
}

static int store_choice(const struct target *target)
{
    size_t length = strlen(target->text);
    int position = 0;

    for (const char *choice = target->option->choices;; choice++, position++) {
        size_t end = strcspn(choice, "|");
        if (end == length && strncmp(choice, target->text, length) == 0) {
            *(int *)target->field = position;
            return CGM_OK;
        }
        choice += end;
        if (*choice == '\0')
            return refuse_choice(target);
    }
}

static int store_type(const struct target *target)
{
    const struct cgm_option *option = target->option;
    int number = cgm_type_number((enum cgm_type_table)option->table, target->text);

    if (number < 0 || number < option->min || (option->max != 0 && number > option->max))
        return refuse_choice(target);
    *(int *)target->field = number;
    return CGM_OK;
}

static int store_flag(const struct target *target)
{
    *(bool *)target->field = true;
    return CGM_OK;
}

static int store_text(const struct target *target)
{
    *(const char **)target->field = target->text;
    return CGM_OK;
}

static int store_path(const struct target *target)
{
    return *target->text == '\0' ? refuse(target, "a path, not empty") : store_text(target);
}

int cgm_option_store(const struct cgm_option *option, const char *text, void *settings,
                     char *ret_detail)
{
    static int (*const stores[])(const struct target *) = {
        [CGM_ARG_FLAG] = store_flag, [CGM_ARG_TEXT] = store_text, [CGM_ARG_PATH] = store_path,
        [CGM_ARG_INT] = store_int,   [CGM_ARG_UINT] = store_uint, [CGM_ARG_BYTES] = store_bytes,
        [CGM_ARG_REAL] = store_real, [CGM_ARG_MODE] = store_mode, [CGM_ARG_CHOICE] = store_choice,
        [CGM_ARG_TYPE] = store_type,
    };
    const struct target target = {
        .option = option,
        .text = text != NULL ? text : option->implied,
        .field = (char *)settings + option->offset,
        .detail = ret_detail,
    };

    return stores[option->kind](&target);
}
