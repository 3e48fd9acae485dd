/* The numbers of one rank's collective jobs in one comm, by which ranks are matched: they count
 * from
 * 1. A number whose job was lost with an executor, or never reached one, is given out again before
 * any other, the lowest first: so whoever submits what was lost again, in the order in which it was
 * submitted, is in step with the other ranks, wherever those were. */
#ifndef CGM_CLIENT_NUMBERS_H
#define CGM_CLIENT_NUMBERS_H

#include <stdint.h>

struct cgm_numbers;

/* NULL: out of memory. */
struct cgm_numbers *cgm_numbers_new(void);
void cgm_numbers_free(struct cgm_numbers *numbers); /* NULL is allowed */

/* The next one. */
uint64_t cgm_numbers_take(struct cgm_numbers *numbers);

/* It comes again. It was taken, and may have been given back before. */
void cgm_numbers_give(struct cgm_numbers *numbers, uint64_t number);

#endif
