/* How much memory there is for more: what the node has left, or a control group that this process
 * is in, whichever is less. Asked anew each time, and cheap enough for that. */
#ifndef CGM_ROOM_H
#define CGM_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of a limit of the daemon's memory so much is kept for what broker and executor need themselves:
 * the code of both, the next executor, and what waits in the broker and its sockets for sessions
 * that do not read, some 300 KiB for each of the 1024 that there are by default. */
#define CGM_ROOM_OF_DAEMON (320ull << 20)

/* What more waits for them leaves so much of it. */
#define CGM_ROOM_OF_BROKER (80ull << 20)

/* Enough for its words. */
#define CGM_ROOM_WORDS 224u

struct cgm_room {
    uint64_t total_bytes;     /* the node's, or the limit */
    uint64_t available_bytes; /* free, or the kernel's to take back */
    uint64_t reserved_bytes;  /* of it, kept for others */
    char group[64];           /* whose limit it is, the end of its name; "": it is the node's */
    const char *file;         /* where it is set; NULL: it is the node's */
};

/* own_bytes: so much of a group's limit is kept at least, up to half of it. IO when /proc/meminfo
 * cannot be read; what groups do not tell limits nothing. */
int cgm_room_find(uint64_t own_bytes, struct cgm_room *ret_room);

struct cgm_cgroup_tree;

/* Makes it that of the group that leaves least, where that is less: what others use counts in the
 * groups above. Where `enough` is left it need not be all of it. */
void cgm_room_narrow(const struct cgm_cgroup_tree *tree, uint64_t own_bytes, uint64_t enough,
                     struct cgm_room *room);

/* What may be used of it. */
uint64_t cgm_room_left(const struct cgm_room *room);

/* NO_MEMORY unless so much is left: who asks for too much is refused, not killed with whoever is in
 * the way. */
int cgm_room_check(uint64_t bytes, uint64_t own_bytes);

/* Whether so much may be taken of what is kept for the node, and of what a limit keeps, down to
 * own_bytes, or half of the limit where that is less. True also where it cannot be known. */
bool cgm_room_spares(uint64_t bytes, uint64_t own_bytes);

/* The least of the node's memory and the groups' limits; UINT64_MAX where it cannot be known. */
uint64_t cgm_room_limit(void);

/* "1024 bytes are left of ...". */
void cgm_room_words(const struct cgm_room *room, char *ret_text, size_t size);

#endif
