/* Names, each of one object: a balanced tree, so that nobody's names make another's slow to find.
 */
#ifndef CGM_NAMES_H
#define CGM_NAMES_H

/* Zeroed: empty. */
struct cgm_names {
    void *tree; /* of the C library: tsearch(3) */
};

/* The name lies in its object, and stays there until it is removed. OK, EXISTS or NO_MEMORY. */
int cgm_names_add(struct cgm_names *names, const char *name);

/* The one that was added and is spelled like this; NULL: none. */
const char *cgm_names_find(const struct cgm_names *names, const char *spelled);

/* Of one that was added; does nothing else. */
void cgm_names_remove(struct cgm_names *names, const char *name);

#endif
