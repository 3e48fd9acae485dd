#include "daemon/broker/buffer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/buffer_waiters.h"
#include "daemon/broker/log.h"
#include "daemon/broker/session.h"
#include "daemon/broker/user_log.h"

#define OPENS_MAX (1u << 20) /* of one buffer by one session */

struct cgm_buffer *cgm_buffer_find_name(struct cgm_broker *broker, const char *name)
{
    const char *found = cgm_names_find(&broker->buffer_names, name);
    return found ? (struct cgm_buffer *)(found - offsetof(struct cgm_buffer, name)) : NULL;
}

void cgm_buffer_unname(struct cgm_broker *broker, struct cgm_buffer *buffer)
{
    cgm_names_remove(&broker->buffer_names, buffer->name);
    buffer->name[0] = '\0';
}

/* Where it is found by its id, and by its name if it has one. */
static int list(struct cgm_broker *broker, struct cgm_buffer *buffer)
{
    int status = cgm_registry_add(&broker->buffers, buffer->id, buffer);
    if (status != CGM_OK || !buffer->name[0])
        return status;
    status = cgm_names_add(&broker->buffer_names, buffer->name);
    if (status != CGM_OK)
        cgm_registry_remove(&broker->buffers, buffer->id);
    return status;
}

struct cgm_buffer *cgm_buffer_new(struct cgm_broker *broker, const struct cgm_owner *owner,
                                  const char *name)
{
    struct cgm_buffer *buffer = calloc(1, sizeof(*buffer));
    if (!buffer || cgm_indices_take(&broker->buffer_indices, &buffer->index) != CGM_OK) {
        free(buffer);
        return NULL;
    }
    buffer->id = ++broker->last_object;
    buffer->owner = *owner;
    buffer->guest = CGM_NOBODY;
    buffer->generation = 1;
    buffer->fd = -1;
    snprintf(buffer->name, sizeof(buffer->name), "%s", name ? name : "");
    if (list(broker, buffer) != CGM_OK) {
        cgm_indices_give(&broker->buffer_indices, buffer->index);
        free(buffer);
        return NULL;
    }
    return buffer;
}

/* Everything but its estate; payer: whose that was. */
static void free_object(struct cgm_broker *broker, struct cgm_buffer *buffer, uid_t payer)
{
    cgm_names_remove(&broker->buffer_names, buffer->name);
    cgm_registry_remove(&broker->buffers, buffer->id);
    cgm_closer_drop(broker, payer, &buffer->fd, 1);
    cgm_buffer_forget_waiters(buffer);
    free(buffer);
}

static void buffer_free(struct cgm_broker *broker, struct cgm_buffer *buffer)
{
    Cgm__BufferRemove remove = CGM__BUFFER_REMOVE__INIT;
    uid_t payer = buffer->estate->uid;
    cgm_user_log(broker, payer, CGM_LOG_DEBUG, "buffer %ju: freed", (uintmax_t)buffer->id);
    remove.id = buffer->id;
    cgm_estate_settle(broker, buffer->estate, CGM_MSG_BUFFER_REMOVE, &remove.base);
    free_object(broker, buffer, payer);
}

/* ---- holds ------------------------------------------------------------------------------------
 */

static const struct cgm_charge of_hold = {.amount = {[CGM_QUOTA_OPENS] = 1}};

static void list_add(struct cgm_buffer *buffer, struct cgm_buffer_hold *hold)
{
    hold->previous = buffer->last;
    *(buffer->last ? &buffer->last->next : &buffer->first) = hold;
    buffer->last = hold;
    buffer->holders++;
}

static void list_remove(struct cgm_buffer *buffer, struct cgm_buffer_hold *hold)
{
    if (hold->next)
        hold->next->previous = hold->previous;
    else
        buffer->last = hold->previous;
    if (hold->previous)
        hold->previous->next = hold->next;
    else
        buffer->first = hold->next;
    buffer->holders--;
}

static int hold_of(struct cgm_session *session, struct cgm_buffer *buffer, char *ret_detail,
                   size_t size, struct cgm_buffer_hold **ret_hold)
{
    struct cgm_buffer_hold *hold = cgm_registry_find(&session->buffers, buffer->id);
    *ret_hold = hold;
    if (hold)
        return CGM_OK;
    int status = cgm_quota_take(session->broker, session->uid, &of_hold, ret_detail, size);
    if (status != CGM_OK)
        return status;
    /* Who comes back to what is his has it at his own cost again. */
    if (buffer->estate && session->uid == buffer->owner.uid)
        status = cgm_estate_pass(session->broker, buffer->estate, session->uid, ret_detail, size);
    if (status != CGM_OK) {
        cgm_quota_give(session->broker, session->uid, &of_hold);
        return status;
    }
    hold = calloc(1, sizeof(*hold));
    if (!hold || cgm_registry_add(&session->buffers, buffer->id, hold) != CGM_OK) {
        cgm_quota_give(session->broker, session->uid, &of_hold);
        free(hold);
        return cgm_detail(ret_detail, size, CGM_NO_MEMORY, "out of memory");
    }
    hold->buffer = buffer;
    hold->session = session;
    hold->number = ++session->last_open;
    list_add(buffer, hold);
    session->held_bytes += buffer->bytes;
    *ret_hold = hold;
    return CGM_OK;
}

/* Whatever counts it. */
static void hold_free(struct cgm_buffer *buffer, struct cgm_buffer_hold *hold)
{
    struct cgm_session *session = hold->session;
    cgm_registry_remove(&session->buffers, buffer->id);
    cgm_quota_give(session->broker, session->uid, &of_hold);
    session->held_bytes -= buffer->bytes;
    list_remove(buffer, hold);
    assert(buffer->first != hold);
    free(hold);
}

/* May free the buffer. */
static void drop_hold(struct cgm_session *session, struct cgm_buffer_hold *hold)
{
    struct cgm_buffer *buffer = hold->buffer;
    hold_free(buffer, hold);
    cgm_buffer_free_unused(session->broker, buffer);
}

static void tell_revoke(const struct cgm_buffer_hold *hold)
{
    const struct cgm_session *session = hold->session;
    Cgm__Revoke message = CGM__REVOKE__INIT;
    message.session = session->id;
    message.id = hold->buffer->id;
    if (cgm_registry_find(&session->broker->sessions, session->id)) /* not in its death */
        cgm_tell_executor(session->broker, CGM_MSG_REVOKE, &message.base);
}

/* What nobody can pay for would stay at the cost of an owner who can do nothing about it. */
static void lose(struct cgm_buffer *buffer, struct cgm_buffer_hold *hold, const char *why)
{
    cgm_user_log(hold->session->broker, hold->session->uid, CGM_LOG_WARNING,
                 "buffer %ju: session %ju loses it: its owner has let go of it, and uid %u has no "
                 "room for it in its quotas: %s",
                 (uintmax_t)buffer->id, (uintmax_t)hold->session->id, (unsigned)hold->session->uid,
                 why);
    tell_revoke(hold);
    hold_free(buffer, hold);
}

/* Of who pays, if he has one, else the first; NULL: nobody has it open. */
static struct cgm_buffer_hold *find_payer(const struct cgm_buffer *buffer)
{
    struct cgm_buffer_hold *hold = buffer->first;
    while (hold && hold->session->uid != buffer->estate->uid)
        hold = hold->next;
    return hold ? hold : buffer->first;
}

void cgm_buffer_free_unused(struct cgm_broker *broker, struct cgm_buffer *buffer)
{
    char why[384];
    struct cgm_buffer_hold *payer;
    if (buffer->plan != 0 || buffer->name[0])
        return;
    while ((payer = find_payer(buffer)) &&
           cgm_estate_pass(broker, buffer->estate, payer->session->uid, why, sizeof(why)) != CGM_OK)
        lose(buffer, payer, why);
    if (!buffer->first)
        buffer_free(broker, buffer);
}

static void end_unused(struct cgm_session *session, struct cgm_buffer_hold *hold)
{
    if (hold->granting > 0 || hold->opens > 0 || hold->by_plan)
        return;
    tell_revoke(hold);
    drop_hold(session, hold);
}

struct cgm_buffer_hold *cgm_buffer_hold_of_call(struct cgm_session *session,
                                                const struct cgm_call *call)
{
    struct cgm_buffer_hold *hold = cgm_registry_find(&session->buffers, call->object);
    return hold && hold->number == call->other ? hold : NULL;
}

void cgm_buffer_end_grant(struct cgm_session *session, struct cgm_buffer_hold *hold, uint64_t open)
{
    assert(hold->granting > 0);
    hold->granting--;
    if (open && hold->opens++ == 0)
        hold->first_open = open;
    end_unused(session, hold);
}

void cgm_buffer_close_once(struct cgm_session *session, struct cgm_buffer_hold *hold)
{
    if (hold->opens > 0)
        hold->opens--;
    end_unused(session, hold);
}

void cgm_buffer_close(struct cgm_session *session, struct cgm_buffer_hold *hold)
{
    hold->opens = 0;
    end_unused(session, hold);
}

void cgm_buffer_drop_all(struct cgm_session *session)
{
    uint64_t at = 0;
    struct cgm_buffer_hold *hold;
    while ((hold = cgm_registry_next(&session->buffers, &at)))
        drop_hold(session, hold);
}

int cgm_buffer_tell_grant(struct cgm_session *session, const struct cgm_buffer_hold *hold,
                          const struct cgm_call *call)
{
    Cgm__Grant grant = CGM__GRANT__INIT;
    grant.session = session->id;
    grant.id = hold->buffer->id;
    grant.writable = hold->writable;
    return cgm_call_executor(session->broker, CGM_MSG_GRANT, &grant.base, NULL, 0, call);
}

int cgm_buffer_grant(struct cgm_session *session, struct cgm_buffer *buffer, bool writable,
                     bool by_plan, const struct cgm_call *call, char *ret_detail, size_t size)
{
    struct cgm_buffer_hold *hold;
    int status = hold_of(session, buffer, ret_detail, size, &hold);
    if (status != CGM_OK)
        return status;
    if (hold->granting + hold->opens >= OPENS_MAX && !by_plan)
        return cgm_detail(ret_detail, size, CGM_QUOTA,
                          "session %ju has buffer %ju open %u times, and may not more often",
                          (uintmax_t)session->id, (uintmax_t)buffer->id, OPENS_MAX);
    hold->writable |= writable;
    if (writable && session->uid != buffer->owner.uid)
        buffer->guest = cgm_guest_with(buffer->guest, session->uid);
    hold->by_plan |= by_plan;
    struct cgm_call next = *call;
    if (!by_plan) {
        hold->granting++;
        next.other = hold->number;
    }
    status = cgm_buffer_tell_grant(session, hold, &next);
    if (status != CGM_OK)
        cgm_detail(ret_detail, size, status, "%s", cgm_status_text(status));
    if (status != CGM_OK && !by_plan)
        cgm_buffer_end_grant(session, hold, 0);
    return status;
}

/* ---- memory fds -------------------------------------------------------------------------------
 */

static bool is_memfd(int fd)
{
    struct stat st;
    return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

void cgm_buffer_set_fd(struct cgm_broker *broker, struct cgm_buffer *buffer, int fd)
{
    cgm_closer_drop(broker, buffer->owner.uid, &buffer->fd, 1);
    buffer->fd = fd;
    if (is_memfd(fd) && fchmod(fd, 0600) < 0)
        cgm_user_log(broker, buffer->owner.uid, CGM_LOG_WARNING,
                     "buffer %ju: cannot restrict its memory: %s", (uintmax_t)buffer->id,
                     strerror(errno));
}

/* An open file of the session's own: what one sets on it (O_APPEND) is no other's, and one that may
 * only read has one that only reads. Memory of a device has one for all. */
static int open_anew(const struct cgm_buffer *buffer, bool writable)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", buffer->fd);
    return open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
}

int cgm_buffer_client_fd(const struct cgm_buffer *buffer, const struct cgm_session *session,
                         bool writable, int *ret_fd)
{
    int fd;
    *ret_fd = -1;
    if (buffer->fd < 0)
        return CGM_OK;
    if (is_memfd(buffer->fd))
        fd = open_anew(buffer, writable);
    else if (writable || cgm_owner_lets(&buffer->owner, session, CGM_MAY_WRITE))
        fd = fcntl(buffer->fd, F_DUPFD_CLOEXEC, 3);
    else
        return CGM_OK;
    if (fd < 0)
        return cgm_status_of_errno(errno);
    *ret_fd = fd;
    return CGM_OK;
}

void cgm_buffer_take_memory(struct cgm_broker *broker, struct cgm_buffer *buffer,
                            const struct cgm_result *result)
{
    const Cgm__Memory *memory = (const Cgm__Memory *)result->message;
    cgm_buffer_set_fd(broker, buffer, cgm_packet_take_fd(result->packet, 0));
    if (memory->ipc_handle.len > 0 && memory->ipc_handle.len <= sizeof(buffer->ipc_handle)) {
        memcpy(buffer->ipc_handle, memory->ipc_handle.data, memory->ipc_handle.len);
        buffer->ipc_handle_bytes = memory->ipc_handle.len;
    }
    buffer->ready = true;
}

int cgm_buffer_tell_alloc(struct cgm_broker *broker, const struct cgm_buffer *buffer,
                          const struct cgm_call *call)
{
    Cgm__BufferAlloc alloc = CGM__BUFFER_ALLOC__INIT;
    alloc.id = buffer->id;
    alloc.generation = buffer->generation;
    alloc.bytes = buffer->bytes;
    alloc.device = buffer->device;
    alloc.journal = buffer->index;
    alloc.has_flags = 1;
    alloc.flags = buffer->flags;
    alloc.has_uid = 1;
    alloc.uid = buffer->owner.uid;
    alloc.has_session = call->session != 0;
    alloc.session = call->session;
    return cgm_call_executor(broker, CGM_MSG_BUFFER_ALLOC, &alloc.base, NULL, 0, call);
}

/* ---- plans' buffers ---------------------------------------------------------------------------
 */

int cgm_buffer_new_for_plan(struct cgm_broker *broker, const struct cgm_owner *owner, uint64_t plan,
                            uint32_t device, struct cgm_buffer **ret_buffer)
{
    struct cgm_buffer *buffer = cgm_buffer_new(broker, owner, NULL);
    if (!buffer)
        return CGM_NO_MEMORY;
    buffer->plan = plan;
    buffer->device = device;
    *ret_buffer = buffer;
    return CGM_OK;
}

void cgm_buffer_drop_of_plan(struct cgm_session *session, struct cgm_buffer *buffer)
{
    struct cgm_buffer_hold *hold = cgm_registry_find(&session->buffers, buffer->id);
    if (!hold)
        return;
    hold->by_plan = false;
    hold->granting = 0;
    cgm_buffer_close(session, hold);
}

void cgm_buffer_free_of_plan(struct cgm_broker *broker, struct cgm_buffer *buffer)
{
    struct cgm_buffer_hold *hold;
    while ((hold = buffer->first)) {
        tell_revoke(hold);
        hold_free(buffer, hold);
    }
    free_object(broker, buffer, buffer->owner.uid);
}

/* ---- a new executor ---------------------------------------------------------------------------
 */

int cgm_buffer_tell(struct cgm_broker *broker, struct cgm_buffer *buffer,
                    const struct cgm_call *call)
{
    Cgm__BufferAdopt adopt = CGM__BUFFER_ADOPT__INIT;
    if (buffer->fd < 0)
        return cgm_buffer_tell_alloc(broker, buffer, call);
    adopt.id = buffer->id;
    adopt.generation = buffer->generation;
    adopt.bytes = buffer->bytes;
    adopt.device = buffer->device;
    adopt.journal = buffer->index;
    adopt.has_tainted = 1;
    adopt.tainted = buffer->tainted;
    adopt.has_uid = 1;
    adopt.uid = buffer->owner.uid;
    adopt.has_guest = buffer->guest != CGM_NOBODY;
    adopt.guest = buffer->guest;
    return cgm_call_executor(broker, CGM_MSG_BUFFER_ADOPT, &adopt.base, &buffer->fd, 1, call);
}

void cgm_buffer_on_adopted(struct cgm_broker *broker, uint64_t id, const struct cgm_result *result)
{
    struct cgm_buffer *buffer = cgm_registry_find(&broker->buffers, id);
    Cgm__BufferRemove remove = CGM__BUFFER_REMOVE__INIT;
    remove.id = id;
    if (!buffer && result->status == CGM_OK) /* freed meanwhile, perhaps before it was there */
        cgm_tell_executor(broker, CGM_MSG_BUFFER_REMOVE, &remove.base);
    if (!buffer || result->status == CGM_EXECUTOR_LOST) /* the next one gets it */
        return;
    if (result->status != CGM_OK)
        cgm_user_log(broker, buffer->owner.uid, CGM_LOG_ERROR,
                     "buffer %ju: the new executor does not take it: %s", (uintmax_t)id,
                     result->detail);
    else if (buffer->fd < 0)
        cgm_buffer_take_memory(broker, buffer, result);
}

void cgm_buffer_note_tainted(struct cgm_broker *broker)
{
    uint64_t at = 0;
    struct cgm_buffer *buffer;
    while ((buffer = cgm_registry_next(&broker->buffers, &at))) {
        bool writing = atomic_load(&broker->executor.journal->writers[buffer->index]) != 0;
        bool lost = buffer->ready && (buffer->fd < 0 || buffer->plan); /* its memory is not kept */
        if (!writing && !lost)
            continue;
        buffer->generation++;
        buffer->tainted = writing && !lost;
        cgm_user_log(broker, buffer->owner.uid, CGM_LOG_WARNING,
                     "buffer %ju: %s; its generation is %u now", (uintmax_t)buffer->id,
                     lost ? "lost with its executor" : "tainted: its writer died",
                     buffer->generation);
    }
}

void cgm_buffer_on_restored(struct cgm_broker *broker, const ProtobufCMessage *message)
{
    const Cgm__BufferRestored *restored = (const Cgm__BufferRestored *)message;
    struct cgm_buffer *buffer = cgm_registry_find(&broker->buffers, restored->id);
    if (buffer)
        buffer->tainted = false;
}

void cgm_buffer_on_tainted(struct cgm_broker *broker, const ProtobufCMessage *message)
{
    const Cgm__BufferTainted *tainted = (const Cgm__BufferTainted *)message;
    struct cgm_buffer *buffer = cgm_registry_find(&broker->buffers, tainted->id);
    if (!buffer)
        return;
    buffer->tainted = true;
    cgm_user_log(broker, buffer->owner.uid, CGM_LOG_WARNING,
                 "buffer %ju: tainted: a failed job's output in it could not be made NaN: there "
                 "was no memory for that, it took longer than job_timeout, or other jobs have too "
                 "many operands around it",
                 (uintmax_t)buffer->id);
}

void cgm_buffer_free_all(struct cgm_broker *broker)
{
    uint64_t at = 0;
    struct cgm_buffer *buffer;
    while ((buffer = cgm_registry_next(&broker->buffers, &at)))
        buffer_free(broker, buffer);
}
