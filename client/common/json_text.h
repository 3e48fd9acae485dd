/* Texts in JSON, which is UTF-8: words of a command line, paths and what was cut need not be. */
#ifndef CGM_JSON_TEXT_H
#define CGM_JSON_TEXT_H

#include <jansson.h>

/* A string with '?' in the place of what is no UTF-8, null for NULL. The caller's; NULL: no memory.
 */
json_t *cgm_json_text(const char *text);

#endif
