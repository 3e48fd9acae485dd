#include "daemon/broker/executor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/broker/attached.h"
#include "daemon/broker/broker.h"
#include "daemon/broker/buffer.h"
#include "daemon/broker/comm.h"
#include "daemon/broker/executor_link.h"
#include "daemon/broker/log.h"
#include "daemon/broker/mps.h"
#include "daemon/broker/mps_clients.h"
#include "daemon/broker/session.h"
#include "proto/messages.h"
#include "proto/status.h"
#include "proto/step.h"

#define BACKOFF_MIN_MS 100u
#define BACKOFF_MAX_MS 5000u
#define STABLE_NS 10000000000ull /* a life this long starts the back-off anew */
#define REAP_PATIENCE_MS 5000u   /* between hanging up and being reaped, and after each kill */
#define KILLS_MAX 2u             /* the first one may be the business of MPS */
#define KILLED_MS 20u            /* many times what it takes until a processor has noticed */
#define CLOSER_MS 5u

bool cgm_executor_hears(const struct cgm_executor *executor)
{
    return executor->state == CGM_EXECUTOR_REPLAYING || executor->state == CGM_EXECUTOR_READY;
}

bool cgm_executor_is_ready(const struct cgm_executor *executor)
{
    return executor->state == CGM_EXECUTOR_READY;
}

const char *cgm_executor_why_not(const struct cgm_executor *executor)
{
    return executor->state == CGM_EXECUTOR_REPLAYING
               ? "the next executor is being given what the last one had"
               : executor->why;
}

bool cgm_executor_is_cuda(const struct cgm_executor *executor)
{
    const char *path = cgm_candidates_path(&executor->candidates);
    size_t length = strlen(path);
    if (executor->candidates.chosen)
        return strcmp(executor->backend, "cuda") == 0;
    return length > 5 && strcmp(path + length - 5, "-cuda") == 0;
}

bool cgm_executor_has_ended(const struct cgm_executor *executor)
{
    return executor->pid == 0 && !executor->link_open;
}

bool cgm_executor_runs_nothing(const struct cgm_executor *executor)
{
    return executor->told || cgm_executor_has_ended(executor);
}

/* ---- the journal ------------------------------------------------------------------------------
 */

static int journal_init(struct cgm_executor *executor, char *ret_detail, size_t size)
{
    executor->journal_fd = memfd_create("commgemm-journal", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (executor->journal_fd < 0 ||
        ftruncate(executor->journal_fd, sizeof(struct cgm_journal)) < 0 ||
        fcntl(executor->journal_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return cgm_detail(ret_detail, size, cgm_status_of_errno(errno),
                          "cannot make a memfd for the journal: %s", strerror(errno));
    void *base = mmap(NULL, sizeof(struct cgm_journal), PROT_READ | PROT_WRITE, MAP_SHARED,
                      executor->journal_fd, 0);
    if (base == MAP_FAILED)
        return cgm_detail(ret_detail, size, CGM_NO_MEMORY, "cannot map the journal: %s",
                          strerror(errno));
    executor->journal = base;
    executor->journal->magic = CGM_JOURNAL_MAGIC;
    executor->journal->version = CGM_JOURNAL_VERSION;
    executor->journal->n_buffers = CGM_JOURNAL_BUFFERS;
    executor->journal->n_comms = CGM_JOURNAL_COMMS;
    return CGM_OK;
}

/* The process is reaped, or killed for long: nobody writes any more. */
static void journal_read_and_clear(struct cgm_broker *broker)
{
    struct cgm_journal *journal = broker->executor.journal;
    cgm_buffer_note_tainted(broker);
    uint64_t comm, number;
    if (cgm_executor_ending(&broker->executor, &comm, &number)) /* all ranks have been told */
        cgm_comm_note_ended(broker, comm, number);
    uint64_t ended = atomic_load(&journal->jobs_done) + atomic_load(&journal->jobs_failed);
    cgm_journal_count(&journal->jobs_failed, atomic_load(&journal->jobs_accepted) - ended);
    memset((void *)journal->writers, 0, sizeof(journal->writers));
    atomic_store(&journal->ending_number, 0);
    atomic_store(&journal->mapping, 0);
}

/* ---- death ------------------------------------------------------------------------------------
 */

static void on_timer(uv_timer_t *timer);

static void set_why(struct cgm_executor *executor, const char *why)
{
    if (strcmp(executor->why, why) != 0 && cgm_candidates_has_next(&executor->candidates))
        cgm_log_warning("executor: %s; trying the next backend", why);
    else if (strcmp(executor->why, why) != 0)
        cgm_log_error("executor: %s", why);
    snprintf(executor->why, sizeof(executor->why), "%s", why);
}

static void settle(struct cgm_broker *broker)
{
    if (broker->executor.settled)
        return;
    broker->executor.settled = true;
    cgm_broker_on_settled(broker);
}

/* Read while it is written the pair is none. */
bool cgm_executor_ending(const struct cgm_executor *executor, uint64_t *ret_comm,
                         uint64_t *ret_number)
{
    const struct cgm_journal *journal = executor->journal;
    *ret_number = atomic_load(&journal->ending_number);
    *ret_comm = atomic_load(&journal->ending_comm);
    return *ret_number != 0 && atomic_load(&journal->ending_number) == *ret_number;
}

static void tell_clients_lost(struct cgm_broker *broker, const char *why)
{
    uint64_t at = 0;
    struct cgm_session *session;
    Cgm__ExecutorLost lost = CGM__EXECUTOR_LOST__INIT;
    lost.executor_life = broker->executor.life;
    lost.status = broker->ending ? CGM_DAEMON_LOST : broker->executor.lost_status;
    lost.detail = (char *)(uintptr_t)why;
    bool is_ending = cgm_executor_ending(&broker->executor, &lost.ended_comm, &lost.ended_number);
    while ((session = cgm_registry_next(&broker->sessions, &at))) {
        cgm_session_kill_ring(session, lost.status);
        lost.has_ended_comm = lost.has_ended_number =
            is_ending && cgm_registry_find(&session->comms, lost.ended_comm);
        if (session->greeted)
            cgm_connection_send(&session->connection, CGM_MSG_EXECUTOR_LOST, 0, &lost.base, NULL,
                                0);
    }
}

/* The process runs nothing any more: what its jobs came to is what stands in their rings. The
 * journal waits until it is reaped. */
static void tell(struct cgm_broker *broker)
{
    struct cgm_executor *executor = &broker->executor;
    const char *why = broker->ending ? "the daemon ends" : executor->why;
    if (executor->told)
        return;
    executor->told = true;
    cgm_connection_close(&executor->link);
    tell_clients_lost(broker, why);
    if (broker->ending) /* all at once: none is told of the others */
        cgm_broker_end_sessions(broker);
    cgm_calls_fail_all(broker, why);
    cgm_broker_tell_status(broker);
}

void cgm_executor_lose(struct cgm_broker *broker, const char *why)
{
    struct cgm_executor *executor = &broker->executor;
    cgm_step(CGM_STEP_BROKER, CGM_BROKER_STEP_EXECUTOR_LOST);
    executor->state = CGM_EXECUTOR_DYING;
    if (!cgm_candidates_has_next(&executor->candidates)) /* who was only tried has not lived */
        executor->deaths++;
    cgm_heartbeat_stop(broker);
    if (!broker->ending)
        set_why(executor, why);
    /* Who hung up ends by itself, and then its exit status says why; but not for ever. */
    cgm_patience_begin(broker, &executor->patience);
    uv_timer_start(&executor->timer, on_timer, REAP_PATIENCE_MS, 0);
    cgm_broker_tell_status(broker);
}

bool cgm_executor_is_lost(const struct cgm_executor *executor)
{
    return executor->state == CGM_EXECUTOR_DOWN || executor->state == CGM_EXECUTOR_DYING;
}

/* From then on no thread of it comes back from the system, and one that is not in there is
 * interrupted. Mostly the end of the link comes before the timer. */
static void kill_now(struct cgm_executor *executor)
{
    kill(executor->pid, SIGKILL);
    executor->killed = true;
    if (executor->told)
        return;
    uv_update_time(executor->timer.loop);
    uv_timer_start(&executor->timer, on_timer, KILLED_MS, 0);
}

static void on_terminated(void *context, enum cgm_mps_part part, const char *note)
{
    struct cgm_broker *broker = context;
    if (part == CGM_MPS_FAILED)
        cgm_log_warning("executor: MPS: %s; it is killed without", note);
    if (broker->executor.terminating && broker->executor.pid != 0)
        kill_now(&broker->executor);
}

/* Killed with a running kernel, a client of MPS takes everybody's work along, unless MPS ended it
 * first. Asked a second time, this waits for MPS no longer. */
static void kill_process(struct cgm_broker *broker)
{
    struct cgm_executor *executor = &broker->executor;
    if (executor->pid == 0)
        return;
    if (executor->under_mps && !executor->terminating && !broker->ending) {
        executor->terminating = true;
        cgm_mps_terminate(broker, executor->pid, on_terminated, broker);
    } else {
        kill_now(executor);
    }
}

void cgm_executor_give_up(struct cgm_broker *broker, const char *why)
{
    if (cgm_executor_is_lost(&broker->executor))
        return;
    cgm_executor_lose(broker, why);
    broker->executor.explained = true;
    if (broker->executor.pid == 0)
        tell(broker);
    kill_process(broker);
}

/* Its files are closed when the last of its threads has ended. A link that was cut has come to no
 * end: the process may live, and not know of it. */
void cgm_executor_on_link_end(struct cgm_broker *broker, const char *why)
{
    struct cgm_executor *executor = &broker->executor;
    if (cgm_connection_was_cut(&executor->link)) {
        cgm_executor_give_up(broker, why);
    } else {
        if (!cgm_executor_is_lost(executor))
            cgm_executor_lose(broker, executor->exit_why[0] ? executor->exit_why : why);
        tell(broker);
    }
    cgm_connection_close(&executor->link);
}

void cgm_executor_doom(struct cgm_broker *broker, const char *why)
{
    if (cgm_executor_is_lost(&broker->executor))
        return;
    broker->executor.doom = why;
    uv_timer_start(&broker->executor.timer, on_timer, 0, 0);
}

static void schedule_restart(struct cgm_broker *broker)
{
    struct cgm_executor *executor = &broker->executor;
    uint64_t lived_ns = cgm_clock_ns() - executor->started_ns;
    if (broker->ending)
        return;
    if (cgm_candidates_has_next(&executor->candidates)) {
        cgm_candidates_pass_over(&executor->candidates, executor->why);
        executor->backoff_ms = 0;
    } else {
        cgm_candidates_start_over(&executor->candidates);
        executor->backoff_ms = lived_ns > STABLE_NS || executor->backoff_ms == 0
                                   ? BACKOFF_MIN_MS
                                   : executor->backoff_ms * 2;
        if (executor->backoff_ms > BACKOFF_MAX_MS)
            executor->backoff_ms = BACKOFF_MAX_MS;
        settle(broker);
    }
    if (executor->lost_status == CGM_GPU_LOST)
        cgm_attached_look(broker);
    else
        uv_timer_start(&executor->timer, on_timer, executor->backoff_ms, 0);
}

void cgm_executor_await(struct cgm_broker *broker, const char *what, unsigned look_again_ms)
{
    set_why(&broker->executor, what);
    uv_timer_start(&broker->executor.timer, on_timer, look_again_ms, 0);
}

/* At once, unless the one before it did not live long either. */
void cgm_executor_retry(struct cgm_broker *broker)
{
    struct cgm_executor *executor = &broker->executor;
    executor->lost_status = CGM_EXECUTOR_LOST;
    uv_timer_start(&executor->timer, on_timer,
                   executor->backoff_ms > BACKOFF_MIN_MS ? executor->backoff_ms : 0, 0);
}

/* Process and socket are both gone from the loop. */
static void on_half_closed(struct cgm_broker *broker)
{
    if (!cgm_executor_has_ended(&broker->executor))
        return;
    tell(broker);
    journal_read_and_clear(broker);
    uv_timer_stop(&broker->executor.timer);
    broker->executor.state = CGM_EXECUTOR_DOWN;
    schedule_restart(broker);
}

void cgm_executor_on_link_closed(void *owner)
{
    struct cgm_broker *broker = owner;
    broker->executor.link_open = false;
    on_half_closed(broker);
}

static void note_exit(struct cgm_executor *executor, int status)
{
    char *why = executor->exit_why;
    const char *name = cgm_candidates_name(&executor->candidates);
    size_t size = sizeof(executor->exit_why);
    if (WIFSIGNALED(status))
        snprintf(why, size, "%.64s, process %d, was ended by signal %d (%s)", name, executor->pid,
                 WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(why, size, "%.64s, process %d, ended with status %d", name, executor->pid,
                 WEXITSTATUS(status));
}

void cgm_executor_on_child(struct cgm_broker *broker)
{
    struct cgm_executor *executor = &broker->executor;
    int status;
    if (executor->pid == 0 || waitpid(executor->pid, &status, WNOHANG) != executor->pid)
        return;
    note_exit(executor, status);
    executor->pid = 0;
    /* Unless it is lost already, the socket has its last words, then its end. */
    if (!cgm_executor_is_lost(executor))
        uv_timer_start(&executor->timer, on_timer, REAP_PATIENCE_MS, 0);
    else if (!broker->ending && !executor->explained)
        set_why(executor, executor->exit_why);
    on_half_closed(broker);
}

/* ---- start ------------------------------------------------------------------------------------
 */

void cgm_executor_on_replayed(struct cgm_broker *broker)
{
    struct cgm_executor *executor = &broker->executor;
    cgm_step(CGM_STEP_BROKER, CGM_BROKER_STEP_REPLAYED);
    executor->state = CGM_EXECUTOR_READY;
    executor->why[0] = '\0';
    uv_timer_stop(&executor->timer);
    cgm_heartbeat_start(broker);
    settle(broker);
    cgm_broker_tell_status(broker);
}

/* Its end of the socket is fd 3 there. */
static int spawn(struct cgm_executor *executor, int far_end)
{
    const int fds[] = {STDERR_FILENO, STDERR_FILENO, far_end};
    pid_t pid;
    int error = cgm_starter_run(&executor->starter, cgm_candidates_path(&executor->candidates), fds,
                                3, &pid);
    executor->pid = error ? 0 : pid;
    return error;
}

/* It would hang in its first CUDA call, for as long as MPS serves somebody else. */
static bool is_kept_out_by_mps(struct cgm_executor *executor)
{
    char why[256];
    struct cgm_mps mps;
    executor->under_mps = false;
    if (!cgm_executor_is_cuda(executor))
        return false;
    cgm_mps_look(&mps);
    executor->under_mps = mps.on;
    if (!cgm_mps_excludes(&mps, geteuid()))
        return false;
    snprintf(why, sizeof(why),
             "the MPS of %.64s serves uid %u alone, and the daemon runs as uid %u; start it for "
             "all users: nvidia-cuda-mps-control -d -M",
             mps.directory, (unsigned)mps.uid, (unsigned)geteuid());
    set_why(executor, why);
    return true;
}

/* For each step of its start. */
static void start_timer(struct cgm_broker *broker)
{
    struct cgm_executor *executor = &broker->executor;
    uint64_t patience_ms = broker->config.executor_start_timeout * 1000;
    uv_timer_start(&executor->timer, on_timer, patience_ms, patience_ms);
}

static void start_candidate(struct cgm_broker *broker)
{
    struct cgm_executor *executor = &broker->executor;
    char why[384];
    int far_end = -1;
    if (!executor->starter.alone && !cgm_closer_hurry(broker)) {
        set_why(executor, "file descriptors of clients are being closed before it starts");
        uv_timer_start(&executor->timer, on_timer, CLOSER_MS, 0);
        return;
    }
    if (is_kept_out_by_mps(executor)) {
        schedule_restart(broker);
        return;
    }
    int status = cgm_executor_link_open(broker, &far_end);
    if (status != CGM_OK) {
        set_why(executor, cgm_status_text(status));
        schedule_restart(broker);
        return;
    }
    executor->life++;
    executor->doom = NULL;
    executor->explained = false;
    executor->exit_why[0] = '\0';
    executor->lost_status = CGM_EXECUTOR_LOST;
    executor->terminating = executor->killed = executor->told = false;
    executor->kills = 0;
    cgm_patience_begin(broker, &executor->patience);
    executor->state = CGM_EXECUTOR_STARTING;
    int error = spawn(executor, far_end);
    close(far_end);
    if (error) {
        snprintf(why, sizeof(why), "cannot start %s: %s",
                 cgm_candidates_path(&executor->candidates), strerror(error));
        cgm_executor_give_up(broker, why);
        return;
    }
    cgm_step(CGM_STEP_BROKER, CGM_BROKER_STEP_EXECUTOR_START);
    if (cgm_executor_link_set_up(broker) != CGM_OK)
        cgm_executor_give_up(broker, "no memory to start it");
    else
        start_timer(broker);
}

void cgm_executor_start(struct cgm_broker *broker)
{
    static const char *const wanted[] = {"commgemm-executor-cuda and -cpu", "commgemm-executor-cpu",
                                         "commgemm-executor-cuda"};
    struct cgm_executor *executor = &broker->executor;
    char why[256];
    executor->started_ns = cgm_clock_ns();
    cgm_candidates_find(&executor->candidates, &broker->config);
    if (executor->candidates.count > 0) {
        start_candidate(broker);
        return;
    }
    snprintf(why, sizeof(why),
             "%s: not found in $COMMGEMM_LIBEXEC, beside commgemmd or in ../libexec/commgemm",
             wanted[broker->config.backend]);
    set_why(executor, why);
    schedule_restart(broker);
}

static void try_again(struct cgm_broker *broker)
{
    if (broker->executor.lost_status == CGM_GPU_LOST)
        cgm_attached_look(broker);
    else
        cgm_executor_start(broker);
}

/* A thread that waits for a lock of the system cannot be killed before it has that, which a client
 * may hold for as long as it likes. It runs nothing any more: nobody else need wait for it. */
static void bury(struct cgm_broker *broker)
{
    struct cgm_executor *executor = &broker->executor;
    if (!executor->told && (executor->killed || executor->pid == 0)) {
        uv_timer_start(&executor->timer, on_timer, REAP_PATIENCE_MS, 0);
        tell(broker);
        return;
    }
    if (executor->pid == 0)
        return;
    if (cgm_patience_is_renewed(broker, &executor->patience)) { /* its end may not be noticed yet */
        uv_timer_start(&executor->timer, on_timer, REAP_PATIENCE_MS, 0);
        return;
    }
    if (executor->kills++ < KILLS_MAX) {
        uv_timer_start(&executor->timer, on_timer, REAP_PATIENCE_MS, 0);
        kill_process(broker);
        return;
    }
    cgm_log_warning("executor: process %d was killed and does not end; it is left behind",
                    executor->pid);
    cgm_left_behind_add(&executor->left, executor->pid);
    executor->pid = 0;
    on_half_closed(broker);
}

static void on_no_answer(struct cgm_broker *broker)
{
    struct cgm_executor *executor = &broker->executor;
    if (cgm_patience_is_renewed(broker, &executor->patience)) {
        start_timer(broker); /* its answer may lie unread */
        return;
    }
    if (executor->state == CGM_EXECUTOR_REPLAYING && !executor->exit_why[0])
        cgm_replay_on_stuck(broker);
    cgm_executor_give_up(broker, executor->exit_why[0]
                                     ? executor->exit_why
                                     : "it did not answer in time while it started");
}

static void on_timer(uv_timer_t *timer)
{
    struct cgm_broker *broker = timer->data;
    if (broker->executor.state == CGM_EXECUTOR_DOWN)
        try_again(broker);
    else if (broker->executor.state == CGM_EXECUTOR_DYING)
        bury(broker);
    else if (broker->executor.doom)
        cgm_executor_give_up(broker, broker->executor.doom);
    else
        on_no_answer(broker);
}

int cgm_executor_init(struct cgm_broker *broker, char *ret_detail, size_t size)
{
    struct cgm_executor *executor = &broker->executor;
    memset(executor, 0, sizeof(*executor));
    executor->journal_fd = -1;
    snprintf(executor->why, sizeof(executor->why), "it is starting");
    uv_timer_init(&broker->loop, &executor->timer);
    executor->timer.data = broker;
    cgm_heartbeat_init(broker);
    int error = cgm_starter_init(&executor->starter);
    if (error)
        return cgm_detail(ret_detail, size, CGM_NO_MEMORY,
                          "cannot make the thread that starts executors: %s", strerror(error));
    return journal_init(executor, ret_detail, size);
}

/* ---- end --------------------------------------------------------------------------------------
 */

void cgm_executor_kill(struct cgm_broker *broker)
{
    cgm_executor_give_up(broker, "the daemon ends");
    kill_process(broker);
}

void cgm_executor_fini(struct cgm_broker *broker)
{
    struct cgm_executor *executor = &broker->executor;
    cgm_starter_fini(&executor->starter);
    if (executor->journal)
        munmap(executor->journal, sizeof(*executor->journal));
    if (executor->journal_fd >= 0)
        close(executor->journal_fd);
}
