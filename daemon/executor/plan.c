#include "daemon/executor/plan.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/executor/collectives.h"
#include "daemon/executor/memory.h"
#include "daemon/executor/plan_make.h"
#include "daemon/executor/recordings.h"
#include "proto/messages.h"
#include "proto/status.h"

/* Of whoever asks for it, whether it had begun or not. */
#define WITHOUT_COMM "plan: its comm ended while it was being made"

typedef unsigned long long ull;

void cgm_plan_ref(struct cgm_plan *plan)
{
    plan->users++;
}

/* ---- making, first on the mapper ------------------------------------------------------------ */

static void plan_register_step(struct cgm_request *request);
static void plan_rehearse_step(struct cgm_request *request);
static void plan_discard_step(struct cgm_request *request);

static bool plan_fill_slice(struct cgm_request *request)
{
    struct cgm_plan *plan = request->object;
    bool more = false;
    request->status =
        atomic_load(&plan->comm->removed) ? CGM_CANCELLED : cgm_plan_fill(plan, &more);
    return more;
}

static void plan_filled_step(struct cgm_request *request)
{
    bool filled = request->status == CGM_OK;
    cgm_request_to_poller(request, filled ? plan_rehearse_step : plan_discard_step);
}

static bool plan_make_slice(struct cgm_request *request)
{
    struct cgm_plan *plan = request->object;
    const Cgm__PlanAdd *m = (const Cgm__PlanAdd *)request->message;
    bool more = false;
    request->status =
        atomic_load(&plan->comm->removed)
            ? CGM_CANCELLED
            : cgm_plan_make(plan, CGM_PLAN_OPERANDS_FEW, m->buffer_ids, m->journals, &more);
    return more;
}

static void plan_made_step(struct cgm_request *request)
{
    const struct cgm_plan *plan = request->object;
    if (request->status == CGM_OK)
        cgm_request_in_slices(request, plan->uid, plan_fill_slice, plan_filled_step);
    else
        plan_filled_step(request);
}

static void plan_make_step(struct cgm_request *request)
{
    struct cgm_plan *plan = request->object;
    plan->scratch_bytes = cgm_plan_scratch_bytes(plan, plan->algorithm);
    plan->n_flags = cgm_plan_flags(plan, plan->algorithm);
    cgm_request_in_slices(request, plan->uid, plan_make_slice, plan_made_step);
}

static struct cgm_plan *plan_of_rehearsal(struct cgm_quiet *quiet)
{
    return (struct cgm_plan *)(void *)((char *)quiet - offsetof(struct cgm_plan, rehearsal));
}

static void rehearsal_run(struct cgm_quiet *quiet)
{
    struct cgm_request *request = plan_of_rehearsal(quiet)->creation;
    struct cgm_plan *plan = request->object;
    if (!plan->rehearsing)
        cgm_collectives_choose(plan, request->executor);
    plan->doing = "choosing the products' code";
    plan->rehearsing = true;
    request->status = cgm_plan_rehearse(plan);
    quiet->again = request->status == CGM_TIMEOUT;
}

static void rehearsal_done(struct cgm_quiet *quiet)
{
    struct cgm_request *request = plan_of_rehearsal(quiet)->creation;
    if (request->status == CGM_OK)
        plan_register_step(request);
    else
        plan_discard_step(request);
}

/* On the poller. */
static void plan_rehearse_step(struct cgm_request *request)
{
    struct cgm_plan *plan = request->object;
    plan->rehearsal.run = rehearsal_run;
    plan->rehearsal.done = rehearsal_done;
    cgm_quiet_post(&request->executor->poller, &plan->rehearsal);
}

/* ---- taking apart --------------------------------------------------------------------------- */

static bool user_buffers_slice(struct cgm_request *request)
{
    return cgm_plan_drain(request->object, request->executor, CGM_PLAN_USER_BUFFERS,
                          CGM_PLAN_USER_BUFFERS);
}

/* On the sweeper, when nobody is granted anything of it any more. */
static uint32_t guest_of(const struct cgm_plan *plan)
{
    uint32_t guest = CGM_NOBODY;
    for (uint32_t rank = 0; rank < plan->spec.world; rank++)
        if (plan->user[rank])
            guest = cgm_guest_with(guest, plan->user[rank]->guest);
    return guest;
}

/* Clients may have the user buffers, too. */
static void plan_sweep_step(struct cgm_request *request)
{
    const struct cgm_plan *plan = request->object;
    cgm_request_in_sweep(request, plan->uid, guest_of(plan), user_buffers_slice, plan->freed_step);
}

/* On the poller. Nothing is left of it but user buffers, which a client may hold for as long as he
 * likes: the comm, which may be another user's, does not wait for that. */
static void plan_part_step(struct cgm_request *request)
{
    struct cgm_plan *plan = request->object;
    struct cgm_comm *comm = plan->comm;
    plan->comm = NULL;
    cgm_comm_unref(comm);
    if (request->executor->ops->mem_freed_anywhere)
        cgm_request_to_sweeper(request, plan_sweep_step);
    else
        cgm_request_in_slices(request, plan->uid, user_buffers_slice, plan->freed_step);
}

static bool plan_drain_slice(struct cgm_request *request)
{
    return cgm_plan_drain(request->object, request->executor, CGM_PLAN_OPERANDS, CGM_PLAN_SCRATCH);
}

static bool plan_fini_slice(struct cgm_request *request)
{
    return cgm_plan_fini(request->object, request->executor);
}

static void plan_finished_step(struct cgm_request *request)
{
    cgm_request_to_poller(request, plan_part_step);
}

static void plan_fini_step(struct cgm_request *request)
{
    const struct cgm_plan *plan = request->object;
    cgm_request_in_slices(request, plan->uid, plan_fini_slice, plan_finished_step);
}

/* First on the mapper. The last step is anywhere. */
static void take_apart(struct cgm_plan *plan, struct cgm_request *request,
                       void (*step)(struct cgm_request *request))
{
    request->object = plan;
    plan->freed_step = step;
    cgm_request_in_slices(request, plan->uid, plan_drain_slice, plan_fini_step);
}

static void plan_free(struct cgm_plan *plan, struct cgm_executor *executor)
{
    cgm_plan_free_user_buffers(plan, executor);
    free(plan);
}

/* ---- coming, on the poller ------------------------------------------------------------------ */

static void plan_discarded_step(struct cgm_request *request)
{
    struct cgm_plan *plan = request->object;
    struct cgm_executor *executor = request->executor;
    const char *doing = plan->doing;
    bool has_queues = plan->queues != NULL;
    uint64_t bytes = cgm_plan_bytes(plan, 0);
    uint32_t device = plan->ranks[0].device;
    char room[CGM_EXECUTOR_ROOM];
    plan_free(plan, executor);
    cgm_executor_describe_room(executor, device, room);
    if (request->status == CGM_NO_MEMORY && !has_queues)
        cgm_request_fail(request, request->status, "plan: %s failed" CGM_QUEUES_NEED, doing);
    else if (request->status == CGM_NO_MEMORY)
        cgm_request_fail(request, request->status,
                         "plan: %s failed: it takes %llu bytes for each rank, operands included; "
                         "device %u: %s",
                         doing, (ull)bytes, device, room);
    else if (request->status == CGM_CANCELLED)
        cgm_request_fail(request, request->status, WITHOUT_COMM);
    else
        cgm_request_fail(request, request->status, "plan: %s on the ranks' devices failed: %s",
                         doing, cgm_status_text(request->status));
}

static void plan_discard_step(struct cgm_request *request)
{
    struct cgm_plan *plan = request->object;
    cgm_flight_give(plan->comm, plan->flight);
    take_apart(plan, request, plan_discarded_step);
}

static int register_user_buffers(struct cgm_plan *plan, struct cgm_poller *poller)
{
    int status = CGM_OK;
    for (uint32_t rank = 0; rank < plan->spec.world && status == CGM_OK; rank++)
        status = cgm_map_add(&poller->memories, plan->user[rank]->id, plan->user[rank]);
    return status;
}

static void unregister_user_buffers(struct cgm_plan *plan, struct cgm_poller *poller)
{
    for (uint32_t rank = 0; rank < plan->spec.world; rank++)
        if (cgm_map_get(&poller->memories, plan->user[rank]->id) == plan->user[rank])
            cgm_memory_forget(poller, plan->user[rank]);
}

static void warm_done(struct cgm_plan *plan);

static void plan_register_step(struct cgm_request *request)
{
    struct cgm_plan *plan = request->object;
    struct cgm_poller *poller = &request->executor->poller;
    int status = register_user_buffers(plan, poller);
    if (status == CGM_OK)
        status = cgm_map_add(&poller->plans, plan->id, plan);
    if (status != CGM_OK) {
        unregister_user_buffers(plan, poller);
        request->status = status;
        plan_discard_step(request);
        return;
    }
    struct cgm_flight *flight = plan->flight;
    if (!cgm_plan_has_first_run(plan)) {
        atomic_store(&flight->run.status, CGM_OK);
        warm_done(plan);
        return;
    }
    plan->doing = "the first run";
    flight->plan = plan;
    flight->kind = CGM_FLIGHT_RUN;
    cgm_flight_set_ranks(flight, cgm_all_ranks(plan->spec.world));
    flight->launch.rows = cgm_plan_operands_rows(&plan->spec, CGM_PLAN_OPERANDS_FEW);
    flight->launch.quiet = plan->comm->n_flights == 1;
    flight->launch.accumulate = plan->spec.epilogue & CGM_EPILOGUE_ACCUMULATE;
    plan->next_warming = poller->warming;
    poller->warming = plan;
    poller->n_warming++;
    cgm_flight_start(flight, cgm_now_ns());
}

/* Whole, in the place of the end of what is too long before it. */
static void name_tf32(struct cgm_plan *plan, const struct cgm_backend_ops *ops)
{
    const char *text =
        ops->has_tf32 ? "; products in TF32" : "; strict fp32, this backend has no TF32";
    size_t used = strlen(plan->reason), most = sizeof(plan->reason) - strlen(text) - 1;
    if (!plan->spec.allow_tf32)
        return;
    if (used > most) {
        used = most;
        memcpy(plan->reason + used - 3, "...", 3);
    }
    snprintf(plan->reason + used, sizeof(plan->reason) - used, "%s", text);
}

/* A product needs one multiprocessor at least. */
static int check_margin(const struct cgm_plan *plan, char *detail, size_t bytes)
{
    const struct cgm_executor *executor = plan->comm->poller->executor;
    const struct cgm_spec *spec = &plan->spec;
    for (uint32_t rank = 0; spec->set_sm_margin && rank < spec->world; rank++) {
        const struct cgm_device_info *info = &executor->info[plan->comm->devices[rank]];
        if (info->sms && spec->num_comm_sm >= info->sms)
            return cgm_detail(detail, bytes, CGM_INVALID_ARGUMENT,
                              "num_comm_sm is %u with set_sm_margin; device %u has %u "
                              "multiprocessors, and a product needs one",
                              spec->num_comm_sm, plan->comm->devices[rank], info->sms);
    }
    return CGM_OK;
}

static int plan_init(struct cgm_plan *plan, const Cgm__PlanCreate *asked, char *detail,
                     size_t bytes)
{
    struct cgm_comm *comm = plan->comm;
    int status = cgm_spec_init(asked, comm->size, comm->devices_shared, detail, bytes, &plan->spec);
    if (status == CGM_OK)
        status = check_margin(plan, detail, bytes);
    if (status != CGM_OK)
        return status;
    status =
        cgm_algorithm_choose(&plan->spec, plan->reason, sizeof(plan->reason), &plan->algorithm);
    if (status != CGM_OK)
        return cgm_detail(detail, bytes, status, "%s", plan->reason);
    cgm_spec_take(&plan->spec, &(struct cgm_candidate){plan->algorithm, 0});
    return CGM_OK;
}

/* As it was asked for; nothing is taken yet. NULL: the request has its answer. */
static struct cgm_plan *plan_new(struct cgm_request *request, struct cgm_comm *comm,
                                 const Cgm__PlanCreate *asked)
{
    char detail[400] = "plan: out of host memory";
    struct cgm_plan *plan = calloc(1, sizeof(*plan));
    int status = CGM_NO_MEMORY;
    if (plan) {
        plan->comm = comm;
        status = plan_init(plan, asked, detail, sizeof(detail));
    }
    if (status == CGM_OK)
        return plan;
    free(plan);
    cgm_request_fail(request, status, "%s", detail);
    return NULL;
}

static void plan_chosen_step(struct cgm_request *request)
{
    struct cgm_plan *plan = request->object;
    name_tf32(plan, request->executor->ops);
    cgm_request_to_mapper(request, plan->uid, plan_make_step);
}

static void plan_add(struct cgm_request *request, struct cgm_comm *comm,
                     const Cgm__PlanCreate *asked)
{
    const Cgm__PlanAdd *m = (const Cgm__PlanAdd *)request->message;
    if (m->n_buffer_ids != comm->size || m->n_journals != comm->size) {
        cgm_request_fail(request, CGM_INVALID_ARGUMENT, "there is not one buffer id a rank");
        return;
    }
    struct cgm_plan *plan = plan_new(request, comm, asked);
    if (!plan)
        return;
    plan->flight = cgm_flight_take(comm, comm->size, &comm->poller->job_memory);
    if (!plan->flight) {
        free(plan);
        cgm_request_fail(request, CGM_NO_MEMORY, "plan: out of host memory");
        return;
    }
    plan->id = m->id;
    plan->uid = m->uid;
    plan->lost = m->lost;
    plan->creation = request;
    cgm_comm_ref(comm);
    request->object = plan;
    cgm_tuning_begin(request, plan_chosen_step);
}

/* The operands of the first run go before it is answered. Which algorithm auto takes is not known
 * yet: the one that wants most may be it. */
static void plan_measure(struct cgm_request *request, struct cgm_comm *comm,
                         const Cgm__PlanCreate *asked)
{
    struct cgm_plan *plan = plan_new(request, comm, asked);
    Cgm__PlanMeasured reply = CGM__PLAN_MEASURED__INIT;
    if (!plan)
        return;
    plan->scratch_bytes = cgm_plan_scratch_bytes(plan, plan->algorithm);
    reply.trial_bytes = cgm_tuning_bytes(plan, &plan->scratch_bytes);
    reply.has_trial_bytes = reply.trial_bytes > 0;
    for (uint32_t rank = 0; rank < plan->spec.world; rank++)
        reply.bytes += cgm_plan_bytes(plan, rank);
    free(plan);
    cgm_request_answer(request, CGM_MSG_PLAN_MEASURED, &reply.base, NULL, 0);
}

/* Unpacks what a client asked for. */
static void with_request(struct cgm_request *request, const ProtobufCBinaryData *packed,
                         void (*go_on)(struct cgm_request *request, struct cgm_comm *comm,
                                       const Cgm__PlanCreate *asked))
{
    Cgm__PlanCreate *asked = cgm__plan_create__unpack(NULL, packed->len, packed->data);
    struct cgm_comm *comm =
        asked ? cgm_map_get(&request->executor->poller.comms, asked->comm) : NULL;
    if (comm)
        go_on(request, comm, asked);
    else if (!asked) /* the broker has packed it: it is not malformed */
        cgm_request_fail(request, CGM_NO_MEMORY, "plan: out of host memory");
    else
        cgm_request_fail(request, CGM_CANCELLED, WITHOUT_COMM);
    if (asked)
        cgm__plan_create__free_unpacked(asked, NULL);
}

void cgm_plan_on_add(struct cgm_request *request)
{
    with_request(request, &((const Cgm__PlanAdd *)request->message)->request, plan_add);
}

void cgm_plan_on_measure(struct cgm_request *request)
{
    with_request(request, &((const Cgm__PlanMeasure *)request->message)->request, plan_measure);
}

struct times {
    uint32_t algorithm[CGM_TUNED_MAX];
    cgm_variant variant[CGM_TUNED_MAX];
    uint64_t ns[CGM_TUNED_MAX];
};

/* What was measured now, for the broker to remember. */
static void add_times(const struct cgm_plan *plan, Cgm__PlanAdded *reply, struct times *times)
{
    const struct cgm_tuned *tuned = &plan->tuned;
    for (uint32_t i = 0; i < tuned->n; i++) {
        times->algorithm[i] = (uint32_t)tuned->tried[i].candidate.algorithm->number;
        times->variant[i] = tuned->tried[i].candidate.variant;
        times->ns[i] = tuned->tried[i].ns;
    }
    reply->tried = times->algorithm;
    reply->tried_variant = times->variant;
    reply->tried_ns = times->ns;
    reply->n_tried = tuned->at_s == 0 ? tuned->n : 0;
    reply->n_tried_variant = reply->n_tried_ns = reply->n_tried;
}

/* Poller. */
static void plan_answered(struct cgm_task *task)
{
    cgm_plan_unref((struct cgm_plan *)(void *)((char *)task - offsetof(struct cgm_plan, answered)));
}

/* On the mapper: the plan is in use from the answer on, and may be removed before. */
static void plan_answer_step(struct cgm_request *request)
{
    const struct cgm_backend_ops *ops = request->executor->ops;
    struct cgm_plan *plan = request->object;
    struct cgm_shape shape = cgm_operation_user_buffer(&plan->spec);
    Cgm__PlanAdded reply = CGM__PLAN_ADDED__INIT;
    struct times times;
    int fds[CGM_COMM_SIZE_MAX], status = CGM_OK;
    uint32_t n = 0;
    cgm_plan_free_operands(plan);
    while (n < plan->spec.world && status == CGM_OK)
        if ((status = ops->mem_export(plan->ranks[n].user, &fds[n])) == CGM_OK)
            n++;
    reply.algorithm = (uint32_t)plan->algorithm->number;
    reply.reason = plan->reason;
    reply.user_rows = shape.rows;
    reply.user_cols = shape.cols;
    reply.user_dtype = (uint32_t)shape.dtype;
    reply.user_bytes = plan->user[0]->mem_bytes;
    reply.chunks = cgm_operation_chunks(&plan->spec);
    reply.workspace_bytes = plan->user[0]->mem_bytes + plan->scratch_bytes;
    add_times(plan, &reply, &times);
    if (status == CGM_OK)
        cgm_request_answer(request, CGM_MSG_PLAN_ADDED, &reply.base, fds, n);
    else
        cgm_request_fail(request, status, "plan: its user buffers cannot be exported");
    while (n > 0)
        close(fds[--n]);
    plan->answered.run = plan_answered;
    cgm_poller_post(plan->comm->poller, &plan->answered);
}

static bool operands_drain_slice(struct cgm_request *request)
{
    return cgm_plan_drain(request->object, request->executor, CGM_PLAN_OPERANDS, CGM_PLAN_OPERANDS);
}

/* The first run is watched like a job. */
static void watch(struct cgm_plan *plan)
{
    char why[96];
    if (!cgm_flight_is_stuck(plan->flight, cgm_now_ns()))
        return;
    snprintf(why, sizeof(why), "the first run of plan %016llx does not end after its abort",
             (ull)plan->id);
    cgm_executor_end(plan->comm->poller->executor, CGM_TROUBLE_STUCK, why);
}

static void warm_failed(struct cgm_plan *plan, int status)
{
    struct cgm_poller *poller = plan->comm->poller;
    struct cgm_request *request = plan->creation;
    cgm_executor_log(4, "plan %016llx: its first run failed: %s", (ull)plan->id,
                     cgm_status_text(status));
    cgm_map_remove(&poller->plans, plan->id);
    unregister_user_buffers(plan, poller);
    request->status = status;
    plan_discard_step(request);
}

static void warm_done(struct cgm_plan *plan)
{
    struct cgm_request *request = plan->creation;
    int status = atomic_load(&plan->flight->run.status);
    if (status != CGM_OK) {
        warm_failed(plan, status);
        return;
    }
    cgm_flight_give(plan->comm, plan->flight);
    plan->flight = NULL;
    plan->creation = NULL;
    cgm_plan_ref(plan);
    cgm_request_in_slices(request, plan->uid, operands_drain_slice, plan_answer_step);
}

/* A user may have a thousand, behind jobs: not all of them in every round. */
static bool is_time_to_look(struct cgm_poller *poller, uint64_t now_ns)
{
    if (poller->n_warming > CGM_WARMING_FEW && now_ns < poller->next_warming_look_ns)
        return false;
    poller->next_warming_look_ns = now_ns + CGM_WARMING_LOOK_NS;
    return true;
}

bool cgm_plan_step_warming(struct cgm_poller *poller)
{
    bool busy = false;
    struct cgm_plan **link = &poller->warming;
    uint64_t now_ns = cgm_now_ns();
    if (!is_time_to_look(poller, now_ns))
        return false;
    while (*link) {
        struct cgm_plan *plan = *link;
        if (!cgm_flight_is_done(plan->flight)) {
            cgm_flight_look(plan->flight, now_ns);
            watch(plan);
            link = &plan->next_warming;
            continue;
        }
        *link = plan->next_warming;
        poller->n_warming--;
        warm_done(plan);
        busy = true;
    }
    return busy;
}

/* ---- going ---------------------------------------------------------------------------------- */

static void plan_freed_step(struct cgm_request *request)
{
    plan_free(request->object, request->executor);
    cgm_request_ok(request);
}

static void plan_free_if_unused(struct cgm_plan *plan)
{
    if (plan->users > 0 || !plan->removal)
        return;
    for (uint32_t rank = 0; rank < plan->spec.world; rank++)
        if (plan->user[rank]->users > 0)
            return; /* a job of another plan uses it; on_unused comes back here */
    struct cgm_request *removal = plan->removal;
    plan->removal = NULL;
    cgm_recordings_leave(plan->comm->poller, plan->recordings);
    take_apart(plan, removal, plan_freed_step);
}

static void user_buffer_unused(struct cgm_memory *memory)
{
    plan_free_if_unused(memory->owner);
}

void cgm_plan_unref(struct cgm_plan *plan)
{
    plan->users--;
    plan_free_if_unused(plan);
}

void cgm_plan_on_remove(struct cgm_request *request)
{
    const Cgm__PlanRemove *m = (const Cgm__PlanRemove *)request->message;
    struct cgm_poller *poller = &request->executor->poller;
    struct cgm_plan *plan = cgm_map_get(&poller->plans, m->id);
    if (!plan || plan->creation) {
        cgm_request_fail(request, CGM_NOT_FOUND, "plan: %016llx is not here", (ull)m->id);
        return;
    }
    cgm_map_remove(&poller->plans, m->id);
    unregister_user_buffers(plan, poller);
    plan->removal = request;
    for (uint32_t rank = 0; rank < plan->spec.world; rank++)
        plan->user[rank]->on_unused = user_buffer_unused;
    plan_free_if_unused(plan);
}
