#include "client/bench/shapes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "proto/status.h"
#include "proto/types.h"

#define LINE_BYTES 512u
#define WORDS_MAX 8

static const char *const layouts[] = {"NN", "NT", "TN", "TT"};

struct reader {
    const char *path;
    unsigned line;
    char *detail;
};

const char *cgm_layout_name(bool transa, bool transb)
{
    return layouts[2 * transa + transb];
}

static int refuse(const struct reader *reader, const char *field, const char *word,
                  const char *limits)
{
    snprintf(reader->detail, CGM_BENCH_DETAIL_BYTES, "%s:%u: %s '%.64s': it must be %s",
             reader->path, reader->line, field, word, limits);
    return CGM_INVALID_ARGUMENT;
}

static bool has_product(int op)
{
    return op != CGM_OP_AG && op != CGM_OP_RS && op != CGM_OP_AR && op != CGM_OP_A2AV;
}

/* What plans are made of. */
static bool has_shape(int op)
{
    return op > CGM_OP_NOOP && op < CGM_OP_COPY_IN;
}

static int take_op(const struct reader *reader, const char *word, struct cgm_shape *shape)
{
    char limits[256];
    size_t used = 0;
    shape->op = cgm_type_number(CGM_TABLE_OP, word);
    if (has_shape(shape->op))
        return CGM_OK;
    for (int op = 0; used < sizeof(limits) && cgm_type_name(CGM_TABLE_OP, op); op++)
        if (has_shape(op))
            used += (size_t)snprintf(limits + used, sizeof(limits) - used, "%s%s",
                                     used ? ", " : "one of ", cgm_type_name(CGM_TABLE_OP, op));
    return refuse(reader, "op", word, limits);
}

static int take_size(const struct reader *reader, const char *field, const char *word,
                     uint64_t lowest, uint64_t *ret_size)
{
    char limits[64], *end;
    errno = 0;
    uint64_t size = strtoull(word, &end, 10);
    if (!errno && !*end && word[0] >= '0' && word[0] <= '9' && size >= lowest &&
        size <= CGM_BENCH_SIZE_LIMIT) {
        *ret_size = size;
        return CGM_OK;
    }
    snprintf(limits, sizeof(limits), "%" PRIu64 " to %d", lowest, CGM_BENCH_SIZE_LIMIT);
    return refuse(reader, field, word, limits);
}

static int layout_number(const char *word)
{
    for (int i = 0; i < 4; i++)
        if (!strcmp(word, layouts[i]))
            return i;
    return -1;
}

static int take_once(const struct reader *reader, const char *word, int value, int *field)
{
    if (*field >= 0)
        return refuse(reader, "field", word, "the only one of its kind in the line");
    *field = value;
    return CGM_OK;
}

/* A type, a layout or a name, each at most once. */
static int take_extra(const struct reader *reader, const char *word, struct cgm_shape *shape,
                      int *named)
{
    char types[128], limits[256];
    int dtype = cgm_type_number(CGM_TABLE_DTYPE, word), layout = layout_number(word);
    if (dtype >= 0)
        return take_once(reader, word, dtype, &shape->dtype);
    if (layout >= 0)
        return take_once(reader, word, layout, &shape->layout);
    if (!strncmp(word, "name=", 5) && word[5] && strlen(word + 5) < CGM_SHAPE_NAME_BYTES) {
        snprintf(shape->name, sizeof(shape->name), "%s", word + 5);
        return take_once(reader, word, 0, named);
    }
    cgm_type_list(CGM_TABLE_DTYPE, types, sizeof(types));
    snprintf(limits, sizeof(limits),
             "a type (%s), a layout (NN, NT, TN or TT) or name=, 1 to %u "
             "characters",
             types, CGM_SHAPE_NAME_BYTES - 1);
    return refuse(reader, "field", word, limits);
}

static int take_words(const struct reader *reader, char **words, int count, struct cgm_shape *shape)
{
    static const char *const fields[] = {"m", "n", "k"};
    uint64_t *const sizes[] = {&shape->m, &shape->n, &shape->k};
    int named = -1;
    if (count < 4)
        return refuse(reader, "line of", words[0], "op m n k [type] [layout] [name=NAME]");
    int status = take_op(reader, words[0], shape);
    for (int i = 0; !status && i < 3; i++)
        status =
            take_size(reader, fields[i], words[i + 1], i < 2 || has_product(shape->op), sizes[i]);
    snprintf(shape->name, sizeof(shape->name), "%s-%.9s-%.9s-%.9s", words[0], words[1], words[2],
             words[3]);
    for (int i = 4; !status && i < count; i++)
        status = take_extra(reader, words[i], shape, &named);
    return status;
}

/* Splits a line where its comment begins. Sets *ret_count to 0 for an empty one. */
static int split(const struct reader *reader, char *line, char **words, int *ret_count)
{
    char *rest = NULL;
    int count = 0;
    line[strcspn(line, "#")] = '\0';
    for (char *word = strtok_r(line, " \t\r\n", &rest); word;
         word = strtok_r(NULL, " \t\r\n", &rest)) {
        if (count == WORDS_MAX)
            return refuse(reader, "field", word, "the end of the line");
        words[count++] = word;
    }
    *ret_count = count;
    return CGM_OK;
}

static int add_line(const struct reader *reader, char *line, struct cgm_shapes *shapes)
{
    struct cgm_shape shape = {.dtype = -1, .layout = -1};
    char *words[WORDS_MAX], limits[64];
    int count, status = split(reader, line, words, &count);
    if (status || count == 0)
        return status;
    snprintf(limits, sizeof(limits), "one of the first %u", CGM_SHAPES_MAX);
    if (shapes->count == CGM_SHAPES_MAX)
        return refuse(reader, "shape", words[0], limits);
    status = take_words(reader, words, count, &shape);
    if (!status)
        shapes->all[shapes->count++] = shape;
    return status;
}

/* Its bytes; as many as there is room for, without its end, when it is longer. 0: there is none. */
static size_t read_line(FILE *file, char ret_line[LINE_BYTES])
{
    size_t length = 0;
    int c;
    while (length < LINE_BYTES && (c = getc(file)) != EOF) {
        ret_line[length++] = (char)c;
        if (c == '\n')
            break;
    }
    ret_line[length < LINE_BYTES ? length : LINE_BYTES - 1] = '\0';
    return length;
}

static int read_lines(FILE *file, struct reader *reader, struct cgm_shapes *shapes)
{
    char line[LINE_BYTES], limits[64];
    size_t length;
    int status = CGM_OK;
    snprintf(limits, sizeof(limits), "text of fewer than %u bytes", LINE_BYTES);
    while (!status && (length = read_line(file, line)) > 0) {
        reader->line++;
        bool text = length < sizeof(line) && strlen(line) == length;
        status = text ? add_line(reader, line, shapes) : refuse(reader, "line", line, limits);
    }
    if (status || !ferror(file))
        return status;
    snprintf(reader->detail, CGM_BENCH_DETAIL_BYTES, "--shapes %s: cannot read: %s", reader->path,
             strerror(errno));
    return CGM_INVALID_ARGUMENT;
}

int cgm_shapes_parse(FILE *file, const char *path, char *ret_detail, struct cgm_shapes *ret_shapes)
{
    struct reader reader = {.path = path, .detail = ret_detail};
    struct cgm_shapes shapes = {.all = calloc(CGM_SHAPES_MAX, sizeof(*shapes.all))};
    if (!shapes.all) {
        snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "--shapes %s: no memory", path);
        return CGM_NO_MEMORY;
    }
    int status = read_lines(file, &reader, &shapes);
    if (!status && shapes.count == 0) {
        snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "--shapes %s: there is no shape in it", path);
        status = CGM_INVALID_ARGUMENT;
    }
    if (status)
        cgm_shapes_fini(&shapes);
    else
        *ret_shapes = shapes;
    return status;
}

int cgm_shapes_read(const char *path, char *ret_detail, struct cgm_shapes *ret_shapes)
{
    FILE *file = fopen(path, "re");
    if (!file) {
        snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "--shapes %s: cannot read: %s", path,
                 strerror(errno));
        return CGM_INVALID_ARGUMENT;
    }
    int status = cgm_shapes_parse(file, path, ret_detail, ret_shapes);
    fclose(file);
    return status;
}

void cgm_shapes_fini(struct cgm_shapes *shapes)
{
    free(shapes->all);
    *shapes = (struct cgm_shapes){0};
}

struct cgm_shape cgm_shape_of(const struct cgm_bench_options *o)
{
    struct cgm_shape shape = {.op = o->op,
                              .m = o->m,
                              .n = o->n,
                              .k = o->k,
                              .dtype = o->dtype,
                              .layout = 2 * o->transa + o->transb};
    snprintf(shape.name, sizeof(shape.name), "%s-%" PRIu64 "-%" PRIu64 "-%" PRIu64,
             cgm_type_name(CGM_TABLE_OP, o->op), o->m, o->n, o->k);
    return shape;
}

struct cgm_bench_options cgm_shape_options(const struct cgm_shape *shape,
                                           const struct cgm_bench_options *options)
{
    struct cgm_bench_options o = *options;
    o.op = shape->op;
    o.m = shape->m;
    o.n = shape->n;
    o.k = shape->k ? shape->k : 1;
    if (shape->dtype >= 0)
        o.dtype = shape->dtype;
    if (shape->layout >= 0) {
        o.transa = shape->layout & 2;
        o.transb = shape->layout & 1;
    }
    return o;
}
