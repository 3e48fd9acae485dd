#include "client/lib/submit.h"

#include <string.h>

#include "client/lib/clock.h"

_Static_assert(COMMGEMM_JOB_NOOP == (int)CGM_OPCODE_NOOP, "kinds are opcodes");
_Static_assert(COMMGEMM_JOB_RUN == (int)CGM_OPCODE_RUN, "kinds are opcodes");
_Static_assert(COMMGEMM_JOB_COPY_IN == (int)CGM_OPCODE_COPY_IN, "kinds are opcodes");
_Static_assert(COMMGEMM_JOB_BARRIER == (int)CGM_OPCODE_BARRIER, "kinds are opcodes");

/* ---- the entry --------------------------------------------------------------------------------
 */

static void fill_operand(struct cgm_operand *to, const struct commgemm_operand *from)
{
    to->id = from->id;
    to->offset_bytes = from->offset_bytes;
    to->row_stride_bytes = from->row_stride_bytes;
    to->generation = from->generation;
    to->reserved = 0;
}

static void fill_operands(struct cgm_entry *entry, const struct commgemm_job *job)
{
    fill_operand(&entry->operand[CGM_OPERAND_LHS], &job->lhs);
    fill_operand(&entry->operand[CGM_OPERAND_RHS], &job->rhs);
    fill_operand(&entry->operand[CGM_OPERAND_BIAS], &job->bias);
    fill_operand(&entry->operand[CGM_OPERAND_GELU_INPUT], &job->gelu_input);
    fill_operand(&entry->operand[CGM_OPERAND_AUX_IN], &job->aux_in);
    fill_operand(&entry->operand[CGM_OPERAND_OUT], &job->out);
    fill_operand(&entry->operand[CGM_OPERAND_BIAS_GRAD], &job->bias_grad);
    fill_operand(&entry->operand[CGM_OPERAND_PRE_GELU_OUT], &job->pre_gelu_out);
    fill_operand(&entry->operand[CGM_OPERAND_AUX_OUT], &job->aux_out);
    fill_operand(&entry->operand[CGM_OPERAND_LHS_SCALE], &job->lhs_scale);
    fill_operand(&entry->operand[CGM_OPERAND_RHS_SCALE], &job->rhs_scale);
    fill_operand(&entry->operand[CGM_OPERAND_OUT_SCALE], &job->out_scale);
}

static uint32_t flags_of(const struct commgemm_job *job)
{
    return (job->want_phases ? CGM_ENTRY_WANT_PHASES : 0u) |
           (job->accumulate ? CGM_ENTRY_ACCUMULATE : 0u);
}

/* `entry` may lie in shared memory: every field is stored once, but the ticket. A noop's operands
 * are not read, and `reserved` is 0 from the start, so that a noop touches one cache line. */
static void fill_entry(struct cgm_entry *entry, const struct cgm_slot *slot,
                       const struct commgemm_job *job)
{
    cgm_entry_begin(entry);
    entry->plan = job->plan;
    entry->comm_number = slot->comm_number;
    entry->opcode = (uint32_t)job->kind;
    entry->rank = job->rank;
    entry->rows = job->rows;
    entry->deadline_ms = job->deadline_ms;
    entry->flags = flags_of(job);
    entry->chunk = job->chunk;
    entry->submit_ns = cgm_now_ns();
    if (job->kind != COMMGEMM_JOB_NOOP) {
        entry->comm = slot->plan->comm->id;
        fill_operands(entry, job);
    }
    cgm_entry_end(entry, slot->entry_ticket);
}

/* ---- taking a place ---------------------------------------------------------------------------
 */

static int find_plan(const struct cgm_jobs *jobs, const struct commgemm_job *job,
                     struct cgm_plan **ret_plan)
{
    struct cgm_plan *plan = NULL;
    if (job->kind != COMMGEMM_JOB_NOOP) {
        plan = cgm_plans_find(&jobs->plans, job->plan);
        if (!plan)
            return cgm_fail(CGM_NOT_FOUND, "plan is %#llx; this session holds no such plan",
                            (unsigned long long)job->plan);
        if (job->rank >= plan->comm->size)
            return cgm_fail(CGM_INVALID_ARGUMENT, "rank is %u; comm %llu has ranks 0 to %u",
                            job->rank, (unsigned long long)plan->comm->id, plan->comm->size - 1);
    }
    *ret_plan = plan;
    return CGM_OK;
}

static bool is_numbered(const struct commgemm_job *job, const struct cgm_plan *plan)
{
    return plan && (job->kind == COMMGEMM_JOB_BARRIER ||
                    (job->kind == COMMGEMM_JOB_RUN && plan->collective));
}

/* Detached jobs that have ended give their slots back when somebody looks. */
static int make_room(struct cgm_jobs *jobs)
{
    int status = cgm_jobs_ready(jobs);
    if (status != CGM_OK || cgm_lane_has_room(jobs->lane))
        return status;
    cgm_jobs_collect(jobs);
    return cgm_jobs_ready(jobs);
}

int cgm_submit_take(struct cgm_jobs *jobs, const struct commgemm_job *job,
                    struct cgm_slot **ret_slot)
{
    struct cgm_plan *plan = NULL;
    int status = make_room(jobs);
    if (status == CGM_OK)
        status = find_plan(jobs, job, &plan);
    if (status == CGM_OK && is_numbered(job, plan))
        status = cgm_comm_ensure_numbers(plan->comm, job->rank);
    if (status == CGM_OK)
        status = cgm_jobs_take(jobs, plan, ret_slot);
    if (status == CGM_OK && is_numbered(job, plan)) {
        (*ret_slot)->rank = job->rank;
        (*ret_slot)->comm_number = cgm_numbers_take(plan->comm->numbers[job->rank]);
    }
    return status;
}

void cgm_submit_take_back(struct cgm_jobs *jobs, struct cgm_slot *slot)
{
    if (slot->comm_number)
        cgm_numbers_give(slot->plan->comm->numbers[slot->rank], slot->comm_number);
    cgm_jobs_untake(jobs, slot);
}

/* ---- through the ring -------------------------------------------------------------------------
 */

void cgm_submit_push(struct cgm_jobs *jobs, struct cgm_slot *slot, const struct commgemm_job *job)
{
    struct cgm_lane *lane = slot->lane;
    if (job->detached)
        cgm_jobs_detach(jobs, slot);
    fill_entry(&lane->ring.entry[slot->index], slot, job);
    cgm_lane_push(lane, slot);
    /* After the fence in push: a broker that declares the ring dead either finds this ticket in its
     * scan, or is seen here; collecting then ends the job. */
    if (cgm_lane_dead(lane))
        cgm_jobs_collect(jobs);
}

static int submit_by_ring(commgemm_client *client, const struct commgemm_job *job,
                          uint64_t *ret_ticket)
{
    struct cgm_jobs *jobs = &client->jobs;
    struct cgm_slot *slot;
    cgm_jobs_lock(jobs);
    int status = cgm_submit_take(jobs, job, &slot);
    if (status == CGM_OK) {
        *ret_ticket = slot->ticket;
        /* No stream: the rank is ready with its submission. Published by the push. */
        atomic_store_explicit(&slot->lane->ring.ready[slot->index], slot->entry_ticket,
                              memory_order_release);
        cgm_submit_push(jobs, slot, job);
    }
    cgm_jobs_unlock(jobs);
    return status;
}

/* Under the lock of the jobs: the executor that counts the slot's ticket. */
static uint64_t life_of(commgemm_client *client, const struct cgm_slot *slot)
{
    return slot->lane->life ? slot->lane->life : atomic_load(&client->executor_life);
}

/* ---- through the socket -----------------------------------------------------------------------
 */

static int send_entry(commgemm_client *client, struct cgm_entry *entry, uint64_t executor_life)
{
    Cgm__Submit request = CGM__SUBMIT__INIT;
    request.has_executor_life = 1;
    request.executor_life = executor_life;
    request.entry.data = (uint8_t *)entry;
    request.entry.len = sizeof(*entry);
    return cgm_client_tell(client, CGM_MSG_SUBMIT, &request.base);
}

/* The executor ended behind the job, and before it said that it had taken it. */
static bool has_ended_well(const struct cgm_slot *slot)
{
    return cgm_slot_has_ended(slot) && slot->cqe.status == CGM_OK;
}

/* Under the lock of the jobs. A job that is for no known executor would be for any that comes, also
 * after it was given up here. */
static int take_for_socket(commgemm_client *client, const struct commgemm_job *job,
                           struct cgm_slot **ret_slot)
{
    int status = cgm_client_check_served(client);
    return status == CGM_OK ? cgm_submit_take(&client->jobs, job, ret_slot) : status;
}

static int submit_by_socket(commgemm_client *client, const struct commgemm_job *job,
                            uint64_t *ret_ticket)
{
    struct cgm_jobs *jobs = &client->jobs;
    struct cgm_entry entry = {0};
    struct cgm_kept_error kept;
    struct cgm_slot *slot;
    uint64_t ticket = 0, life = 0;
    cgm_jobs_lock(jobs);
    int status = take_for_socket(client, job, &slot);
    if (status == CGM_OK) {
        fill_entry(&entry, slot, job);
        life = life_of(client, slot);
        ticket = slot->ticket;
        slot->submitting = true; /* it may end before the reply: nobody takes it until then */
        cgm_jobs_hold(slot);
    }
    cgm_jobs_unlock(jobs);
    if (status != CGM_OK)
        return status;
    cgm_error_keep(&kept);
    status = send_entry(client, &entry, life);
    cgm_jobs_lock(jobs);
    slot->submitting = false;
    cgm_jobs_unhold(jobs, slot);
    if (status != CGM_OK && has_ended_well(slot)) {
        cgm_error_restore(&kept);
        status = CGM_OK;
    }
    if (status != CGM_OK) /* under submit_lock the last ticket is this job's */
        cgm_submit_take_back(jobs, slot);
    else if (job->detached)
        cgm_jobs_detach(jobs, slot);
    cgm_jobs_unlock(jobs);
    if (status == CGM_OK)
        *ret_ticket = ticket;
    return status;
}

/* ---- calls ------------------------------------------------------------------------------------
 */

static int check_job(const commgemm_client *client, const struct commgemm_job *job,
                     const uint64_t *ret_ticket)
{
    int status = cgm_check_client(client);
    if (status == CGM_OK)
        status = cgm_check_pointer(job, "job");
    if (status == CGM_OK)
        status = cgm_check_pointer(ret_ticket, "ret_ticket");
    return status;
}

static int check_values(const struct commgemm_job *job)
{
    if (job->kind < COMMGEMM_JOB_NOOP || job->kind > COMMGEMM_JOB_BARRIER)
        return cgm_fail(CGM_INVALID_ARGUMENT,
                        "kind is %d; it must be %d (noop), %d (run), %d (copy_in) or %d (barrier)",
                        job->kind, COMMGEMM_JOB_NOOP, COMMGEMM_JOB_RUN, COMMGEMM_JOB_COPY_IN,
                        COMMGEMM_JOB_BARRIER);
    if (job->detached && job->want_phases)
        return cgm_fail(CGM_INVALID_ARGUMENT,
                        "want_phases is %d; nobody takes the phases of a "
                        "detached job",
                        job->want_phases);
    return CGM_OK;
}

/* A job made with an older header. */
static int complete_job(const struct commgemm_job *job, struct commgemm_job *ret_copy,
                        const struct commgemm_job **ret_job)
{
    const void *known;
    if (job->struct_size == sizeof(*job)) {
        *ret_job = job;
        return CGM_OK;
    }
    commgemm_job_init(ret_copy);
    int status = cgm_check_struct(job, sizeof(*job), "commgemm_job_init", ret_copy, &known);
    ret_copy->struct_size = sizeof(*ret_copy);
    *ret_job = ret_copy;
    return status;
}

int cgm_submit_check(const commgemm_client *client, const struct commgemm_job *job,
                     const uint64_t *ret_ticket, struct commgemm_job *ret_copy,
                     const struct commgemm_job **ret_job)
{
    int status = check_job(client, job, ret_ticket);
    if (status == CGM_OK)
        status = complete_job(job, ret_copy, ret_job);
    return status == CGM_OK ? check_values(*ret_job) : status;
}

int commgemm_submit(commgemm_client *client, const struct commgemm_job *job, uint64_t *ret_ticket)
{
    struct commgemm_job copy;
    int status = cgm_submit_check(client, job, ret_ticket, &copy, &job);
    if (status != CGM_OK)
        return status;
    if (!client->no_ring)
        return submit_by_ring(client, job, ret_ticket);
    pthread_mutex_lock(&client->submit_lock);
    status = submit_by_socket(client, job, ret_ticket);
    pthread_mutex_unlock(&client->submit_lock);
    return status;
}

/* The executor's number of a job in flight, and which executor's; 0 for one that has ended. */
static int find_ticket(commgemm_client *client, uint64_t ticket, Cgm__Cancel *ret_request)
{
    struct cgm_jobs *jobs = &client->jobs;
    cgm_jobs_lock(jobs);
    uint64_t last = jobs->last_ticket;
    const struct cgm_slot *slot = ticket ? cgm_jobs_find(jobs, ticket) : NULL;
    if (slot && !cgm_slot_has_ended(slot)) {
        ret_request->ticket = slot->entry_ticket;
        ret_request->executor_life = life_of(client, slot);
        ret_request->has_executor_life = 1;
    }
    cgm_jobs_unlock(jobs);
    if (ticket > 0 && ticket <= last)
        return CGM_OK;
    return cgm_fail(CGM_NOT_FOUND, "ticket is %llu; the last submitted is %llu",
                    (unsigned long long)ticket, (unsigned long long)last);
}

int commgemm_cancel(commgemm_client *client, uint64_t ticket)
{
    Cgm__Cancel request = CGM__CANCEL__INIT;
    int status = cgm_check_client(client);
    if (status != CGM_OK)
        return status;
    status = find_ticket(client, ticket, &request);
    if (status != CGM_OK || request.ticket == 0)
        return status;
    return cgm_client_tell(client, CGM_MSG_CANCEL, &request.base);
}
