#include "client/lib/numbers.h"

#include <stdbool.h>
#include <stdlib.h>

#include "proto/ring.h"

/* Of all that are in flight: a comm whose ranks are further apart is given up. */
#define WORDS (CGM_COMM_WINDOW / 64)

struct cgm_numbers {
    uint64_t last;         /* that was ever taken */
    uint64_t lowest;       /* none below it is given back */
    uint64_t given[WORDS]; /* bits of those that are, by number */
    uint32_t n_given;
};

struct cgm_numbers *cgm_numbers_new(void)
{
    return calloc(1, sizeof(struct cgm_numbers));
}

void cgm_numbers_free(struct cgm_numbers *numbers)
{
    free(numbers);
}

static uint64_t *word_of(struct cgm_numbers *numbers, uint64_t number)
{
    return &numbers->given[number / 64 % WORDS];
}

static uint64_t bit_of(uint64_t number)
{
    return 1ull << number % 64;
}

static bool is_given(struct cgm_numbers *numbers, uint64_t number)
{
    return *word_of(numbers, number) & bit_of(number);
}

uint64_t cgm_numbers_take(struct cgm_numbers *numbers)
{
    if (numbers->n_given == 0)
        return ++numbers->last;
    while (!is_given(numbers, numbers->lowest))
        numbers->lowest++;
    *word_of(numbers, numbers->lowest) &= ~bit_of(numbers->lowest);
    numbers->n_given--;
    return numbers->lowest++;
}

void cgm_numbers_give(struct cgm_numbers *numbers, uint64_t number)
{
    if (is_given(numbers, number))
        return;
    if (numbers->n_given++ == 0 || number < numbers->lowest)
        numbers->lowest = number;
    *word_of(numbers, number) |= bit_of(number);
}
