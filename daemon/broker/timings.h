/* What auto measured, kept in a file of the state folder across the daemon's lives. The file is the
 * daemon's alone: it is not believed when others could have written it, and ignored as a whole,
 * with a warning, when a single byte of it is not as it was written. */
#ifndef CGM_BROKER_TIMINGS_H
#define CGM_BROKER_TIMINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/timing.h"

#define CGM_TIMINGS_FILE "timings"
#define CGM_TIMINGS_KEPT UINT32_MAX /* no user's: from the file */

struct cgm_timings_entry {
    char *line;
    const char *key; /* in the line: all but the times */
    uint64_t at_s;
    uint32_t uid; /* whose plan it was */
};

struct cgm_timings {
    struct cgm_timings_entry *entries; /* at most CGM_TIMINGS_MAX, no two of one key */
    size_t count, capacity;
    int folder;     /* an fd; -1: nothing is kept on disk */
    bool changed;   /* since it was saved */
    bool failed;    /* the last time that it was to be saved */
    char path[320]; /* for the log */
};

/* Reads what is kept. state_dir: as configured; empty: of systemd, or of the user. Whatever is
 * wrong with it is in the log; the daemon goes on without. */
void cgm_timings_open(struct cgm_timings *timings, const char *state_dir);
/* Saves and frees. */
void cgm_timings_close(struct cgm_timings *timings);

/* The times of what is the same but for its times. */
bool cgm_timings_find(const struct cgm_timings *timings, const struct cgm_timing *wanted,
                      struct cgm_times *ret_times);

/* In the place of one of the same key, else, when there are too many, of the oldest one; but
 * whoever has half of all takes the place of his own, and does not make others'
 * forgotten. */
int cgm_timings_add(struct cgm_timings *timings, const struct cgm_timing *timing, uint32_t uid);

/* Returns how many there were. */
uint32_t cgm_timings_clear(struct cgm_timings *timings);

/* Writes the file where something has changed: another one, that takes its name when it is
 * complete. It is not waited for the disk: whoever pulls the plug finds an old file, or one that is
 * ignored. 0, or the errno of why it stays as it was. */
int cgm_timings_save(struct cgm_timings *timings);

#endif
