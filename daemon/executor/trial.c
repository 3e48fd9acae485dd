#include "daemon/executor/trial.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/executor/executor.h"
#include "daemon/executor/plan.h"
#include "daemon/executor/plan_make.h"
#include "daemon/executor/recorded.h"
#include "proto/messages.h"
#include "proto/status.h"

typedef unsigned long long ull;

/* As many bytes of random numbers are made on the host; devices copy them on and on. */
#define NUMBERS_BYTES (1u << 18)
#define COPY_BYTES_MAX (256ull << 20)
#define COPIES_MAX (CGM_QUEUE_ROOM / 4)

/* ---- what it takes --------------------------------------------------------------------------- */

struct widest {
    uint64_t scratch_bytes;
    uint32_t n_flags;
};

static void widen(struct widest *widest, const struct cgm_plan *plan,
                  const struct cgm_candidate *candidate)
{
    const struct cgm_algorithm *algorithm = candidate->algorithm;
    struct cgm_spec spec = plan->spec;
    cgm_spec_take(&spec, candidate);
    uint64_t bytes = algorithm->scratch_bytes ? algorithm->scratch_bytes(&spec) : 0;
    uint32_t n_flags = algorithm->flags ? algorithm->flags(&spec) : 0;
    widest->scratch_bytes = bytes > widest->scratch_bytes ? bytes : widest->scratch_bytes;
    widest->n_flags = n_flags > widest->n_flags ? n_flags : widest->n_flags;
}

static struct widest widest_of(const struct cgm_plan *plan, const struct cgm_field *field)
{
    struct widest widest = {0, 0};
    for (uint32_t i = 0; i < field->n; i++) {
        cgm_variant variants[CGM_VARIANTS_MAX];
        uint32_t n =
            cgm_algorithm_variants(field->algorithms[i], &plan->spec, &field->means, variants);
        widen(&widest, plan, &(struct cgm_candidate){field->algorithms[i], 0});
        for (uint32_t j = 0; j < n; j++)
            widen(&widest, plan, &(struct cgm_candidate){field->algorithms[i], variants[j]});
    }
    return widest;
}

uint64_t cgm_trial_scratch(const struct cgm_plan *plan, const struct cgm_field *field)
{
    return widest_of(plan, field).scratch_bytes;
}

uint64_t cgm_trial_bytes(const struct cgm_plan *plan, uint64_t scratch_bytes)
{
    struct cgm_shape user = cgm_operation_user_buffer(&plan->spec);
    uint64_t rank_bytes = user.rows * user.cols * cgm_dtype_bytes(user.dtype) + scratch_bytes;
    uint64_t bytes = plan->spec.world * rank_bytes;
    for (uint32_t rank = 0; rank < plan->spec.world; rank++)
        bytes += cgm_plan_operands_bytes(&plan->spec, rank, CGM_PLAN_OPERANDS_ALL);
    return bytes;
}

/* The ranks' devices may share one memory: all of it is counted against each. */
static int check_memory(const struct cgm_plan *plan, char *ret_why, size_t why_bytes)
{
    struct cgm_executor *executor = plan->comm->poller->executor;
    uint64_t bytes = cgm_trial_bytes(plan, plan->scratch_bytes);
    for (uint32_t rank = 0; rank < plan->spec.world; rank++) {
        struct cgm_device_info info;
        uint32_t device = plan->comm->devices[rank];
        int status = executor->ops->device_info(executor->backend, device, &info);
        if (status != CGM_OK)
            return cgm_detail(ret_why, why_bytes, status, "device %u does not answer", device);
        if (bytes > info.bytes_free / 2)
            return cgm_detail(ret_why, why_bytes, CGM_NO_MEMORY,
                              "it takes %llu MiB, half of %llu free", (ull)bytes >> 20,
                              (ull)info.bytes_free >> 20);
    }
    return CGM_OK;
}

/* ---- random numbers -------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Random bits, but for the exponents of floating point numbers: magnitudes from 0.5 to 1. How fast
 * a device multiplies depends on what it multiplies, and zeros are multiplied fastest. */
static void write_numbers(int dtype, void *ret_numbers)
{
    static const struct {
        uint32_t exponent, half; /* all bits of the exponent, and those of 0.5 */
    } formats[] = {
        [CGM_DTYPE_FP32] = {0x7f800000, 0x3f000000},
        [CGM_DTYPE_FP16] = {0x7c00, 0x3800},
        [CGM_DTYPE_BF16] = {0x7f80, 0x3f00},
    };
    uint64_t state = cgm_now_ns() | 1;
    bool floats = (size_t)dtype < sizeof(formats) / sizeof(formats[0]);
    uint64_t exponent = floats ? formats[dtype].exponent : 0;
    uint64_t half = floats ? formats[dtype].half : 0;
    for (uint32_t bits = 8 * (uint32_t)cgm_dtype_bytes(dtype); floats && bits < 64; bits *= 2) {
        exponent |= exponent << bits;
        half |= half << bits;
    }
    uint64_t *words = ret_numbers;
    for (size_t i = 0; i < NUMBERS_BYTES / sizeof(*words); i++)
        words[i] = (next_random(&state) & ~exponent) | half;
}

static int make_numbers(int dtype, int *ret_fd)
{
    int fd = memfd_create("commgemm-numbers", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *numbers = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, NUMBERS_BYTES) == 0)
        numbers = mmap(NULL, NUMBERS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (numbers == MAP_FAILED || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        if (numbers != MAP_FAILED)
            munmap(numbers, NUMBERS_BYTES);
        if (fd >= 0)
            close(fd);
        return CGM_NO_MEMORY;
    }
    write_numbers(dtype, numbers);
    munmap(numbers, NUMBERS_BYTES);
    *ret_fd = fd;
    return CGM_OK;
}

static int import_numbers(struct cgm_trial *trial)
{
    struct cgm_plan *plan = trial->plan;
    struct cgm_executor *executor = plan->comm->poller->executor;
    char unused[CGM_CQE_DETAIL];
    int fd, status = make_numbers(plan->spec.dtype, &fd);
    if (status != CGM_OK)
        return status;
    struct cgm_memory_segment segment = {.kind = 1, .fd = fd, .length = NUMBERS_BYTES};
    for (uint32_t rank = 0; rank < plan->spec.world && status == CGM_OK; rank++)
        status = executor->ops->mem_import(executor->backend, plan->ranks[rank].device, &segment, 1,
                                           false, unused, sizeof(unused), &trial->numbers[rank]);
    close(fd);
    return status;
}

static struct cgm_view stretch(const struct cgm_view *matrix, uint64_t first, uint64_t count)
{
    uint64_t offset = matrix->offset_bytes + first * cgm_dtype_bytes(matrix->dtype);
    return cgm_view_of(matrix->mem, offset, 1, count, matrix->dtype);
}

/* What is there already is copied behind itself. */
static int fill_operand(const struct cgm_launch *launch, uint32_t rank,
                        const struct cgm_view *operand)
{
    uint64_t element = cgm_dtype_bytes(operand->dtype), total = operand->rows * operand->cols;
    uint64_t most = COPY_BYTES_MAX / element, count = NUMBERS_BYTES / element;
    struct cgm_view numbers = cgm_view_of(launch->ranks[rank].scratch, 0, 1, count, operand->dtype);
    int status = CGM_OK;
    for (uint64_t done = 0, i = 0; done < total && i < COPIES_MAX && status == CGM_OK; i++) {
        count = count < total - done ? count : total - done;
        struct cgm_copy copy = {
            .label = {.rank = (uint16_t)rank},
            .dst = stretch(operand, done, count),
            .src = stretch(done == 0 ? &numbers : operand, 0, count),
        };
        status = launch->ops->copy(launch->ranks[rank].compute, &copy);
        done += count;
        count = done < most ? done : most;
    }
    return status;
}

static int fill_enqueue(const struct cgm_launch *launch, uint32_t rank)
{
    static const int inputs[] = {CGM_OPERAND_LHS, CGM_OPERAND_RHS};
    const struct cgm_view *views = cgm_launch_views(launch, rank);
    int status = CGM_OK;
    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]) && status == CGM_OK; i++)
        if (views[inputs[i]].mem)
            status = fill_operand(launch, rank, &views[inputs[i]]);
    return status;
}

/* Its scratch are the numbers. */
static const struct cgm_algorithm filling = {.name = "filling", .enqueue = fill_enqueue};

/* ---- coming and going ------------------------------------------------------------------------ */

static struct cgm_plan *plan_for(const struct cgm_plan *plan, const struct cgm_field *field)
{
    struct widest widest = widest_of(plan, field);
    struct cgm_plan *own = calloc(1, sizeof(*own));
    if (!own)
        return NULL;
    own->comm = plan->comm;
    own->uid = plan->uid;
    own->spec = plan->spec;
    own->flight = plan->flight;
    own->scratch_bytes = widest.scratch_bytes;
    own->n_flags = widest.n_flags;
    return own;
}

static void forget_recorded(struct cgm_trial *trial, uint32_t index)
{
    const struct cgm_plan *plan = trial->plan;
    struct cgm_recorded *recorded = trial->recorded[index];
    for (uint32_t rank = 0; recorded && rank < plan->spec.world; rank++)
        cgm_recorded_free(plan->comm->poller->executor->ops, &recorded[rank]);
    free(recorded);
    trial->recorded[index] = NULL;
}

/* It may not have been launched after it was filled. */
static void land(struct cgm_trial *trial)
{
    struct cgm_plan *plan = trial->plan;
    if (trial->landed)
        return;
    trial->landed = true;
    for (uint32_t i = 0; i < CGM_TUNED_MAX; i++)
        forget_recorded(trial, i);
    plan->flight->recorded = NULL;
    for (uint32_t rank = 0; rank < plan->spec.world; rank++)
        plan->ranks[rank].scratch = trial->scratch[rank];
}

bool cgm_trial_drain(struct cgm_trial *trial)
{
    struct cgm_executor *executor = trial->plan->comm->poller->executor;
    land(trial);
    return cgm_plan_drain(trial->plan, executor, CGM_PLAN_OPERANDS, CGM_PLAN_USER_BUFFERS) ||
           cgm_plan_fini(trial->plan, executor);
}

struct cgm_mem *cgm_trial_numbers(struct cgm_trial *trial)
{
    struct cgm_mem *numbers = NULL;
    for (uint32_t rank = 0; rank < trial->plan->spec.world && !numbers; rank++) {
        numbers = trial->numbers[rank];
        trial->numbers[rank] = NULL;
    }
    return numbers;
}

void cgm_trial_free(struct cgm_trial *trial)
{
    struct cgm_executor *executor = trial->plan->comm->poller->executor;
    cgm_plan_free_user_buffers(trial->plan, executor);
    free(trial->plan);
    free(trial);
}

int cgm_trial_new(const struct cgm_plan *plan, const struct cgm_field *field, char *ret_why,
                  size_t why_bytes, struct cgm_trial **ret_trial)
{
    struct cgm_trial *trial = calloc(1, sizeof(*trial));
    if (trial)
        trial->plan = plan_for(plan, field);
    if (!trial || !trial->plan) {
        free(trial);
        return cgm_detail(ret_why, why_bytes, CGM_NO_MEMORY, "out of host memory");
    }
    trial->spec = &plan->spec;
    int status = check_memory(trial->plan, ret_why, why_bytes);
    if (status == CGM_OK) {
        *ret_trial = trial;
        return CGM_OK;
    }
    free(trial->plan);
    free(trial);
    return status;
}

int cgm_trial_make(struct cgm_trial *trial, bool *ret_more)
{
    struct cgm_plan *plan = trial->plan;
    int status = cgm_plan_make(plan, CGM_PLAN_OPERANDS_ALL, NULL, NULL, ret_more);
    for (uint32_t rank = 0; rank < plan->spec.world; rank++)
        trial->scratch[rank] = plan->ranks[rank].scratch;
    return status == CGM_OK && !*ret_more ? import_numbers(trial) : status;
}

/* ---- launches -------------------------------------------------------------------------------- */

static struct cgm_launch launch_of(const struct cgm_trial *trial)
{
    const struct cgm_plan *plan = trial->plan;
    return (struct cgm_launch){
        .ops = plan->comm->poller->executor->ops,
        .spec = &plan->spec,
        .ranks = plan->ranks,
        .epoch = 1,
        .rows = plan->spec.m,
        .accumulate = plan->spec.epilogue & CGM_EPILOGUE_ACCUMULATE,
        .quiet = true,
        .apart = true,
        .operands = (const struct cgm_view(*)[CGM_OPERAND_COUNT])plan->flight->views,
    };
}

bool cgm_trial_record(struct cgm_trial *trial, uint32_t index, uint32_t rank)
{
    struct cgm_plan *plan = trial->plan;
    const struct cgm_executor *executor = plan->comm->poller->executor;
    struct cgm_launch launch = launch_of(trial);
    if (executor->limits.graphs_from == 0 || !executor->ops->replay)
        return false;
    if (!trial->recorded[index])
        trial->recorded[index] = calloc(plan->spec.world, sizeof(*trial->recorded[index]));
    if (trial->recorded[index] &&
        cgm_recorded_make(plan->algorithm, &launch, rank, &trial->recorded[index][rank]) == CGM_OK)
        return true;
    forget_recorded(trial, index);
    return false;
}

static void launch(struct cgm_trial *trial, const struct cgm_algorithm *algorithm,
                   struct cgm_mem *const *scratch)
{
    struct cgm_plan *plan = trial->plan;
    struct cgm_flight *flight = plan->flight;
    plan->algorithm = algorithm;
    for (uint32_t rank = 0; rank < plan->spec.world; rank++)
        plan->ranks[rank].scratch = scratch[rank];
    flight->plan = plan;
    flight->kind = CGM_FLIGHT_RUN;
    cgm_flight_set_ranks(flight, cgm_all_ranks(plan->spec.world));
    flight->launch.rows = plan->spec.m;
    flight->launch.accumulate = plan->spec.epilogue & CGM_EPILOGUE_ACCUMULATE;
    flight->launch.quiet = plan->comm->n_flights == 1;
    cgm_flight_start(flight, cgm_now_ns());
}

void cgm_trial_take(struct cgm_trial *trial, const struct cgm_candidate *candidate)
{
    struct cgm_plan *plan = trial->plan;
    plan->algorithm = candidate->algorithm;
    plan->room = (struct cgm_queue_room){0};
    plan->spec = *trial->spec;
    cgm_spec_take(&plan->spec, candidate);
}

/* Launches are recorded as if nothing of the comm were before them. */
void cgm_trial_launch(struct cgm_trial *trial, const struct cgm_candidate *candidate,
                      uint32_t index, uint32_t ahead)
{
    struct cgm_flight *flight = trial->plan->flight;
    bool quiet = trial->plan->comm->n_flights == 1;
    cgm_trial_take(trial, candidate);
    flight->recorded = quiet ? trial->recorded[index] : NULL;
    flight->ahead = ahead;
    launch(trial, candidate->algorithm, trial->scratch);
}

void cgm_trial_fill(struct cgm_trial *trial)
{
    trial->plan->flight->recorded = NULL;
    launch(trial, &filling, trial->numbers);
}
