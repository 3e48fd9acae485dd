#include "client/lib/wire.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/lib/error.h"

/* One waiting caller, on its stack. Under wire->lock; whoever sets `ended` unlinks it first. */
struct cgm_call {
    struct cgm_call *next;
    const struct cgm_wire_request *request;
    uint32_t serial;
    bool ended;
    int status;
    int type;
    struct cgm_reply reply;
    pthread_cond_t on_end;
};

void cgm_reply_fini(struct cgm_reply *reply)
{
    cgm_message_free(reply->message);
    reply->message = NULL;
    for (unsigned i = 0; i < CGM_REPLY_FDS_MAX; i++) {
        if (reply->fds[i] >= 0)
            close(reply->fds[i]);
        reply->fds[i] = -1;
    }
}

int cgm_reply_take_fd(struct cgm_reply *reply, unsigned i)
{
    int fd = reply->fds[i];
    reply->fds[i] = -1;
    return fd;
}

bool cgm_reply_says_gone(int type, const struct cgm_reply *reply)
{
    const Cgm__Error *error = (const Cgm__Error *)reply->message;
    return type == CGM_MSG_OK || (type == CGM_MSG_ERROR && error && error->status == CGM_NOT_FOUND);
}

static void reply_from_packet(struct cgm_packet *packet, struct cgm_reply *ret_reply)
{
    ret_reply->message = NULL;
    ret_reply->status = cgm_packet_read(packet, &ret_reply->message);
    for (unsigned i = 0; i < CGM_REPLY_FDS_MAX; i++)
        ret_reply->fds[i] = cgm_packet_take_fd(packet, i);
    cgm_packet_close_fds(packet);
}

/* ---- callers ----------------------------------------------------------------------------------
 */

static int call_link(struct cgm_wire *wire, struct cgm_call *call)
{
    pthread_mutex_lock(&wire->lock);
    bool lost = wire->lost;
    if (!lost) {
        if (++wire->last_serial == 0)
            wire->last_serial = 1;
        call->serial = wire->last_serial;
        call->next = wire->calls;
        wire->calls = call;
    }
    pthread_mutex_unlock(&wire->lock);
    return lost ? CGM_DAEMON_LOST : CGM_OK;
}

static struct cgm_call *call_unlink(struct cgm_wire *wire, uint32_t serial)
{
    for (struct cgm_call **at = &wire->calls; *at; at = &(*at)->next) {
        struct cgm_call *call = *at;
        if (call->serial != serial)
            continue;
        *at = call->next;
        return call;
    }
    return NULL;
}

static void call_end(struct cgm_call *call, int status)
{
    call->status = status;
    call->ended = true;
    pthread_cond_signal(&call->on_end);
}

/* Sends, and waits unless that failed: when the daemon is gone, for what it said last. Returns with
 * the call unlinked. */
static int call_run(struct cgm_wire *wire, struct cgm_call *call)
{
    const struct cgm_wire_request *request = call->request;
    int sent = cgm_packet_send(wire->socket, (uint16_t)request->type, call->serial,
                               request->message, request->fds, request->n_fds);
    if (sent == CGM_RING_FULL) /* it waits for room in the socket: it is the system that has none */
        sent = CGM_NO_MEMORY;
    pthread_mutex_lock(&wire->lock);
    if (sent != CGM_OK && sent != CGM_DAEMON_LOST && call_unlink(wire, call->serial))
        call_end(call, sent);
    while (!call->ended)
        pthread_cond_wait(&call->on_end, &wire->lock);
    pthread_mutex_unlock(&wire->lock);
    return call->status;
}

static int fail_call(struct cgm_wire *wire, int status, int type)
{
    char why[sizeof(wire->farewell_detail)];
    if (status == CGM_DAEMON_LOST && cgm_wire_farewell(wire, why, sizeof(why)) != CGM_OK)
        return cgm_fail(status, "the daemon closed the connection: %s", why);
    if (status == CGM_DAEMON_LOST)
        return cgm_fail(status, "the daemon closed the connection");
    if (status == CGM_INVALID_ARGUMENT && errno == EMSGSIZE)
        return cgm_fail(status, "%s is larger than a packet of %u bytes",
                        cgm_message_descriptor(type)->short_name, CGM_PACKET_BYTES_MAX);
    if (status == CGM_INVALID_ARGUMENT)
        return cgm_fail(status, "%s has an fd that cannot be passed to another process: %s",
                        cgm_message_descriptor(type)->short_name, strerror(errno));
    return cgm_fail(status, "%s could not be sent: %s", cgm_message_descriptor(type)->short_name,
                    strerror(errno));
}

static int fail_error(const Cgm__Error *error)
{
    int status = error->status < 0 ? error->status : CGM_INTERNAL;
    const char *detail = error->detail && error->detail[0] ? error->detail : NULL;
    return cgm_fail(status, "%s", detail ? detail : cgm_status_text(status));
}

int cgm_fail_cut(int type)
{
    return cgm_fail(CGM_NO_MEMORY,
                    "this process has no file descriptor left for the reply to %s (RLIMIT_NOFILE)",
                    cgm_message_name(type));
}

/* An Ok says all by its type; what it answers has been done, memory for it or not. */
static int check_reply(const struct cgm_call *call)
{
    int type = call->request->type, reply_type = call->request->reply_type;
    if (call->type == CGM_MSG_OK && reply_type == CGM_MSG_OK && call->reply.status == CGM_NO_MEMORY)
        return CGM_OK;
    if (call->reply.status == CGM_NO_MEMORY)
        return cgm_fail(CGM_NO_MEMORY, "no memory for the reply to %s", cgm_message_name(type));
    if (!call->reply.message)
        return cgm_fail(CGM_BAD_MESSAGE, "the reply to %s is malformed", cgm_message_name(type));
    if (call->type == CGM_MSG_ERROR)
        return fail_error((const Cgm__Error *)call->reply.message);
    if (call->type != reply_type)
        return cgm_fail(CGM_BAD_MESSAGE, "the reply to %s is %s; it must be %s",
                        cgm_message_name(type), cgm_message_name(call->type),
                        cgm_message_name(reply_type));
    if (call->reply.cut && reply_type != CGM_MSG_BUFFER_REPLY) /* which must be closed again */
        return cgm_fail_cut(type);
    return CGM_OK;
}

int cgm_wire_call(struct cgm_wire *wire, const struct cgm_wire_request *request,
                  struct cgm_reply *ret_reply)
{
    struct cgm_call call = {.request = request, .reply = {.fds = {-1, -1, -1}}};
    pthread_cond_init(&call.on_end, NULL); /* the watcher may end it as soon as it is linked */
    int status = call_link(wire, &call);
    if (status == CGM_OK)
        status = call_run(wire, &call);
    pthread_cond_destroy(&call.on_end);
    status = status == CGM_OK ? check_reply(&call) : fail_call(wire, status, request->type);
    if (status == CGM_OK && ret_reply)
        *ret_reply = call.reply;
    else
        cgm_reply_fini(&call.reply);
    return status;
}

/* ---- the watcher ------------------------------------------------------------------------------
 */

static struct cgm_call *find_caller(struct cgm_wire *wire, uint32_t serial)
{
    pthread_mutex_lock(&wire->lock);
    struct cgm_call *call = call_unlink(wire, serial);
    pthread_mutex_unlock(&wire->lock);
    return call;
}

/* The caller waits, so that the call is the watcher's until it ends. */
static void on_reply(struct cgm_wire *wire, struct cgm_packet *packet, bool cut)
{
    struct cgm_reply reply;
    struct cgm_call *call = find_caller(wire, packet->header.serial);
    reply_from_packet(packet, &reply);
    reply.cut = cut;
    if (!call) {
        cgm_reply_fini(&reply);
        return;
    }
    call->type = packet->header.type;
    if (call->type == CGM_MSG_ERROR && reply.message)
        wire->handler->on_error(wire->owner, ((const Cgm__Error *)reply.message)->status);
    if (call->request->take)
        call->request->take(call->request->argument, call->type, &reply);
    call->reply = reply;
    pthread_mutex_lock(&wire->lock);
    call_end(call, CGM_OK);
    pthread_mutex_unlock(&wire->lock);
}

int cgm_wire_farewell(struct cgm_wire *wire, char *ret_detail, size_t size)
{
    pthread_mutex_lock(&wire->lock);
    int status = wire->farewell;
    snprintf(ret_detail, size, "%s", wire->farewell_detail);
    pthread_mutex_unlock(&wire->lock);
    return status;
}

static void keep_farewell(struct cgm_wire *wire, int status, const char *detail)
{
    pthread_mutex_lock(&wire->lock);
    wire->farewell = status < 0 ? status : CGM_INTERNAL;
    snprintf(wire->farewell_detail, sizeof(wire->farewell_detail), "%s",
             detail ? detail : cgm_status_text(wire->farewell));
    pthread_mutex_unlock(&wire->lock);
}

/* What cannot be read is of a later release, unless it is memory that is missing. */
static int take_event(struct cgm_wire *wire, int type, struct cgm_reply *event)
{
    const Cgm__Error *error = (const Cgm__Error *)event->message;
    if (!event->message)
        return event->status == CGM_NO_MEMORY ? CGM_NO_MEMORY : CGM_OK;
    if (type != CGM_MSG_ERROR)
        return wire->handler->on_event(wire->owner, type, event);
    keep_farewell(wire, error->status, error->detail);
    return CGM_OK;
}

/* Whoever waits for what the event says would do so for ever: false, the session ends. */
static bool on_event(struct cgm_wire *wire, struct cgm_packet *packet)
{
    struct cgm_reply event;
    char detail[128];
    int type = packet->header.type;
    reply_from_packet(packet, &event);
    int status = take_event(wire, type, &event);
    cgm_reply_fini(&event);
    if (status == CGM_OK)
        return true;
    snprintf(detail, sizeof(detail), "this process could not take in the daemon's message %s: %s",
             cgm_message_name(type), cgm_status_text(status));
    keep_farewell(wire, status, detail);
    return false;
}

static void on_lost(struct cgm_wire *wire)
{
    wire->handler->on_lost(wire->owner);
    pthread_mutex_lock(&wire->lock);
    wire->lost = true;
    while (wire->calls)
        call_end(call_unlink(wire, wire->calls->serial), CGM_DAEMON_LOST);
    pthread_mutex_unlock(&wire->lock);
}

/* False: the session cannot go on. Fds that are missing are missed by one caller, but nobody knows
 * who waits for those of an event. */
static bool take_packet(struct cgm_wire *wire, int status)
{
    bool cut = status == CGM_NO_MEMORY;
    if (status != CGM_OK && !cut)
        return false;
    if (wire->packet->header.serial) {
        on_reply(wire, wire->packet, cut);
        return true;
    }
    if (cut)
        keep_farewell(wire, CGM_NO_MEMORY,
                      "this process had no file descriptor left for what the daemon sent");
    return !cut && on_event(wire, wire->packet);
}

static void *watch(void *argument)
{
    struct cgm_wire *wire = argument;
    while (take_packet(wire, cgm_packet_recv(wire->socket, 0, wire->packet)))
        continue;
    /* Also after a packet that was none: the daemon learns that nobody listens any more. */
    shutdown(wire->socket, SHUT_RDWR);
    on_lost(wire);
    return NULL;
}

/* A thread that takes none of the program's signals. */
static int watcher_start(struct cgm_wire *wire)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&wire->watcher, NULL, watch, wire);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return cgm_fail(CGM_NO_MEMORY, "no thread could be started: %s", strerror(error));
    pthread_setname_np(wire->watcher, "commgemm-watch");
    return CGM_OK;
}

int cgm_wire_open(struct cgm_wire *wire, int socket, const struct cgm_wire_handler *handler,
                  void *owner)
{
    *wire = (struct cgm_wire){.socket = socket, .handler = handler, .owner = owner};
    wire->packet = malloc(sizeof(*wire->packet));
    if (!wire->packet)
        return cgm_fail_plain(CGM_NO_MEMORY);
    pthread_mutex_init(&wire->lock, NULL);
    int status = watcher_start(wire);
    if (status == CGM_OK)
        return CGM_OK;
    pthread_mutex_destroy(&wire->lock);
    free(wire->packet);
    return status;
}

void cgm_wire_close(struct cgm_wire *wire)
{
    shutdown(wire->socket, SHUT_RDWR);
    pthread_join(wire->watcher, NULL);
    pthread_mutex_destroy(&wire->lock);
    free(wire->packet);
}
