#include "daemon/broker/names.h"

#include <search.h>
#include <string.h>

#include "proto/status.h"

static int compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

int cgm_names_add(struct cgm_names *names, const char *name)
{
    const char *const *node = tsearch(name, &names->tree, compare);
    if (!node)
        return CGM_NO_MEMORY;
    return *node == name ? CGM_OK : CGM_EXISTS;
}

const char *cgm_names_find(const struct cgm_names *names, const char *spelled)
{
    const char *const *node = tfind(spelled, &names->tree, compare);
    return node ? *node : NULL;
}

void cgm_names_remove(struct cgm_names *names, const char *name)
{
    if (cgm_names_find(names, name) == name)
        tdelete(name, &names->tree, compare);
}
