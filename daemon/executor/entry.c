#include "daemon/executor/entry.h"

#include "daemon/executor/gang.h"
#include "daemon/executor/idle_imports.h"
#include "daemon/executor/overlap.h"
#include "daemon/executor/plan.h"
#include "proto/messages.h"
#include "proto/status.h"

typedef unsigned long long ull;

static const char *const operand_names[CGM_OPERAND_COUNT] = {
#define X(index, SYMBOL, spelling) [index] = spelling,
    CGM_OPERANDS(X)
#undef X
};

const char *cgm_operand_name(int operand)
{
    return operand_names[operand];
}

static bool operand_is_written(int operand)
{
    return CGM_OPERANDS_WRITTEN >> operand & 1;
}

bool cgm_job_reads(const struct cgm_job *job, int operand)
{
    bool accumulates = job->plan->spec.epilogue & CGM_EPILOGUE_ACCUMULATE;
    return !operand_is_written(operand) || (operand == CGM_OPERAND_OUT && accumulates);
}

static int check_fixed(const struct cgm_entry *entry, char *detail, size_t bytes)
{
    if (entry->flags & ~(uint32_t)CGM_ENTRY_FLAGS_ALL)
        return cgm_detail(detail, bytes, CGM_INVALID_ARGUMENT,
                          "flags: 0x%x has unknown bits; known are 0x%x", entry->flags,
                          CGM_ENTRY_FLAGS_ALL);
    for (size_t i = 0; i < sizeof(entry->reserved) / sizeof(entry->reserved[0]); i++)
        if (entry->reserved[i] != 0)
            return cgm_detail(detail, bytes, CGM_INVALID_ARGUMENT,
                              "reserved[%zu]: 0x%llx; it must be 0", i, (ull)entry->reserved[i]);
    return CGM_OK;
}

static bool is_collective(const struct cgm_entry *entry, const struct cgm_plan *plan)
{
    return entry->opcode == CGM_OPCODE_BARRIER ||
           (entry->opcode == CGM_OPCODE_RUN && cgm_op_is_collective(plan->spec.op));
}

static int check_rank(const struct cgm_endpoint *endpoint, const struct cgm_entry *entry,
                      const struct cgm_comm *comm, char *detail, size_t bytes)
{
    if (entry->rank >= comm->size)
        return cgm_detail(detail, bytes, CGM_INVALID_ARGUMENT,
                          "rank: %u; comm %llu has ranks 0 to %u", entry->rank, (ull)comm->id,
                          comm->size - 1);
    if (comm->sessions[entry->rank] != endpoint->session)
        return cgm_detail(detail, bytes, CGM_PERMISSION,
                          "rank: %u of comm %llu belongs to another session", entry->rank,
                          (ull)comm->id);
    return CGM_OK;
}

/* Its plan went before it was read: the rank has come for its number all the same. */
static struct cgm_comm *comm_without_plan(const struct cgm_endpoint *endpoint,
                                          const struct cgm_entry *entry)
{
    char unused[CGM_CQE_DETAIL];
    struct cgm_comm *comm = cgm_map_get(&endpoint->poller->comms, entry->comm);
    bool right = comm && check_rank(endpoint, entry, comm, unused, sizeof(unused)) == CGM_OK &&
                 cgm_gang_check_number(comm, entry->rank, entry->comm_number, unused,
                                       sizeof(unused)) == CGM_OK;
    return right ? comm : NULL;
}

/* Who submits: the plan, its comm, the rank, the number. */
static int check_place(struct cgm_endpoint *endpoint, const struct cgm_entry *entry,
                       struct cgm_job *job, char *detail, size_t bytes, struct cgm_comm **ret_burns)
{
    *ret_burns = NULL;
    if (entry->opcode > CGM_OPCODE_BARRIER)
        return cgm_detail(detail, bytes, CGM_INVALID_ARGUMENT,
                          "opcode: %u; it must be 0 (noop), 1 (run), 2 (copy_in) or 3 (barrier)",
                          entry->opcode);
    struct cgm_plan *plan = cgm_map_get(&endpoint->poller->plans, entry->plan);
    if (!plan || plan->creation) {
        *ret_burns = comm_without_plan(endpoint, entry);
        return cgm_detail(detail, bytes, CGM_NOT_FOUND, "plan: %016llx does not exist",
                          (ull)entry->plan);
    }
    struct cgm_comm *comm = plan->comm;
    int status = check_rank(endpoint, entry, comm, detail, bytes);
    if (status != CGM_OK)
        return status;
    if (entry->comm != 0 && entry->comm != comm->id)
        return cgm_detail(detail, bytes, CGM_INVALID_ARGUMENT,
                          "comm: %llu; plan %016llx is of %llu", (ull)entry->comm, (ull)plan->id,
                          (ull)comm->id);
    cgm_plan_ref(plan);
    job->plan = plan;
    if (!is_collective(entry, plan)) {
        if (entry->comm_number == 0)
            return CGM_OK;
        return cgm_detail(detail, bytes, CGM_INVALID_ARGUMENT,
                          "comm_number: %llu; a local operation has 0", (ull)entry->comm_number);
    }
    status = cgm_gang_check_number(comm, entry->rank, entry->comm_number, detail, bytes);
    *ret_burns = status == CGM_OK ? comm : NULL;
    return status;
}

/* The shape that an operand must have; CGM_ABSENT when the job does not take it. */
static enum cgm_presence job_operand(const struct cgm_job *job, int operand,
                                     struct cgm_shape *ret_shape)
{
    const struct cgm_spec *spec = &job->plan->spec;
    uint64_t offset, stride;
    if (job->opcode == CGM_OPCODE_RUN)
        return cgm_operation_operand(spec, job->rank, job->rows, operand, ret_shape);
    if (job->opcode == CGM_OPCODE_BARRIER || operand != CGM_OPERAND_LHS)
        return CGM_ABSENT;
    cgm_operation_chunk(spec, job->rows, job->chunk, &offset, &stride, ret_shape);
    return CGM_REQUIRED;
}

/* What a BLAS takes; no second row lies a stride away from one, however large it is. */
static int check_stride(const char *name, const struct cgm_operand *o,
                        const struct cgm_shape *shape, const struct cgm_spec *spec, char *detail,
                        size_t bytes)
{
    uint64_t element = cgm_dtype_bytes(shape->dtype);
    if (o->row_stride_bytes / element <= CGM_DIM_MAX || shape->rows == 1 ||
        !cgm_operation_is_product(spec->op))
        return CGM_OK;
    return cgm_detail(detail, bytes, CGM_INVALID_ARGUMENT,
                      "%s.row_stride_bytes: %llu; rows of a product's operand lie at most %llu "
                      "elements of %llu bytes apart",
                      name, (ull)o->row_stride_bytes, CGM_DIM_MAX, (ull)element);
}

static int check_range(const char *name, const struct cgm_operand *o, const struct cgm_shape *shape,
                       const struct cgm_memory *memory, char *detail, size_t size,
                       struct cgm_view *ret_view)
{
    uint64_t element = cgm_dtype_bytes(shape->dtype), row = shape->cols * element;
    uint64_t stride = o->row_stride_bytes ? o->row_stride_bytes : row, extent;
    if (stride < row || stride % element != 0)
        return cgm_detail(detail, size, CGM_INVALID_ARGUMENT,
                          "%s.row_stride_bytes: %llu; it must be 0 or a multiple of %llu from %llu",
                          name, (ull)stride, (ull)element, (ull)row);
    if (o->offset_bytes % element != 0)
        return cgm_detail(detail, size, CGM_INVALID_ARGUMENT,
                          "%s.offset_bytes: %llu is not a multiple of %llu", name,
                          (ull)o->offset_bytes, (ull)element);
    if (__builtin_mul_overflow(shape->rows - 1, stride, &extent) ||
        __builtin_add_overflow(extent, row, &extent) || extent > memory->bytes ||
        o->offset_bytes > memory->bytes - extent)
        return cgm_detail(detail, size, CGM_INVALID_ARGUMENT,
                          "%s: %llu x %llu of %llu bytes at offset %llu, stride %llu, end "
                          "outside the object's %llu bytes",
                          name, (ull)shape->rows, (ull)shape->cols, (ull)element,
                          (ull)o->offset_bytes, (ull)stride, (ull)memory->bytes);
    if (shape->rows == 1)
        stride = row;
    *ret_view = (struct cgm_view){.mem = memory->mem,
                                  .offset_bytes = o->offset_bytes,
                                  .rows = shape->rows,
                                  .cols = shape->cols,
                                  .stride = stride / element,
                                  .dtype = shape->dtype};
    return CGM_OK;
}

static int check_right(const char *name, const struct cgm_operand *o, const struct cgm_grant *grant,
                       bool written, bool read, char *detail, size_t bytes)
{
    if (!grant)
        return cgm_detail(detail, bytes, CGM_NOT_FOUND, "%s.id: %llu is not open in this session",
                          name, (ull)o->id);
    if (o->reserved != 0)
        return cgm_detail(detail, bytes, CGM_INVALID_ARGUMENT, "%s.reserved: %u; it must be 0",
                          name, o->reserved);
    int status = cgm_memory_check_open(grant->memory, name, detail, bytes);
    if (status != CGM_OK)
        return status;
    if (o->generation != grant->memory->generation)
        return cgm_detail(detail, bytes, CGM_STALE, "%s.generation: %u; object %llu is at %u", name,
                          o->generation, (ull)o->id, grant->memory->generation);
    if (written && !grant->writable)
        return cgm_detail(detail, bytes, CGM_PERMISSION, "%s: object %llu is open for reading only",
                          name, (ull)o->id);
    if (read && grant->memory->tainted)
        return cgm_detail(detail, bytes, CGM_TAINTED, "%s: object %llu is tainted", name,
                          (ull)o->id);
    return CGM_OK;
}

/* The plan's own jobs write its user buffers. After check_range: the view has the stride that 0
 * stands for, and one row has none. */
static int check_own_buffer(const char *name, int operand, const struct cgm_memory *memory,
                            const struct cgm_job *job, char *detail, size_t bytes)
{
    const struct cgm_plan *plan = job->plan;
    const struct cgm_view *view = &job->view[operand];
    uint32_t owner = 0;
    if (memory->owner != plan)
        return CGM_OK;
    while (plan->user[owner] != memory)
        owner++;
    if (job->opcode == CGM_OPCODE_RUN &&
        cgm_operation_may_use_buffer(&plan->spec, owner, job->rank, operand, view->offset_bytes,
                                     view->rows > 1 ? cgm_view_stride_bytes(view) : 0))
        return CGM_OK;
    return cgm_detail(detail, bytes, CGM_INVALID_ARGUMENT,
                      "%s: it lies in the plan's own user buffer of rank %u, which the job writes",
                      name, owner);
}

static int check_operand(struct cgm_endpoint *endpoint, const struct cgm_operand *o, int operand,
                         struct cgm_job *job, char *detail, size_t bytes)
{
    const char *name = operand_names[operand];
    struct cgm_shape shape;
    enum cgm_presence presence = job_operand(job, operand, &shape);
    job->view[operand] = (struct cgm_view){0};
    if (o->id == 0)
        return presence != CGM_REQUIRED ? CGM_OK
                                        : cgm_detail(detail, bytes, CGM_INVALID_ARGUMENT,
                                                     "%s: missing; it is %llu x %llu", name,
                                                     (ull)shape.rows, (ull)shape.cols);
    if (presence == CGM_ABSENT)
        return cgm_detail(detail, bytes, CGM_INVALID_ARGUMENT, "%s: this plan's %s takes none",
                          name, cgm_job_name(job));
    struct cgm_grant *grant = cgm_map_get(&endpoint->grants, o->id);
    int status = check_right(name, o, grant, operand_is_written(operand),
                             cgm_job_reads(job, operand), detail, bytes);
    if (status == CGM_OK && cgm_memory_has_holes(grant->memory, endpoint->poller->executor->ops))
        status = cgm_memory_holes_detail(grant->memory, name, detail, bytes);
    if (status == CGM_OK)
        status = check_stride(name, o, &shape, &job->plan->spec, detail, bytes);
    if (status == CGM_OK)
        status = check_range(name, o, &shape, grant->memory, detail, bytes, &job->view[operand]);
    if (status == CGM_OK)
        status = check_own_buffer(name, operand, grant->memory, job, detail, bytes);
    if (status != CGM_OK)
        return status;
    cgm_memory_ref(grant->memory);
    job->memory[operand] = grant->memory;
    if (grant->memory->contents)
        job->in_user_buffers |= 1u << operand;
    return CGM_OK;
}

/* An operand of the job that shares bytes with this one; -1: none. */
static int overlapped(const struct cgm_job *job, int operand)
{
    for (int other = 0; other < CGM_OPERAND_COUNT; other++)
        if (other != operand && job->memory[other] && job->memory[operand] &&
            cgm_views_overlap(&job->view[operand], &job->view[other]))
            return other;
    return -1;
}

/* A written operand must not share bytes with another one of the job. */
static int check_overlaps(const struct cgm_job *job, char *detail, size_t bytes)
{
    for (int w = 0; w < CGM_OPERAND_COUNT; w++) {
        int other = operand_is_written(w) ? overlapped(job, w) : -1;
        if (other >= 0)
            return cgm_detail(detail, bytes, CGM_INVALID_ARGUMENT, "%s: overlaps %s in object %llu",
                              operand_names[w], operand_names[other], (ull)job->memory[w]->id);
    }
    return CGM_OK;
}

static void operand_drop(struct cgm_job *job, int operand)
{
    if (job->memory[operand])
        cgm_memory_leave(job->endpoint->poller->executor, job->memory[operand]);
    job->memory[operand] = NULL;
    job->view[operand] = (struct cgm_view){0};
    job->in_user_buffers &= ~(1u << operand);
}

/* Of a refused job its results, as far as they are right by themselves: nobody must take what is
 * there for results. */
static void keep_results(struct cgm_endpoint *endpoint, const struct cgm_entry *entry,
                         struct cgm_job *job)
{
    char unused[CGM_CQE_DETAIL];
    for (int i = 0; i < CGM_OPERAND_COUNT; i++)
        if (operand_is_written(i) && !job->memory[i])
            check_operand(endpoint, &entry->operand[i], i, job, unused, sizeof(unused));
    for (int i = 0; i < CGM_OPERAND_COUNT; i++)
        if (operand_is_written(i) && overlapped(job, i) >= 0)
            operand_drop(job, i);
    for (int i = 0; i < CGM_OPERAND_COUNT; i++)
        if (!operand_is_written(i) || !job->memory[i])
            operand_drop(job, i);
}

static int check_operands(struct cgm_endpoint *endpoint, const struct cgm_entry *entry,
                          struct cgm_job *job, char *detail, size_t bytes)
{
    int status = CGM_OK;
    for (int i = 0; i < CGM_OPERAND_COUNT && status == CGM_OK; i++)
        status = check_operand(endpoint, &entry->operand[i], i, job, detail, bytes);
    if (status == CGM_OK)
        status = check_overlaps(job, detail, bytes);
    if (status != CGM_OK)
        keep_results(endpoint, entry, job);
    return status;
}

static int check_rows_and_chunk(const struct cgm_entry *entry, struct cgm_job *job, char *detail,
                                size_t bytes)
{
    const struct cgm_spec *spec = &job->plan->spec;
    bool may_accumulate = spec->epilogue & CGM_EPILOGUE_ACCUMULATE;
    job->rows = entry->rows ? entry->rows : spec->m;
    if (entry->flags & CGM_ENTRY_ACCUMULATE && !may_accumulate)
        return cgm_detail(detail, bytes, CGM_INVALID_ARGUMENT,
                          "accumulate: plan %016llx was made without that epilogue",
                          (ull)job->plan->id);
    if (job->opcode == CGM_OPCODE_COPY_IN && entry->chunk != UINT32_MAX &&
        entry->chunk >= cgm_operation_chunks(spec))
        return cgm_detail(detail, bytes, CGM_INVALID_ARGUMENT,
                          "chunk: %u; the user buffer has chunks 0 to %u", entry->chunk,
                          cgm_operation_chunks(spec) - 1);
    return cgm_operation_check_rows(spec, job->rows, detail, bytes);
}

/* Also of one that will be refused: who waits for its results is told that there are none. */
static void note_names(const struct cgm_entry *entry, struct cgm_job *job)
{
    const struct cgm_memory *own = job->plan->user[job->rank];
    uint64_t own_id = own ? own->id : 0;
    for (int i = 0; i < CGM_OPERAND_COUNT; i++) {
        if (entry->operand[i].id == 0)
            continue;
        job->named |= 1u << i;
        job->results_in_own |= operand_is_written(i) && entry->operand[i].id == own_id;
    }
}

int cgm_entry_check(struct cgm_endpoint *endpoint, const struct cgm_entry *entry,
                    struct cgm_job *job, char *ret_detail, size_t detail_bytes,
                    struct cgm_comm **ret_burns)
{
    int status = check_place(endpoint, entry, job, ret_detail, detail_bytes, ret_burns);
    if (job->plan)
        note_names(entry, job);
    if (status == CGM_OK)
        status = check_fixed(entry, ret_detail, detail_bytes);
    if (status == CGM_OK)
        status = check_rows_and_chunk(entry, job, ret_detail, detail_bytes);
    if (status == CGM_OK)
        status = check_operands(endpoint, entry, job, ret_detail, detail_bytes);
    return status;
}

void cgm_job_release(struct cgm_job *job)
{
    cgm_uses_end(job);
    for (int i = 0; i < CGM_OPERAND_COUNT; i++) {
        if (job->memory[i])
            cgm_memory_leave(job->endpoint->poller->executor, job->memory[i]);
        job->memory[i] = NULL;
    }
    if (job->plan)
        cgm_plan_unref(job->plan);
    job->plan = NULL;
}
