/* What a user's plans keep recorded, together, in the order of its use: no more than a number of
 * operations, and what was not used for the longest time goes first. On the poller. */
#ifndef CGM_RECORDER_H
#define CGM_RECORDER_H

#include <stdbool.h>
#include <stdint.h>

struct cgm_poller;

/* One operation is some hundred bytes here, and a node of a graph on a device. */
#define CGM_RECORDED_MAX (256u << 10)

/* A user, while anything of his is recorded. */
struct cgm_recorder;

/* Part of what is recorded. */
struct cgm_recorder_entry {
    struct cgm_recorder *recorder; /* NULL: in none */
    struct cgm_recorder_entry *previous, *next;
    uint32_t operations;
    bool made; /* else it is being made, and stays */
};

/* As the one used last. operations is set. OK, or NO_MEMORY. */
int cgm_recorder_enter(struct cgm_poller *poller, uint32_t uid, struct cgm_recorder_entry *entry);
/* Again: nothing. */
void cgm_recorder_leave(struct cgm_poller *poller, struct cgm_recorder_entry *entry);
void cgm_recorder_use(struct cgm_recorder_entry *entry);

/* Of the user whose this is: what must leave before all of it fits, or before more of it does;
 * NULL: nothing, or nothing can. */
struct cgm_recorder_entry *cgm_recorder_excess(const struct cgm_recorder_entry *entry);
bool cgm_recorder_fits(const struct cgm_recorder_entry *entry);

#endif
