#include "tests/fault/case_list.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "kernels/random.h"
#include "proto/types.h"

static const char *const victims[] = {"client", "executor", "daemon"};
static const char *const blows[] = {"killed", "stopped"};

static const char *step_name(const struct step_row *step)
{
#define X(number, NAME, text) [number] = #NAME,
    static const char *const broker[] = {CGM_BROKER_STEPS(X)}, *const job[] = {CGM_JOB_STEPS(X)};
#undef X
    switch (step->place) {
    case CGM_STEP_BROKER:
        return broker[step->value];
    case CGM_STEP_JOB:
        return job[step->value];
    case CGM_STEP_PHASE:
        return cgm_type_name(CGM_TABLE_PHASE, (int)step->value);
    default:
        return step->place ? cgm_message_name((int)step->value) : "";
    }
}

static void name_case(struct fault_case *c)
{
    static const char *const places[] = {"at the gate",
#define X(number, NAME, text, values) #NAME,
                                         CGM_STEP_PLACES(X)
#undef X
    };
    const struct step_row *step = &c->step;
    snprintf(c->name, sizeof(c->name), "%s %s: %s%s, %s %s; %s, %s", victims[c->victim],
             blows[c->blow], gate_names[step->gate],
             step->flags & RESTART ? " after a restart" : "", places[step->place], step_name(step),
             cgm_type_name(CGM_TABLE_ALGO, c->algorithm), cgm_type_name(CGM_TABLE_OP, c->op));
}

void case_list_add(struct case_list *list, const struct step_row *step, int algorithm, int op)
{
    for (int victim = 0; victim < VICTIM_COUNT; victim++)
        for (int blow = 0; blow < BLOW_COUNT && list->count < CASES_MAX; blow++) {
            struct fault_case *c = &list->cases[list->count++];
            *c =
                (struct fault_case){*step, (enum victim)victim, (enum blow)blow, algorithm, op, ""};
            name_case(c);
        }
}

void case_list_select(struct case_list *list, char **parts, unsigned one_in, uint64_t seed)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < list->count; i++) {
        bool wanted = !*parts && (i + seed) % one_in == 0;
        for (char **part = parts; *part; part++)
            wanted |= strstr(list->cases[i].name, *part) != NULL;
        if (wanted)
            list->cases[kept++] = list->cases[i];
    }
    list->count = kept;
}

void case_list_shuffle(struct case_list *list, uint64_t seed)
{
    struct cgm_random random;
    cgm_random_init(&random, seed);
    for (unsigned i = list->count; i > 1; i--) {
        unsigned other = (unsigned)cgm_random_below(&random, i);
        struct fault_case c = list->cases[i - 1];
        list->cases[i - 1] = list->cases[other];
        list->cases[other] = c;
    }
}
