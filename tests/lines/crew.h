/* The ranks of a comm, all of this process: their sessions, cells, streams and plans. */
#ifndef LINES_CREW_H
#define LINES_CREW_H

#include <sys/types.h>

#include "tests/lines/lines.h"

struct lines_rank {
    commgemm_client *client;
    uint64_t life;                 /* of the executor that it knows */
    struct commgemm_buffer buffer; /* its cells */
    float *cells;
    void *stream[LINES_LANES];
    bool held[LINES_LANES];
};

/* Of one rank, of the plan that there is now. */
struct lines_user_buffer {
    struct commgemm_buffer buffer;
    float *values; /* its own mapping */
    uint32_t size, n_chunks;
};

struct crew {
    const struct script *script;
    const char *socket;
    uint64_t comm[LINES_COMMS];
    uint64_t high[LINES_COMMS]; /* the highest number that a rank's job has ended with */
    struct lines_rank rank[LINES_WORLD];
    struct commgemm_plan plan[LINES_PLANS];
    struct lines_user_buffer user[LINES_PLANS][LINES_WORLD];
};

/* Of one rank's part of a step. */
struct lines_job {
    uint64_t ticket;
    int status;
    char detail[192];
};

static inline float *crew_cell(struct crew *crew, uint32_t rank, uint32_t cell)
{
    return crew->rank[rank].cells + cell * LINES_CELL;
}

/* All of these print what is wrong, and return false. */
bool crew_open(struct crew *crew, const struct script *script, const char *socket);
bool crew_submit(struct crew *crew, uint32_t rank, const struct step *step,
                 struct lines_job *ret_job);
bool crew_cancel(struct crew *crew, uint32_t rank, const struct lines_job *job);
/* The plan is destroyed by all ranks, and made anew. */
bool crew_renew(struct crew *crew, uint32_t plan, struct cgm_random *random);
/* The rank has written all of its user buffer. */
bool crew_vouch(struct crew *crew, uint32_t plan, uint32_t rank);
/* Of the script's comm. */
bool crew_await(struct crew *crew, uint32_t rank, uint32_t comm, struct lines_job *job);
bool crew_streams_are_done(struct crew *crew);

/* After the executor's end: another one serves, all ranks are in step again, and what they have
 * open is as it is there. */
bool crew_recover(struct crew *crew);

/* 0 where it cannot be found. */
pid_t crew_executor(struct crew *crew);

/* The stream of a rank comes late from now on, until it is let go. */
void crew_hold(struct crew *crew, uint32_t rank, uint32_t lane);
void crew_release(struct crew *crew, uint32_t rank, uint32_t lane);

void crew_close(struct crew *crew);

#endif
