#include "daemon/broker/quota.h"

#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/rows.h"
#include "daemon/broker/user_log.h"
#include "proto/allowance.h"
#include "proto/messages.h"
#include "proto/packet.h"
#include "proto/room.h"
#include "proto/status.h"

/* For one packet, whatever is in it, an answer of the executor and the start of another one. */
#define FDS_RESERVED (CGM_PACKET_FDS_ROOM + CGM_PACKET_FDS_MAX + 67u)
/* Of all: while an executor's memory is replaced by that of the next one, both are there. */
#define FDS_TWICE(limit) ((limit) / 8)
/* Of one user, as each costs a thread: two mistakes. */
#define SLOW_FDS (2 * CGM_PACKET_FDS_ROOM)
/* A user's imports together, in the node's memory, or in the least limit of it. */
#define IMPORTS_PER_MEMORY 4u
#define NS_PER_S 1000000000ull
#define TURN_NS 1000000u
/* One that took long rests for 20 times as long, as with the executor (notices.h). */
#define SENDS_PERCENT 5u
/* Of the room that is left in the executor's queue one user may have taken so much: any number of
 * users leaves some. */
#define ROOM_PARTS 8u
/* Of one user at the executor, whose answers come one after the other. */
#define QUERIES_MAX 4u
/* In the log: so many lines about a user at once, then one every so often. */
#define LINES_AT_ONCE 1000u
#define LINE_NS (NS_PER_S / 10)

/* A user is forgotten when it holds nothing and its allowances are whole again. */
struct user {
    struct cgm_charge used, ending;
    uint64_t slow_fds; /* among those that he uses */
    unsigned closers;
    uint64_t turn, spent_ns;    /* of the loop, and in that turn */
    struct cgm_allowance time;  /* of the loop, as a share of a processor */
    struct cgm_allowance sends; /* of that, for sends that take long */
    uint64_t whole_ns;          /* when connections are made up for; each one moves it on */
    uint64_t lines_whole_ns;    /* the same of lines in the log */
    uint64_t lines_left_out;    /* since the last one */
    uint64_t unheard_bytes;     /* of requests in the executor's queue */
    uint64_t queries;           /* at the executor */
    unsigned unread_fds;        /* in sockets of his, also of sessions that have ended */
};

static const struct {
    const char *key;
    size_t offset;
} kinds[] = {
#define X(SYMBOL, name) {#name, offsetof(struct cgm_config, name)},
    CGM_QUOTA_KINDS(X)
#undef X
};

/* They look what is wrong, and what they spend is their own. */
static bool is_operator(uid_t uid)
{
    return uid == 0 || uid == geteuid();
}

static uint64_t user_key(uid_t uid)
{
    return (uint64_t)uid + 1;
}

/* ---- users ------------------------------------------------------------------------------------
 */

static bool is_idle(const struct user *user, uint64_t now_ns)
{
    static const struct cgm_charge nothing;
    return user->slow_fds == 0 && user->unheard_bytes == 0 && user->unread_fds == 0 &&
           user->queries == 0 && user->whole_ns <= now_ns && user->lines_whole_ns <= now_ns &&
           cgm_allowance_is_whole(&user->time, now_ns) &&
           cgm_allowance_is_whole(&user->sends, now_ns) &&
           memcmp(&user->used, &nothing, sizeof(nothing)) == 0 &&
           memcmp(&user->ending, &nothing, sizeof(nothing)) == 0;
}

static void forget(struct cgm_broker *broker, uint64_t key)
{
    struct user *user = cgm_registry_remove(&broker->users, key);
    if (user->lines_left_out > 0)
        cgm_user_log_left_out((uid_t)(key - 1), user->lines_left_out);
    free(user);
}

static void forget_if_idle(struct cgm_broker *broker, uint64_t key, const struct user *user)
{
    if (is_idle(user, cgm_clock_ns()))
        forget(broker, key);
}

/* Those who only connected are still there when nobody looks at them any more. */
static void forget_all_idle(struct cgm_broker *broker)
{
    uint64_t key = 0, now_ns = cgm_clock_ns();
    const struct user *user;
    while ((user = cgm_registry_next(&broker->users, &key)))
        if (is_idle(user, now_ns))
            forget(broker, key);
}

static struct user *user_of(struct cgm_broker *broker, uid_t uid)
{
    struct user *user = cgm_registry_find(&broker->users, user_key(uid));
    if (user)
        return user;
    forget_all_idle(broker);
    user = calloc(1, sizeof(*user));
    if (user && cgm_registry_add(&broker->users, user_key(uid), user) != CGM_OK) {
        free(user);
        return NULL;
    }
    return user;
}

void cgm_quota_fini(struct cgm_broker *broker)
{
    uint64_t key = 0;
    while (cgm_registry_next(&broker->users, &key))
        forget(broker, key);
}

/* ---- what they hold ---------------------------------------------------------------------------
 */

/* The system's limit of mappings of a process. Not through stdio, which without memory for its
 * buffer takes the first digit for all of the number. */
static uint64_t mappings_max(void)
{
    char text[32];
    int fd = open("/proc/sys/vm/max_map_count", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    uint64_t max = strtoull(text, NULL, 10);
    return max ? max : UINT64_MAX;
}

/* Of what the CPU's executor maps a byte in 512 is memory of its own, for page tables, also where
 * the same is mapped again and again. */
static uint64_t import_bytes_max(void)
{
    uint64_t limit = cgm_room_limit();
    return limit < UINT64_MAX / IMPORTS_PER_MEMORY ? IMPORTS_PER_MEMORY * limit : UINT64_MAX;
}

void cgm_quota_init(struct cgm_broker *broker)
{
    broker->mappings_max = mappings_max();
    broker->import_bytes_max = import_bytes_max();
}

/* Most fds are mappings too. Of both no user gets more than half, what is ending included. */
static uint64_t fds_of_one_user(const struct cgm_broker *broker)
{
    uint64_t limit = broker->mappings_max / 4;
    struct rlimit fds;
    if (getrlimit(RLIMIT_NOFILE, &fds) == 0 && fds.rlim_cur / 4 < limit)
        limit = fds.rlim_cur / 4;
    return limit;
}

/* What the system has sets a limit, too. */
static uint64_t system_allows(const struct cgm_broker *broker, size_t kind)
{
    switch (kind) {
    case CGM_QUOTA_FDS:
        return fds_of_one_user(broker);
    case CGM_QUOTA_IMPORT_BYTES:
        return cgm_executor_is_cuda(&broker->executor) ? UINT64_MAX : broker->import_bytes_max;
    default:
        return UINT64_MAX;
    }
}

/* 0 in the configuration: no limit. */
static uint64_t allowed(const struct cgm_broker *broker, size_t kind)
{
    uint64_t limit, most = system_allows(broker, kind);
    memcpy(&limit, (const char *)&broker->config + kinds[kind].offset, sizeof(limit));
    return limit && limit < most ? limit : most;
}

bool cgm_quota_is_overdrawn(const struct cgm_broker *broker, uid_t uid)
{
    const struct user *user = cgm_registry_find(&broker->users, user_key(uid));
    uint64_t limit = allowed(broker, CGM_QUOTA_FDS);
    if (!user)
        return false;
    uint64_t used = user->used.amount[CGM_QUOTA_FDS], ending = user->ending.amount[CGM_QUOTA_FDS];
    return user->slow_fds > SLOW_FDS || used > limit ||
           used + ending > 2 * limit + CGM_PACKET_FDS_ROOM;
}

void cgm_quota_count_slow(struct cgm_broker *broker, uid_t uid, int n_fds)
{
    struct user *user = cgm_registry_find(&broker->users, user_key(uid));
    assert(user);
    user->slow_fds += (uint64_t)n_fds;
}

unsigned cgm_quota_count_closers(struct cgm_broker *broker, uid_t uid, int more)
{
    struct user *user = cgm_registry_find(&broker->users, user_key(uid));
    assert(user);
    return user->closers += (unsigned)more;
}

static rlim_t reserved_of(rlim_t limit)
{
    return limit / 2 < FDS_RESERVED ? limit / 2 : FDS_RESERVED;
}

static uint64_t fds_of_users(rlim_t limit)
{
    return limit - reserved_of(limit) - FDS_TWICE(limit);
}

/* After the largest packet half of what is for twice is left. */
static uint64_t beyond_users(rlim_t limit)
{
    uint64_t half = FDS_TWICE(limit) / 2;
    return half > CGM_PACKET_FDS_ROOM ? half - CGM_PACKET_FDS_ROOM : 0;
}

bool cgm_quota_lets_fds_come(const struct cgm_broker *broker, uid_t uid)
{
    struct rlimit limit;
    return is_operator(uid) || getrlimit(RLIMIT_NOFILE, &limit) < 0 ||
           broker->fds_of_all <= fds_of_users(limit.rlim_cur) + beyond_users(limit.rlim_cur);
}

/* Of what is counted some has no fd at the moment, and gets it again without being asked. */
static int check_all(const struct cgm_broker *broker, uid_t uid, uint64_t amount, char *ret_detail,
                     size_t size)
{
    struct rlimit limit;
    if (amount == 0 || is_operator(uid) || getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return CGM_OK;
    uint64_t most = fds_of_users(limit.rlim_cur);
    if (broker->fds_of_all + amount <= most)
        return CGM_OK;
    return cgm_detail(ret_detail, size, CGM_NO_MEMORY,
                      "the daemon has no file descriptors left: asked for %ju, used by all users "
                      "%ju, allowed %ju of its limit of %ju",
                      (uintmax_t)amount, (uintmax_t)broker->fds_of_all, (uintmax_t)most,
                      (uintmax_t)limit.rlim_cur);
}

static int check(const struct cgm_broker *broker, uid_t uid, const struct user *user, size_t kind,
                 uint64_t amount, char *ret_detail, size_t size)
{
    uint64_t used = user->used.amount[kind], ending = user->ending.amount[kind];
    uint64_t limit = allowed(broker, kind);
    if (amount == 0 || limit == UINT64_MAX)
        return CGM_OK;
    if (amount > limit || used > limit - amount)
        return cgm_detail(ret_detail, size, CGM_QUOTA,
                          "%s of uid %u: asked for %ju, used %ju, allowed %ju", kinds[kind].key,
                          (unsigned)uid, (uintmax_t)amount, (uintmax_t)used, (uintmax_t)limit);
    if (ending <= limit || ending - limit <= limit - amount - used)
        return CGM_OK;
    return cgm_detail(ret_detail, size, CGM_QUOTA,
                      "%s of uid %u: asked for %ju, used %ju and %ju that are still in use by jobs "
                      "or being freed, allowed %ju",
                      kinds[kind].key, (unsigned)uid, (uintmax_t)amount, (uintmax_t)used,
                      (uintmax_t)ending, (uintmax_t)limit);
}

static void add(struct cgm_broker *broker, const struct cgm_charge *charge, struct cgm_charge *to)
{
    for (size_t i = 0; i < CGM_QUOTA_COUNT; i++)
        to->amount[i] += charge->amount[i];
    broker->fds_of_all += charge->amount[CGM_QUOTA_FDS];
}

static void subtract(struct cgm_broker *broker, const struct cgm_charge *charge,
                     struct cgm_charge *from)
{
    for (size_t i = 0; i < CGM_QUOTA_COUNT; i++) {
        assert(from->amount[i] >= charge->amount[i]);
        from->amount[i] -= charge->amount[i];
    }
    broker->fds_of_all -= charge->amount[CGM_QUOTA_FDS];
}

/* Who has a ring, or has submitted without one. */
static unsigned has_jobs(const struct user *user)
{
    return user->used.amount[CGM_QUOTA_JOBS] > 0;
}

static void use(struct cgm_broker *broker, const struct cgm_charge *charge, struct user *user)
{
    broker->users_with_jobs -= has_jobs(user);
    add(broker, charge, &user->used);
    broker->users_with_jobs += has_jobs(user);
}

static void give_back(struct cgm_broker *broker, const struct cgm_charge *charge, struct user *user)
{
    broker->users_with_jobs -= has_jobs(user);
    subtract(broker, charge, &user->used);
    broker->users_with_jobs += has_jobs(user);
}

/* What he is allowed, whatever all users have. */
static int take(struct cgm_broker *broker, uid_t uid, const struct cgm_charge *charge,
                char *ret_detail, size_t size)
{
    struct user *user = user_of(broker, uid);
    int status = CGM_OK;
    if (!user)
        return cgm_detail(ret_detail, size, CGM_NO_MEMORY, "the daemon has no memory left");
    for (size_t i = 0; i < CGM_QUOTA_COUNT && status == CGM_OK; i++)
        status = check(broker, uid, user, i, charge->amount[i], ret_detail, size);
    if (status == CGM_OK)
        use(broker, charge, user);
    else
        forget_if_idle(broker, user_key(uid), user);
    return status;
}

int cgm_quota_take(struct cgm_broker *broker, uid_t uid, const struct cgm_charge *charge,
                   char *ret_detail, size_t size)
{
    int status = check_all(broker, uid, charge->amount[CGM_QUOTA_FDS], ret_detail, size);
    return status == CGM_OK ? take(broker, uid, charge, ret_detail, size) : status;
}

bool cgm_quota_owe(struct cgm_broker *broker, uid_t uid, const struct cgm_charge *charge)
{
    struct user *user = user_of(broker, uid);
    if (user)
        use(broker, charge, user);
    return user != NULL;
}

void cgm_quota_give(struct cgm_broker *broker, uid_t uid, const struct cgm_charge *charge)
{
    struct user *user = cgm_registry_find(&broker->users, user_key(uid));
    assert(user);
    give_back(broker, charge, user);
    forget_if_idle(broker, user_key(uid), user);
}

uint64_t cgm_quota_used(const struct cgm_broker *broker, uid_t uid, enum cgm_quota_kind kind)
{
    const struct user *user = cgm_registry_find(&broker->users, user_key(uid));
    return user ? user->used.amount[kind] : 0;
}

int cgm_quota_pass(struct cgm_broker *broker, uid_t from, uid_t to, const struct cgm_charge *charge,
                   char *ret_detail, size_t size)
{
    int status = take(broker, to, charge, ret_detail, size);
    if (status == CGM_OK)
        cgm_quota_give(broker, from, charge);
    return status;
}

void cgm_quota_end(struct cgm_broker *broker, uid_t uid, const struct cgm_charge *charge)
{
    struct user *user = cgm_registry_find(&broker->users, user_key(uid));
    assert(user);
    give_back(broker, charge, user);
    add(broker, charge, &user->ending);
}

void cgm_quota_ended(struct cgm_broker *broker, uid_t uid, const struct cgm_charge *charge)
{
    struct user *user = cgm_registry_find(&broker->users, user_key(uid));
    assert(user);
    subtract(broker, charge, &user->ending);
    forget_if_idle(broker, user_key(uid), user);
}

int cgm_quota_add(struct cgm_broker *broker, uid_t uid, struct cgm_charge *charge,
                  enum cgm_quota_kind kind, uint64_t more, char *ret_detail, size_t size)
{
    struct cgm_charge one = {{0}};
    one.amount[kind] = more;
    int status = cgm_quota_take(broker, uid, &one, ret_detail, size);
    if (status == CGM_OK)
        charge->amount[kind] += more;
    return status;
}

int cgm_quota_raise(struct cgm_broker *broker, uid_t uid, struct cgm_charge *charge,
                    enum cgm_quota_kind kind, uint64_t amount, char *ret_detail, size_t size)
{
    struct cgm_charge before = {{0}};
    before.amount[kind] = charge->amount[kind];
    charge->amount[kind] = 0;
    cgm_quota_give(broker, uid, &before);
    int status = cgm_quota_add(broker, uid, charge, kind, amount, ret_detail, size);
    if (status != CGM_OK && cgm_quota_owe(broker, uid, &before))
        charge->amount[kind] = before.amount[kind];
    return status;
}

/* ---- how often they connect -------------------------------------------------------------------
 */

/* A leaky bucket of one second: a burst of connection_rate is let in, then one every 1/rate s. */
int cgm_quota_connect(struct cgm_broker *broker, uid_t uid, char *ret_detail, size_t size)
{
    uint64_t rate = broker->config.connection_rate, now_ns = cgm_clock_ns();
    if (rate == 0)
        return CGM_OK;
    struct user *user = user_of(broker, uid);
    if (!user)
        return cgm_detail(ret_detail, size, CGM_NO_MEMORY, "the daemon has no memory left");
    uint64_t begin_ns = user->whole_ns > now_ns ? user->whole_ns : now_ns;
    uint64_t whole_ns = begin_ns + NS_PER_S / rate;
    if (whole_ns - now_ns > NS_PER_S)
        return cgm_detail(ret_detail, size, CGM_QUOTA,
                          "connection_rate of uid %u: asked for 1, used %ju within a second, "
                          "allowed %ju",
                          (unsigned)uid, (uintmax_t)rate, (uintmax_t)rate);
    user->whole_ns = whole_ns;
    return CGM_OK;
}

/* ---- how much is written about them -----------------------------------------------------------
 */

bool cgm_quota_has_line(struct cgm_broker *broker, uid_t uid, uint64_t *ret_left_out)
{
    struct user *user = is_operator(uid) ? NULL : user_of(broker, uid);
    uint64_t now_ns = cgm_clock_ns();
    *ret_left_out = 0;
    if (!user)
        return true;
    uint64_t begin_ns = user->lines_whole_ns > now_ns ? user->lines_whole_ns : now_ns;
    if (begin_ns + LINE_NS - now_ns > LINES_AT_ONCE * LINE_NS) {
        user->lines_left_out++;
        return false;
    }
    *ret_left_out = user->lines_left_out;
    user->lines_left_out = 0;
    user->lines_whole_ns = begin_ns + LINE_NS;
    return true;
}

/* ---- how long they keep the daemon busy -------------------------------------------------------
 */

bool cgm_quota_has_turn(const struct cgm_broker *broker, uid_t uid)
{
    const struct user *user = cgm_registry_find(&broker->users, user_key(uid));
    return !user || user->turn != broker->turn || user->spent_ns < TURN_NS;
}

/* While another one has jobs: what he takes at other times is not owed. */
static bool is_limited(const struct cgm_broker *broker, uid_t uid, const struct user *user)
{
    return broker->users_with_jobs > has_jobs(user) && broker->config.user_share < 100 &&
           !is_operator(uid);
}

void cgm_quota_spend(struct cgm_broker *broker, uid_t uid, uint64_t ns)
{
    struct user *user = cgm_registry_find(&broker->users, user_key(uid));
    if (!user)
        return;
    user->spent_ns = user->turn == broker->turn ? user->spent_ns + ns : ns;
    user->turn = broker->turn;
    if (is_limited(broker, uid, user))
        cgm_allowance_take(&user->time, ns, broker->config.user_share, cgm_clock_ns());
}

uint64_t cgm_quota_rest_ns(const struct cgm_broker *broker, uid_t uid)
{
    const struct user *user = cgm_registry_find(&broker->users, user_key(uid));
    return user && is_limited(broker, uid, user)
               ? cgm_allowance_rest_ns(&user->time, cgm_clock_ns())
               : 0;
}

void cgm_quota_spend_on_sends(struct cgm_broker *broker, uid_t uid, uint64_t ns)
{
    struct user *user = cgm_registry_find(&broker->users, user_key(uid));
    if (user && !is_operator(uid))
        cgm_allowance_take_all(&user->sends, ns, SENDS_PERCENT, cgm_clock_ns());
}

uint64_t cgm_quota_sends_rest_ns(const struct cgm_broker *broker, uid_t uid)
{
    const struct user *user = cgm_registry_find(&broker->users, user_key(uid));
    return user ? cgm_allowance_rest_ns(&user->sends, cgm_clock_ns()) : 0;
}

void cgm_quota_count_unheard(struct cgm_broker *broker, uid_t uid, int64_t bytes)
{
    struct user *user =
        bytes != 0 && uid != 0 ? cgm_registry_find(&broker->users, user_key(uid)) : NULL;
    if (user)
        user->unheard_bytes += (uint64_t)bytes;
}

void cgm_quota_count_query(struct cgm_broker *broker, uid_t uid, int change)
{
    struct user *user = uid != 0 ? cgm_registry_find(&broker->users, user_key(uid)) : NULL;
    if (user)
        user->queries += (uint64_t)change;
}

bool cgm_quota_is_unheard(const struct cgm_broker *broker, uid_t uid)
{
    const struct user *user = cgm_registry_find(&broker->users, user_key(uid));
    const struct cgm_connection *link = &broker->executor.link;
    return user &&
           (user->unheard_bytes > (link->queued_bytes_max - link->queued_bytes) / ROOM_PARTS ||
            user->queries >= QUERIES_MAX);
}

bool cgm_quota_spares_fd(int fd, char *ret_detail, size_t size)
{
    struct rlimit limit;
    if (fd < 0 || getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return true;
    if ((rlim_t)fd + reserved_of(limit.rlim_cur) < limit.rlim_cur)
        return true;
    cgm_detail(ret_detail, size, 0, "the daemon has no file descriptors left; its limit is %ju",
               (uintmax_t)limit.rlim_cur);
    return false;
}

/* Whoever comes when others have all that they may finds as much again: shares of what is left. */
bool cgm_quota_lets_unread(const struct cgm_broker *broker, uid_t uid, unsigned of_session,
                           unsigned n_more)
{
    const struct user *user = cgm_registry_find(&broker->users, user_key(uid));
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return true;
    rlim_t room = limit.rlim_cur / 4;
    unsigned of_user = (user ? user->unread_fds : 0) + n_more;
    return of_session <= room / broker->config.max_sessions || broker->unread_fds + of_user <= room;
}

void cgm_quota_count_unread(struct cgm_broker *broker, uid_t uid, int n_more)
{
    struct user *user = n_more > 0 ? user_of(broker, uid) : NULL;
    broker->unread_fds += (unsigned)n_more;
    if (!user)
        user = cgm_registry_find(&broker->users, user_key(uid));
    if (user && (n_more > 0 || user->unread_fds >= (unsigned)-n_more)) /* or it was not made */
        user->unread_fds += (unsigned)n_more;
}

/* ---- listing ----------------------------------------------------------------------------------
 */

static void quota_row(const struct cgm_broker *broker, uint64_t key, const struct user *user,
                      size_t kind, struct cgm_rows *rows)
{
    uint64_t limit = allowed(broker, kind);
    cgm_rows_begin(rows);
    cgm_rows_number(rows, "uid", key - 1);
    cgm_rows_text(rows, "quota", kinds[kind].key);
    cgm_rows_number(rows, "used", user->used.amount[kind]);
    cgm_rows_number(rows, "ending", user->ending.amount[kind]);
    cgm_rows_json(rows, "allowed", "null");
    if (limit != UINT64_MAX)
        cgm_rows_number(rows, "allowed", limit);
}

/* Else he is remembered for how often he came, or for what was written about him. */
static bool has_anything(const struct user *user)
{
    static const struct cgm_charge none;
    return memcmp(&user->used, &none, sizeof(none)) != 0 ||
           memcmp(&user->ending, &none, sizeof(none)) != 0;
}

void cgm_quota_rows(const struct cgm_broker *broker, uint64_t after, struct cgm_rows *rows)
{
    const struct user *user;
    while ((user = cgm_registry_next(&broker->users, &after))) {
        if (!has_anything(user))
            continue;
        for (size_t i = 0; i < CGM_QUOTA_COUNT; i++)
            quota_row(broker, after, user, i, rows);
        if (!cgm_rows_are_full(rows))
            continue;
        rows->reply->has_next = 1;
        rows->reply->next = after;
        return;
    }
}
