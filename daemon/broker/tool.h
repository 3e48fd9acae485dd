/* A program that the broker runs for a moment: a text as its standard input, its output collected,
 * its time limited. */
#ifndef CGM_TOOL_H
#define CGM_TOOL_H

#include <stdint.h>

struct cgm_broker;
struct cgm_tool;

#define CGM_TOOL_OUTPUT_BYTES 4096u
#define CGM_TOOL_INPUT_BYTES 1024u /* less than a pipe holds */

/* status: OK, TIMEOUT, IO when it ended with an error, DAEMON_LOST when the daemon ends first. The
 * output has standard error in it and is cut off when it is longer than CGM_TOOL_OUTPUT_BYTES. */
typedef void cgm_tool_fn(void *context, int status, const char *output);

/* Starts it, without a shell; a name without a slash is looked for in $PATH. OK: `done` will be
 * called once, from the loop. Else an error with a detail, and it never is. */
int cgm_tool_run(struct cgm_broker *broker, const char *program, const char *input,
                 unsigned limit_ms, cgm_tool_fn *done, void *context, char *ret_detail,
                 unsigned detail_bytes);

/* Until the first of their limits; UINT64_MAX: none runs. */
uint64_t cgm_tools_due_ms(const struct cgm_broker *broker);

/* The daemon ends: kills all of them. */
void cgm_tools_end(struct cgm_broker *broker);

#endif
