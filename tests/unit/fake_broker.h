/* A broker and executor of a few hundred lines, for tests of the client library: it listens on a
 * socket in a temporary folder, answers every request in the simplest way that the protocol allows,
 * and serves each ring by a poller of its own, which checks what real executors check. */
#ifndef FAKE_BROKER_H
#define FAKE_BROKER_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/ring.h"

/* Words that steer it. */
#define FAKE_SILENT_NAME "silent" /* a comm or buffer of this name: no answer, ever */
#define FAKE_TAKEN_NAME "taken"   /* of this name: EXISTS, "name is taken: taken" */
#define FAKE_ABSENT_NAME "absent" /* of this name: NO_EXECUTOR */
#define FAKE_LOST_BUFFER 424242u  /* may be opened, and is lost */
#define FAKE_HOLD_MS 4242u        /* a job with this deadline_ms ends with fake_release or never */
#define FAKE_FAIL_ROWS 4242u      /* a job with these rows ends with MISMATCH, "rows are 4242" */
#define FAKE_REFUSE_ROWS 4243u    /* a Submit message with these rows is refused with DRAINING */
#define FAKE_LOSE_ROWS 4244u      /* of these rows ends its job, and is lost with its executor */
#define FAKE_PHASES 3u            /* how many a job has that wants phases */
#define FAKE_DEVICES 4u

struct fake_options {
    uint32_t version;        /* of the HelloReply; 0: 1 */
    bool is_old;             /* it has no features, and refuses their requests */
    bool no_executor;        /* RingSetup is refused until fake_start_executor */
    bool shuffle;            /* the poller ends jobs in random order, some later */
    uint64_t poller_spin_ns; /* before it sleeps */
};

struct fake_broker;

struct fake_broker *fake_start(const struct fake_options *options);
/* Ends every thread, removes the socket. */
void fake_stop(struct fake_broker *fake);
const char *fake_socket(const struct fake_broker *fake);

/* All connections are closed, as when the daemon dies. New ones are refused. */
void fake_hang_up(struct fake_broker *fake);

/* The daemon has ended every session: the rings are dead, and the sockets not closed yet. */
void fake_end_sessions(struct fake_broker *fake);

/* The executor dies with all its rings, and the clients are told. */
void fake_kill_executor(struct fake_broker *fake);
/* At its next death the executor had ended this job well, without telling anybody. */
void fake_set_ending(struct fake_broker *fake, uint64_t comm, uint64_t number);
/* A new one serves every session that had a ring, or asked for one. */
void fake_start_executor(struct fake_broker *fake);

/* Ends the held jobs of every ring. */
void fake_release(struct fake_broker *fake);

/* The entry that was submitted last, on any ring or by message. */
struct cgm_entry fake_last_entry(struct fake_broker *fake);
uint64_t fake_jobs(struct fake_broker *fake);
/* Requests answered so far, and the name that the last Hello carried. */
uint64_t fake_requests(struct fake_broker *fake);
void fake_client_name(struct fake_broker *fake, char *ret_name, unsigned size);
/* What broke the protocol, or "". */
const char *fake_complaint(struct fake_broker *fake);

/* The imports so far, "+ID:SEGMENTS -ID ", and the device UUID that came with the last. */
void fake_imports(struct fake_broker *fake, char *ret_text, unsigned size);
void fake_import_uuid(struct fake_broker *fake, char *ret_text, unsigned size);

/* Each import is idle as soon as it is there. */
void fake_close_imports(struct fake_broker *fake, bool close_them);

/* Cancel is answered with INTERNAL and does nothing. */
void fake_refuse_cancel(struct fake_broker *fake, bool refuse);

/* Puts a record into the cq of the first ring that no submission asked for. */
void fake_forge_cqe(struct fake_broker *fake, uint32_t slot, uint64_t ticket);

/* The job in this slot has ended, and the executor gets no further than to its done word. */
void fake_set_done(struct fake_broker *fake, uint32_t slot, uint64_t ticket, int status);

#endif
