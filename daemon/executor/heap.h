/* Pages of the heap that nobody uses any more. What a crowd of jobs leaves lies between what others
 * keep, and the C library gives back by itself only what lies behind all of it. */
#ifndef CGM_HEAP_H
#define CGM_HEAP_H

/* Gives such pages back to the system when there are more of them by a few dozen MiB than there
 * were. Takes milliseconds then, in which whoever allocates may wait; at most every ten seconds.
 * For one thread, which calls it every now and then. */
void cgm_heap_look(void);

#endif
