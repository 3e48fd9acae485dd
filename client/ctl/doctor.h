/* What commgemmctl doctor finds: one finding a check. */
#ifndef CGM_CTL_DOCTOR_H
#define CGM_CTL_DOCTOR_H

#include <jansson.h>

#include "client/ctl/ctl.h"

enum cgm_finding_result { CGM_FINDING_OK, CGM_FINDING_WARNING, CGM_FINDING_FAILURE };

struct cgm_finding {
    enum cgm_finding_result result;
    char text[256]; /* what was found */
    char fix[256];  /* "" when there is nothing to do */
};

/* Checks of this machine that need no daemon. */
struct cgm_check {
    const char *name;
    void (*run)(const struct cgm_ctl *ctl, struct cgm_finding *ret_finding);
};
extern const struct cgm_check cgm_checks[];
extern const unsigned cgm_n_checks;

/* printf into text and fix. */
void cgm_finding_set(struct cgm_finding *finding, enum cgm_finding_result result, const char *fix,
                     const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
