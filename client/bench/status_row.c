#include "client/bench/status_row.h"

#include <stdlib.h>

json_t *cgm_status_row(commgemm_client *client)
{
    char *text;
    if (commgemm_query(client, "status", &text))
        return NULL;
    json_t *root = json_loads(text, 0, NULL);
    json_t *row = json_incref(json_array_get(json_object_get(root, "status"), 0));
    json_decref(root);
    free(text);
    return row;
}
