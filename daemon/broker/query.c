#include "daemon/broker/query.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/buffer.h"
#include "daemon/broker/comm.h"
#include "daemon/broker/import.h"
#include "daemon/broker/log.h"
#include "daemon/broker/plan.h"
#include "daemon/broker/session.h"
#include "daemon/broker/tune.h"
#include "proto/types.h"

#define NS_PER_S 1000000000ull
#define LIST_BYTES 2048u

/* "[a,b]" under construction; with more than fits it ends with "...". */
struct list {
    char text[LIST_BYTES];
    size_t used;
    bool more;
};

static void list_add(struct list *list, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void list_add(struct list *list, const char *format, ...)
{
    va_list arguments;
    if (list->more)
        return;
    list->more = list->used + 64 > sizeof(list->text);
    if (list->more) {
        list->used += (size_t)sprintf(list->text + list->used, ",\"...\"");
        return;
    }
    list->text[list->used] = list->used == 0 ? '[' : ',';
    list->used++;
    va_start(arguments, format);
    list->used += (size_t)vsnprintf(list->text + list->used, 48, format, arguments);
    va_end(arguments);
}

static const char *list_end(struct list *list)
{
    if (list->used == 0)
        list->text[list->used++] = '[';
    list->text[list->used++] = ']';
    list->text[list->used] = '\0';
    return list->text;
}

/* ---- one object, one row ----------------------------------------------------------------------
 */

static void add_ranks(const struct cgm_session *session, struct list *list)
{
    uint64_t at = 0;
    const struct cgm_comm *comm;
    while ((comm = cgm_registry_next(&session->comms, &at)))
        for (uint32_t rank = 0; rank < comm->size; rank++)
            if (comm->sessions[rank] == session->id)
                list_add(list, "\"%ju:%u\"", (uintmax_t)comm->id, rank);
}

/* Submitted and not ended, as the ring says it; the client can make it say anything. */
static uint64_t jobs_in_ring(const struct cgm_session *session)
{
    const struct cgm_ring *ring = cgm_session_ring(session);
    if (!ring)
        return 0;
    uint32_t jobs = atomic_load_explicit(&ring->header->sq_tail, memory_order_relaxed) -
                    atomic_load_explicit(&ring->header->cq_tail, memory_order_relaxed);
    return jobs < ring->entries ? jobs : ring->entries;
}

static void session_row(const void *object, struct cgm_rows *rows)
{
    const struct cgm_session *session = object;
    struct list ranks = {.used = 0};
    add_ranks(session, &ranks);
    cgm_rows_number(rows, "id", session->id);
    cgm_rows_number(rows, "pid", (uint64_t)session->pid);
    cgm_rows_number(rows, "uid", session->uid);
    cgm_rows_text(rows, "name", session->name[0] ? session->name : NULL);
    cgm_rows_json(rows, "ranks", list_end(&ranks));
    cgm_rows_number(rows, "bytes", session->held_bytes);
    cgm_rows_number(rows, "imports", session->imports.count);
    if (session->ring.entries > 0)
        cgm_rows_number(rows, "jobs", jobs_in_ring(session));
    else /* the executor alone knows */
        cgm_rows_text(rows, "jobs", NULL);
    cgm_rows_number(rows, "ring_entries", session->ring.entries);
}

static void comm_row(const void *object, struct cgm_rows *rows)
{
    const struct cgm_comm *comm = object;
    struct list members = {.used = 0}, missing = {.used = 0};
    uint32_t joined = 0;
    for (uint32_t rank = 0; rank < comm->size; rank++) {
        if (comm->sessions[rank] == 0)
            list_add(&missing, "%u", rank);
        else
            joined++;
        list_add(&members, "%ju", (uintmax_t)comm->sessions[rank]);
    }
    cgm_rows_number(rows, "id", comm->id);
    cgm_rows_text(rows, "name", comm->name[0] ? comm->name : NULL);
    cgm_rows_number(rows, "size", comm->size);
    cgm_rows_number(rows, "uid", comm->owner.uid);
    cgm_rows_mode(rows, "mode", comm->owner.mode);
    cgm_rows_number(rows, "joined", joined);
    cgm_rows_json(rows, "members", list_end(&members));
    cgm_rows_json(rows, "missing", list_end(&missing));
    cgm_rows_bool(rows, "broken", comm->broken);
}

static void buffer_row(const void *object, struct cgm_rows *rows)
{
    const struct cgm_buffer *buffer = object;
    cgm_rows_number(rows, "id", buffer->id);
    cgm_rows_text(rows, "name", buffer->name[0] ? buffer->name : NULL);
    cgm_rows_number(rows, "bytes", buffer->bytes);
    cgm_rows_number(rows, "owner", buffer->owner.uid);
    cgm_rows_mode(rows, "mode", buffer->owner.mode);
    cgm_rows_number(rows, "generation", buffer->generation);
    cgm_rows_bool(rows, "tainted", buffer->tainted);
    cgm_rows_number(rows, "device", buffer->device);
    cgm_rows_number(rows, "sessions", buffer->holders);
    cgm_rows_hash(rows, "plan", buffer->plan);
}

static void plan_row(const void *object, struct cgm_rows *rows)
{
    const struct cgm_plan *plan = object;
    Cgm__PlanCreate *create = cgm__plan_create__unpack(NULL, plan->request_bytes, plan->request);
    if (!create)
        return;
    cgm_rows_hash(rows, "id", plan->id);
    cgm_rows_number(rows, "comm", plan->comm);
    cgm_rows_text(rows, "op", cgm_type_name(CGM_TABLE_OP, (int)create->op));
    cgm_rows_text(rows, "method", cgm_type_name(CGM_TABLE_METHOD, (int)create->method));
    cgm_rows_text(rows, "algorithm", cgm_type_name(CGM_TABLE_ALGO, (int)plan->algorithm));
    cgm_rows_text(rows, "reason", plan->reason);
    cgm_rows_number(rows, "m", create->m);
    cgm_rows_number(rows, "n", create->n);
    cgm_rows_number(rows, "k", create->k);
    cgm_rows_text(rows, "dtype", cgm_type_name(CGM_TABLE_DTYPE, (int)create->dtype));
    cgm_rows_number(rows, "world", plan->world);
    cgm_rows_number(rows, "refs", plan->references);
    cgm_rows_number(rows, "workspace_bytes", plan->workspace_bytes);
    cgm__plan_create__free_unpacked(create, NULL);
}

static void import_row(const void *object, struct cgm_rows *rows)
{
    const struct cgm_import *import = object;
    cgm_rows_number(rows, "id", import->id);
    cgm_rows_number(rows, "session", import->session);
    cgm_rows_number(rows, "bytes", import->bytes);
    cgm_rows_number(rows, "segments", import->message->n_kind);
    cgm_rows_bool(rows, "idle", import->idle);
}

/* ---- status -----------------------------------------------------------------------------------
 */

static void status_row(const struct cgm_broker *broker, struct cgm_rows *rows)
{
    /* The executor's, when it answers. */
    static const char *const counters[] = {"allocations", "syscalls", "poller_sleeps", "replays",
                                           "recorded"};
    const struct cgm_journal *journal = broker->executor.journal;
    const struct cgm_executor *executor = &broker->executor;
    char *warnings = cgm_doctor_warnings(broker);
    bool ready = cgm_executor_is_ready(executor);
    cgm_rows_begin(rows);
    cgm_rows_number(rows, "pid", (uint64_t)getpid());
    cgm_rows_json(rows, "executor_pid", "null");
    if (executor->pid)
        cgm_rows_number(rows, "executor_pid", (uint64_t)executor->pid);
    cgm_rows_number(rows, "executor_life", ready ? executor->life : 0);
    cgm_rows_text(rows, "executor_missing", ready ? NULL : cgm_executor_why_not(executor));
    cgm_rows_text(rows, "backend", executor->backend[0] ? executor->backend : "none");
    cgm_rows_number(rows, "devices", executor->n_devices);
    cgm_rows_text(rows, "device_names", executor->device_names);
    cgm_rows_text(rows, "release", COMMGEMM_RELEASE);
    cgm_rows_text(rows, "socket", broker->listener.path);
    cgm_rows_number(rows, "uptime_s", (cgm_clock_ns() - broker->started_ns) / NS_PER_S);
    cgm_rows_number(rows, "executor_deaths", executor->deaths);
    cgm_rows_number(rows, "sessions", broker->sessions.count);
    cgm_rows_number(rows, "comms", broker->comms.count);
    cgm_rows_number(rows, "buffers", broker->buffers.count);
    cgm_rows_number(rows, "plans", broker->plans.count);
    cgm_rows_number(rows, "imports", broker->imports.count);
    cgm_rows_bool(rows, "draining", broker->draining);
    cgm_rows_number(rows, "jobs_launched", atomic_load(&journal->jobs_launched));
    cgm_rows_number(rows, "jobs_done", atomic_load(&journal->jobs_done));
    cgm_rows_number(rows, "jobs_failed", atomic_load(&journal->jobs_failed));
    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++)
        cgm_rows_number(rows, counters[i], 0);
    cgm_rows_json(rows, "warnings", warnings ? warnings : "[]");
    free(warnings);
}

/* ---- the query --------------------------------------------------------------------------------
 */

/* How each thing is listed: from a registry of the broker, and, or, by the executor. */
static const struct {
    size_t registry; /* offset in struct cgm_broker; 0: none */
    void (*object_row)(const void *object, struct cgm_rows *rows);
    void (*own_rows)(const struct cgm_broker *broker, struct cgm_rows *rows);
    void (*own_pages)(const struct cgm_broker *broker, uint64_t after, struct cgm_rows *rows);
    bool ask_executor;
    bool merge; /* the executor's row into ours */
} listings[] = {
    [CGM_QUERY_STATUS] = {.own_rows = status_row, .ask_executor = true, .merge = true},
    [CGM_QUERY_SESSIONS] = {.registry = offsetof(struct cgm_broker, sessions),
                            .object_row = session_row},
    [CGM_QUERY_COMMS] = {.registry = offsetof(struct cgm_broker, comms), .object_row = comm_row},
    [CGM_QUERY_BUFFERS] = {.registry = offsetof(struct cgm_broker, buffers),
                           .object_row = buffer_row},
    [CGM_QUERY_PLANS] = {.registry = offsetof(struct cgm_broker, plans), .object_row = plan_row},
    [CGM_QUERY_JOBS] = {.ask_executor = true},
    [CGM_QUERY_ALGORITHMS] = {.ask_executor = true},
    [CGM_QUERY_DOCTOR] = {.own_rows = cgm_doctor_rows, .ask_executor = true},
    [CGM_QUERY_IMPORTS] = {.registry = offsetof(struct cgm_broker, imports),
                           .object_row = import_row},
    [CGM_QUERY_QUOTAS] = {.own_pages = cgm_quota_rows},
    [CGM_QUERY_TUNE] = {.own_pages = cgm_tune_rows},
};
#define LISTING_COUNT (sizeof(listings) / sizeof(listings[0]))

static void list_registry(const struct cgm_broker *broker, uint32_t what, uint64_t after,
                          struct cgm_rows *rows)
{
    const struct cgm_registry *registry =
        (const struct cgm_registry *)(const void *)((const char *)broker + listings[what].registry);
    const void *object;
    while ((object = cgm_registry_next(registry, &after))) {
        cgm_rows_begin(rows);
        listings[what].object_row(object, rows);
        if (!cgm_rows_are_full(rows))
            continue;
        rows->reply->has_next = 1;
        rows->reply->next = after;
        return;
    }
}

static void add_executor_rows(struct cgm_rows *rows, const Cgm__QueryReply *reply, bool merge)
{
    for (size_t i = 0; i < reply->n_row; i++) {
        const Cgm__Row *row = reply->row[i];
        if (!merge)
            cgm_rows_begin(rows);
        for (size_t k = 0; k < row->n_key && k < row->n_value; k++)
            cgm_rows_json(rows, row->key[k], row->value[k]);
    }
    rows->reply->has_next = reply->has_next;
    rows->reply->next = reply->next;
}

/* Our rows, then the executor's when there is a reply. Ours come with the first page. */
static void send_rows(struct cgm_broker *broker, uint64_t session, uint32_t serial, uint32_t what,
                      uint64_t after, const Cgm__QueryReply *reply)
{
    struct cgm_rows rows;
    if (cgm_rows_init(&rows) != CGM_OK) {
        cgm_answer_error(broker, session, serial, CGM_NO_MEMORY, "no memory for the rows");
        return;
    }
    if (listings[what].registry)
        list_registry(broker, what, after, &rows);
    if (listings[what].own_pages)
        listings[what].own_pages(broker, after, &rows);
    if (listings[what].own_rows && after == 0)
        listings[what].own_rows(broker, &rows);
    if (reply)
        add_executor_rows(&rows, reply, listings[what].merge);
    cgm_answer(broker, session, serial, CGM_MSG_QUERY_REPLY, &rows.reply->base, NULL, 0);
    cgm_rows_fini(&rows);
}

/* Without an executor there is nothing to say. */
static bool is_executors_alone(uint32_t what)
{
    return what == CGM_QUERY_ALGORITHMS;
}

/* call.index: what, call.other: after. */
static void on_executor_rows(struct cgm_broker *broker, const struct cgm_call *call,
                             const struct cgm_result *result)
{
    if (!cgm_registry_find(&broker->sessions, call->session))
        return; /* nobody waits for it */
    if (result->status != CGM_OK && is_executors_alone(call->index))
        cgm_answer_error(broker, call->session, call->serial, result->status, "%s", result->detail);
    else
        send_rows(broker, call->session, call->serial, call->index, call->other,
                  (const Cgm__QueryReply *)result->message);
}

int cgm_query_on_query(struct cgm_request *request)
{
    const Cgm__Query *query = (const Cgm__Query *)request->message;
    uint64_t after = query->has_after ? query->after : 0;
    if (query->what >= LISTING_COUNT)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT, "what is %u; it must be from 0 to %zu",
                          query->what, LISTING_COUNT - 1);
    if (listings[query->what].ask_executor) {
        struct cgm_call call = cgm_request_call(request, on_executor_rows, 0);
        call.index = query->what;
        call.other = after;
        if (cgm_call_executor(request->broker, CGM_MSG_QUERY, request->message, NULL, 0, &call) ==
            CGM_OK)
            return CGM_OK;
    }
    if (is_executors_alone(query->what))
        return cgm_refuse(request, CGM_NO_EXECUTOR, "%s",
                          cgm_executor_why_not(&request->broker->executor));
    send_rows(request->broker, request->session->id, request->serial, query->what, after, NULL);
    return CGM_OK;
}

int cgm_query_find_operator(struct cgm_request *request)
{
    if (request->session->uid == 0 || request->session->uid == geteuid())
        return CGM_OK;
    return cgm_refuse(request, CGM_PERMISSION,
                      "only uid %u, which the daemon runs as, and root may "
                      "drain it, end sessions or change what it measured; this is uid %u",
                      (unsigned)geteuid(), (unsigned)request->session->uid);
}

int cgm_query_on_drain(struct cgm_request *request)
{
    const Cgm__Drain *drain = (const Cgm__Drain *)request->message;
    if (!request->broker->draining)
        request->broker->drained_after = request->broker->last_session;
    request->broker->draining = !drain->undo;
    cgm_log_info("daemon: %s by session %ju",
                 drain->undo ? "takes new work again" : "takes no new work",
                 (uintmax_t)request->session->id);
    cgm_broker_tell_status(request->broker);
    cgm_reply_ok(request);
    return CGM_OK;
}
