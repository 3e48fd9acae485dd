#include "proto/timing.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "proto/status.h"
#include "proto/types.h"

#define FORMAT "commgemm-timings "
#define VERSION "2"
#define FIRST_LINE FORMAT VERSION
#define AT_MAX 253402300799ull /* the last second of the year 9999 */
#define NS_MAX 1000000000000000ull

enum kind { KIND_OP, KIND_COMM_TYPE, KIND_DTYPE, KIND_NUMBER, KIND_SIGNED, KIND_FLAG };

static const struct {
    const char *name;
    enum kind kind;
} fields[] = {
#define X(name, KIND) {#name, KIND_##KIND},
    CGM_TIMING_FIELDS(X)
#undef X
};

static const struct {
    bool is_word;
    enum cgm_type_table table; /* of words */
    int64_t min, max;          /* of numbers */
} kinds[] = {
    [KIND_OP] = {.is_word = true, .table = CGM_TABLE_OP},
    [KIND_COMM_TYPE] = {.is_word = true, .table = CGM_TABLE_COMM_TYPE},
    [KIND_DTYPE] = {.is_word = true, .table = CGM_TABLE_DTYPE},
    [KIND_NUMBER] = {.min = 0, .max = 1ll << 40},
    [KIND_SIGNED] = {.min = -(1ll << 31), .max = (1ll << 31) - 1},
    [KIND_FLAG] = {.min = 0, .max = 1},
};

/* ---- of a plan --------------------------------------------------------------------------------
 */

static bool is_platform_char(char c)
{
    return c >= ' ' && c <= '~' && c != '"';
}

static bool is_release_char(char c)
{
    return isalnum((unsigned char)c) || (c != '\0' && strchr(".+~-", c));
}

static void copy_text(char *ret_text, size_t size, const char *text, bool (*is_good)(char c))
{
    size_t n = 0;
    for (; text[n] && n + 1 < size; n++)
        ret_text[n] = is_good(text[n]) ? text[n] : '-';
    ret_text[n] = '\0';
}

static void set(struct cgm_timing *timing, enum cgm_timing_field field, int64_t value)
{
    timing->fields[field] = value;
    timing->has |= 1u << field;
}

static bool field_is_known(const struct cgm_timing *timing, size_t i)
{
    int64_t value = timing->fields[i];
    if (kinds[fields[i].kind].is_word)
        return value >= 0 && value <= INT32_MAX &&
               cgm_type_name(kinds[fields[i].kind].table, (int)value);
    return value >= kinds[fields[i].kind].min && value <= kinds[fields[i].kind].max;
}

bool cgm_timing_of_plan(const Cgm__PlanCreate *plan, const char *release, const char *platform,
                        const uint32_t *devices, uint32_t world, struct cgm_timing *ret_timing)
{
    struct cgm_timing *t = ret_timing;
    *t = (struct cgm_timing){.world = world};
    if (plan->n_counts > 0 || plan->n_buffer_shape > 2 || !platform[0] || world > CGM_COMM_SIZE_MAX)
        return false;
    copy_text(t->release, sizeof(t->release), release, is_release_char);
    copy_text(t->platform, sizeof(t->platform), platform, is_platform_char);
    memcpy(t->devices, devices, world * sizeof(*devices));
#define X(name, KIND) set(t, CGM_TIMING_##name, (int64_t)plan->name);
    CGM_TIMING_REQUIRED(X)
#undef X
#define X(name, KIND)                                                                              \
    if (plan->has_##name)                                                                          \
        set(t, CGM_TIMING_##name, (int64_t)plan->name);
    CGM_TIMING_OPTIONAL(X)
#undef X
    if (plan->n_buffer_shape > 0)
        set(t, CGM_TIMING_buffer_rows, (int64_t)plan->buffer_shape[0]);
    if (plan->n_buffer_shape > 1)
        set(t, CGM_TIMING_buffer_cols, (int64_t)plan->buffer_shape[1]);
    for (size_t i = 0; i < CGM_TIMING_FIELD_COUNT; i++)
        if (t->has >> i & 1 && !field_is_known(t, i))
            return false;
    return true;
}

/* ---- writing ----------------------------------------------------------------------------------
 */

struct text {
    char *at, *end;
};

static void put(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(struct text *text, const char *format, ...)
{
    va_list arguments;
    size_t room = (size_t)(text->end - text->at);
    va_start(arguments, format);
    int n = vsnprintf(text->at, room, format, arguments);
    va_end(arguments);
    text->at += n > 0 && (size_t)n < room ? (size_t)n : room - 1;
}

static void put_field(struct text *text, const struct cgm_timing *timing, size_t i)
{
    enum kind kind = fields[i].kind;
    if (kinds[kind].is_word)
        put(text, " %s=%s", fields[i].name,
            cgm_type_name(kinds[kind].table, (int)timing->fields[i]));
    else
        put(text, " %s=%" PRId64, fields[i].name, timing->fields[i]);
}

static void put_times(struct text *text, const struct cgm_times *times)
{
    char variant[CGM_VARIANT_TEXT];
    for (uint32_t i = 0; i < times->n; i++) {
        cgm_variant_write(times->variant[i], variant);
        put(text, "%s%s%s%s:%" PRIu64,
            i ? "," : " times=", cgm_type_name(CGM_TABLE_ALGO, (int)times->algorithm[i]),
            variant[0] ? "/" : "", variant, times->ns[i]);
    }
}

/* The longest line there can be is shorter than the text. */
void cgm_timing_write(const struct cgm_timing *timing, char ret_line[CGM_TIMING_LINE_BYTES],
                      const char **ret_key)
{
    struct text text = {ret_line, ret_line + CGM_TIMING_LINE_BYTES};
    put(&text, "at=%" PRIu64, timing->times.at_s);
    put_times(&text, &timing->times);
    if (ret_key)
        *ret_key = text.at + 1;
    put(&text, " release=%s platform=\"%s\"", timing->release, timing->platform);
    for (uint32_t rank = 0; rank < timing->world; rank++)
        put(&text, "%s%u", rank ? "," : " ranks=", timing->devices[rank]);
    for (size_t i = 0; i < CGM_TIMING_FIELD_COUNT; i++)
        if (timing->has >> i & 1)
            put_field(&text, timing, i);
}

/* ---- reading ----------------------------------------------------------------------------------
 */

/* Takes `name=` if it comes next, and copies what follows it up to `stop`. */
static bool take(const char **at, const char *name, char stop, char *ret_value, size_t size)
{
    const char *begin = *at + (**at == ' ');
    size_t length = strlen(name), n = 0;
    if (strncmp(begin, name, length) != 0 || begin[length] != '=')
        return false;
    begin += length + 1;
    if (stop == '"' && *begin++ != '"')
        return false;
    while (begin[n] && begin[n] != stop && n + 1 < size) {
        ret_value[n] = begin[n];
        n++;
    }
    ret_value[n] = '\0';
    *at = begin + n + (stop == '"' && begin[n] == '"');
    return true;
}

static bool read_number(const char *text, int64_t min, int64_t max, char **ret_end,
                        int64_t *ret_number)
{
    if (!isdigit((unsigned char)text[0]) && text[0] != '-')
        return false;
    /* What overflows becomes the largest number, and that is beyond every limit. */
    *ret_number = strtoll(text, ret_end, 10);
    return *ret_number >= min && *ret_number <= max;
}

static bool read_one_number(const char *text, int64_t min, int64_t max, int64_t *ret_number)
{
    char *end;
    return read_number(text, min, max, &end, ret_number) && *end == '\0';
}

/* Writes "fused_ag" or "fused_ag/num_splits=2" as the next one. False: it has a time already, or is
 * not known. */
static bool read_tried(char *name, struct cgm_times *times)
{
    cgm_variant variant = 0;
    char *slash = strchr(name, '/');
    if (slash)
        *slash = '\0';
    int algorithm = cgm_type_number(CGM_TABLE_ALGO, name);
    if (algorithm < 0 || algorithm == CGM_ALGO_AUTO ||
        (slash && !cgm_variant_read(slash + 1, &variant)))
        return false;
    for (uint32_t i = 0; i < times->n; i++)
        if (times->algorithm[i] == (uint32_t)algorithm && times->variant[i] == variant)
            return false;
    times->algorithm[times->n] = (uint32_t)algorithm;
    times->variant[times->n] = variant;
    return true;
}

static bool read_time(const char **at, struct cgm_times *times)
{
    char name[64], *end;
    int64_t ns;
    const char *colon = strchr(*at, ':');
    if (!colon || (size_t)(colon - *at) >= sizeof(name) || times->n == CGM_TIMES_MAX)
        return false;
    memcpy(name, *at, (size_t)(colon - *at));
    name[colon - *at] = '\0';
    if (!read_tried(name, times) ||
        !read_number(colon + 1, times->n == 0, (int64_t)NS_MAX, &end, &ns))
        return false;
    times->ns[times->n++] = (uint64_t)ns;
    *at = end + (*end == ',');
    return *end == ',' || *end == '\0';
}

static bool read_times(const char *text, struct cgm_times *times)
{
    while (*text)
        if (!read_time(&text, times))
            return false;
    return times->n > 1;
}

static bool read_ranks(const char *text, struct cgm_timing *timing)
{
    while (*text) {
        char *end;
        int64_t device;
        if (timing->world == CGM_COMM_SIZE_MAX || !read_number(text, 0, 65535, &end, &device))
            return false;
        timing->devices[timing->world++] = (uint32_t)device;
        text = end + (*end == ',');
        if (*end != ',' && *end != '\0')
            return false;
    }
    return timing->world > 1;
}

static bool read_field(const char *text, size_t i, struct cgm_timing *timing)
{
    enum kind kind = fields[i].kind;
    int64_t value;
    if (kinds[kind].is_word)
        value = cgm_type_number(kinds[kind].table, text);
    else if (!read_one_number(text, kinds[kind].min, kinds[kind].max, &value))
        return false;
    set(timing, (enum cgm_timing_field)i, value);
    return field_is_known(timing, i);
}

static int refuse(char *ret_detail, size_t detail_bytes, const char *name)
{
    return cgm_detail(ret_detail, detail_bytes, CGM_INVALID_ARGUMENT, "%s is missing or wrong",
                      name);
}

static const char *read_head(const char **at, struct cgm_timing *timing)
{
    char value[CGM_TIMING_LINE_BYTES];
    int64_t at_s;
    if (!take(at, "at", ' ', value, sizeof(value)) ||
        !read_one_number(value, 1, (int64_t)AT_MAX, &at_s))
        return "at";
    timing->times.at_s = (uint64_t)at_s;
    if (!take(at, "times", ' ', value, sizeof(value)) || !read_times(value, &timing->times))
        return "times";
    if (!take(at, "release", ' ', timing->release, sizeof(timing->release)))
        return "release";
    if (!take(at, "platform", '"', timing->platform, sizeof(timing->platform)))
        return "platform";
    if (!take(at, "ranks", ' ', value, sizeof(value)) || !read_ranks(value, timing))
        return "ranks";
    return NULL;
}

static bool texts_are_good(const struct cgm_timing *timing)
{
    char release[sizeof(timing->release)], platform[sizeof(timing->platform)];
    copy_text(release, sizeof(release), timing->release, is_release_char);
    copy_text(platform, sizeof(platform), timing->platform, is_platform_char);
    return release[0] && platform[0] && strcmp(release, timing->release) == 0 &&
           strcmp(platform, timing->platform) == 0;
}

int cgm_timing_read(const char *line, char *ret_detail, size_t detail_bytes,
                    struct cgm_timing *ret_timing)
{
    static const uint32_t required = 0
#define X(name, KIND) | 1u << CGM_TIMING_##name
        CGM_TIMING_REQUIRED(X)
#undef X
        ;
    struct cgm_timing timing = {0};
    char value[64], again[CGM_TIMING_LINE_BYTES];
    const char *at = line, *wrong = read_head(&at, &timing);
    for (size_t i = 0; i < CGM_TIMING_FIELD_COUNT && !wrong; i++)
        if (take(&at, fields[i].name, ' ', value, sizeof(value)) && !read_field(value, i, &timing))
            wrong = fields[i].name;
    for (size_t i = 0; i < CGM_TIMING_FIELD_COUNT && !wrong; i++)
        if (required >> i & 1 && !(timing.has >> i & 1))
            wrong = fields[i].name;
    if (!wrong && !texts_are_good(&timing))
        wrong = "release or platform";
    if (wrong)
        return refuse(ret_detail, detail_bytes, wrong);
    cgm_timing_write(&timing, again, NULL);
    if (strcmp(again, line) != 0)
        return cgm_detail(ret_detail, detail_bytes, CGM_INVALID_ARGUMENT,
                          "\"%.40s\" is not known here, or is not written so", at);
    *ret_timing = timing;
    return CGM_OK;
}

/* ---- files ------------------------------------------------------------------------------------
 */

/* FNV-1a, of the line and its end. */
static uint64_t add_to_sum(uint64_t sum, const char *line)
{
    for (; *line; line++)
        sum = (sum ^ (unsigned char)*line) * 0x100000001b3ull;
    return (sum ^ '\n') * 0x100000001b3ull;
}

void cgm_timings_begin(struct cgm_timings_out *out, FILE *file)
{
    *out = (struct cgm_timings_out){file, 0, 0xcbf29ce484222325ull};
    fprintf(file, "%s\n", FIRST_LINE);
}

void cgm_timings_line(struct cgm_timings_out *out, const char *line)
{
    fprintf(out->file, "%s\n", line);
    out->sum = add_to_sum(out->sum, line);
    out->count++;
}

void cgm_timings_end(struct cgm_timings_out *out)
{
    fprintf(out->file, "end %" PRIu32 " %016" PRIx64 "\n", out->count, out->sum);
}

struct reading {
    FILE *file;
    char line[CGM_TIMING_LINE_BYTES];
    unsigned number; /* of the line */
    uint32_t count;
    uint64_t sum;
};

/* NULL, or what is wrong with it. */
static const char *next_line(struct reading *reading)
{
    reading->number++;
    if (!fgets(reading->line, sizeof(reading->line), reading->file))
        return ferror(reading->file) ? "it cannot be read" : "the file was cut off";
    size_t length = strlen(reading->line);
    if (length == 0 || reading->line[length - 1] != '\n') {
        if (reading->number == 1)
            return "no file of timings begins so";
        return length + 1 < sizeof(reading->line) ? "the file was cut off" : "it is too long";
    }
    reading->line[length - 1] = '\0';
    return NULL;
}

static const char *check_first(const struct reading *reading)
{
    if (strcmp(reading->line, FIRST_LINE) == 0)
        return NULL;
    return strncmp(reading->line, FORMAT, sizeof(FORMAT) - 1) == 0
               ? "the file is of another release: this one reads version " VERSION
               : "it is not \"" FIRST_LINE "\": the file is of something else";
}

static const char *check_end(struct reading *reading)
{
    char end[64];
    snprintf(end, sizeof(end), "end %" PRIu32 " %016" PRIx64, reading->count, reading->sum);
    if (strcmp(reading->line, end) != 0)
        return "the sum over the lines before it is another: the file was changed";
    return fgetc(reading->file) == EOF ? NULL : "something follows the end";
}

int cgm_timings_read(FILE *file,
                     void (*visit)(void *context, const char *line,
                                   const struct cgm_timing *timing),
                     void *context, char *ret_detail, size_t detail_bytes)
{
    struct reading reading = {.file = file, .sum = 0xcbf29ce484222325ull};
    struct cgm_timing timing;
    char detail[128];
    const char *wrong = next_line(&reading);
    if (!wrong)
        wrong = check_first(&reading);
    while (!wrong && !(wrong = next_line(&reading)) && strncmp(reading.line, "end ", 4) != 0) {
        if (cgm_timing_read(reading.line, detail, sizeof(detail), &timing) != CGM_OK)
            wrong = detail;
        else if (reading.count++ == CGM_TIMINGS_MAX)
            wrong = "there are too many";
        else
            visit(context, reading.line, &timing);
        reading.sum = add_to_sum(reading.sum, reading.line);
    }
    if (!wrong)
        wrong = check_end(&reading);
    return wrong ? cgm_detail(ret_detail, detail_bytes, CGM_INVALID_ARGUMENT, "line %u: %s",
                              reading.number, wrong)
                 : CGM_OK;
}
