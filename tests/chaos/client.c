#include "tests/chaos/client.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "client/bench/barrier.h"
#include "client/bench/cases.h"
#include "tests/backend.h"

#define EXECUTOR_MS 120000
#define AWAIT_ORDER_MS 1000

uint64_t chaos_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void chaos_sleep_us(uint64_t us)
{
    struct timespec wait = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    nanosleep(&wait, NULL);
}

/* ---- what can be said about calls -------------------------------------------------------------
 */

void client_fail(struct client *c, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(c->self->failure, sizeof(c->self->failure), format, arguments);
    va_end(arguments);
    atomic_store(&c->self->failed, true);
    for (;;) /* the coordinator looks at everything, and ends it */
        pause();
}

void client_point(struct client *c, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(c->self->step, sizeof(c->self->step), format, arguments);
    va_end(arguments);
    atomic_store(&c->self->step_ns, chaos_now_ns());
    if (atomic_fetch_add(&c->self->point, 1) + 1 != c->part->die_at)
        return;
    atomic_store(&c->self->lost, true);
    raise(SIGKILL);
}

bool client_executor_is_lost(int status)
{
    return status == COMMGEMM_EXECUTOR_LOST || status == COMMGEMM_NO_EXECUTOR;
}

/* With jobs that take longer than they may an executor may find one hung, and end itself. */
bool client_may_lose_executor(const struct client *c)
{
    return atomic_load(&c->board->kills) != 0 || c->board->hang;
}

static void client_gone(struct client *c) __attribute__((noreturn));

static void client_gone(struct client *c)
{
    atomic_store(&c->self->gone, true);
    client_streams_await(c);
    commgemm_disconnect(c->session);
    _exit(0);
}

void client_trust_memory(struct client *c)
{
    if (atomic_load(&c->self->kicked))
        client_gone(c);
}

bool client_again(struct client *c, const char *call, int status)
{
    if (status == COMMGEMM_OK)
        return false;
    bool lost = status == COMMGEMM_DAEMON_LOST || status == COMMGEMM_NOT_RUNNING;
    if (lost && (atomic_load(&c->board->daemon_killed) || atomic_load(&c->self->kicked)))
        client_gone(c);
    if (client_executor_is_lost(status) && client_may_lose_executor(c)) {
        chaos_sleep_us(1000);
        if (c->session) {
            status = commgemm_wait_executor(c->session, EXECUTOR_MS);
            if (status != COMMGEMM_OK)
                return client_again(c, "commgemm_wait_executor", status), true;
        }
        return true;
    }
    if (status == COMMGEMM_DRAINING && atomic_load(&c->board->drained)) {
        chaos_sleep_us(1000);
        return true;
    }
    client_fail(c, "%s: %s: %s", call, commgemm_status_name(status), commgemm_last_error());
}

bool client_misses_peer(const struct client *c, uint32_t comm)
{
    for (uint32_t rank = 0; rank < c->script->comm[comm].world; rank++) {
        const struct chaos_client *peer = &c->board->client[c->script->comm[comm].client[rank]];
        if (atomic_load(&peer->lost) || (comm == 0 && atomic_load(&peer->left0)))
            return true;
    }
    return false;
}

/* ---- setting up -------------------------------------------------------------------------------
 */

static void do_connect(struct client *c)
{
    struct commgemm_connect_options options;
    struct commgemm_info info;
    int status;
    commgemm_connect_options_init(&options);
    options.socket = c->board->socket;
    options.ring_entries = c->part->ring_entries;
    options.no_ring = c->part->no_ring;
    options.spin_ns = c->part->spin_ns;
    client_point(c, "connecting");
    do
        status = commgemm_connect(&options, &c->session);
    while (client_again(c, "commgemm_connect", status));
    do
        status = commgemm_get_info(c->session, &info);
    while (client_again(c, "commgemm_get_info", status));
    atomic_store(&c->self->session, info.session);
    client_point(c, "connected");
    do
        status = commgemm_wait_executor(c->session, EXECUTOR_MS);
    while (client_again(c, "commgemm_wait_executor", status));
}

static void join(struct client *c, uint32_t at)
{
    const struct chaos_comm *comm = &c->script->comm[at];
    struct commgemm_join_options options;
    uint32_t ranks[CHAOS_WORLD];
    char name[64];
    int status;
    commgemm_join_options_init(&options);
    for (uint32_t rank = 0; rank < comm->world; rank++)
        if (comm->client[rank] == c->number)
            ranks[options.n_ranks++] = rank;
    snprintf(name, sizeof(name), "chaos.%llu.%u", (unsigned long long)c->script->round, at);
    options.name = name;
    options.size = comm->world;
    options.create = 1;
    options.ranks = ranks;
    options.timeout_ms = (int)comm->join_ms;
    client_point(c, "joining comm %u", at);
    do {
        status = commgemm_comm_join(c->session, &options, &c->self->comm[at]);
        /* Somebody died, or the others were tired of waiting. */
        if ((status == COMMGEMM_JOIN_TIMEOUT && comm->join_ms < 1000) ||
            (status == COMMGEMM_PEER_LOST && client_misses_peer(c, at)))
            return;
    } while (client_again(c, "commgemm_comm_join", status));
    c->self->joined[at] = true;
}

static void do_join(struct client *c)
{
    for (uint32_t i = 0; i < c->script->n_comms; i++)
        if (chaos_has_rank(c->script, i, c->number))
            join(c, i);
}

static void make_plan(struct client *c, uint32_t comm, uint32_t at)
{
    const struct cgm_bench_options *options = &c->script->comm[comm].plan[at];
    struct cgm_case cases[CGM_VARIANT_COUNT];
    struct commgemm_plan_options request;
    int status;
    cgm_cases_derive(options, cases);
    cgm_case_plan(options, &cases[CGM_VARIANT_JOB], c->self->comm[comm], &request);
    client_point(c, "making plan %u of comm %u", at, comm);
    do {
        status = commgemm_plan_create(c->session, &request, &c->plan[comm][at]);
        if (status == COMMGEMM_NOT_SUPPORTED || status == COMMGEMM_INVALID_ARGUMENT ||
            (status == COMMGEMM_WATCHDOG && c->board->hang) ||
            (status == COMMGEMM_PEER_LOST && client_misses_peer(c, comm)))
            break;
    } while (client_again(c, "commgemm_plan_create", status));
    c->self->plan_status[comm][at] = status;
    c->self->plan_algorithm[comm][at] = c->plan[comm][at].algorithm;
}

static void make_arenas(struct client *c)
{
    int status;
    for (uint32_t i = 0; i < c->part->n_arenas; i++) {
        struct chaos_arena *arena = &c->arena[c->n_arenas++];
        client_point(c, "making arena %u", i);
        if (!chaos_arena_init(arena, c->part->arena[i]))
            client_fail(c, "no memory for an arena");
        snprintf(arena->name, sizeof(arena->name), "chaos.arena.%u.%u", c->number, i);
        do
            status = chaos_arena_open(arena, c->session);
        while (client_again(c, "making an arena", status));
    }
}

static void do_plan(struct client *c)
{
    for (uint32_t i = 0; i < c->script->n_comms; i++)
        for (uint32_t k = 0; c->self->joined[i] && k < c->script->comm[i].n_plans; k++)
            make_plan(c, i, k);
    make_arenas(c);
}

/* ---- kept buffers -----------------------------------------------------------------------------
 */

/* The daemon's copies, where it makes them, taint a buffer that they were writing when the executor
 * died. */
static int send_kept(struct client *c, const struct commgemm_buffer *buffer, const void *bytes)
{
    struct commgemm_buffer now = *buffer;
    int status = commgemm_buffer_open(c->session, NULL, buffer->id, 0, &now);
    if (status == COMMGEMM_OK)
        status = commgemm_buffer_write(c->session, &now, 0, bytes, CHAOS_KEPT_BYTES);
    return status == COMMGEMM_OK && now.tainted && test_backend_is_cuda()
               ? commgemm_buffer_rewritten(c->session, &now)
               : status;
}

static void fill_kept(struct client *c, uint32_t at, const struct commgemm_buffer *buffer,
                      uint32_t version)
{
    unsigned char bytes[CHAOS_KEPT_BYTES];
    void *memory;
    int status;
    for (uint32_t i = 0; i < CHAOS_KEPT_BYTES; i++)
        bytes[i] = chaos_kept_byte(at, version, i);
    if (test_backend_is_cuda() || cgm_random_below(&c->random, 2)) {
        do
            status = send_kept(c, buffer, bytes);
        while (client_again(c, "commgemm_buffer_write", status));
        return;
    }
    do
        status = commgemm_buffer_map(c->session, buffer, &memory);
    while (client_again(c, "commgemm_buffer_map", status));
    memcpy(memory, bytes, sizeof(bytes));
    commgemm_buffer_unmap(memory, buffer->bytes);
}

static void write_kept(struct client *c, uint32_t at)
{
    struct chaos_kept *kept = &c->board->kept[at];
    struct commgemm_buffer buffer;
    char name[32];
    int status;
    snprintf(name, sizeof(name), "kept.%u", at);
    client_point(c, "opening %s", name);
    do
        status = commgemm_buffer_open(c->session, name, 0, 0, &buffer);
    while (client_again(c, "commgemm_buffer_open", status));
    uint32_t version = atomic_fetch_add(&kept->begun, 1) + 1;
    client_point(c, "writing %s", name);
    fill_kept(c, at, &buffer, version);
    atomic_store(&kept->ended, version);
    do
        status = commgemm_buffer_close(c->session, buffer.id);
    while (client_again(c, "commgemm_buffer_close", status));
}

/* ---- leaving ----------------------------------------------------------------------------------
 */

static void drop_arena(struct client *c, struct chaos_arena *arena)
{
    int status;
    if (arena->kind == CHAOS_ARENA_NAMED) {
        do
            status = commgemm_buffer_destroy(c->session, arena->name);
        while (client_again(c, "commgemm_buffer_destroy", status));
    }
    if (cgm_random_below(&c->random, 2))
        return; /* it goes with the session */
    do
        status = arena->kind == CHAOS_ARENA_IMPORT
                     ? commgemm_import_release(c->session, arena->buffer.id)
                     : commgemm_buffer_close(c->session, arena->buffer.id);
    while (client_again(c, "releasing an arena", status));
}

static void do_leave(struct client *c)
{
    uint32_t count;
    int status;
    client_point(c, "leaving");
    for (uint32_t i = 0; i < c->n_arenas; i++)
        drop_arena(c, &c->arena[i]);
    if (cgm_random_below(&c->random, 2)) {
        do
            status = commgemm_plan_destroy_all(c->session, &count);
        while (client_again(c, "commgemm_plan_destroy_all", status));
    }
    client_point(c, "disconnecting");
    client_streams_await(c);
    commgemm_disconnect(c->session);
    exit(0);
}

/* ---- orders -----------------------------------------------------------------------------------
 */

static void obey(struct client *c, uint32_t verb, uint32_t argument)
{
    switch ((enum chaos_verb)verb) {
    case CHAOS_CONNECT:
        do_connect(c);
        break;
    case CHAOS_JOIN:
        do_join(c);
        break;
    case CHAOS_PLAN:
        do_plan(c);
        break;
    case CHAOS_BATCH:
        client_batch(c, argument);
        for (uint32_t i = c->number; i < CHAOS_KEPT; i += c->script->n_clients)
            write_kept(c, i);
        break;
    case CHAOS_RECOVER:
        client_recover(c);
        break;
    case CHAOS_LEAVE:
        do_leave(c);
        break;
    }
}

void chaos_client_main(struct chaos_board *board, uint32_t client)
{
    struct client *c = calloc(1, sizeof(*c));
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!c)
        _exit(1);
    c->board = board;
    c->script = &board->script;
    c->number = client;
    c->part = &c->script->client[client];
    c->self = &board->client[client];
    cgm_random_init(&c->random, c->script->seed ^ c->script->round * 977 ^ (client + 1) * 7919u);
    client_streams_init(c);
    for (;;) {
        uint32_t order = atomic_load(&board->order);
        if (order == atomic_load(&c->self->arrived)) {
            cgm_futex_wait(&board->order, order, AWAIT_ORDER_MS);
            continue;
        }
        obey(c, board->verb, board->argument);
        snprintf(c->self->step, sizeof(c->self->step), "awaiting orders");
        atomic_store(&c->self->arrived, order);
    }
}
