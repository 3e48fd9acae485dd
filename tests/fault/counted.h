/* A daemon whose threads are counted, and the others of its user, of whom there may be as many as
 * it may have: then it gets no thread any more. */
#ifndef CGM_TEST_COUNTED_H
#define CGM_TEST_COUNTED_H

#include <stdbool.h>

#define COUNTED_MOST 64u  /* threads of the daemon and its user; more than it needs for itself */
#define COUNTED_GUARDS 1u /* a daemon's that are not its own */

/* Whether this user can have somebody counted. */
bool counted_can_be(void);

/* The calling process and its children are from here on, and open files as before. */
void counted_be(void);

/* Up to COUNTED_MOST processes that sleep, and have no fds. They die with the test. */
void counted_crowd_come(unsigned count);
void counted_crowd_go(void);

#endif
