/* A growing text, and a check that a piece of text is one JSON value. Values travel as JSON text
 * and are passed on as they are, so that a 64-bit number loses nothing. */
#ifndef CGM_CLIENT_JSON_H
#define CGM_CLIENT_JSON_H

#include <stdbool.h>
#include <stddef.h>

/* Deeper nesting than this is refused. */
#define CGM_JSON_DEPTH_MAX 16

/* True when all of `text` is exactly one JSON value (RFC 8259), without control characters. */
bool cgm_json_is_value(const char *text);

struct cgm_text {
    char *bytes; /* NUL-terminated once anything was added; the owner's to free() */
    size_t size, capacity;
    bool failed; /* out of memory: later additions do nothing */
};
void cgm_text_add(struct cgm_text *text, const char *piece);
/* As a JSON string, quoted and escaped. */
void cgm_text_add_string(struct cgm_text *text, const char *string);

#endif
