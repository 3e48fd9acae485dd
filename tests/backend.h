/* Which backend the daemon of a test has: $CGM_TEST_BACKEND, cpu unless it is set; and how a test
 * sees a buffer's memory with either. */
#ifndef TEST_BACKEND_H
#define TEST_BACKEND_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/include/commgemm.h"

static inline const char *test_backend(void)
{
    const char *name = getenv("CGM_TEST_BACKEND");
    return name && *name ? name : "cpu";
}

static inline bool test_backend_is_cuda(void)
{
    return strcmp(test_backend(), "cuda") == 0;
}

/* Settings of the daemon. $CGM_TEST_DEVICES says how many devices it may use, 2 unless it is set.
 */
static inline const char *test_backend_setting(void)
{
    static char setting[32];
    snprintf(setting, sizeof(setting), "backend=%s", test_backend());
    return setting;
}

static inline const char *test_executor_setting(void)
{
    static char setting[PATH_MAX + 16];
    char path[PATH_MAX], program[128];
    snprintf(program, sizeof(program), CGM_BIN_DIR "/commgemm-executor-%s", test_backend());
    snprintf(setting, sizeof(setting), "executor=%s", realpath(program, path) ? path : program);
    return setting;
}

static inline uint32_t test_devices(void)
{
    const char *devices = getenv("CGM_TEST_DEVICES");
    return devices && atoi(devices) > 0 ? (uint32_t)atoi(devices) : 2;
}

static inline const char *test_devices_setting(void)
{
    static char setting[32];
    snprintf(setting, sizeof(setting), "devices=%u", test_devices());
    return setting;
}

/* A bound of a wait that an executor's start is part of: contexts take seconds to make. */
static inline int test_backend_wait(int of_cpu)
{
    return test_backend_is_cuda() ? 5 * of_cpu : of_cpu;
}

/* ---- a buffer's memory ------------------------------------------------------------------------
 */

/* The memory itself where it can be mapped, else a copy, which is pulled before it is read and
 * pushed after it was written. */
struct buffer_view {
    void *memory; /* NULL: not open */
    uint64_t bytes;
    bool is_copy;
};

static inline int buffer_view_open(commgemm_client *client, const struct commgemm_buffer *buffer,
                                   struct buffer_view *ret_view)
{
    struct buffer_view view = {.bytes = buffer->bytes};
    int status = commgemm_buffer_map(client, buffer, &view.memory);
    if (status == COMMGEMM_NOT_SUPPORTED && test_backend_is_cuda()) {
        view.is_copy = true;
        view.memory = calloc(1, buffer->bytes);
        status = view.memory ? COMMGEMM_OK : COMMGEMM_NO_MEMORY;
    }
    if (status == COMMGEMM_OK)
        *ret_view = view;
    return status;
}

static inline int buffer_view_pull(commgemm_client *client, const struct commgemm_buffer *buffer,
                                   struct buffer_view *view)
{
    return view->is_copy ? commgemm_buffer_read(client, buffer, 0, view->memory, view->bytes)
                         : COMMGEMM_OK;
}

/* All of it is written, so it is no longer tainted. */
static inline int buffer_view_push(commgemm_client *client, const struct commgemm_buffer *buffer,
                                   const struct buffer_view *view)
{
    int status = view->is_copy ? commgemm_buffer_write(client, buffer, 0, view->memory, view->bytes)
                               : COMMGEMM_OK;
    return status == COMMGEMM_OK && buffer->tainted ? commgemm_buffer_rewritten(client, buffer)
                                                    : status;
}

static inline void buffer_view_close(struct buffer_view *view)
{
    if (view->memory && view->is_copy)
        free(view->memory);
    else if (view->memory)
        commgemm_buffer_unmap(view->memory, view->bytes);
    *view = (struct buffer_view){0};
}

#endif
