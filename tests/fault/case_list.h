/* The cases of the fault suite: each step of cases.h with every victim and every blow, by name. */
#ifndef CASE_LIST_H
#define CASE_LIST_H

#include <stdint.h>

#include "tests/fault/cases.h"

#define CASES_MAX 4096

/* Who is struck, with what. */
enum victim { VICTIM_CLIENT, VICTIM_EXECUTOR, VICTIM_BROKER, VICTIM_COUNT };
enum blow { BLOW_KILL, BLOW_STOP, BLOW_COUNT };

struct fault_case {
    struct step_row step;
    enum victim victim;
    enum blow blow;
    int algorithm, op;
    char name[128];
};

struct case_list {
    struct fault_case cases[CASES_MAX];
    unsigned count;
};

/* Every victim and every blow at this step, in jobs of this algorithm. What is too much is left
 * out. */
void case_list_add(struct case_list *list, const struct step_row *step, int algorithm, int op);

/* Keeps those whose names have one of the parts; without any (the first is NULL), one in so many,
 * others for other seeds. */
void case_list_select(struct case_list *list, char **parts, unsigned one_in, uint64_t seed);

/* In another order for each seed. */
void case_list_shuffle(struct case_list *list, uint64_t seed);

#endif
