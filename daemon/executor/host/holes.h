/* Memory of clients that is mapped here, and holes that they make in it. Whoever touches a hole
 * makes a page of it, which belongs to the client's memory and counts as this process's for as long
 * as the client has that: limits of memory would stop neither. So no page is made (userfaultfd):
 * the thread that touches a hole gets a signal, and in place of all that the client has in the
 * range is memory of this process from then on, until it is unmapped. It is of no use to anybody:
 * who works on it ends soon, and gives back what was written.
 *
 * Of the whole process; any thread. Where the system does not let it, nothing is watched, and pages
 * are made. Source: userfaultfd(2), UFFD_FEATURE_SIGBUS. */
#ifndef CGM_HOST_HOLES_H
#define CGM_HOST_HOLES_H

#include <stdbool.h>
#include <stdint.h>

struct cgm_hole_watch;

/* Before the first watch; the process has one file descriptor more from then on. Again: nothing. */
void cgm_holes_open(void);

/* A range of whole pages that is mapped writable, or privately. NULL: it is not watched. */
struct cgm_hole_watch *cgm_holes_watch(char *base, uint64_t bytes);
/* Nobody touches it any more before it is unmapped, or pages may be made again. NULL is allowed. */
void cgm_holes_unwatch(struct cgm_hole_watch *watch);

/* Somebody touched one: not all of the range is the client's any more. NULL: no. */
bool cgm_holes_found(const struct cgm_hole_watch *watch);

/* Around work that touches such memory, on a thread that does not block SIGBUS: up to
 * CGM_HOLES_AT_ONCE ranges. begin false: nothing is to be done, one of them has holes; end is
 * called all the same. end: whether one of them has; what was made in their place is given back. */
#define CGM_HOLES_AT_ONCE 16u
bool cgm_holes_begin(struct cgm_hole_watch *const *watches, uint32_t count);
bool cgm_holes_end(void);
/* In between, before more than CGM_HOLES_BYTES of pages are written: whether one of them has. */
#define CGM_HOLES_BYTES (128ull << 20)
bool cgm_holes_missed(void);

#endif
