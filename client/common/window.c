#include "client/common/window.h"

#include <stddef.h>
#include <sys/mman.h>

int cgm_window_open(commgemm_client *client, const struct commgemm_buffer *buffer,
                    struct cgm_window *ret_window)
{
    struct cgm_window window = {.client = client, .buffer = *buffer, .mapped = true};
    int status = commgemm_buffer_map(client, buffer, &window.address);
    if (status == COMMGEMM_NOT_SUPPORTED) {
        window.mapped = false;
        window.address = mmap(NULL, buffer->bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        status = window.address == MAP_FAILED ? COMMGEMM_NO_MEMORY : COMMGEMM_OK;
    }
    if (status == COMMGEMM_OK)
        *ret_window = window;
    return status;
}

int cgm_window_fetch(const struct cgm_window *window)
{
    if (window->mapped)
        return COMMGEMM_OK;
    return commgemm_buffer_read(window->client, &window->buffer, 0, window->address,
                                window->buffer.bytes);
}

int cgm_window_store(const struct cgm_window *window)
{
    if (window->mapped)
        return COMMGEMM_OK;
    return commgemm_buffer_write(window->client, &window->buffer, 0, window->address,
                                 window->buffer.bytes);
}

int cgm_window_check(const struct cgm_window *window)
{
    char first;
    return commgemm_buffer_read(window->client, &window->buffer, 0, &first, 1);
}

void cgm_window_close(struct cgm_window *window)
{
    munmap(window->address, window->buffer.bytes);
    *window = (struct cgm_window){0};
}
