/* The verbs that work on one named buffer. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/common/checksum.h"
#include "client/common/window.h"
#include "client/ctl/ctl.h"
#include "client/ctl/rows.h"
#include "client/ctl/transfer.h"
#include "proto/status.h"

/* A session and one buffer in it. */
struct mapped {
    commgemm_client *client;
    struct commgemm_buffer buffer;
    struct cgm_window window;
};

static int fail_buffer_with(const struct cgm_ctl *ctl, int status, const char *name,
                            const char *fix)
{
    char detail[512];

    snprintf(detail, sizeof(detail), "%s: %s", name, commgemm_last_error());
    return cgm_ctl_fail(ctl, status, commgemm_last_error()[0] != '\0' ? detail : name, fix);
}

static int fail_buffer(const struct cgm_ctl *ctl, int status, const char *name)
{
    return fail_buffer_with(ctl, status, name, NULL);
}

/* A file that the system or its contents make unusable, or that was interrupted. */
static int fail_file(const struct cgm_ctl *ctl, int status, const char *detail)
{
    const char *fix = NULL;

    if (status == CGM_IO)
        fix = "check the path, its permissions and the free space";
    if (status == CGM_INVALID_ARGUMENT)
        fix = "write the file with numpy.save(FILE, array.astype('float32'))";
    return cgm_ctl_fail(ctl, status, detail, fix);
}

static void unmap(struct mapped *mapped)
{
    cgm_window_close(&mapped->window);
    commgemm_disconnect(mapped->client);
}

/* Who looks for what is left in it may have it. */
static void warn_if_tainted(const struct cgm_ctl *ctl, const char *name,
                            const struct commgemm_buffer *buffer)
{
    if (buffer->tainted)
        fprintf(stderr,
                "%s: %s: warning: %s is tainted: a job that was writing it may have left anything "
                "there\n",
                cgm_ctl_program.name, ctl->verb, name);
}

/* Opens and maps for reading. 0, or the exit status after saying why. */
static int map_named(const struct cgm_ctl *ctl, const char *name, struct mapped *ret_mapped)
{
    int result = cgm_ctl_connect(ctl, &ret_mapped->client);

    if (result != 0)
        return result;
    int status = commgemm_buffer_open(ret_mapped->client, name, 0, 1, &ret_mapped->buffer);
    if (status == CGM_OK)
        status = cgm_window_open(ret_mapped->client, &ret_mapped->buffer, &ret_mapped->window);
    if (status == CGM_OK && (status = cgm_window_fetch(&ret_mapped->window)) == CGM_OK) {
        warn_if_tainted(ctl, name, &ret_mapped->buffer);
        return 0;
    }
    result = fail_buffer(ctl, status, name);
    commgemm_disconnect(ret_mapped->client);
    return result;
}

/* With --json: {"version":1,"buffers":[row]}. */
static int print_buffer(const struct cgm_ctl *ctl, const char *name, uint64_t bytes,
                        const struct commgemm_buffer *buffer)
{
    json_t *rows = json_pack("[{s:s,s:I,s:I,s:i}]", "name", name, "bytes", (json_int_t)bytes, "id",
                             (json_int_t)buffer->id, "generation", (int)buffer->generation);
    int status = cgm_rows_print("buffers", rows);

    return status == CGM_OK ? 0 : cgm_ctl_fail(ctl, status, NULL, NULL);
}

/* Connects and creates. 0, or the exit status after saying why. */
static int create_named(const struct cgm_ctl *ctl, const char *name, uint64_t bytes,
                        struct mapped *ret_mapped)
{
    int result = cgm_ctl_connect(ctl, &ret_mapped->client);

    if (result != 0)
        return result;
    int status = commgemm_buffer_create(ret_mapped->client, name, bytes, (int)ctl->device,
                                        ctl->mode, 0, &ret_mapped->buffer);
    if (status == CGM_OK)
        return 0;
    result = fail_buffer(ctl, status, name);
    commgemm_disconnect(ret_mapped->client);
    return result;
}

int cgm_ctl_buffer_create(void *settings, int n_words, char **words)
{
    const struct cgm_ctl *ctl = settings;
    struct mapped mapped;

    (void)n_words;
    if (ctl->bytes == 0)
        return cgm_ctl_fail(ctl, CGM_INVALID_ARGUMENT, "--bytes is missing; it must be at least 1",
                            "add the size: --bytes 64M");
    int result = create_named(ctl, words[0], ctl->bytes, &mapped);
    if (result != 0)
        return result;
    if (ctl->json)
        result = print_buffer(ctl, words[0], ctl->bytes, &mapped.buffer);
    commgemm_disconnect(mapped.client);
    return result;
}

/* Fills a buffer that was just created; destroys it again when that fails. */
static int fill_buffer(const struct cgm_ctl *ctl, const char *name, const struct cgm_npy *npy,
                       struct mapped *mapped)
{
    char detail[CGM_NPY_DETAIL_BYTES];

    int result = 0, status = cgm_window_open(mapped->client, &mapped->buffer, &mapped->window);
    if (status != CGM_OK) {
        result = fail_buffer(ctl, status, name);
        commgemm_buffer_destroy_id(mapped->client, mapped->buffer.id);
        return result;
    }
    status = cgm_transfer_read(npy, mapped->window.address, detail);
    if (status != CGM_OK)
        result = fail_file(ctl, status, detail);
    else if ((status = cgm_window_store(&mapped->window)) != CGM_OK ||
             (status = cgm_window_check(&mapped->window)) != CGM_OK)
        result = fail_buffer(ctl, status, name);
    cgm_window_close(&mapped->window);
    if (status != CGM_OK)
        commgemm_buffer_destroy_id(mapped->client, mapped->buffer.id);
    return result;
}

static int import_open_file(const struct cgm_ctl *ctl, const char *name, const struct cgm_npy *npy)
{
    struct mapped mapped;

    if (npy->bytes == 0) {
        char detail[CGM_NPY_DETAIL_BYTES];
        snprintf(detail, sizeof(detail), "%s: it has no elements; expected at least one",
                 npy->path);
        return fail_file(ctl, CGM_INVALID_ARGUMENT, detail);
    }
    cgm_transfer_catch_signals();
    int result = create_named(ctl, name, npy->bytes, &mapped);
    if (result != 0)
        return result;
    result = fill_buffer(ctl, name, npy, &mapped);
    if (result == 0 && ctl->json)
        result = print_buffer(ctl, name, npy->bytes, &mapped.buffer);
    commgemm_disconnect(mapped.client);
    return result;
}

static void print_shape_hint(const char *name, const struct cgm_npy *npy)
{
    printf("%s: %" PRIu64 " bytes; the shape is not kept, export with --shape ", name, npy->bytes);
    if (npy->dimensions >= 2)
        printf("%" PRIu64 "x", npy->rows);
    printf("%" PRIu64 "\n", npy->cols);
}

int cgm_ctl_buffer_import(void *settings, int n_words, char **words)
{
    const struct cgm_ctl *ctl = settings;
    char detail[CGM_NPY_DETAIL_BYTES];
    struct cgm_npy npy;

    (void)n_words;
    int status = cgm_npy_open(words[1], &npy, detail);
    if (status != CGM_OK)
        return fail_file(ctl, status, detail);
    int result = import_open_file(ctl, words[0], &npy);
    if (result == 0 && !ctl->json)
        print_shape_hint(words[0], &npy);
    cgm_npy_close(&npy);
    return result;
}

struct shape {
    unsigned dimensions;
    uint64_t rows, cols;
};

static bool parse_length(const char *text, char **ret_end, uint64_t *ret_length)
{
    errno = 0;
    *ret_length = strtoull(text, ret_end, 10);
    return text[0] >= '0' && text[0] <= '9' && errno == 0 && *ret_length > 0;
}

/* "N" or "RxC". */
static bool parse_shape(const char *text, struct shape *ret_shape)
{
    struct shape shape = {.dimensions = 1, .rows = 1};
    char *end;

    if (!parse_length(text, &end, &shape.cols))
        return false;
    if (*end == 'x') {
        shape.dimensions = 2;
        shape.rows = shape.cols;
        if (!parse_length(end + 1, &end, &shape.cols))
            return false;
    }
    *ret_shape = shape;
    return *end == '\0';
}

/* The shape to write `bytes` as. OK, or INVALID_ARGUMENT with a detail. */
static int choose_shape(const char *text, uint64_t bytes, struct shape *ret_shape, char *ret_detail)
{
    uint64_t elements;

    if (text == NULL) {
        *ret_shape = (struct shape){1, 1, bytes / sizeof(float)};
        if (bytes % sizeof(float) == 0)
            return CGM_OK;
        snprintf(ret_detail, CGM_NPY_DETAIL_BYTES,
                 "the buffer has %" PRIu64 " bytes; it must be a multiple of 4 to be float32",
                 bytes);
        return CGM_INVALID_ARGUMENT;
    }
    if (!parse_shape(text, ret_shape)) {
        snprintf(ret_detail, CGM_NPY_DETAIL_BYTES,
                 "--shape is \"%s\"; it must be N or RxC, like 128x64", text);
        return CGM_INVALID_ARGUMENT;
    }
    if (__builtin_mul_overflow(ret_shape->rows, ret_shape->cols, &elements) ||
        elements > bytes / sizeof(float)) {
        snprintf(ret_detail, CGM_NPY_DETAIL_BYTES,
                 "--shape is \"%s\", more than the %" PRIu64 " bytes of the buffer; it must be at "
                 "most %" PRIu64 " float32 elements",
                 text, bytes, bytes / (uint64_t)sizeof(float));
        return CGM_INVALID_ARGUMENT;
    }
    return CGM_OK;
}

/* The exit status. The file gets its name when it has all of the buffer. */
static int write_file(const struct cgm_ctl *ctl, const char *name, const struct cgm_window *window,
                      const struct shape *shape, const char *path)
{
    char detail[CGM_NPY_DETAIL_BYTES];
    struct cgm_npy npy;

    int status = cgm_npy_create(path, shape->dimensions, shape->rows, shape->cols, &npy, detail);
    if (status != CGM_OK)
        return fail_file(ctl, status, detail);
    status = cgm_transfer_write(&npy, window->address, detail);
    int lost = status == CGM_OK ? cgm_window_check(window) : CGM_OK;
    if (status == CGM_OK && lost == CGM_OK) {
        status = cgm_npy_finish(&npy, detail);
        return status == CGM_OK ? 0 : fail_file(ctl, status, detail);
    }
    cgm_npy_discard(&npy);
    return lost == CGM_OK ? fail_file(ctl, status, detail) : fail_buffer(ctl, lost, name);
}

static int export_mapped(const struct cgm_ctl *ctl, const char *name, const struct mapped *mapped,
                         const char *path)
{
    char detail[CGM_NPY_DETAIL_BYTES];
    struct shape shape;

    int status = choose_shape(ctl->shape, mapped->buffer.bytes, &shape, detail);
    if (status != CGM_OK)
        return cgm_ctl_fail(ctl, status, detail, NULL);
    cgm_transfer_catch_signals();
    int result = write_file(ctl, name, &mapped->window, &shape, path);
    if (result != 0)
        return result;
    uint64_t left = mapped->buffer.bytes - shape.rows * shape.cols * sizeof(float);
    if (left > 0)
        fprintf(stderr, "%s: %s: note: the last %" PRIu64 " bytes are outside --shape %s\n",
                cgm_ctl_program.name, ctl->verb, left, ctl->shape);
    return 0;
}

int cgm_ctl_buffer_export(void *settings, int n_words, char **words)
{
    const struct cgm_ctl *ctl = settings;
    struct mapped mapped;

    (void)n_words;
    int result = map_named(ctl, words[0], &mapped);
    if (result != 0)
        return result;
    result = export_mapped(ctl, words[0], &mapped, words[1]);
    if (result == 0 && ctl->json)
        result = print_buffer(ctl, words[0], mapped.buffer.bytes, &mapped.buffer);
    unmap(&mapped);
    return result;
}

static int print_checksum(const struct cgm_ctl *ctl, const char *name, uint64_t bytes,
                          const char *text)
{
    if (!ctl->json) {
        printf("%s  %s\n", text, name);
        return 0;
    }
    json_t *rows =
        json_pack("[{s:s,s:I,s:s}]", "name", name, "bytes", (json_int_t)bytes, "checksum", text);
    int status = cgm_rows_print("checksum", rows);
    return status == CGM_OK ? 0 : cgm_ctl_fail(ctl, status, NULL, NULL);
}

int cgm_ctl_buffer_checksum(void *settings, int n_words, char **words)
{
    const struct cgm_ctl *ctl = settings;
    struct mapped mapped;
    char text[24];

    (void)n_words;
    int result = map_named(ctl, words[0], &mapped);
    if (result != 0)
        return result;
    snprintf(text, sizeof(text), "%016" PRIx64,
             cgm_checksum(mapped.window.address, mapped.buffer.bytes));
    int status = cgm_window_check(&mapped.window);
    result = status == CGM_OK ? print_checksum(ctl, words[0], mapped.buffer.bytes, text)
                              : fail_buffer(ctl, status, words[0]);
    unmap(&mapped);
    return result;
}

int cgm_ctl_buffer_destroy(void *settings, int n_words, char **words)
{
    const struct cgm_ctl *ctl = settings;
    commgemm_client *client;

    (void)n_words;
    int result = cgm_ctl_connect(ctl, &client);
    if (result != 0)
        return result;
    int status = commgemm_buffer_destroy(client, words[0]);
    if (status != CGM_OK)
        result = fail_buffer_with(ctl, status, words[0],
                                  status == CGM_PERMISSION
                                      ? "run it as the buffer's owner or root; no mode lets others"
                                      : NULL);
    else if (ctl->json)
        status = cgm_rows_print("buffers", json_pack("[{s:s}]", "name", words[0]));
    if (result == 0 && status != CGM_OK)
        result = cgm_ctl_fail(ctl, status, NULL, NULL);
    commgemm_disconnect(client);
    return result;
}
