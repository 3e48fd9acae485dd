#include "client/common/json_text.h"

#include <stdlib.h>
#include <string.h>

#include "proto/printable.h"

json_t *cgm_json_text(const char *text)
{
    if (text == NULL)
        return json_null();
    json_t *string = json_string(text);
    char *copy = string == NULL ? strdup(text) : NULL;
    if (copy != NULL) {
        cgm_printable(copy);
        string = json_string(copy);
        free(copy);
    }
    return string;
}
