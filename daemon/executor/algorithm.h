/* An algorithm turns one launched job of all ranks into operations on queues. Adding one = one file
 * in algo/ and one row in algo/table.c. It calls backend operations only. */
#ifndef CGM_ALGORITHM_H
#define CGM_ALGORITHM_H

#include "daemon/executor/backend.h"
#include "daemon/executor/operation.h"

/* What a plan owns on one rank. Scratch and flags belong to the algorithm; epochs make flags
 * reusable without a reset: a launch signals values above those of every launch before it. */
struct cgm_plan_rank {
    uint32_t device;
    struct cgm_queue *compute, *comm;
    struct cgm_mem *user;    /* the user buffer (cgm_operation_user_buffer) */
    struct cgm_mem *scratch; /* algorithm->scratch_bytes; NULL when 0 */
    struct cgm_flag **flags; /* algorithm->flags */
    struct cgm_group *group; /* the comm's; NULL: collectives are made of copies */
};

/* One launch, the same object for all ranks. Of a local operation only the enqueued rank's row of
 * operands is read. */
struct cgm_launch {
    const struct cgm_backend_ops *ops;
    const struct cgm_spec *spec;
    const struct cgm_plan_rank *ranks; /* [world] */
    uint64_t epoch;                    /* of this plan, from 1, one higher at every launch */
    uint64_t rows;                     /* active rows of the whole product */
    bool accumulate;                   /* out +=, for this launch; the plan's epilogue counts too */
    bool quiet; /* no earlier launch of the comm is under way: its memory may be used at once */
    /* Whoever launches awaits the communication queues, too, and joins them before the next launch
     * (cgm_queue_set_join): what they still read need not be ordered before what follows. */
    bool apart;
    /* [CGM_OPERAND_COUNT] of each rank, at place[rank], or at its number where that is NULL; absent
     * operands have mem NULL. Sized for `rows`. */
    const struct cgm_view (*operands)[CGM_OPERAND_COUNT];
    const uint8_t *place;
    struct cgm_run *run;
};

static inline const struct cgm_view *cgm_launch_views(const struct cgm_launch *launch,
                                                      uint32_t rank)
{
    return launch->operands[launch->place ? launch->place[rank] : rank];
}

struct cgm_algorithm {
    enum cgm_algo number;
    const char *name;
    uint32_t ops;        /* bits 1u << enum cgm_op */
    int method;          /* enum cgm_method that selects it */
    bool atomic;         /* selected together with atomic_gemm */
    const char *summary; /* one line for listings and the manual */
    uint32_t group_ops;  /* those whose collective a device's library could do, bits as ops */
    uint32_t parameters; /* bits 1u << enum cgm_parameter: those that have an effect */
    bool stores;         /* tiles go to other ranks as they are stored: nothing is copied */
    bool flagged;        /* its GEMM is one product whose parts await or publish flags */

    /* OK, or NOT_SUPPORTED with a sentence that says what would work. NULL: nothing to add to what
     * cgm_spec_init and `ops` say. */
    int (*check)(const struct cgm_spec *spec, char *ret_detail, size_t detail_bytes);
    /* Relative cost, for auto as long as nothing was measured. Smaller is better. */
    double (*estimate)(const struct cgm_spec *spec);
    uint64_t (*scratch_bytes)(const struct cgm_spec *spec); /* on each rank; NULL: none */
    uint32_t (*flags)(const struct cgm_spec *spec);         /* on each rank; NULL: none */

    /* Enqueues rank's part of the linear operation: everything but GELU and gradients, which
     * cgm_launch_enqueue puts behind it. Called once for every rank on the thread of the rank's
     * device. When it returns, everything that writes rank's outputs or reads rank's operands, on
     * any queue of any rank, is ordered before what is enqueued next on ranks[rank].compute; but
     * for launch->apart. */
    int (*enqueue)(const struct cgm_launch *launch, uint32_t rank);
};

/* The table: cgm_algorithms[0] ... [cgm_algorithm_count - 1]. */
extern const struct cgm_algorithm *const cgm_algorithms[];
extern const size_t cgm_algorithm_count;

/* Those that say how a device copies, what its products leave to that, and which queues come first:
 * of every algorithm. */
#define CGM_PARAMETERS_OF_DEVICES                                                                  \
    (1u << CGM_PARAMETER_NUM_COMM_SM | 1u << CGM_PARAMETER_USE_CE |                                \
     1u << CGM_PARAMETER_SET_SM_MARGIN | 1u << CGM_PARAMETER_GEMM_PRIORITY |                       \
     1u << CGM_PARAMETER_COMM_PRIORITY)

/* Writes "num_splits, use_ce": the parameters of a set of bits. */
void cgm_parameter_list(uint32_t parameters, char *ret_text, size_t size);

/* Picks the algorithm of a spec. A named algorithm overrides the method; a named algorithm and a
 * named method that disagree are refused. ret_reason: one sentence for completions and listings, or
 * why there is none: INVALID_ARGUMENT, NOT_SUPPORTED. */
int cgm_algorithm_choose(const struct cgm_spec *spec, char *ret_reason, size_t reason_bytes,
                         const struct cgm_algorithm **ret_algorithm);

/* Those that auto may take when they were timed: the one without overlap first, the others from the
 * cheapest estimate on. Returns how many, at most max; 0: the spec says which one it is to be, or
 * one rank has nothing to overlap. */
uint32_t cgm_algorithm_candidates(const struct cgm_spec *spec, uint32_t max,
                                  const struct cgm_algorithm **ret_algorithms);

/* NULL when there is none with this number. */
const struct cgm_algorithm *cgm_algorithm_find(int number);

/* Enqueues rank's part of a launch: the algorithm's, and behind it on the compute queue what the
 * spec's epilogue does to a finished out: GELU, its derivative, bias gradients. */
int cgm_launch_enqueue(const struct cgm_algorithm *algorithm, const struct cgm_launch *launch,
                       uint32_t rank);

/* By how much all values of flags are higher `epochs` launches later, of the same launch. */
uint64_t cgm_launch_raise(uint64_t epochs);

/* copy_in, which belongs to every plan: lhs, in the shape of cgm_operation_chunk, into chunk
 * `chunk` of rank's user buffer (UINT32_MAX: all of it). Enqueued on the compute queue. */
int cgm_copy_in_enqueue(const struct cgm_launch *launch, uint32_t rank, uint32_t chunk);
/* So many operations that is. */
uint32_t cgm_copy_in_copies(const struct cgm_spec *spec, uint32_t chunk);

/* View helpers for algorithms. */
struct cgm_view cgm_view_rows(const struct cgm_view *view, uint64_t first, uint64_t rows);
struct cgm_view cgm_view_cols(const struct cgm_view *view, uint64_t first, uint64_t cols);
struct cgm_view cgm_view_of(struct cgm_mem *mem, uint64_t offset_bytes, uint64_t rows,
                            uint64_t cols, int dtype);

#endif
