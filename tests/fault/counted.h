/* A daemon whose threads are counted, and the others of its user, of whom there are as many as it
 * may have: it gets no thread any more. */
#ifndef CGM_TEST_COUNTED_H
#define CGM_TEST_COUNTED_H

#include <stdbool.h>

/* Whether this user can have somebody counted. */
bool counted_can_be(void);

/* The calling process and its children are from here on, and open files as before. */
void counted_be(void);

/* Processes that sleep, and have no fds. They die with the test. */
void counted_crowd_come(void);
void counted_crowd_go(void);

#endif
