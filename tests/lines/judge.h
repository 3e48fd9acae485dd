/* What every cell and every user buffer has to hold, after what became of each step. */
#ifndef LINES_JUDGE_H
#define LINES_JUDGE_H

#include "tests/lines/batch.h"

enum soundness { SOUND, TAINTED, MAYBE };

struct cell_model {
    uint32_t known; /* floats, from the first on */
    float values[LINES_CELL];
};

struct chunk_model {
    enum soundness soundness;
    bool known;      /* what is in it, if it is sound */
    uint64_t spoilt; /* where it is not: the step, counted over the round */
    char by[160];    /* the beginning of its text */
};

struct user_model {
    uint32_t size, n_chunks;
    struct chunk_model chunk[LINES_WORLD];
    float values[LINES_CELL];
};

struct judge {
    struct crew *crew;
    const struct script *script;
    struct cell_model cell[LINES_WORLD][LINES_CELLS];
    struct user_model user[LINES_PLANS][LINES_WORLD];
    struct batch_events events;    /* of the batch */
    uint64_t step;                 /* that is looked at, counted over the round */
    uint64_t statuses[64];         /* of jobs, by what they ended with */
    uint64_t compared, runs_right; /* floats; runs of which every result was known */
};

/* A crew with new plans. */
void judge_begin(struct judge *judge, struct crew *crew);

/* All cells have new values, here and there; while nothing is in flight. */
void judge_fill_cells(struct judge *judge, struct cgm_random *random);

/* Some user buffers as well, by the ranks' own mappings, for which they vouch. */
bool judge_fill_user_buffers(struct judge *judge, struct cgm_random *random);

/* Of a whole batch, all jobs of which have ended. Prints what is wrong, and returns false. */
bool judge_batch(struct judge *judge, const struct lines_job jobs[LINES_STEPS][LINES_WORLD]);

/* The executor was replaced: what lay in user buffers is not there any more. */
void judge_lose(struct judge *judge);

#endif
