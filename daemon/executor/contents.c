#include "daemon/executor/contents.h"

#include <stdlib.h>

#include "daemon/executor/entry.h"
#include "daemon/executor/gang.h"
#include "daemon/executor/plan.h"
#include "proto/status.h"

/* Of those at the front of a line; whoever stands behind more of them is found by the next look. */
#define LAUNCHED_SEEN 64

typedef unsigned long long ull;

struct cgm_contents *cgm_contents_new(const struct cgm_spec *spec, bool lost)
{
    uint32_t n = cgm_operation_chunks(spec);
    struct cgm_contents *contents = calloc(1, sizeof(*contents) + n * sizeof(contents->chunk[0]));
    if (!contents)
        return NULL;
    contents->n_chunks = n;
    contents->rows = spec->m;
    for (uint32_t i = 0; i < n; i++)
        contents->chunk[i] = (struct cgm_chunk){.rows = lost ? 0 : spec->m,
                                                .why = lost ? CGM_EXECUTOR_LOST : CGM_OK};
    return contents;
}

void cgm_contents_vouch(struct cgm_contents *contents)
{
    for (uint32_t i = 0; i < contents->n_chunks; i++)
        contents->chunk[i].rows = contents->rows;
}

/* ---- which chunks ---------------------------------------------------------------------------- */

/* One bit for each chunk: there are as many as ranks, or one. */
static uint64_t all_chunks(const struct cgm_contents *contents)
{
    return UINT64_MAX >> (64 - contents->n_chunks);
}

static struct cgm_contents *own_contents(const struct cgm_job *job)
{
    return job->plan->user[job->rank]->contents;
}

static bool is_bulk(const struct cgm_job *job)
{
    int op = job->plan->spec.op;
    return job->opcode == CGM_OPCODE_RUN && (op == CGM_OP_BULK_AG || op == CGM_OP_BULK_RS);
}

static bool names(const struct cgm_job *job, int operand)
{
    return job->named >> operand & 1;
}

/* What a bulk job reads of its own rank's user buffer without naming it. */
static uint64_t read_unnamed(const struct cgm_job *job)
{
    if (!is_bulk(job) || names(job, CGM_OPERAND_AUX_IN))
        return 0;
    return job->plan->spec.op == CGM_OP_BULK_AG ? 1ull << job->rank : all_chunks(own_contents(job));
}

/* What it leaves there. A rank's own part is not copied onto itself. */
static uint64_t filled_unnamed(const struct cgm_job *job)
{
    uint64_t own = 1ull << job->rank;
    if (!is_bulk(job) || names(job, CGM_OPERAND_AUX_OUT))
        return 0;
    if (job->plan->spec.op == CGM_OP_BULK_RS)
        return own;
    uint64_t all = all_chunks(own_contents(job));
    return names(job, CGM_OPERAND_AUX_IN) ? all : all & ~own;
}

/* Where an ag_gemm gathers whose lhs lies elsewhere, what was copied in is gone: whether it does so
 * is up to the algorithm. */
static uint64_t gathered_over(const struct cgm_job *job)
{
    bool gathers = job->opcode == CGM_OPCODE_RUN && job->plan->spec.op == CGM_OP_AG_GEMM;
    bool elsewhere = job->memory[CGM_OPERAND_LHS] != job->plan->user[job->rank] &&
                     !job->memory[CGM_OPERAND_AUX_OUT];
    return gathers && elsewhere ? 1ull << job->rank : 0;
}

static uint64_t chunk_bytes(const struct cgm_memory *memory)
{
    return memory->bytes / memory->contents->n_chunks;
}

/* Those that have bytes from `begin` on, below `end`, or, `whole`, none elsewhere. */
static uint64_t chunks_between(const struct cgm_memory *memory, uint64_t begin, uint64_t end,
                               bool whole)
{
    uint64_t mask = 0, size = chunk_bytes(memory);
    for (uint32_t i = 0; i < memory->contents->n_chunks; i++)
        if (whole ? begin <= i * size && (i + 1) * size <= end
                  : begin < (i + 1) * size && i * size < end)
            mask |= 1ull << i;
    return mask;
}

/* whole: those that the operand writes all of. */
static uint64_t chunks_of_operand(const struct cgm_job *job, int operand, bool whole)
{
    const struct cgm_view *view = &job->view[operand];
    uint64_t end = 0;
    if (!cgm_view_end(view, &end) || (whole && view->stride != view->cols))
        return 0;
    return chunks_between(job->memory[operand], view->offset_bytes, end, whole);
}

/* Whether it lies as a copy_in of as many rows lays it, so that no other rows are read. */
static bool lies_as_copied(const struct cgm_job *job, int operand)
{
    const struct cgm_memory *memory = job->memory[operand];
    const struct cgm_view *view = &job->view[operand];
    uint64_t offset, stride;
    struct cgm_shape shape;
    if (operand != CGM_OPERAND_LHS || job->opcode != CGM_OPCODE_RUN || memory->owner != job->plan ||
        view->offset_bytes % chunk_bytes(memory) != 0 ||
        !cgm_operation_chunk(&job->plan->spec, job->rows, 0, &offset, &stride, &shape))
        return false;
    return view->rows == shape.rows && view->cols == shape.cols &&
           (view->rows == 1 || view->stride == stride);
}

/* As many rows of a chunk as the operand reads. */
static uint64_t rows_of_operand(const struct cgm_job *job, int operand)
{
    return lies_as_copied(job, operand) ? job->rows : job->memory[operand]->contents->rows;
}

/* The operands that lie in user buffers, one after the other; CGM_OPERAND_COUNT: no more. */
static int next_operand(const struct cgm_job *job, int operand)
{
    uint32_t left = operand < CGM_OPERAND_COUNT ? job->in_user_buffers >> operand : 0;
    return left ? operand + __builtin_ctz(left) : CGM_OPERAND_COUNT;
}

static bool reads_user_buffers(const struct cgm_job *job)
{
    for (int i = next_operand(job, 0); i < CGM_OPERAND_COUNT; i = next_operand(job, i + 1))
        if (cgm_job_reads(job, i))
            return true;
    return read_unnamed(job) != 0;
}

/* Of its own rank's user buffer, the chunks of operands that it names there. */
static uint64_t named_own(const struct cgm_job *job, bool written)
{
    uint64_t mask = 0;
    for (int i = next_operand(job, 0); i < CGM_OPERAND_COUNT; i = next_operand(job, i + 1))
        if (job->memory[i] == job->plan->user[job->rank] &&
            (written ? CGM_OPERANDS_WRITTEN >> i & 1 : cgm_job_reads(job, i)))
            mask |= chunks_of_operand(job, i, false);
    return mask;
}

/* A chunk that there is not may have meant any. */
static uint64_t copied(const struct cgm_job *job)
{
    const struct cgm_contents *contents = own_contents(job);
    return job->chunk < contents->n_chunks ? 1ull << job->chunk : all_chunks(contents);
}

/* What it leaves in its own rank's user buffer. */
static uint64_t filled(const struct cgm_job *job)
{
    if (job->opcode == CGM_OPCODE_COPY_IN)
        return copied(job);
    if (!job->gang && job->results_in_own) /* it was refused, and where is not known */
        return all_chunks(own_contents(job));
    return filled_unnamed(job) | named_own(job, true);
}

static uint64_t read_of_own(const struct cgm_job *job)
{
    return read_unnamed(job) | named_own(job, false);
}

bool cgm_contents_are_unnamed(const struct cgm_job *job)
{
    return read_unnamed(job) || filled_unnamed(job);
}

/* ---- one chunk --------------------------------------------------------------------------------
 */

/* What jobs behind it filled stays. */
static void chunk_void(struct cgm_chunk *chunk, uint64_t ticket, int why)
{
    if (ticket < chunk->void_ticket)
        return;
    chunk->void_ticket = ticket;
    chunk->why = why;
    chunk->rows = 0;
    for (int i = 0; i < CGM_FILLS_KEPT; i++) {
        struct cgm_fill *fill = &chunk->fills[i];
        if (fill->ticket <= ticket)
            *fill = (struct cgm_fill){0};
        if (fill->rows > chunk->rows)
            chunk->rows = fill->rows;
    }
}

/* Whether `a` says nothing that `b` does not say. */
static bool is_said_by(const struct cgm_fill *a, const struct cgm_fill *b)
{
    return a->ticket <= b->ticket && a->rows <= b->rows;
}

/* Where there are too many, the oldest one is forgotten: it is the first to be left unsound. */
static void chunk_fill(struct cgm_chunk *chunk, uint64_t ticket, uint64_t rows)
{
    const struct cgm_fill fill = {ticket, rows};
    struct cgm_fill *place = &chunk->fills[0];
    if (ticket < chunk->void_ticket)
        return;
    if (rows > chunk->rows)
        chunk->rows = rows;
    for (int i = 0; i < CGM_FILLS_KEPT; i++) {
        struct cgm_fill *other = &chunk->fills[i];
        if (is_said_by(&fill, other))
            return;
        if (is_said_by(other, &fill))
            *other = (struct cgm_fill){0};
        if (other->ticket < place->ticket)
            place = other;
    }
    if (place->ticket < ticket)
        *place = fill;
}

static void judge(struct cgm_contents *contents, uint64_t mask, uint64_t ticket, int status,
                  uint64_t rows)
{
    for (; mask; mask &= mask - 1) {
        struct cgm_chunk *chunk = &contents->chunk[__builtin_ctzll(mask)];
        if (status == CGM_OK)
            chunk_fill(chunk, ticket, rows);
        else
            chunk_void(chunk, ticket, status);
    }
}

/* ---- the line -------------------------------------------------------------------------------- */

/* Of each chunk the last one is enough. */
static void void_add(struct cgm_void **voids, struct cgm_void *more)
{
    for (struct cgm_void **at = voids, *other; (other = *at);) {
        if (other->ticket < more->ticket)
            other->mask &= ~more->mask;
        else
            more->mask &= ~other->mask;
        if (other->mask) {
            at = &other->next;
            continue;
        }
        *at = other->next;
        free(other);
    }
    if (more->mask == 0) {
        free(more);
        return;
    }
    more->next = *voids;
    *voids = more;
}

static void voids_move(struct cgm_void **to, struct cgm_void **from)
{
    while (*from) {
        struct cgm_void *first = *from;
        *from = first->next;
        void_add(to, first);
    }
}

/* Nobody is before them any more. */
static void voids_come_true(struct cgm_contents *contents, struct cgm_void **voids)
{
    while (*voids) {
        struct cgm_void *first = *voids;
        *voids = first->next;
        judge(contents, first->mask, first->ticket, first->why, 0);
        free(first);
    }
}

void cgm_contents_free(struct cgm_contents *contents)
{
    if (contents)
        voids_come_true(contents, &contents->behind);
    free(contents);
}

static void line_enter(struct cgm_job *job)
{
    struct cgm_contents *contents = own_contents(job);
    job->in_line = true;
    job->voids = contents->behind;
    contents->behind = NULL;
    job->next = NULL;
    job->previous = contents->last;
    *(contents->last ? &contents->last->next : &contents->first) = job;
    contents->last = job;
}

static bool is_launched(const struct cgm_job *job)
{
    return job->gang && job->gang->launch != 0;
}

/* It may have waited for this alone. */
static void look_again(const struct cgm_job *job)
{
    if (job && job->gang && cgm_gang_may_launch(job->gang))
        cgm_gang_list_move(job->gang, true);
}

/* At the first one that is not launched. */
static void look_at_line(const struct cgm_contents *contents)
{
    const struct cgm_job *job = contents->first;
    for (int i = 0; job && is_launched(job) && i < LAUNCHED_SEEN; i++)
        job = job->next;
    look_again(job);
}

static void line_leave(struct cgm_job *job)
{
    struct cgm_contents *contents = own_contents(job);
    struct cgm_job *next = job->next;
    if (!job->in_line)
        return;
    struct cgm_void **voids = next ? &next->voids : &contents->behind;
    job->in_line = false;
    voids_move(voids, &job->voids);
    if (!job->previous)
        voids_come_true(contents, voids);
    *(job->previous ? &job->previous->next : &contents->first) = next;
    *(next ? &next->previous : &contents->last) = job->previous;
    job->next = job->previous = NULL;
    look_again(next);
    look_again(contents->first);
}

void cgm_contents_on_submit(struct cgm_job *job)
{
    if (job->opcode == CGM_OPCODE_BARRIER)
        return;
    if (filled(job) || read_of_own(job) || gathered_over(job))
        line_enter(job);
}

static void count_fillers(const struct cgm_job *job, uint32_t by)
{
    for (uint64_t mask = filled(job); mask; mask &= mask - 1)
        own_contents(job)->chunk[__builtin_ctzll(mask)].fillers += by;
}

static void gather_over(const struct cgm_job *job)
{
    for (uint64_t mask = gathered_over(job); mask; mask &= mask - 1)
        chunk_void(&own_contents(job)->chunk[__builtin_ctzll(mask)], job->ticket, CGM_OK);
}

/* A copy_in stays in the line until it has ended. */
void cgm_contents_on_launch(struct cgm_gang *gang)
{
    for (uint32_t rank = 0; rank < gang->comm->size; rank++) {
        struct cgm_job *job = gang->jobs[rank];
        if (!job)
            continue;
        if (gang->opcode == CGM_OPCODE_RUN) {
            line_leave(job);
            count_fillers(job, 1);
            gather_over(job);
        } else if (gang->opcode == CGM_OPCODE_COPY_IN) {
            look_again(job->next);
        }
    }
}

static bool are_being_filled(const struct cgm_contents *contents, uint64_t mask)
{
    for (; mask; mask &= mask - 1)
        if (contents->chunk[__builtin_ctzll(mask)].fillers)
            return true;
    return false;
}

/* One that only gathers is behind the others in the queues, as a copy_in is. */
static bool waits_in_line(const struct cgm_job *job)
{
    const struct cgm_job *previous = job->previous;
    const struct cgm_contents *contents = own_contents(job);
    if (job->opcode == CGM_OPCODE_COPY_IN)
        return (previous && !is_launched(previous)) || are_being_filled(contents, filled(job));
    if (!filled(job) && !read_of_own(job))
        return previous && !is_launched(previous);
    return previous || are_being_filled(contents, read_of_own(job));
}

bool cgm_contents_are_awaited(const struct cgm_gang *gang)
{
    for (uint32_t rank = 0; rank < gang->comm->size; rank++) {
        const struct cgm_job *job = gang->jobs[rank];
        if (job && job->in_line && waits_in_line(job))
            return true;
    }
    return false;
}

/* ---- sound or not ---------------------------------------------------------------------------- */

/* The first chunk of the mask with fewer sound rows; NULL: none. */
static const struct cgm_chunk *first_unsound(const struct cgm_contents *contents, uint64_t mask,
                                             uint64_t rows)
{
    for (; mask; mask &= mask - 1)
        if (contents->chunk[__builtin_ctzll(mask)].rows < rows)
            return &contents->chunk[__builtin_ctzll(mask)];
    return NULL;
}

bool cgm_contents_are_sound(const struct cgm_memory *memory, uint64_t offset, uint64_t bytes)
{
    const struct cgm_contents *contents = memory->contents;
    return !contents ||
           !first_unsound(contents, chunks_between(memory, offset, offset + bytes, false),
                          contents->rows);
}

static int describe(const struct cgm_memory *memory, const struct cgm_chunk *chunk, char *detail,
                    size_t bytes)
{
    uint32_t rank = 0;
    while (memory->owner->user[rank] != memory)
        rank++;
    uint32_t number = (uint32_t)(chunk - memory->contents->chunk);
    if (chunk->why == CGM_OK)
        return cgm_detail(detail, bytes, CGM_TAINTED,
                          "rank %u: chunk %u of its user buffer is gone, as a job whose lhs lay "
                          "elsewhere may have gathered there; copy it in again",
                          rank, number);
    if (chunk->why == CGM_EXECUTOR_LOST)
        return cgm_detail(detail, bytes, CGM_TAINTED,
                          "rank %u: chunk %u of its user buffer was lost with an executor; copy it "
                          "in again",
                          rank, number);
    return cgm_detail(detail, bytes, CGM_TAINTED,
                      "rank %u: chunk %u of its user buffer is stale, as the job that was to fill "
                      "it ended with %s; copy it in again",
                      rank, number, cgm_status_name(chunk->why));
}

static int check_job(const struct cgm_job *job, char *detail, size_t bytes)
{
    const struct cgm_memory *own = job->plan->user[job->rank];
    const struct cgm_chunk *bad =
        first_unsound(own->contents, read_unnamed(job), own->contents->rows);
    if (bad)
        return describe(own, bad, detail, bytes);
    for (int i = next_operand(job, 0); i < CGM_OPERAND_COUNT; i = next_operand(job, i + 1)) {
        if (!cgm_job_reads(job, i))
            continue;
        bad = first_unsound(job->memory[i]->contents, chunks_of_operand(job, i, false),
                            rows_of_operand(job, i));
        if (bad)
            return describe(job->memory[i], bad, detail, bytes);
    }
    return CGM_OK;
}

int cgm_contents_check(const struct cgm_gang *gang, char *ret_detail, size_t detail_bytes)
{
    int status = CGM_OK;
    for (uint32_t rank = 0; rank < gang->comm->size && status == CGM_OK; rank++)
        if (gang->jobs[rank] && reads_user_buffers(gang->jobs[rank]))
            status = check_job(gang->jobs[rank], ret_detail, detail_bytes);
    return status;
}

/* ---- verdicts -------------------------------------------------------------------------------- */

/* Where chunks are of the same size whatever the rows, a copy_in fills them. */
static uint64_t rows_copied(const struct cgm_job *job)
{
    const struct cgm_spec *spec = &job->plan->spec;
    uint64_t offset, stride;
    struct cgm_shape some, all;
    if (cgm_operation_chunk(spec, job->rows, 0, &offset, &stride, &some) &&
        cgm_operation_chunk(spec, spec->m, 0, &offset, &stride, &all) && some.rows == all.rows &&
        some.cols == all.cols)
        return spec->m;
    return job->rows;
}

static void judge_copy_in(const struct cgm_job *job, int status)
{
    judge(own_contents(job), copied(job), job->ticket, status,
          status == CGM_OK ? rows_copied(job) : 0);
}

/* It was not launched: those before it in the line read what was there before; without memory for
 * that they find an error, too. */
static void fail_in_line(struct cgm_job *job, int status)
{
    struct cgm_contents *contents = own_contents(job);
    uint64_t mask = filled(job);
    if (!mask)
        return;
    bool is_first = job->in_line ? !job->previous : !contents->first;
    struct cgm_void *one = is_first ? NULL : malloc(sizeof(*one));
    if (!one) {
        judge(contents, mask, job->ticket, status, 0);
        return;
    }
    *one = (struct cgm_void){.mask = mask, .ticket = job->ticket, .why = status};
    void_add(job->in_line && job->next ? &job->next->voids : &contents->behind, one);
}

/* Of other user buffers than its own. */
static void fail_elsewhere(const struct cgm_job *job, int status)
{
    for (int i = next_operand(job, 0); i < CGM_OPERAND_COUNT; i = next_operand(job, i + 1))
        if (CGM_OPERANDS_WRITTEN >> i & 1 && job->memory[i] != job->plan->user[job->rank])
            judge(job->memory[i]->contents, chunks_of_operand(job, i, false), job->ticket, status,
                  0);
}

static void judge_operands(const struct cgm_job *job, int status)
{
    for (int i = next_operand(job, 0); i < CGM_OPERAND_COUNT; i = next_operand(job, i + 1)) {
        struct cgm_contents *contents = job->memory[i]->contents;
        if (CGM_OPERANDS_WRITTEN >> i & 1)
            judge(contents, chunks_of_operand(job, i, status == CGM_OK), job->ticket, status,
                  contents->rows);
    }
}

/* A copy_in is judged while it stands in the line: what those before it left is known by then. */
static void end_launched(struct cgm_job *job, int status)
{
    if (job->opcode == CGM_OPCODE_COPY_IN) {
        judge_copy_in(job, status);
        line_leave(job);
        return;
    }
    line_leave(job);
    count_fillers(job, UINT32_MAX);
    judge(own_contents(job), filled_unnamed(job), job->ticket, status, job->plan->spec.m);
    judge_operands(job, status);
    if (filled(job))
        look_at_line(own_contents(job));
}

void cgm_contents_on_end(struct cgm_job *job, int status)
{
    if (!job->plan || job->opcode == CGM_OPCODE_BARRIER)
        return;
    if (is_launched(job)) {
        end_launched(job, status);
        return;
    }
    fail_in_line(job, status);
    fail_elsewhere(job, status);
    line_leave(job);
}
