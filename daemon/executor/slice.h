/* Short slices for threads that others wait for and that compute little. */
#ifndef CGM_SLICE_H
#define CGM_SLICE_H

/* The calling thread gets the processor for a tenth of a millisecond at a time: it has it sooner
 * when it wakes beside who computes, and forfeits less when it yields. Its share stays the same.
 * Linux 6.12 and later; others leave things as they are. */
void cgm_slice_shorten(void);

#endif
