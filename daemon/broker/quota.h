/* What each uid holds, what the configuration allows it, and how often it may connect. */
#ifndef CGM_QUOTA_H
#define CGM_QUOTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct cgm_broker;
struct cgm_rows;

/* Everything that is counted. X(SYMBOL, key of the configuration) */
#define CGM_QUOTA_KINDS(X)                                                                         \
    X(BYTES, quota_bytes)                                                                          \
    X(BUFFERS, quota_buffers)                                                                      \
    X(OPENS, quota_opens)                                                                          \
    X(SESSIONS, quota_sessions)                                                                    \
    X(PLANS, quota_plans)                                                                          \
    X(IMPORTS, quota_imports)                                                                      \
    X(IMPORT_BYTES, quota_import_bytes)                                                            \
    X(COMMS, quota_comms)                                                                          \
    X(RANKS, quota_ranks)                                                                          \
    X(JOBS, quota_jobs)                                                                            \
    X(FDS, quota_fds)

enum cgm_quota_kind {
#define X(SYMBOL, key) CGM_QUOTA_##SYMBOL,
    CGM_QUOTA_KINDS(X)
#undef X
        CGM_QUOTA_COUNT,
};

/* What one object costs its owner; the object keeps it, and gives back just that. */
struct cgm_charge {
    uint64_t amount[CGM_QUOTA_COUNT];
};

/* Counts all of the charge for the uid, or nothing. QUOTA with a detail that says asked, used and
 * allowed; NO_MEMORY, also when all users together have all fds that there are for them. */
int cgm_quota_take(struct cgm_broker *broker, uid_t uid, const struct cgm_charge *charge,
                   char *ret_detail, size_t size);
void cgm_quota_give(struct cgm_broker *broker, uid_t uid, const struct cgm_charge *charge);

/* What the uid has of it, without what is ending. */
uint64_t cgm_quota_used(const struct cgm_broker *broker, uid_t uid, enum cgm_quota_kind kind);

/* What one uid has becomes another's. Statuses of cgm_quota_take; then it stays where it is. */
int cgm_quota_pass(struct cgm_broker *broker, uid_t from, uid_t to, const struct cgm_charge *charge,
                   char *ret_detail, size_t size);

void cgm_quota_init(struct cgm_broker *broker);

/* Counts what is there already, allowed or not; false without memory. */
bool cgm_quota_owe(struct cgm_broker *broker, uid_t uid, const struct cgm_charge *charge);

/* Fds of the uid that came and are slow to close (closer.h), or were. */
void cgm_quota_count_slow(struct cgm_broker *broker, uid_t uid, int n_fds);

/* Threads that close for the uid: `more` of them, or fewer. How many there are then. */
unsigned cgm_quota_count_closers(struct cgm_broker *broker, uid_t uid, int more);

/* More fds than allowed, or with those that are ending more than twice as many and than one packet
 * brings: which only those can have that came and are slow to close. Or more of those than
 * two packets bring: each costs a thread. */
bool cgm_quota_is_overdrawn(const struct cgm_broker *broker, uid_t uid);

/* An object ends, but the executor is not through with it. Its owner may take as much again at
 * once; but what he has and what is ending are together at most twice what he is allowed. */
void cgm_quota_end(struct cgm_broker *broker, uid_t uid, const struct cgm_charge *charge);
void cgm_quota_ended(struct cgm_broker *broker, uid_t uid, const struct cgm_charge *charge);

/* Takes `more` and adds it to what the object has been charged already. */
int cgm_quota_add(struct cgm_broker *broker, uid_t uid, struct cgm_charge *charge,
                  enum cgm_quota_kind kind, uint64_t more, char *ret_detail, size_t size);

/* What it has been charged becomes more; before that it does not count as used, also not for who is
 * told that there is no room. On failure it stays as it was. */
int cgm_quota_raise(struct cgm_broker *broker, uid_t uid, struct cgm_charge *charge,
                    enum cgm_quota_kind kind, uint64_t amount, char *ret_detail, size_t size);

/* One more connection of the uid. QUOTA when connection_rate is used up; NO_MEMORY. */
int cgm_quota_connect(struct cgm_broker *broker, uid_t uid, char *ret_detail, size_t size);

/* Whether one more line about the uid goes into the log; how many were left out before it. */
bool cgm_quota_has_line(struct cgm_broker *broker, uid_t uid, uint64_t *ret_left_out);

/* A user gets a little time of each turn of the loop, however many sessions he has. has_turn:
 * whether any of it is left. */
bool cgm_quota_has_turn(const struct cgm_broker *broker, uid_t uid);
/* So much of a processor went into it. */
void cgm_quota_spend(struct cgm_broker *broker, uid_t uid, uint64_t ns);
/* For how long the user's packets must lie: who has had his share (user_share) while another can
 * submit jobs, for which he must not want the processor. 0: not at all. */
uint64_t cgm_quota_rest_ns(const struct cgm_broker *broker, uid_t uid);

/* Answers to sessions whose sockets very many watch take a share of a processor of the daemon, all
 * of a user's together: so much went into one. And for how long the next ones must lie. */
void cgm_quota_spend_on_sends(struct cgm_broker *broker, uid_t uid, uint64_t ns);
uint64_t cgm_quota_sends_rest_ns(const struct cgm_broker *broker, uid_t uid);

/* Requests of the uid that the executor has not read: so many bytes more of them, or fewer. Nobody
 * counts root's, with which go the daemon's own. */
void cgm_quota_count_unheard(struct cgm_broker *broker, uid_t uid, int64_t bytes);
/* Queries of the uid at the executor, also of sessions that have gone: others' stand behind them.
 */
void cgm_quota_count_query(struct cgm_broker *broker, uid_t uid, int change);
/* Whether the next ones must lie, as those are many, or are so much of what the executor has room
 * for: it is cut off when there is none left, and must be heard by others until it reads on. */
bool cgm_quota_is_unheard(const struct cgm_broker *broker, uid_t uid);

/* False when only the fds are left that the daemon keeps for the packets and processes of
 * everybody: who brought this one must be refused. The lowest free number is given out first. */
bool cgm_quota_spares_fd(int fd, char *ret_detail, size_t size);

/* Whether the uid's next packet may bring fds. What is no memory counts only when it has come, and
 * what several users send of that leaves what is kept, too. */
bool cgm_quota_lets_fds_come(const struct cgm_broker *broker, uid_t uid);

/* Whether so many more fds may lie unread, of_session with them, at a session of the uid. Of a
 * quarter of what this process's user may have in flight each uid may have as many as are left for
 * others, and of another quarter each session has its part. The rest is for the executor, which is
 * of the same user. */
bool cgm_quota_lets_unread(const struct cgm_broker *broker, uid_t uid, unsigned of_session,
                           unsigned n_more);

/* That so many more do, or less, until those that lay in its socket have gone. */
void cgm_quota_count_unread(struct cgm_broker *broker, uid_t uid, int n_more);

/* Forgets every user. */
void cgm_quota_fini(struct cgm_broker *broker);

/* One row for each uid that holds something and each kind, after the cursor. */
void cgm_quota_rows(const struct cgm_broker *broker, uint64_t after, struct cgm_rows *rows);

#endif
