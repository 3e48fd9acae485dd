/* Every status of the system, in one table. The same number travels through return value, reply,
 * completion and exit status; the manual's troubleshooting chapter is generated from this table. */
#ifndef CGM_STATUS_H
#define CGM_STATUS_H

/* How a command line tool ends when this status ends it. */
enum cgm_exit {
    CGM_EXIT_OK = 0,
    CGM_EXIT_FAILED = 1,
    CGM_EXIT_USAGE = 2,
    CGM_EXIT_NOT_RUNNING = 3,
    CGM_EXIT_DENIED = 4,
    CGM_EXIT_VERSION = 5,
};

/* X(number, NAME, text, likely cause, what to try, exit class) */
#define CGM_STATUSES(X)                                                                            \
    X(0, OK, "success", "", "", OK)                                                                \
    X(-1, INVALID_ARGUMENT, "invalid argument",                                                    \
      "a parameter is outside its limits; the detail names the field and the limits",              \
      "correct the field that the detail names", USAGE)                                            \
    X(-2, NOT_FOUND, "no such object",                                                             \
      "the id or name was never created, or was destroyed, or belongs to an older daemon",         \
      "list what exists: commgemmctl comms, buffers, plans", FAILED)                               \
    X(-3, EXISTS, "object exists already",                                                         \
      "the name or the rank is taken, or the id has the same hash and different content",          \
      "choose another name or rank, or open the existing object", FAILED)                          \
    X(-4, PERMISSION, "permission denied",                                                         \
      "the object belongs to another uid and its mode does not let you in",                        \
      "ask the owner to create it with a wider --mode", DENIED)                                    \
    X(-5, NO_MEMORY, "out of memory",                                                              \
      "the device or the host has less free memory than was asked for",                            \
      "destroy unused buffers (commgemmctl buffers), or ask for less", FAILED)                     \
    X(-6, QUOTA, "quota exceeded",                                                                 \
      "this uid holds as much as the configuration allows; the detail says asked, used, allowed",  \
      "let go of some of what the detail names, or raise that key in commgemmd.conf", FAILED)      \
    X(-7, NOT_SUPPORTED, "not supported",                                                          \
      "no algorithm of this backend does this combination; the detail says what would work",       \
      "commgemmctl algorithms lists what each algorithm supports", FAILED)                         \
    X(-8, MISMATCH, "ranks submitted different jobs",                                              \
      "the ranks of a comm did not submit the same plan and rows in the same order",               \
      "the detail names rank and field; make every rank submit the same sequence", FAILED)         \
    X(-9, JOIN_TIMEOUT, "a rank never came",                                                       \
      "a rank of the comm did not join or did not submit in time; the detail names it",            \
      "look for that rank's process; raise join_timeout if it is merely slow", FAILED)             \
    X(-10, READY_TIMEOUT, "not ready in time",                                                     \
      "all ranks submitted the job, but a rank's stream did not reach it, or it still stood "      \
      "behind earlier jobs at its deadline; the detail says which",                                \
      "give it more time (deadline_ms), or look for a blocked stream in that rank's process; one " \
      "that holds several ranks submits them together (commgemm_submit_on_streams) or sets "       \
      "CUDA_DEVICE_MAX_CONNECTIONS=32",                                                            \
      FAILED)                                                                                      \
    X(-11, CANCELLED, "cancelled", "a rank cancelled this job before its launch",                  \
      "nothing: this is what was asked for", FAILED)                                               \
    X(-12, PEER_LOST, "a rank's process died",                                                     \
      "the session that held a rank of the comm ended, and the detail names the rank; or the "     \
      "comm was given up, and it says why",                                                        \
      "leave the comm, with which its plans go; create both again when the process is back",       \
      FAILED)                                                                                      \
    X(-13, EXECUTOR_LOST, "the executor died",                                                     \
      "the process that works on the devices ended while the job was in flight",                   \
      "wait for the next executor, open again the buffers that lost jobs may have written, and "   \
      "submit what was lost again, in its order; the daemon's log has the reason",                 \
      FAILED)                                                                                      \
    X(-14, DAEMON_LOST, "the daemon is gone",                                                      \
      "commgemmd ended or was restarted while this session was connected",                         \
      "connect again; systemctl status commgemmd shows why", NOT_RUNNING)                          \
    X(-15, GPU_LOST, "the GPU's context is dead",                                                  \
      "under MPS a fault of one process ends the CUDA work of all on that GPU",                    \
      "end the processes that commgemmctl status lists, then submit again", FAILED)                \
    X(-16, TIMEOUT, "timed out", "the wait ended before the job did",                              \
      "wait again: the job is not affected", FAILED)                                               \
    X(-17, NOT_RUNNING, "the daemon is not running",                                               \
      "nothing listens on the socket, or the socket file is stale",                                \
      "start it: systemctl start commgemmd; check --socket and $COMMGEMM_SOCKET", NOT_RUNNING)     \
    X(-18, VERSION, "protocol versions do not match",                                              \
      "library and daemon come from different releases; the detail has both ranges",               \
      "install the same release of both", VERSION)                                                 \
    X(-19, BAD_MESSAGE, "malformed message",                                                       \
      "a packet, its file descriptors or a ring entry break the protocol",                         \
      "use libcommgemm-client of the daemon's release; the detail names the field", FAILED)        \
    X(-20, RING_FULL, "every ring entry is in use",                                                \
      "as many jobs are in flight as the ring has entries",                                        \
      "wait for or reap a completion first, or connect with more entries", FAILED)                 \
    X(-21, STALE, "stale reference",                                                               \
      "the buffer's generation moved on: it was recreated, or its writer died in mid-write; or "   \
      "an "                                                                                        \
      "import was closed because no job had named it for long, or pages of its memory were given " \
      "back",                                                                                      \
      "open the buffer again and use its current generation, or import the memory again", FAILED)  \
    X(-22, DRAINING, "the daemon is draining", "the operator asked it to accept no new work",      \
      "connect to another node, or wait for the restart", FAILED)                                  \
    X(-23, IO, "input or output failed", "a file or device could not be read or written",          \
      "the detail names the file and the system's reason", FAILED)                                 \
    X(-24, INTERNAL, "internal error", "a bug in commgemm",                                        \
      "report the detail and the daemon's log", FAILED)                                            \
    X(-25, WATCHDOG, "the job hung and was aborted",                                               \
      "a launched job did not end within job_timeout",                                             \
      "the log names the operation; lower the load or raise job_timeout", FAILED)                  \
    X(-26, NO_EXECUTOR, "no executor is running",                                                  \
      "the executor is being restarted, or cannot start on this machine",                          \
      "try again in a second; the daemon's log has the reason if it lasts", FAILED)                \
    X(-27, TAINTED, "the buffer's contents are not to be trusted",                                 \
      "an executor died while a job was writing this buffer, or with what a plan's user buffer "   \
      "held; the last copy_in into that one failed; or to make the outputs of a failed job NaN "   \
      "took longer than job_timeout",                                                              \
      "let one job write all of it, or copy in again, or open it, write it and call "              \
      "commgemm_buffer_rewritten: that clears the mark",                                           \
      FAILED)

enum cgm_status {
#define CGM_STATUS_ENUM(number, NAME, text, cause, fix, exit_class) CGM_##NAME = (number),
    CGM_STATUSES(CGM_STATUS_ENUM)
#undef CGM_STATUS_ENUM
};

/* All strings are static. An unknown number gives "unknown status", never NULL. Any thread. */
const char *cgm_status_name(int status);
const char *cgm_status_text(int status);
const char *cgm_status_cause(int status);
const char *cgm_status_fix(int status);
enum cgm_exit cgm_status_exit(int status);

/* Maps an errno value to the closest status (EACCES -> PERMISSION, ENOMEM -> NO_MEMORY, ...). */
int cgm_status_of_errno(int error);

#endif
