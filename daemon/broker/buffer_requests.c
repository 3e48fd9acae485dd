/* What clients ask of buffers. */
#include <stdio.h>
#include <unistd.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/buffer.h"
#include "daemon/broker/buffer_waiters.h"
#include "daemon/broker/plan.h"
#include "daemon/broker/quota.h"
#include "daemon/broker/session.h"
#include "daemon/broker/user_log.h"

/* ---- create -----------------------------------------------------------------------------------
 */

static int check_create(struct cgm_request *request, const Cgm__BufferCreate *create)
{
    struct cgm_broker *broker = request->broker;
    uint32_t n_devices = broker->executor.n_devices;
    if (create->name && !cgm_name_is_valid(create->name))
        return cgm_refuse(request, CGM_INVALID_ARGUMENT,
                          "name of the buffer must be 1 to %u characters of [A-Za-z0-9._:-], the "
                          "first none of . - :",
                          CGM_NAME_BYTES_MAX);
    if (create->name && cgm_buffer_find_name(broker, create->name))
        return cgm_refuse(request, CGM_EXISTS, "there is a buffer named %s already", create->name);
    if (create->bytes < 1 || create->bytes > CGM_BUFFER_BYTES_MAX)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT, "bytes is %ju; it must be from 1 to %ju",
                          (uintmax_t)create->bytes, (uintmax_t)CGM_BUFFER_BYTES_MAX);
    if (create->has_device && (create->device < -1 || create->device >= (int32_t)n_devices))
        return cgm_refuse(request, CGM_INVALID_ARGUMENT,
                          "device is %d; it must be from 0 to %u, or -1 for 0", create->device,
                          n_devices - 1);
    if (create->flags & ~(uint32_t)CGM_BUFFER_IPC)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT, "flags is %u; it must be 0 or %u (IPC)",
                          create->flags, CGM_BUFFER_IPC);
    return CGM_OK;
}

static int buffer_new(struct cgm_request *request, const Cgm__BufferCreate *create,
                      struct cgm_buffer **ret_buffer)
{
    struct cgm_broker *broker = request->broker;
    struct cgm_owner owner;
    struct cgm_estate *estate = NULL;
    const struct cgm_charge charge = {{
        [CGM_QUOTA_BYTES] = create->bytes,
        [CGM_QUOTA_BUFFERS] = 1,
        [CGM_QUOTA_FDS] = 1,
    }};
    int status = cgm_owner_init(&owner, request->session, create->mode, request->detail,
                                sizeof(request->detail));
    if (status == CGM_OK)
        status = cgm_estate_new(broker, owner.uid, &charge, &broker->buffer_indices, 1,
                                request->detail, sizeof(request->detail), &estate);
    if (status != CGM_OK)
        return status;
    struct cgm_buffer *buffer = cgm_buffer_new(broker, &owner, create->name);
    if (!buffer) {
        cgm_estate_free(broker, estate);
        return cgm_refuse(request, CGM_NO_MEMORY,
                          "the daemon has no room for another buffer; %u "
                          "of %u are there",
                          broker->buffer_indices.used, CGM_JOURNAL_BUFFERS);
    }
    buffer->bytes = create->bytes;
    buffer->estate = estate;
    cgm_estate_add_index(estate, buffer->index);
    buffer->device = create->has_device && create->device > 0 ? (uint32_t)create->device : 0;
    buffer->flags = create->flags;
    *ret_buffer = buffer;
    return CGM_OK;
}

static void refuse_waiter(struct cgm_broker *broker, const struct cgm_call *call)
{
    cgm_answer_error(broker, call->session, call->serial, CGM_NOT_FOUND,
                     "there is no such buffer: to make it has failed");
}

/* A create that failed or whose client is gone leaves no buffer, named or not, but to those who
 * have opened it by its name meanwhile, or are about to: when that fails too, it goes. */
static void undo_create(struct cgm_broker *broker, struct cgm_buffer *buffer)
{
    cgm_buffer_answer_waiters(broker, buffer, refuse_waiter);
    if (buffer->made || buffer->opened || buffer->holders > 0)
        return;
    cgm_buffer_unname(broker, buffer);
    cgm_buffer_free_unused(broker, buffer);
}

enum { OPENED_READ_ONLY, OPENED_WRITABLE, CREATED, DESTROYED }; /* call.index */

static int send_reply(struct cgm_broker *broker, const struct cgm_call *call,
                      struct cgm_session *session, struct cgm_buffer *buffer, uint64_t open)
{
    bool writable = call->index != OPENED_READ_ONLY;
    Cgm__BufferReply reply = CGM__BUFFER_REPLY__INIT;
    int fd, status = cgm_buffer_client_fd(buffer, session, writable, &fd);
    if (status != CGM_OK)
        return status;
    reply.id = buffer->id;
    reply.generation = buffer->generation;
    reply.bytes = buffer->bytes;
    reply.has_tainted = reply.has_writable = 1;
    reply.tainted = buffer->tainted;
    reply.writable = writable;
    reply.name = buffer->name[0] ? buffer->name : NULL;
    reply.has_executor_life = buffer->plan != 0;
    reply.executor_life = broker->executor.life;
    reply.has_ipc_handle = buffer->ipc_handle_bytes > 0;
    reply.ipc_handle.data = buffer->ipc_handle;
    reply.ipc_handle.len = buffer->ipc_handle_bytes;
    reply.has_open = 1;
    reply.open = open;
    cgm_answer(broker, call->session, call->serial, CGM_MSG_BUFFER_REPLY, &reply.base, &fd,
               fd >= 0 ? 1 : 0);
    if (fd >= 0)
        close(fd);
    return CGM_OK;
}

static void note_told(struct cgm_buffer *buffer, const struct cgm_call *call)
{
    if (call->index == CREATED)
        buffer->made = true;
    else
        buffer->opened = true;
}

/* The hold counts the open from here on, or may be gone, and the buffer with it. */
static int answer_grant(struct cgm_broker *broker, const struct cgm_call *call,
                        struct cgm_session *session, struct cgm_buffer_hold *hold)
{
    uint64_t open = ++session->last_open;
    int status = send_reply(broker, call, session, hold->buffer, open);
    if (status == CGM_OK)
        note_told(hold->buffer, call);
    cgm_buffer_end_grant(session, hold, status == CGM_OK ? open : 0);
    return status;
}

static void on_granted(struct cgm_broker *broker, const struct cgm_call *call,
                       const struct cgm_result *result)
{
    struct cgm_session *session = cgm_registry_find(&broker->sessions, call->session);
    struct cgm_buffer_hold *hold = session ? cgm_buffer_hold_of_call(session, call) : NULL;
    const char *detail = result->detail;
    int status = result->status;
    if (status == CGM_OK && hold) {
        status = answer_grant(broker, call, session, hold);
        detail = "the daemon has no file descriptor left for it";
    } else if (status == CGM_OK) {
        status = CGM_NOT_FOUND;
        detail = "the buffer was freed meanwhile";
    } else if (hold) {
        cgm_buffer_end_grant(session, hold, 0);
    }
    if (status == CGM_OK)
        return;
    cgm_answer_error(broker, call->session, call->serial, status, "%s", detail);
    struct cgm_buffer *buffer = cgm_registry_find(&broker->buffers, call->object);
    if (buffer)
        undo_create(broker, buffer);
}

static void destroy(struct cgm_broker *broker, struct cgm_buffer *buffer, uint64_t session)
{
    cgm_user_log(broker, buffer->owner.uid, CGM_LOG_INFO, "buffer %ju: %s destroyed by session %ju",
                 (uintmax_t)buffer->id, buffer->name[0] ? buffer->name : "unnamed",
                 (uintmax_t)session);
    cgm_buffer_unname(broker, buffer);
    cgm_buffer_free_unused(broker, buffer);
}

/* Who waited before may have destroyed it. */
static void serve_waiter(struct cgm_broker *broker, const struct cgm_call *call)
{
    char detail[CGM_CQE_DETAIL] = "";
    Cgm__Ok ok = CGM__OK__INIT;
    struct cgm_session *session = cgm_registry_find(&broker->sessions, call->session);
    struct cgm_buffer *buffer = cgm_registry_find(&broker->buffers, call->object);
    if (!session)
        return;
    if (!buffer || !buffer->name[0]) {
        cgm_answer_error(broker, call->session, call->serial, CGM_NOT_FOUND,
                         "the buffer was destroyed meanwhile");
    } else if (call->index == DESTROYED) {
        destroy(broker, buffer, call->session);
        cgm_answer(broker, call->session, call->serial, CGM_MSG_OK, &ok.base, NULL, 0);
    } else {
        int status = cgm_buffer_grant(session, buffer, call->index == OPENED_WRITABLE, false, call,
                                      detail, sizeof(detail));
        if (status != CGM_OK)
            cgm_answer_error(broker, call->session, call->serial, status, "%s", detail);
    }
}

/* The executor's memory may be larger than asked for; the quota counts what there is. */
static int charge_rounding(struct cgm_broker *broker, struct cgm_buffer *buffer, uint64_t bytes,
                           char *ret_detail, size_t size)
{
    struct cgm_charge *charge = &buffer->estate->charge;
    if (bytes <= charge->amount[CGM_QUOTA_BYTES])
        return CGM_OK;
    return cgm_quota_raise(broker, buffer->estate->uid, charge, CGM_QUOTA_BYTES, bytes, ret_detail,
                           size);
}

static void on_allocated(struct cgm_broker *broker, const struct cgm_call *call,
                         const struct cgm_result *result)
{
    char detail[256];
    struct cgm_session *session = cgm_registry_find(&broker->sessions, call->session);
    struct cgm_buffer *buffer = cgm_registry_find(&broker->buffers, call->object);
    const Cgm__Memory *memory = (const Cgm__Memory *)result->message;
    int status = result->status;
    snprintf(detail, sizeof(detail), "%s", result->detail);
    if (status == CGM_OK)
        status = charge_rounding(broker, buffer, memory->bytes, detail, sizeof(detail));
    if (status == CGM_OK && result->packet->n_fds > 0 &&
        !cgm_quota_spares_fd(result->packet->fds[0], detail, sizeof(detail)))
        status = CGM_NO_MEMORY;
    if (status == CGM_OK && session) {
        struct cgm_call next = *call;
        cgm_buffer_take_memory(broker, buffer, result);
        next.done = on_granted;
        next.index = CREATED;
        status = cgm_buffer_grant(session, buffer, true, false, &next, detail, sizeof(detail));
        if (status == CGM_OK) {
            cgm_buffer_answer_waiters(broker, buffer, serve_waiter);
            return;
        }
        /* The failed grant has freed a nameless buffer. */
        buffer = cgm_registry_find(&broker->buffers, call->object);
    }
    cgm_answer_error(broker, call->session, call->serial, status, "%s", detail);
    if (buffer)
        undo_create(broker, buffer);
}

int cgm_buffer_on_create(struct cgm_request *request)
{
    const Cgm__BufferCreate *create = (const Cgm__BufferCreate *)request->message;
    struct cgm_buffer *buffer = NULL;
    int status = check_create(request, create);
    if (status == CGM_OK)
        status = buffer_new(request, create, &buffer);
    if (status != CGM_OK)
        return status;
    struct cgm_call call = cgm_request_call(request, on_allocated, buffer->id);
    status = cgm_buffer_tell_alloc(request->broker, buffer, &call);
    if (status != CGM_OK)
        undo_create(request->broker, buffer);
    return status;
}

/* ---- open, close, destroy ---------------------------------------------------------------------
 */

/* By its name also one that is being made, for its owner: nobody else is to wait for him. */
static int find(struct cgm_request *request, const char *name, int has_id, uint64_t id)
{
    struct cgm_buffer *buffer = NULL;
    if (name && name[0])
        buffer = cgm_buffer_find_name(request->broker, name);
    else if (has_id)
        buffer = cgm_registry_find(&request->broker->buffers, id);
    else
        return cgm_refuse(request, CGM_INVALID_ARGUMENT, "the buffer needs a name or an id");
    if (buffer &&
        (buffer->ready || (name && name[0] && cgm_owner_is(&buffer->owner, request->session)))) {
        request->object = buffer;
        return CGM_OK;
    }
    if (name && name[0])
        return cgm_refuse(request, CGM_NOT_FOUND, "there is no buffer named %s",
                          cgm_name_is_valid(name) ? name : "so");
    return cgm_refuse(request, CGM_NOT_FOUND, "there is no buffer %ju", (uintmax_t)id);
}

/* Whoever has the plan may read what the ranks exchange; a rank's own is written by it alone. */
static int check_open_of_plan(struct cgm_request *request, const struct cgm_buffer *buffer,
                              unsigned want)
{
    const struct cgm_session *session = request->session;
    if (!cgm_registry_find(&session->plans, buffer->plan))
        return cgm_refuse(request, CGM_PERMISSION,
                          "buffer %ju belongs to plan %016jx, which session %ju does not have",
                          (uintmax_t)buffer->id, (uintmax_t)buffer->plan, (uintmax_t)session->id);
    if (!(want & CGM_MAY_WRITE) || cgm_plan_buffer_is_of(session, buffer))
        return CGM_OK;
    return cgm_refuse(request, CGM_PERMISSION,
                      "buffer %ju belongs to a rank of plan %016jx that session %ju does not hold; "
                      "it may be opened for reading",
                      (uintmax_t)buffer->id, (uintmax_t)buffer->plan, (uintmax_t)session->id);
}

int cgm_buffer_find_to_open(struct cgm_request *request)
{
    const Cgm__BufferOpen *open_request = (const Cgm__BufferOpen *)request->message;
    unsigned want = open_request->read_only ? CGM_MAY_READ : CGM_MAY_READ | CGM_MAY_WRITE;
    int status = find(request, open_request->name, open_request->has_id, open_request->id);
    if (status != CGM_OK)
        return status;
    struct cgm_buffer *buffer = request->object;
    if (buffer->plan)
        return check_open_of_plan(request, buffer, want);
    if (cgm_owner_lets(&buffer->owner, request->session, want))
        return CGM_OK;
    return cgm_refuse(request, CGM_PERMISSION,
                      "buffer %ju belongs to uid %u with mode 0%o; uid %u may not open it %s",
                      (uintmax_t)buffer->id, (unsigned)buffer->owner.uid, buffer->owner.mode,
                      (unsigned)request->session->uid,
                      open_request->read_only ? "for reading" : "for writing");
}

int cgm_buffer_on_open(struct cgm_request *request)
{
    struct cgm_buffer *buffer = request->object;
    bool writable = !((const Cgm__BufferOpen *)request->message)->read_only;
    char detail[CGM_CQE_DETAIL];
    struct cgm_call call = cgm_request_call(request, on_granted, buffer->id);
    call.index = writable ? OPENED_WRITABLE : OPENED_READ_ONLY;
    if (!buffer->ready)
        return cgm_buffer_wait(request, buffer, &call);
    int status =
        cgm_buffer_grant(request->session, buffer, writable, false, &call, detail, sizeof(detail));
    return status == CGM_OK ? CGM_OK : cgm_refuse(request, status, "%s", detail);
}

static uint64_t named_id(const struct cgm_request *request)
{
    switch (request->type) {
    case CGM_MSG_BUFFER_CLOSE:
        return ((const Cgm__BufferClose *)request->message)->id;
    case CGM_MSG_BUFFER_CHECK:
        return ((const Cgm__BufferCheck *)request->message)->id;
    default:
        return ((const Cgm__BufferRewritten *)request->message)->id;
    }
}

int cgm_buffer_find_held(struct cgm_request *request)
{
    uint64_t id = named_id(request);
    struct cgm_buffer_hold *hold = cgm_registry_find(&request->session->buffers, id);
    request->object = hold;
    if (!hold || (hold->opens == 0 && !hold->by_plan))
        return cgm_refuse(request, CGM_NOT_FOUND, "session %ju has no buffer %ju open",
                          (uintmax_t)request->session->id, (uintmax_t)id);
    return CGM_OK;
}

/* One of before a full close has been undone with it. */
static int close_once(struct cgm_request *request, const Cgm__BufferClose *close_it)
{
    struct cgm_buffer_hold *hold = request->object;
    if (close_it->has_open && close_it->open < hold->first_open)
        return cgm_refuse(request, CGM_NOT_FOUND, "open %ju of buffer %ju is closed",
                          (uintmax_t)close_it->open, (uintmax_t)close_it->id);
    cgm_buffer_close_once(request->session, hold);
    return CGM_OK;
}

static void unmake(struct cgm_request *request, uint64_t id)
{
    struct cgm_buffer *buffer = cgm_registry_find(&request->broker->buffers, id);
    if (!buffer || !cgm_owner_is(&buffer->owner, request->session))
        return;
    buffer->made = false;
    undo_create(request->broker, buffer);
}

int cgm_buffer_on_close(struct cgm_request *request)
{
    const Cgm__BufferClose *close_it = (const Cgm__BufferClose *)request->message;
    int status = CGM_OK;
    if (close_it->once)
        status = close_once(request, close_it);
    else
        cgm_buffer_close(request->session, request->object);
    if (status == CGM_OK && close_it->unmade)
        unmake(request, close_it->id);
    if (status == CGM_OK)
        cgm_reply_ok(request);
    return status;
}

/* What a client read of memory that has gone meanwhile are zeros, and what it wrote there reaches
 * nobody: it asks behind each copy that it makes by itself. */
int cgm_buffer_on_check(struct cgm_request *request)
{
    const Cgm__BufferCheck *check = (const Cgm__BufferCheck *)request->message;
    const struct cgm_executor *executor = &request->broker->executor;
    if (check->has_executor_life &&
        (check->executor_life != executor->life || cgm_executor_is_lost(executor)))
        return cgm_refuse(request, CGM_STALE,
                          "buffer %ju: its memory went with executor %ju; open it again",
                          (uintmax_t)check->id, (uintmax_t)check->executor_life);
    cgm_reply_ok(request);
    return CGM_OK;
}

int cgm_buffer_find_owned(struct cgm_request *request)
{
    const Cgm__BufferDestroy *destroy_it = (const Cgm__BufferDestroy *)request->message;
    int status = find(request, destroy_it->name, destroy_it->has_id, destroy_it->id);
    if (status != CGM_OK)
        return status;
    const struct cgm_buffer *buffer = request->object;
    if (!cgm_owner_is(&buffer->owner, request->session))
        return cgm_refuse(
            request, CGM_PERMISSION, "buffer %ju belongs to uid %u; uid %u may not destroy it",
            (uintmax_t)buffer->id, (unsigned)buffer->owner.uid, (unsigned)request->session->uid);
    if (buffer->plan)
        return cgm_refuse(request, CGM_INVALID_ARGUMENT,
                          "buffer %ju belongs to plan %016jx and goes with it",
                          (uintmax_t)buffer->id, (uintmax_t)buffer->plan);
    return CGM_OK;
}

int cgm_buffer_on_destroy(struct cgm_request *request)
{
    struct cgm_buffer *buffer = request->object;
    struct cgm_call call = cgm_request_call(request, NULL, buffer->id);
    call.index = DESTROYED;
    if (!buffer->ready)
        return cgm_buffer_wait(request, buffer, &call);
    destroy(request->broker, buffer, request->session->id);
    cgm_reply_ok(request);
    return CGM_OK;
}

static void on_rewritten(struct cgm_broker *broker, const struct cgm_call *call,
                         const struct cgm_result *result)
{
    struct cgm_buffer *buffer = cgm_registry_find(&broker->buffers, call->object);
    if (result->status == CGM_OK && buffer)
        buffer->tainted = false;
    cgm_call_done_relay(broker, call, result);
}

/* A mapping from before an executor's death may be of other memory, and what was written by then
 * may be what the death has damaged. */
static int check_rewritten(struct cgm_request *request, const struct cgm_buffer_hold *hold)
{
    const Cgm__BufferRewritten *rewritten = (const Cgm__BufferRewritten *)request->message;
    const struct cgm_buffer *buffer = hold->buffer;
    if (!hold->writable)
        return cgm_refuse(request, CGM_PERMISSION, "session %ju has buffer %ju open for reading",
                          (uintmax_t)request->session->id, (uintmax_t)buffer->id);
    if (!rewritten->has_generation || rewritten->generation == buffer->generation)
        return CGM_OK;
    return cgm_refuse(request, CGM_STALE,
                      "generation is %u; buffer %ju is at %u: open it again, then map and write "
                      "what that gives",
                      rewritten->generation, (uintmax_t)buffer->id, buffer->generation);
}

int cgm_buffer_on_rewritten(struct cgm_request *request)
{
    const struct cgm_buffer_hold *hold = request->object;
    int status = check_rewritten(request, hold);
    if (status != CGM_OK)
        return status;
    struct cgm_call call = cgm_request_call(request, on_rewritten, hold->buffer->id);
    return cgm_call_executor(request->broker, CGM_MSG_BUFFER_REWRITTEN, request->message, NULL, 0,
                             &call);
}
