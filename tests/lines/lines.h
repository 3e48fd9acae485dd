/* What a batch of jobs around user buffers is: the script, made from a seed before anything runs.
 *
 * Every rank of a comm is a session of this one process. A batch is a list of steps; each rank
 * submits its part of one after the other, in that order, but the ranks are not in step with each
 * other. Afterwards the judge goes through the steps in their order, with what became of each, and
 * says what every cell and every user buffer has to hold. */
#ifndef LINES_H
#define LINES_H

#include <stdbool.h>
#include <stdint.h>

#include "commgemm.h"
#include "kernels/random.h"

#define LINES_WORLD 4u
#define LINES_COMMS 2u /* of the same ranks */
#define LINES_PLANS 8u
#define LINES_STEPS 64u
#define LINES_LANES 2u                /* streams of a rank */
#define LINES_CELL 64u                /* floats */
#define LINES_POOL 12u                /* cells of a stream, which its jobs write and read in turn */
#define LINES_CONSTANTS 16u           /* cells that no job writes */
#define LINES_FRESH (LINES_STEPS * 2) /* cells that one job writes, where there are no streams */
#define LINES_CELLS (LINES_CONSTANTS + LINES_LANES * LINES_POOL + LINES_FRESH)
#define LINES_CONSTANT_MOST 2 /* of the values that cells have before a batch */
#define LINES_NOBODY UINT32_MAX

/* ---- operations ------------------------------------------------------------------------------ */

enum operand { LHS, RHS, AUX_IN, OUT, AUX_OUT, OPERANDS };

enum place_kind {
    ABSENT,
    CELL,
    CHUNK, /* the rank's own one of its user buffer */
    WHOLE, /* all of its user buffer */
    PLACES
};

struct place {
    enum place_kind kind;
    uint32_t cell;
};

struct sizes {
    uint32_t world, m, n, k; /* the buffer of a bulk operation is m x k */
};

/* One row for each operation that is tried. */
struct operation {
    int op;
    bool collective;
    bool lines; /* what lies in its user buffers is for jobs to read */
    struct {
        char rows, cols; /* 'm', 'n', 'k' of the whole, 'M', 'N', 'K' of a rank */
        unsigned places; /* bits: where it may lie */
    } operand[OPERANDS];
};

extern const struct operation operations[];
extern const uint32_t n_operations;

uint32_t operand_size(const struct operation *operation, const struct sizes *sizes,
                      enum operand operand);

/* Results of all ranks from the operands of all ranks, by rank. */
void operation_compute(const struct operation *operation, const struct sizes *sizes,
                       const float *in[LINES_WORLD][OPERANDS], float *ret_out[LINES_WORLD],
                       float *ret_aux[LINES_WORLD]);

/* ---- the script ------------------------------------------------------------------------------ */

enum step_kind { STEP_COPY_IN, STEP_RUN, STEP_BARRIER, STEP_RENEW /* the plan, by all ranks */ };

enum step_fault {
    FAULT_NONE,
    FAULT_CANCEL,
    FAULT_DEADLINE,
    FAULT_OUTSIDE, /* an operand leaves its buffer */
    FAULT_STALE,   /* its generation is another one */
    FAULT_ROWS,    /* the ranks do not say the same */
    FAULT_HOLE,    /* a page of its lhs is missing */
    FAULTS
};

struct step {
    enum step_kind kind;
    uint32_t plan;
    uint32_t rank;  /* of what one rank does alone; LINES_NOBODY */
    uint32_t chunk; /* of a copy_in, or COMMGEMM_WHOLE_BUFFER */
    uint32_t rows;  /* of a run: the active ones; 0: all */
    struct place place[LINES_WORLD][OPERANDS];
    uint32_t lane[LINES_WORLD];
    enum step_fault fault;
    uint32_t offender;
    enum operand bad;      /* of the offender */
    uint32_t cancel_after; /* submissions */
    uint32_t deadline_ms;
    uint32_t late, late_for; /* the rank whose stream comes late, by submissions */
};

struct script {
    uint32_t world;
    bool streams, users; /* of several users */
    uint32_t skew;       /* a rank is ahead of the last one by at most so many steps */
    uint32_t n_comms, n_plans, n_steps;
    uint32_t comm[LINES_PLANS];
    struct sizes sizes[LINES_PLANS];
    uint32_t operation[LINES_PLANS]; /* index */
    int algorithm[LINES_PLANS];
    /* No value is greater than these: all are small integers, and sums of them exact. */
    float cell_bound[LINES_WORLD][LINES_CELLS], buffer_bound[LINES_PLANS];
    struct step step[LINES_STEPS];
};

/* The world and its plans; then the steps of one batch after the other. */
void script_begin(struct script *script, struct cgm_random *random);
void script_batch(struct script *script, struct cgm_random *random);

/* As the plan's, with the rows that are active. */
struct sizes step_sizes(const struct script *script, const struct step *step);

static inline bool step_has_rank(const struct script *script, const struct step *step,
                                 uint32_t rank)
{
    return rank < script->world && (step->rank == LINES_NOBODY || step->rank == rank);
}

void step_text(const struct script *script, uint32_t step, char *ret_text, size_t size);

#endif
