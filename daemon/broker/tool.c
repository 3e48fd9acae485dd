#include "daemon/broker/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "daemon/broker/broker.h"
#include "proto/messages.h"
#include "proto/status.h"

#define HANDLES 3u
#define NAPS_MAX 20

struct cgm_tool {
    struct cgm_tool *next;
    struct cgm_broker *broker;
    uv_process_t process;
    uv_pipe_t output;
    uv_timer_t limit;
    unsigned limit_ms;
    struct cgm_patience patience;
    unsigned open_handles;
    bool exited, ended; /* ended: `done` was called */
    int status;
    cgm_tool_fn *done;
    void *context;
    size_t used;
    char text[CGM_TOOL_OUTPUT_BYTES + 1];
};

static void tool_unlink(struct cgm_tool *tool)
{
    struct cgm_tool **at = &tool->broker->tools;
    while (*at != tool)
        at = &(*at)->next;
    *at = tool->next;
}

static void on_closed(uv_handle_t *handle)
{
    struct cgm_tool *tool = handle->data;
    if (--tool->open_handles > 0)
        return;
    tool_unlink(tool);
    free(tool);
}

static void close_handles(struct cgm_tool *tool)
{
    uv_handle_t *handles[HANDLES] = {(uv_handle_t *)&tool->process, (uv_handle_t *)&tool->output,
                                     (uv_handle_t *)&tool->limit};
    for (unsigned i = 0; i < HANDLES; i++)
        uv_close(handles[i], on_closed);
}

/* It leads a group of its own, so that nothing that it started stays. */
static void kill_group(const struct cgm_tool *tool)
{
    kill(-tool->process.pid, SIGKILL);
}

/* The process handle must stay until the process is reaped. */
static void tool_end(struct cgm_tool *tool, int status)
{
    if (!tool->ended) {
        tool->ended = true;
        tool->text[tool->used] = '\0';
        tool->done(tool->context, status, tool->text);
    }
    if (status != tool->status || !tool->exited)
        kill_group(tool);
    if (tool->exited)
        close_handles(tool);
}

static void on_process_exit(uv_process_t *process, int64_t exit_status, int term_signal)
{
    struct cgm_tool *tool = process->data;
    tool->exited = true;
    tool->status = exit_status == 0 && term_signal == 0 ? CGM_OK : CGM_IO;
    if (tool->ended || !uv_is_active((uv_handle_t *)&tool->output))
        tool_end(tool, tool->status);
}

/* What it has said may lie unread. */
static void on_limit(uv_timer_t *timer)
{
    struct cgm_tool *tool = timer->data;
    if (cgm_patience_is_renewed(tool->broker, &tool->patience))
        uv_timer_start(timer, on_limit, tool->limit_ms, 0);
    else
        tool_end(tool, CGM_TIMEOUT);
}

/* What is too much goes where nobody looks. */
static char excess[512];

static void give_room(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_room)
{
    struct cgm_tool *tool = handle->data;
    size_t left = CGM_TOOL_OUTPUT_BYTES - tool->used;
    (void)suggested;
    *ret_room = left > 0 ? uv_buf_init(tool->text + tool->used, (unsigned)left)
                         : uv_buf_init(excess, sizeof(excess));
}

static void on_output(uv_stream_t *stream, ssize_t count, const uv_buf_t *room)
{
    struct cgm_tool *tool = stream->data;
    if (count >= 0) {
        tool->used += room->base == excess ? 0 : (size_t)count;
        return;
    }
    uv_read_stop(stream);
    if (tool->exited && !tool->ended)
        tool_end(tool, tool->status);
}

/* A pipe that holds the input already. The end to read from, or -1. */
static int make_input(const char *input)
{
    int ends[2];
    if (strlen(input) > CGM_TOOL_INPUT_BYTES || pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    ssize_t written = write(ends[1], input, strlen(input));
    close(ends[1]);
    if (written == (ssize_t)strlen(input))
        return ends[0];
    close(ends[0]);
    return -1;
}

static int spawn(struct cgm_tool *tool, const char *program, int input, int output)
{
    char *arguments[] = {(char *)(uintptr_t)program, NULL};
    uv_stdio_container_t stdio[3] = {
        {.flags = UV_INHERIT_FD, .data.fd = input},
        {.flags = UV_INHERIT_FD, .data.fd = output},
        {.flags = UV_INHERIT_FD, .data.fd = output},
    };
    uv_process_options_t options = {
        .exit_cb = on_process_exit,
        .file = program,
        .args = arguments,
        .flags = UV_PROCESS_DETACHED,
        .stdio_count = 3,
        .stdio = stdio,
    };
    return uv_spawn(&tool->broker->loop, &tool->process, &options);
}

/* From here on the loop knows the three handles. Takes over the reading end. */
static void open_handles(struct cgm_tool *tool, int output)
{
    uv_loop_t *loop = &tool->broker->loop;
    tool->open_handles = HANDLES;
    tool->next = tool->broker->tools;
    tool->broker->tools = tool;
    uv_timer_init(loop, &tool->limit);
    uv_pipe_init(loop, &tool->output, 0);
    tool->process.data = tool->output.data = tool->limit.data = tool;
    if (uv_pipe_open(&tool->output, output) != 0)
        close(output);
}

static int start(struct cgm_tool *tool, const char *program, const char *input)
{
    int output[2];
    for (int naps = 0; naps < NAPS_MAX && !cgm_closer_hurry(tool->broker); naps++)
        usleep(1000);
    int in = make_input(input);
    if (in < 0)
        return UV_EPIPE;
    if (pipe2(output, O_CLOEXEC) < 0) {
        close(in);
        return UV_EMFILE;
    }
    open_handles(tool, output[0]);
    cgm_patience_begin(tool->broker, &tool->patience); /* it may be quicker than we are */
    int error = spawn(tool, program, in, output[1]);
    close(output[1]);
    close(in);
    if (error != 0) {
        tool->exited = tool->ended = true;
        close_handles(tool);
        return error;
    }
    uv_read_start((uv_stream_t *)&tool->output, give_room, on_output);
    uv_timer_start(&tool->limit, on_limit, tool->limit_ms, 0);
    return 0;
}

int cgm_tool_run(struct cgm_broker *broker, const char *program, const char *input,
                 unsigned limit_ms, cgm_tool_fn *done, void *context, char *ret_detail,
                 unsigned detail_bytes)
{
    struct cgm_tool *tool = calloc(1, sizeof(*tool));
    if (!tool)
        return cgm_detail(ret_detail, detail_bytes, CGM_NO_MEMORY, "no memory to run %s", program);
    tool->broker = broker;
    tool->done = done;
    tool->context = context;
    tool->limit_ms = limit_ms;
    int error = start(tool, program, input);
    if (error == 0)
        return CGM_OK;
    if (tool->open_handles == 0)
        free(tool);
    return cgm_detail(ret_detail, detail_bytes, cgm_status_of_errno(-error),
                      "%s cannot be started: %s", program, uv_strerror(error));
}

uint64_t cgm_tools_due_ms(const struct cgm_broker *broker)
{
    uint64_t least_ms = UINT64_MAX;
    for (const struct cgm_tool *tool = broker->tools; tool; tool = tool->next) {
        bool runs = uv_is_active((const uv_handle_t *)&tool->limit);
        uint64_t due_ms = runs ? uv_timer_get_due_in(&tool->limit) : UINT64_MAX;
        least_ms = due_ms < least_ms ? due_ms : least_ms;
    }
    return least_ms;
}

void cgm_tools_end(struct cgm_broker *broker)
{
    for (struct cgm_tool *tool = broker->tools, *next; tool; tool = next) {
        next = tool->next;
        if (!tool->ended)
            tool_end(tool, CGM_DAEMON_LOST);
    }
}
