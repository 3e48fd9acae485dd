#include "daemon/broker/config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/messages.h"
#include "proto/status.h"

#define FILE_BYTES_MAX (1u << 20)

enum kind { TEXT, NUMBER, MODE, CHOICE };

struct key_row {
    const char *key;
    enum kind kind;
    const char *fallback;
    uint64_t min, max;
    const char *choices;
    const char *help;
    size_t offset;
};

#define LIMITS_TEXT(low, high) .min = (low), .max = (high)
#define LIMITS_NUMBER(low, high) .min = (low), .max = (high)
#define LIMITS_MODE(low, high) .min = (low), .max = (high)
#define LIMITS_CHOICE(low, list) .choices = (list)

static const struct key_row rows[] = {
#define X(name, KIND, text, low, high, words)                                                      \
    {.key = #name,                                                                                 \
     .kind = KIND,                                                                                 \
     .fallback = (text),                                                                           \
     LIMITS_##KIND(low, high),                                                                     \
     .help = (words),                                                                              \
     .offset = offsetof(struct cgm_config, name)},
    CGM_CONFIG_KEYS(X)
#undef X
};
#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))

static int set_text(const struct key_row *row, const char *value, void *field, char *ret_detail,
                    size_t size)
{
    if (strlen(value) > row->max)
        return cgm_detail(ret_detail, size, CGM_INVALID_ARGUMENT,
                          "%s has %zu bytes; it must have at most %ju", row->key, strlen(value),
                          (uintmax_t)row->max);
    strcpy(field, value);
    return CGM_OK;
}

static int set_number(const struct key_row *row, const char *value, void *field, char *ret_detail,
                      size_t size)
{
    char *end;
    int base = row->kind == MODE ? 8 : 10;
    errno = 0;
    uint64_t number = strtoull(value, &end, base);
    if (!isdigit((unsigned char)value[0]) || *end || errno || number < row->min ||
        number > row->max)
        return cgm_detail(ret_detail, size, CGM_INVALID_ARGUMENT,
                          base == 8 ? "%s is '%s'; it must be an octal number from %jo to %jo"
                                    : "%s is '%s'; it must be a number from %ju to %ju",
                          row->key, value, (uintmax_t)row->min, (uintmax_t)row->max);
    memcpy(field, &number, sizeof(number));
    return CGM_OK;
}

static int set_choice(const struct key_row *row, const char *value, void *field, char *ret_detail,
                      size_t size)
{
    uint64_t position = 0;
    size_t length = strlen(value);
    for (const char *word = row->choices; word; position++) {
        const char *bar = strchr(word, '|');
        if (strcspn(word, "|") == length && strncmp(word, value, length) == 0) {
            memcpy(field, &position, sizeof(position));
            return CGM_OK;
        }
        word = bar ? bar + 1 : NULL;
    }
    return cgm_detail(ret_detail, size, CGM_INVALID_ARGUMENT, "%s is '%s'; it must be one of %s",
                      row->key, value, row->choices);
}

static int set_row(const struct key_row *row, struct cgm_config *config, const char *value,
                   char *ret_detail, size_t size)
{
    void *field = (char *)config + row->offset;
    switch (row->kind) {
    case TEXT:
        return set_text(row, value, field, ret_detail, size);
    case NUMBER:
    case MODE:
        return set_number(row, value, field, ret_detail, size);
    case CHOICE:
        return set_choice(row, value, field, ret_detail, size);
    }
    return CGM_INTERNAL;
}

void cgm_config_init(struct cgm_config *ret_config)
{
    char detail[128];
    memset(ret_config, 0, sizeof(*ret_config));
    for (size_t i = 0; i < ROW_COUNT; i++)
        set_row(&rows[i], ret_config, rows[i].fallback, detail, sizeof(detail));
}

static const struct key_row *find_row(const char *key)
{
    for (size_t i = 0; i < ROW_COUNT; i++)
        if (strcmp(rows[i].key, key) == 0)
            return &rows[i];
    return NULL;
}

int cgm_config_set(struct cgm_config *config, const char *key, const char *value, char *ret_detail,
                   size_t size)
{
    size_t used;
    const struct key_row *row = find_row(key);
    if (row)
        return set_row(row, config, value, ret_detail, size);
    used = (size_t)snprintf(ret_detail, size, "there is no key '%s'; the keys are", key);
    for (size_t i = 0; i < ROW_COUNT && used < size; i++)
        used +=
            (size_t)snprintf(ret_detail + used, size - used, "%s %s", i ? "," : "", rows[i].key);
    return CGM_INVALID_ARGUMENT;
}

int cgm_config_set_pair(struct cgm_config *config, const char *pair, char *ret_detail, size_t size)
{
    char key[64];
    const char *equal = strchr(pair, '=');
    if (!equal || (size_t)(equal - pair) >= sizeof(key))
        return cgm_detail(ret_detail, size, CGM_INVALID_ARGUMENT, "'%s' is not key=value", pair);
    memcpy(key, pair, (size_t)(equal - pair));
    key[equal - pair] = '\0';
    return cgm_config_set(config, key, equal + 1, ret_detail, size);
}

#define BLANK " \t\v\f"
#define BYTE_ORDER_MARK "\xef\xbb\xbf" /* of UTF-8; the parser passes over it, too */

/* What the callbacks of the parser need; the first error is kept. */
struct reading {
    struct cgm_config *config;
    FILE *file;
    char *line;
    size_t capacity;
    unsigned number;            /* of the line, from 1 */
    unsigned set_at[ROW_COUNT]; /* the line that sets the key; 0: none yet */
    int status;
    char detail[512];
};

__attribute__((format(printf, 2, 3))) static void refuse(struct reading *reading,
                                                         const char *format, ...)
{
    va_list arguments;
    if (reading->status != CGM_OK)
        return;
    va_start(arguments, format);
    vsnprintf(reading->detail, sizeof(reading->detail), format, arguments);
    va_end(arguments);
    reading->status = CGM_INVALID_ARGUMENT;
}

static void cut_comment(char *line)
{
    for (char *c = line; (c = strchr(c, '#')); c++)
        if (c == line || isspace((unsigned char)c[-1])) {
            *c = '\0';
            return;
        }
}

/* Marks that the parser takes for something, and that this file does not have. */
static bool has_other_marks(const char *line, size_t length)
{
    size_t equals = strcspn(line, "=");
    return memchr(line, ';', length) ||
           (equals > strcspn(line, ":") && strcspn(line, ":") < length);
}

/* False: it cannot be given to the parser, which has no other words for it or would name the line
 * behind it. */
static bool check_line(struct reading *reading, const char *line, size_t length, size_t room)
{
    int end = (int)strcspn(line, "]\r\n");
    if (length > room)
        refuse(reading, "the line is longer than %zu bytes", room);
    else if (line[0] == '[')
        refuse(reading, "sections like %.*s] have no meaning here", end, line);
    else if (line[length] == '\r' && line[length + 1] != '\0' && line[length + 1] != '\n')
        refuse(reading, "the line has a carriage return that is not at its end");
    else if (has_other_marks(line, length))
        refuse(reading, "a line must be key = value, without ';'; comments begin with '#'");
    else if (strspn(line, BLANK) < length && !memchr(line, '=', length))
        refuse(reading, "a line must be key = value");
    else
        return true;
    return false;
}

/* Gives the parser lines without comments and indentation, which it would take for a continuation
 * of the line before, and none that it cannot take. */
static char *read_line(char *ret_line, int size, void *stream)
{
    struct reading *reading = stream;
    ssize_t bytes = getline(&reading->line, &reading->capacity, reading->file);
    if (bytes < 0)
        return NULL;
    reading->number++;
    bool is_text = strlen(reading->line) == (size_t)bytes;
    if (!is_text)
        refuse(reading, "the line has a character NUL");
    char *begin = reading->line;
    if (reading->number == 1 && strncmp(begin, BYTE_ORDER_MARK, strlen(BYTE_ORDER_MARK)) == 0)
        begin += strlen(BYTE_ORDER_MARK);
    cut_comment(begin);
    begin += strspn(begin, BLANK);
    size_t length = strcspn(begin, "\r\n");
    if (is_text && check_line(reading, begin, length, (size_t)size - 2))
        snprintf(ret_line, (size_t)size, "%.*s\n", (int)length, begin);
    else
        strcpy(ret_line, "?\n"); /* which is no key = value: the parser remembers the line */
    return ret_line;
}

/* False: it is set already. */
static bool note_key(struct reading *reading, const char *key)
{
    const struct key_row *row = find_row(key);
    unsigned *set_at = row ? &reading->set_at[row - rows] : NULL;
    if (set_at && *set_at)
        refuse(reading, "%s is set in line %u already", key, *set_at);
    else if (set_at)
        *set_at = reading->number;
    return reading->status == CGM_OK;
}

/* 0 makes the parser remember this line as the first bad one. */
static int on_line(void *user, const char *section, const char *key, const char *value)
{
    struct reading *reading = user;
    (void)section;
    if (reading->status == CGM_OK && note_key(reading, key))
        reading->status =
            cgm_config_set(reading->config, key, value, reading->detail, sizeof(reading->detail));
    return reading->status == CGM_OK;
}

/* NULL, or why what an fd is open on is not read: a pipe may have no writer, or one that stands
 * still. */
static const char *distrust(int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return strerror(errno);
    if (S_ISDIR(st.st_mode))
        return strerror(EISDIR);
    return S_ISREG(st.st_mode) || S_ISCHR(st.st_mode) ? NULL : "it is no file";
}

/* NULL, or why not all of it was read. */
static const char *read_all(int fd, char *ret_text, size_t *ret_bytes)
{
    ssize_t n = 1;
    *ret_bytes = 0;
    while (*ret_bytes <= FILE_BYTES_MAX && n > 0) {
        n = read(fd, ret_text + *ret_bytes, FILE_BYTES_MAX + 1 - *ret_bytes);
        *ret_bytes += n > 0 ? (size_t)n : 0;
    }
    if (n < 0)
        return strerror(errno);
    return *ret_bytes > FILE_BYTES_MAX ? "it is longer than 1 MiB" : NULL;
}

/* The text is to be freed. */
static int read_file(const char *path, char **ret_text, size_t *ret_bytes, char *ret_detail,
                     size_t size)
{
    char *text = malloc(FILE_BYTES_MAX + 1);
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    const char *why = fd < 0 ? strerror(errno) : distrust(fd);
    if (!why)
        why = text ? read_all(fd, text, ret_bytes) : "no memory for it";
    if (fd >= 0)
        close(fd);
    if (!why) {
        *ret_text = text;
        return CGM_OK;
    }
    free(text);
    return cgm_detail(ret_detail, size, CGM_IO, "cannot read %s: %s", path, why);
}

int cgm_config_load(struct cgm_config *config, const char *path, char *ret_detail, size_t size)
{
    struct reading reading = {.config = config};
    char *text = NULL;
    size_t bytes = 0;
    int status = read_file(path, &text, &bytes, ret_detail, size);
    if (status != CGM_OK)
        return status;
    reading.file = fmemopen(text, bytes, "r");
    int line = reading.file ? ini_parse_stream(read_line, &reading, on_line, &reading) : -1;
    if (reading.file)
        fclose(reading.file);
    free(reading.line);
    free(text);
    if (line < 0)
        return cgm_detail(ret_detail, size, CGM_NO_MEMORY, "no memory to read %s", path);
    if (line == 0)
        return CGM_OK;
    return cgm_detail(ret_detail, size, CGM_INVALID_ARGUMENT, "%s:%d: %s", path, line,
                      reading.detail);
}

static void print_wrapped(FILE *out, const char *text)
{
    size_t column = 0;
    while (*text) {
        size_t word = strcspn(text, " ");
        if (column == 0 || column + 1 + word > 98)
            column = (size_t)fprintf(out, "%s# ", column ? "\n" : "");
        else
            column += (size_t)fprintf(out, " ");
        column += (size_t)fprintf(out, "%.*s", (int)word, text);
        text += word + strspn(text + word, " ");
    }
    fprintf(out, "\n");
}

static void print_limits(const struct key_row *row, char *ret_text, size_t size)
{
    if (row->kind == CHOICE)
        snprintf(ret_text, size, "%s. One of %s.", row->help, row->choices);
    else if (row->kind == NUMBER)
        snprintf(ret_text, size, "%s. From %ju to %ju.", row->help, (uintmax_t)row->min,
                 (uintmax_t)row->max);
    else
        snprintf(ret_text, size, "%s.", row->help);
}

void cgm_config_print(FILE *out)
{
    char text[512];
    fprintf(out,
            "# Configuration of commgemmd. Every line that is commented out says the default.\n");
    for (size_t i = 0; i < ROW_COUNT; i++) {
        print_limits(&rows[i], text, sizeof(text));
        fprintf(out, "\n");
        print_wrapped(out, text);
        fprintf(out, "#%s =%s%s\n", rows[i].key, rows[i].fallback[0] ? " " : "", rows[i].fallback);
    }
}
