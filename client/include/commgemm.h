/* libcommgemm-client: submit GEMM + communication jobs to commgemmd.
 *
 * The words: a *session* is one connection (commgemm_client). A *comm* is an ordered group of
 * ranks. A *buffer* is memory that the daemon owns and names. A *job* is one execution of a plan's
 * operation by one rank.
 *
 * Conventions of every call below
 * - Returns COMMGEMM_OK (0) or a negative status; commgemm_strerror() gives its text, and
 *   commgemm_last_error() the detail of this thread's last failed call: field, value and limits.
 * - Outputs come last and are written on success alone (but the bytes of commgemm_buffer_read).
 * - Every function may be called from any thread, also at the same time on one client, except
 *   commgemm_disconnect(), which must be the last call on its client.
 * - NO_MEMORY where this process had none to take in the daemon's answer: what was asked for may
 *   have been made; it goes with the session, but for a named buffer: see whether it can be opened.
 * - The library writes no logs, installs no signal handlers and never ends the process.
 * - A client belongs to the process that connected. In a child after fork() every call on it
 * returns INVALID_ARGUMENT and commgemm_disconnect() does nothing; the child connects for itself.
 * - Structures with a struct_size are set up by their _init function, which tells the library's
 *   _init_sized how large the program's own header makes them: so programs built with an older
 *   header keep working. A larger one than the library knows is refused by who takes it.
 * - Sizes are in bytes where the name says so, in elements or rows otherwise. Matrices are
 * row-major. M, N, K are the whole product's; w is the number of ranks. */
#ifndef COMMGEMM_H
#define COMMGEMM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define COMMGEMM_VERSION_MAJOR 0
#define COMMGEMM_VERSION_MINOR 1
#define COMMGEMM_VERSION_PATCH 0

/* ---- statuses ---------------------------------------------------------------------------------
 */

enum commgemm_status {
    COMMGEMM_OK = 0,
    COMMGEMM_INVALID_ARGUMENT = -1, /* the detail names the field and the limits */
    COMMGEMM_NOT_FOUND = -2,
    COMMGEMM_EXISTS = -3,
    COMMGEMM_PERMISSION = -4,
    COMMGEMM_NO_MEMORY = -5,
    COMMGEMM_QUOTA = -6,
    COMMGEMM_NOT_SUPPORTED = -7, /* the detail says what would work */
    COMMGEMM_MISMATCH = -8, /* ranks submitted different jobs; the detail names rank and field */
    COMMGEMM_JOIN_TIMEOUT = -9, /* the detail names the rank that never came */
    COMMGEMM_READY_TIMEOUT = -10,
    COMMGEMM_CANCELLED = -11,
    COMMGEMM_PEER_LOST = -12,     /* the process of another rank died before the launch, or the comm
                                     was given up: leave it, then create it again */
    COMMGEMM_EXECUTOR_LOST = -13, /* what to do then: commgemm_wait_executor() */
    COMMGEMM_DAEMON_LOST = -14,   /* connect again */
    COMMGEMM_GPU_LOST = -15,
    COMMGEMM_TIMEOUT = -16, /* of a wait; the job itself is not affected */
    COMMGEMM_NOT_RUNNING = -17,
    COMMGEMM_VERSION = -18,
    COMMGEMM_BAD_MESSAGE = -19,
    COMMGEMM_RING_FULL = -20, /* reap a completion, then submit again */
    COMMGEMM_STALE = -21,     /* the buffer's generation moved on: open it again; an import was idle
                                 for long: import it again */
    COMMGEMM_DRAINING = -22,
    COMMGEMM_IO = -23,
    COMMGEMM_INTERNAL = -24,
    COMMGEMM_WATCHDOG = -25,
    COMMGEMM_NO_EXECUTOR = -26,
    COMMGEMM_TAINTED = -27
};

/* Static strings, never NULL. Source: the status table of the manual, libcommgemm(3). */
const char *commgemm_strerror(int status);     /* "out of memory" */
const char *commgemm_status_name(int status);  /* "NO_MEMORY" */
const char *commgemm_status_cause(int status); /* likely cause */
const char *commgemm_status_fix(int status);   /* what to try */

/* Detail of the calling thread's last failed call; "" when there was none. Valid until the thread's
 * next call into the library. */
const char *commgemm_last_error(void);

/* Release of the library that runs, "0.1.0"; COMMGEMM_VERSION_* are those of this header. */
const char *commgemm_version(void);

/* ---- types ------------------------------------------------------------------------------------
 */

/* Products take the first four. Those of INT8 give INT32 and are exact: no epilogues, and k is at
 * most 131071, so that no sum leaves 32 bits. ag takes every type, rs and ar all but INT8; their
 * sums of INT32 are modulo 2^32. */
enum commgemm_dtype {
    COMMGEMM_FP32 = 0,
    COMMGEMM_FP16 = 1,
    COMMGEMM_BF16 = 2,
    COMMGEMM_INT8 = 3,
    COMMGEMM_INT32 = 4
};

/* Per rank; rows are sharded over M unless the table says K or N.
 *   gemm      lhs M x K      rhs K x N      out M x N
 *   ag_gemm   lhs M/w x K    rhs K x N/w    out M x N/w   aux_out, if given: gathered lhs, M x K
 *   gemm_rs   lhs M x K/w    rhs K/w x N    out M/w x N   bias added once, after the reduction
 *   gemm_ar   lhs M x K/w    rhs K/w x N    out M x N     the sum on every rank, bias added once;
 *             bias and gelu_input must be the same on every rank
 *   gemm_as   lhs M x K      rhs K x N/w    out M x N     the whole product on every rank; bias N/w
 *   bulk_ag   as gemm, beside the all-gather of another buffer of R x C: buffer_shape
 *             aux_in R/w x C   aux_out R x C
 *   bulk_rs   as gemm, beside the reduce-scatter of another buffer
 *             aux_in R x C     aux_out R/w x C
 *   ag        lhs M/w x N    out M x N
 *   rs        lhs M x N      out M/w x N    (sum over ranks, fp32 accumulation in rank order)
 *   ar        lhs M x N      out M x N
 *   a2av      lhs S x N      out T x N      counts say which rows go to whom
 * ag, rs, ar and a2av take their columns from n.
 *
 * bulk_ag and bulk_rs: without aux_in the rank's part lies in the plan's user buffer, put there
 * with COPY_IN: for bulk_ag in the chunk of its rank, for bulk_rs in all of it. Without aux_out the
 * result stays in the user buffer: for bulk_ag all of it, for bulk_rs the chunk of the rank. It is
 * moved as a whole, whatever the job's rows are.
 *
 * A user buffer is zeroes until something is copied in. When a COPY_IN fails in any way its chunks,
 * and when the executor is replaced all of them, are not to be trusted: until a later COPY_IN
 * succeeds, jobs that would read them fail with TAINTED on all ranks. So do those of a job that
 * failed before or while it left its result there, and, of an ag_gemm, those behind one whose lhs
 * lies elsewhere, without aux_out: it may gather over the rank's chunk, and that is taken for gone
 * as soon as the job is launched, however it ends. Jobs of that line that came before are not
 * concerned. Who writes a user buffer by his own mapping says so with commgemm_buffer_rewritten
 * then; before, nobody asks.
 *
 * a2av: S are the rows that the rank sends, T those that it receives. In lhs they lie in the order
 * of the ranks that they go to, in out in that of the ranks that they come from. A rank that sends
 * or receives none has no such operand. A job always moves all of them: its rows are 0 or m. */
enum commgemm_op {
    COMMGEMM_OP_NOOP = 0,
    COMMGEMM_OP_GEMM = 1,
    COMMGEMM_OP_AG_GEMM = 2,
    COMMGEMM_OP_GEMM_RS = 3,
    COMMGEMM_OP_GEMM_AR = 4,
    COMMGEMM_OP_GEMM_AS = 5,
    COMMGEMM_OP_BULK_AG = 6,
    COMMGEMM_OP_BULK_RS = 7,
    COMMGEMM_OP_AG = 8,
    COMMGEMM_OP_RS = 9,
    COMMGEMM_OP_AR = 10,
    COMMGEMM_OP_A2AV = 11,
    COMMGEMM_OP_COPY_IN = 12
};

/* TransformerEngine's CommOverlapMethod (0 to 3) and the measured choice. */
enum commgemm_method {
    COMMGEMM_METHOD_NONE = 0,
    COMMGEMM_METHOD_BULK = 1,
    COMMGEMM_METHOD_PIPELINE = 2,
    COMMGEMM_METHOD_RING_EXCHANGE = 3,
    COMMGEMM_METHOD_AUTO = 4
};

/* TransformerEngine's CommOverlapType. */
enum commgemm_comm_type { COMMGEMM_COMM_NONE = 0, COMMGEMM_COMM_RS = 1, COMMGEMM_COMM_AG = 2 };

/* TransformerEngine's CommOverlapAlgo (0 to 8) and ours (from 16). */
enum commgemm_algorithm {
    COMMGEMM_ALGO_NO_OVERLAP = 0,
    COMMGEMM_ALGO_BULK_OVERLAP_AG = 1,
    COMMGEMM_ALGO_BULK_OVERLAP_RS = 2,
    COMMGEMM_ALGO_SPLIT_PIPELINED_AG_P2P = 3,
    COMMGEMM_ALGO_SPLIT_PIPELINED_RS = 4,
    COMMGEMM_ALGO_SPLIT_PIPELINED_RS_P2P = 5,
    COMMGEMM_ALGO_ATOMIC_GEMM_RS = 6,
    COMMGEMM_ALGO_ATOMIC_GEMM_AG_P2P = 7,
    COMMGEMM_ALGO_ATOMIC_GEMM_RS_P2P = 8,
    COMMGEMM_ALGO_FUSED_AG = 16,
    COMMGEMM_ALGO_FUSED_RS = 17,
    COMMGEMM_ALGO_FUSED_AR = 18,
    COMMGEMM_ALGO_FUSED_AS = 19,
    COMMGEMM_ALGO_ONE_SHOT_AR = 20,
    COMMGEMM_ALGO_TWO_SHOT_AR = 21,
    COMMGEMM_ALGO_SPLIT_AS = 22,
    COMMGEMM_ALGO_ATOMIC_GEMM_AS = 23,
    COMMGEMM_ALGO_AUTO = 255 /* follow the method */
};

/* What a phase of a job was spent on. */
enum commgemm_phase_kind {
    COMMGEMM_PHASE_GEMM = 0,
    COMMGEMM_PHASE_COPY = 1,
    COMMGEMM_PHASE_REDUCE = 2,
    COMMGEMM_PHASE_COLLECTIVE = 3,
    COMMGEMM_PHASE_WAIT = 4,
    COMMGEMM_PHASE_FILL = 5,
    COMMGEMM_PHASE_EPILOGUE = 6
};

/* Spellings as in the command line tools ("bf16", "ag_gemm", "ring_exchange", ...). The first five
 * return NULL for an unknown number, the others -1 for an unknown name. */
const char *commgemm_dtype_name(int dtype);
const char *commgemm_op_name(int op);
const char *commgemm_method_name(int method);
const char *commgemm_algorithm_name(int algorithm);
const char *commgemm_phase_name(int kind);
int commgemm_dtype_from_name(const char *name);
int commgemm_op_from_name(const char *name);
int commgemm_method_from_name(const char *name);
int commgemm_algorithm_from_name(const char *name);
size_t commgemm_dtype_bytes(int dtype); /* of one element; 0 when unknown */

/* ---- session ----------------------------------------------------------------------------------
 */

typedef struct commgemm_client commgemm_client;

struct commgemm_connect_options {
    size_t struct_size; /* set by _init */
    /* NULL: $COMMGEMM_SOCKET, else $XDG_RUNTIME_DIR/commgemm/commgemmd.sock, else
     * /run/commgemm/commgemmd.sock */
    const char *socket;
    const char *name;      /* of this program, for listings; NULL: the process's name */
    uint32_t ring_entries; /* most jobs in flight: a power of two, 2 to 4096, with no_ring at most
                              256, which are counted then; default 256 */
    int no_ring;           /* 1: submit through the socket, map no shared memory */
    uint64_t spin_ns;      /* how long a wait polls before it sleeps; default 20,000 */
};
void commgemm_connect_options_init_sized(struct commgemm_connect_options *ret_options,
                                         size_t struct_size);
static inline void commgemm_connect_options_init(struct commgemm_connect_options *ret_options)
{
    commgemm_connect_options_init_sized(ret_options, sizeof(*ret_options));
}

/* Opens a session. options NULL: the defaults. NOT_RUNNING, PERMISSION, VERSION, INVALID_ARGUMENT,
 * QUOTA, DRAINING. */
int commgemm_connect(const struct commgemm_connect_options *options, commgemm_client **ret_client);

/* Ends the session: unlaunched jobs are dropped, imports and unnamed buffers released, the fds of
 * buffers closed; mappings of buffers stay until unmapped. NULL is allowed. No other thread may be
 * inside a call on it. */
void commgemm_disconnect(commgemm_client *client);

struct commgemm_info {
    uint64_t session;
    uint32_t devices; /* of the executor that serves, or did last; 0: none has yet */
    uint32_t protocol;
    char release[32];       /* of the daemon */
    char backend[16];       /* "cpu", "cuda"; "": none has yet */
    uint64_t executor_life; /* counts executors since the daemon's start; 0: none is running */
};
int commgemm_get_info(commgemm_client *client, struct commgemm_info *ret_info);

/* Waits until an executor serves this session. After EXECUTOR_LOST, NO_EXECUTOR or GPU_LOST, from a
 * submission or a completion, every rank calls this and submits what it lost again: in the order of
 * before, and before any other collective job of the comm, but without waiting in between. So ranks
 * meet again in the same jobs, however many of them each one had in flight; a job that is left out
 * then is one that the others wait for. What had failed otherwise stays so, also for a rank that
 * comes for it later. Before it submits, a rank opens again, by id, every buffer that a lost job
 * may have written: that may have another generation (STALE) and be tainted, with all that lies in
 * it, until it is rewritten. timeout_ms < 0: for ever. TIMEOUT, DAEMON_LOST. */
int commgemm_wait_executor(commgemm_client *client, int timeout_ms);

/* ---- comms ------------------------------------------------------------------------------------
 */

/* Creates a comm of `size` ranks (1 to 64) and returns its id, which may be sent to the other
 * processes over any channel. name NULL, or 1 to 63 characters of [A-Za-z0-9._:-] that begin with a
 * letter, a digit or _. mode: who may join, bits like a file's (write permission), 0 for 0600; of a
 * process's groups the effective one counts. It ends with this session unless another one has
 * joined by then. EXISTS when the name is taken. */
int commgemm_comm_create(commgemm_client *client, const char *name, uint32_t size, uint32_t mode,
                         uint64_t *ret_comm);

struct commgemm_join_options {
    size_t struct_size;
    uint64_t comm; /* 0: use the name */
    const char *name;
    uint32_t size;         /* with create: the comm's size; else 0, or what it must be */
    int create;            /* 1: create the comm if there is none of that name */
    uint32_t mode;         /* with create; one that lets nobody else in joins no other user's */
    const uint32_t *ranks; /* the ranks that this session holds */
    uint32_t n_ranks;
    const int32_t *devices; /* by position in ranks; NULL or -1: rank mod devices */
    int timeout_ms;         /* 0: the daemon's join_timeout */
};
void commgemm_join_options_init_sized(struct commgemm_join_options *ret_options,
                                      size_t struct_size);
static inline void commgemm_join_options_init(struct commgemm_join_options *ret_options)
{
    commgemm_join_options_init_sized(ret_options, sizeof(*ret_options));
}

/* Joins with the given ranks and waits until every rank has joined. JOIN_TIMEOUT names the missing
 * ranks, or says that all are there and no executor; PEER_LOST who left meanwhile; NO_EXECUTOR says
 * at once that there is none: commgemm_wait_executor waits for the next one. After a failure
 * none of this call's ranks is joined, and there is nothing to leave, but for a comm that
 * commgemm_comm_create has made: that one stays. EXISTS for a rank that is held. */
int commgemm_comm_join(commgemm_client *client, const struct commgemm_join_options *options,
                       uint64_t *ret_comm);

/* The usual case: one rank, created if missing, among processes of one user. */
int commgemm_comm_join_simple(commgemm_client *client, const char *name, uint32_t size,
                              uint32_t rank, uint64_t *ret_comm);

/* Gives up this session's ranks. The comm's unlaunched jobs end with PEER_LOST on all ranks, and so
 * do those that the others submit later and that need all ranks. After PEER_LOST every rank leaves
 * before it joins again: of a comm that was given up the name is taken until then (EXISTS). This
 * session's plans of the comm go too. */
int commgemm_comm_leave(commgemm_client *client, uint64_t comm);

/* ---- buffers ----------------------------------------------------------------------------------
 */

struct commgemm_buffer {
    uint64_t id;
    uint64_t bytes;      /* as asked for when it was created; whole pages of a user buffer */
    uint32_t generation; /* changes when an executor's death lost or damaged the contents */
    int tainted;         /* 1: a job that was writing it may have left anything in it; 0 of a user
                            buffer, of which each part is sound or not: who reads it is told */
    int writable;        /* 1: this session may write it */
    int fd; /* the memory, close-on-exec; the library's, until close or disconnect; -1: IPC buffer
             */
};

enum commgemm_buffer_flags { COMMGEMM_BUFFER_IPC = 1 };

/* Creates zeroed memory on a device (-1: device 0). With a name it is persistent: it outlives this
 * session, the client and the executor, until commgemm_buffer_destroy. mode as in comm_create.
 * EXISTS, QUOTA, NO_MEMORY, NO_EXECUTOR. */
int commgemm_buffer_create(commgemm_client *client, const char *name, uint64_t bytes, int device,
                           uint32_t mode, uint32_t flags, struct commgemm_buffer *ret_buffer);

/* Opens a buffer by name, or by id when name is NULL. One of that name that is still being created
 * is waited for, by its owner: to others it is NOT_FOUND until it is there, though to create it is
 * EXISTS. NOT_FOUND, also when that fails; PERMISSION. */
int commgemm_buffer_open(commgemm_client *client, const char *name, uint64_t id, int read_only,
                         struct commgemm_buffer *ret_buffer);

/* Maps a host-visible buffer (CPU backend) into this process; the mapping is read-only if the
 * buffer is. NOT_SUPPORTED for device memory, NOT_FOUND when it is closed or the session has lost
 * it (commgemm_buffer_destroy, a plan that has ended), DAEMON_LOST. The mapping stays valid after
 * close and disconnect, until commgemm_buffer_unmap(address, bytes); the bytes of a buffer that has
 * ended may be zero. A plan's user buffer is other memory after an executor's death: open and map
 * it again. */
int commgemm_buffer_map(commgemm_client *client, const struct commgemm_buffer *buffer,
                        void **ret_address);
int commgemm_buffer_unmap(void *address, uint64_t bytes);

/* Copies between this process and a buffer, host-visible or not, with the daemon's help where it
 * cannot be mapped; returns when the bytes are there. Ordered with no job: whoever writes a buffer
 * that a job uses waits for the job first. INVALID_ARGUMENT when offset_bytes + bytes leaves the
 * buffer, PERMISSION when it is not writable, NOT_FOUND when this session does not have it, also
 * when it has lost it meanwhile (commgemm_buffer_destroy), DAEMON_LOST when the session has ended,
 * STALE for a user buffer whose memory went with its executor: open it again. After a failure part
 * of the bytes may have been copied, also into ret_bytes. What cannot be mapped is written by words
 * of 4 bytes: of two who write parts of one at the same time, one may undo the other's. */
int commgemm_buffer_read(commgemm_client *client, const struct commgemm_buffer *buffer,
                         uint64_t offset_bytes, void *ret_bytes, uint64_t bytes);
int commgemm_buffer_write(commgemm_client *client, const struct commgemm_buffer *buffer,
                          uint64_t offset_bytes, const void *data, uint64_t bytes);

/* Drops this session's reference, however often it opened the buffer, and closes its fds, each
 * after the calls that use it. An open that another thread waits for meanwhile comes before it, and
 * is closed too, or after it, and stays. An unnamed buffer ends with its last one, after its last
 * job. Jobs in flight finish, but for those that are read too late, as at
 * commgemm_plan_destroy. */
int commgemm_buffer_close(commgemm_client *client, uint64_t id);

/* Removes the name and the daemon's reference. Owner (or root) only. Others who have it open keep
 * it at their own cost while the owner has not: whose quotas have no room for it loses it, as if by
 * close. */
int commgemm_buffer_destroy(commgemm_client *client, const char *name);

/* The same of the one with this id, which no other process can have made anew meanwhile. */
int commgemm_buffer_destroy_id(commgemm_client *client, uint64_t id);

/* Clears the tainted mark: the caller has rewritten all of it, through its own mapping or by
 * commgemm_buffer_write, neither of which the daemon sees. A job that writes all of it clears the
 * mark by itself; what only jobs write each a part of needs this call, too. Also of a
 * plan's user buffer that was lost or whose COPY_IN failed (enum commgemm_op). `buffer` is as it
 * was opened, of which id and generation are looked at. STALE when its generation moved on: open it
 * again, and write what that gives, since a user buffer is other memory by then. */
int commgemm_buffer_rewritten(commgemm_client *client, const struct commgemm_buffer *buffer);

/* ---- imports: the client's own memory ---------------------------------------------------------
 */

enum commgemm_segment_kind { COMMGEMM_SEGMENT_FD = 1, COMMGEMM_SEGMENT_CUDA_IPC = 2 };

struct commgemm_segment {
    uint32_t kind;
    int fd;                   /* kind FD: a memfd sealed against shrinking, or a VMM fd; borrowed */
    unsigned char handle[64]; /* kind CUDA_IPC */
    uint64_t offset, length;  /* in bytes, multiples of 4096 for FD */
};

/* Makes memory of this process usable as an operand until release, disconnect or death. The
 * segments lie behind each other in the import. *ret_id and *ret_generation go into operands. The
 * memory must stay allocated until the last job that uses it is done. An import that no job names
 * for long (the daemon's key import_idle) is closed, and so is one that a next executor cannot take
 * over: jobs that name it then end with STALE, and it is to be released and made again. Pages of a
 * memfd that are missing are made here, before it is sent. Whoever gives pages back later (holes)
 * has a job that misses one, and all after it, end with STALE, and their outputs in that import are
 * left as they are; on GPUs the old pages stay in use. A file descriptor that turns out to be no
 * memory ends the session. 1 to 64 segments. device -1: device 0. */
int commgemm_import(commgemm_client *client, const struct commgemm_segment *segments,
                    uint32_t n_segments, int device, int read_only, uint64_t *ret_id,
                    uint32_t *ret_generation);
/* Jobs in flight finish, but for those that are read too late, as at commgemm_plan_destroy. It
 * waits for the last one that names the import: then the memory may be freed. So what other ranks
 * of that job's comm have to submit for it to begin comes before, or from other threads. */
int commgemm_import_release(commgemm_client *client, uint64_t id);

/* ---- plans ------------------------------------------------------------------------------------
 */

/* What is done besides the product P: of gemm_rs and gemm_ar the sum over all ranks, so that each
 * of these is applied once, after the reduction. Their operands have out's type; out is what this
 * rank gets of it. GELU is the tanh form; everything is computed in fp32, rounded where it is kept:
 * out, and each rank's part of P, which lies in the user buffer as buffer_dtype before the sum (of
 * FP16 a part beyond 65504 is Inf, also where the sum would not be; FP32 keeps it). On GPUs the
 * library may round a product, or what it has so far, to out's type before it adds bias, and before
 * it adds what out holds.
 *   BIAS                out = P + bias             bias: one row of out
 *   GELU                out = gelu(P)              pre_gelu_out, if given: P, shaped like out
 *   BIAS | GELU         out = gelu(P + bias)       pre_gelu_out, if given: P + bias
 *   GRAD | GELU         out = P gelu'(gelu_input)  gelu_input: shaped like out
 *   GRAD | GELU | BIAS  the same                   bias_grad: the sum of out's rows, one row; of
 *                                                  gemm_rs the sum of this rank's rows
 *   GRAD | BIAS         out = P                    bias_grad: one row of m, the sums of op(lhs)
 *                                                  over k; where a rank has all of lhs: gemm,
 *                                                  gemm_as, bulk_ag, bulk_rs
 *   ACCUMULATE          out += what else it would be; not with GELU, not of gemm_ar and gemm_as. In
 *                       which order product, bias and out are added is open.
 *                       A job that is lost with its executor may have added to an import already:
 *                       write that again first. A buffer is tainted then
 * As TransformerEngine has them (GELU_AUX_BIAS, DGELU, DGELU_BGRAD, BGRADB). GRAD alone is refused.
 * Sums of rows run in an order that depends on the shape alone. */
enum commgemm_epilogue {
    COMMGEMM_EPILOGUE_BIAS = 1,
    COMMGEMM_EPILOGUE_GELU = 2,
    COMMGEMM_EPILOGUE_GRAD = 4,
    COMMGEMM_EPILOGUE_ACCUMULATE = 8
};

/* Every parameter of TransformerEngine's CreateCommOverlapBuffer, and the operation. 0 means the
 * default wherever nothing else is said. A parameter that is not the default has its effect, or the
 * plan is refused with what makes use of it; commgemmd(8) has the table of which acts where. */
struct commgemm_plan_options {
    size_t struct_size;
    uint64_t comm;
    int op;             /* enum commgemm_op */
    int method;         /* default AUTO */
    int algorithm;      /* default AUTO; of the method, where that is not AUTO too */
    uint64_t m, n, k;   /* capacity: a job may have fewer rows than m. k: of products; others make
                         * no use of it, but it is part of what plan it is */
    int dtype;          /* of lhs and rhs */
    int out_dtype;      /* default -1: dtype, or INT32 of a product of INT8; FP32 is always allowed
                         * for a product of FP16 or BF16 */
    int transa, transb; /* lhs stored K x M, aux_out too; rhs stored N x K */
    uint32_t epilogue;
    int comm_type;            /* default -1: what the operation needs */
    uint64_t buffer_shape[2]; /* default: what the operation needs; bulk_ag, bulk_rs: required */
    int buffer_dtype;         /* default -1: dtype, or of gemm_rs and gemm_ar out_dtype, for which
                               * FP32 will do instead of FP16 and BF16 */
    uint32_t tp_size;         /* the comm's size */
    uint32_t num_splits, num_max_streams, comm_cga_size;
    /* Of the queues for GEMMs and for communication: from -5, the most urgent, to 5; what a device
     * does not have becomes the nearest that it has (0 to -5 on current GPUs). A device has 28
     * queues at once: comms beyond that share them, also with others' priorities. The plans that
     * a comm ever had may have at most 4 different pairs, (0, 0) among them, or creation returns
     * QUOTA. Each further pair counts the comm's ranks once more in quota_ranks, of whoever pays
     * for the comm, until it ends. Jobs of one comm keep their order whatever their plans'
     * priorities are. */
    int gemm_priority, comm_priority;
    /* How ranks push their data. use_ce 1: by copy engines, which leave the multiprocessors alone;
     * 0: by a kernel on num_comm_sm of them. With no_overlap a library (NCCL) does the collective
     * where there is one and use_ce is not given; auto tries both. set_sm_margin 1: the plan's
     * GEMMs leave num_comm_sm multiprocessors free; less than the device has. Default -1 for both.
     * With ring_exchange and auto: copy engines, no margin, num_comm_sm 1 (16 with use_ce 0). With
     * the others: no copy engines, num_comm_sm 16, and a margin with those that communicate beside
     * a GEMM. Where one of them has no effect (use_ce without a collective, a margin without a
     * GEMM, num_comm_sm without either kernel or margin) another value than the default is refused,
     * but for a comm of one rank. fused_rs, fused_ar and fused_as copy nothing: they never use an
     * engine. The CPU backend has neither engines nor multiprocessors: it accepts all three and
     * copies by the thread of the queue. */
    uint32_t num_comm_sm;
    int set_sm_margin, use_ce;
    int atomic_gemm, rs_overlap_first_gemm, aggregate_ag;
    uint32_t mode;  /* bits like a file's, 0 for 0600; whoever is in the comm may use the plan */
    int allow_tf32; /* products of fp32 may round their inputs to TF32; the CPU backend does not */
    /* a2av: n_counts = w * w; counts[from * w + to] is how many rows rank `from` sends to rank
     * `to`. The same on every rank; they add up to m. Borrowed for the call. */
    const uint32_t *counts;
    uint32_t n_counts;
};
void commgemm_plan_options_init_sized(struct commgemm_plan_options *ret_options,
                                      size_t struct_size);
static inline void commgemm_plan_options_init(struct commgemm_plan_options *ret_options)
{
    commgemm_plan_options_init_sized(ret_options, sizeof(*ret_options));
}

struct commgemm_plan {
    uint64_t id; /* a hash of all parameters and the comm: the same on every rank */
    uint64_t comm;
    int op;
    int algorithm;
    uint64_t workspace_bytes; /* on every rank, user buffer included */
    char reason[160];         /* why this algorithm */
};

/* Creates the plan for all ranks of the comm, or takes a reference to the equal one that another
 * rank created. A session holds one reference, however often it asks. Every kernel has run once
 * when it returns; with method auto those of every algorithm that could do it, a dozen times, for
 * as long as the daemon's tune_ms lets them. NOT_SUPPORTED says what would work. CANCELLED when the
 * comm ends, or the session leaves it, meanwhile. Plans are equal when all fields are: a default
 * that is spelled out makes another one. */
int commgemm_plan_create(commgemm_client *client, const struct commgemm_plan_options *options,
                         struct commgemm_plan *ret_plan);

/* Drops this session's reference. Jobs in flight finish, but those that the executor has not read
 * within a second, since it stands still or has no processor, end with NOT_FOUND on all ranks: to
 * be sure of one, wait for it first. One that is submitted afterwards may find it still. Other
 * ranks may create the plan again for theirs, unless it is for what lies in its user buffers. Other
 * users who hold the plan keep it at their own cost when who created it has dropped his: whose
 * quotas have no room for it loses it, and what he submits still may find it. NOT_FOUND when this
 * session holds none. */
int commgemm_plan_destroy(commgemm_client *client, uint64_t plan);

/* Drops every plan reference of this session. */
int commgemm_plan_destroy_all(commgemm_client *client, uint32_t *ret_count);

struct commgemm_chunk {
    uint64_t buffer; /* usable as an operand and with commgemm_buffer_open */
    uint32_t generation;
    uint64_t offset_bytes;
    uint64_t rows, cols; /* of the chunk; rows are contiguous */
    int dtype;
};
#define COMMGEMM_WHOLE_BUFFER UINT32_MAX
/* Where chunk `chunk` of rank's user buffer lies: get_buffer_chunk_by_id. 0 to w-1 of ag_gemm,
 * gemm_rs, bulk_ag, bulk_rs, ag and rs; the others' have one, 0. */
int commgemm_plan_chunk(commgemm_client *client, uint64_t plan, uint32_t rank, uint32_t chunk,
                        struct commgemm_chunk *ret_chunk);

/* ---- jobs -------------------------------------------------------------------------------------
 */

/* Its last element ends within the object's bytes, and a result shares no byte with another operand
 * of its job, between whose rows it may lie: INVALID_ARGUMENT otherwise. */
struct commgemm_operand {
    uint64_t id;           /* of a buffer or an import; 0: absent */
    uint64_t offset_bytes; /* of the first element */
    /* Between rows as stored; 0: contiguous. Of a product at most 2^31 - 1 elements. */
    uint64_t row_stride_bytes;
    uint32_t generation;
};

/* A whole buffer from this byte on, rows contiguous. */
static inline struct commgemm_operand commgemm_operand_at(const struct commgemm_buffer *buffer,
                                                          uint64_t offset_bytes)
{
    struct commgemm_operand operand;
    operand.id = buffer->id;
    operand.offset_bytes = offset_bytes;
    operand.row_stride_bytes = 0;
    operand.generation = buffer->generation;
    return operand;
}

/* Collapses a tensor of n_dims dimensions (1 to COMMGEMM_DIMS_MAX) to a matrix, at an axis boundary
 * as in TransformerEngine's GemmFFI: the dimensions before axis_boundary (0 to n_dims) make the
 * rows, those from it on the columns; none make 1. Dimensions are in C order: the last one varies
 * fastest. strides_bytes: from one index of a dimension to the next, by dimension; NULL: without
 * gaps. *ret_row_stride_bytes is for an operand; a transposed operand, stored K x M or N x K,
 * collapses the same way. Rows and columns are those as stored.
 * INVALID_ARGUMENT names the dimension: for a size of 0, a product beyond 64 bits, columns that do
 * not lie side by side, and rows that are not all equally far apart. NULL outputs are left out. */
#define COMMGEMM_DIMS_MAX 16
int commgemm_collapse(const uint64_t *dims, const uint64_t *strides_bytes, uint32_t n_dims,
                      uint32_t axis_boundary, int dtype, uint64_t *ret_rows, uint64_t *ret_cols,
                      uint64_t *ret_row_stride_bytes);

/* The operand (id, generation, offset; rows contiguous) for bytes of this process's device memory.
 * The allocation that the pointer lies in is exported once, and found again by later calls, which
 * cost no message. Memory that was freed is noticed, also when its address is in use again: its
 * import is released, after its last job, before the new memory is opened. So ask before each
 * submission, and submit before the memory is freed. For cudaMalloc memory, and for cuMemCreate
 * memory with the POSIX fd handle type. NOT_SUPPORTED says why other memory cannot be exported and
 * what to do, or that there is no CUDA driver; INVALID_ARGUMENT for an address that the driver does
 * not know and for a range that leaves its allocation. */
int commgemm_import_pointer(commgemm_client *client, uint64_t device_pointer, uint64_t bytes,
                            struct commgemm_operand *ret_operand);

/* NOOP: nothing, for this session alone; plan and rank are not looked at.
 * RUN: the plan's operation. COPY_IN: lhs into the plan's user buffer. A rank's COPY_INs and those
 * RUNs of the plan that read its user buffer, or leave their result there, take effect in the order
 * in which it submitted them, on whatever streams.
 * BARRIER: nothing, as soon as every rank of the plan's comm has come to it, each in the order of
 * its stream; it takes its turn among the comm's jobs, whatever the plan's operation is. */
enum commgemm_job_kind {
    COMMGEMM_JOB_NOOP = 0,
    COMMGEMM_JOB_RUN = 1,
    COMMGEMM_JOB_COPY_IN = 2,
    COMMGEMM_JOB_BARRIER = 3
};

struct commgemm_job {
    size_t struct_size;
    int kind; /* default RUN */
    uint64_t plan;
    uint32_t rank;
    uint64_t rows; /* active rows of the whole product; 0: the plan's m */
    /* Shapes: enum commgemm_op and enum commgemm_epilogue. What a plan does not take is absent. */
    struct commgemm_operand lhs, rhs, bias, gelu_input, aux_in;
    struct commgemm_operand out, bias_grad, pre_gelu_out, aux_out;
    struct commgemm_operand lhs_scale, rhs_scale, out_scale;
    int accumulate;  /* 1: out += was meant; a plan with ACCUMULATE always adds, others refuse */
    int want_phases; /* completion carries begin and end of each phase on each device */
    uint32_t chunk;  /* COPY_IN: which chunk; default COMMGEMM_WHOLE_BUFFER */
    uint64_t deadline_ms; /* from submission to launch; 0: the daemon's join_timeout, and then
                             ready_timeout */
    int detached;         /* nobody takes the completion: see commgemm_detached_failures */
};
void commgemm_job_init_sized(struct commgemm_job *ret_job, size_t struct_size);
static inline void commgemm_job_init(struct commgemm_job *ret_job)
{
    commgemm_job_init_sized(ret_job, sizeof(*ret_job));
}

/* Queues a job; never blocks, but with no_ring, which waits for the executor's answer. *ret_ticket
 * is what to wait for. Submissions of one thread keep their order; all ranks of a comm must submit
 * its collective jobs in the same order. A job that needs what another one of the session writes,
 * or that writes what another one reads or writes, is submitted when that one has ended, or behind
 * it in a stream, by a call of its own. RING_FULL when ring_entries jobs are unreaped, or had ended
 * before their streams came to them and still wait for these; EXECUTOR_LOST or NO_EXECUTOR while
 * there is no executor; NOT_FOUND for a plan that this session does not hold; INVALID_ARGUMENT for
 * a rank outside its comm. Errors in rows and operands come with the completion. */
int commgemm_submit(commgemm_client *client, const struct commgemm_job *job, uint64_t *ret_ticket);

/* As commgemm_submit, in the order of a CUDA stream (a CUstream or cudaStream_t; NULL: the legacy
 * default stream): the job starts when the stream has come here, and what is put into the stream
 * afterwards starts when the job has ended. No thread waits. Call it for one stream from one thread
 * at a time.
 * The stream goes on however the job ends: when it failed, was cancelled, or when executor or
 * daemon died; the completion says which. Outputs of a failed job are NaN, integers the lowest one,
 * unless it failed before the stream had come: they are as the stream left them then; or one shares
 * bytes with what another job of the comm is to find there, one before it that is not launched yet
 * and is to read it, or, if it was launched, one launched behind it that was to write it, however
 * that ends: all of that output stays as it is then; or they lie in user buffers, and it was not
 * launched; or the rank's own entry was refused, for its rows or flags, or for that output itself;
 * or that took longer than job_timeout, or there was no memory for it, or other jobs of the comm
 * that are in flight have so many operands around it in the same object, thousands, or some hundred
 * where they lie between its rows or the job has outputs in many objects, that it is not looked up
 * what they are to find: the detail says so, and a buffer among them is tainted. On failure nothing
 * was submitted, or, if the driver refused, the job was cancelled on all ranks, unless it was
 * launched by then, and is over: the stream may have been made to wait for that. What the driver
 * said of a stream or a context, also that it is dead, is INVALID_ARGUMENT. Where the executor had
 * ended by then, the call is OK, and the completion says what became of the job: it is over.
 * NOT_SUPPORTED without a CUDA driver, with no_ring, and while the stream is being captured. The
 * first call for each executor registers the ring with the driver; it stays so, and two fds with
 * it, until commgemm_disconnect, which from then on waits until the contexts of the streams have
 * run empty. */
int commgemm_submit_on_stream(commgemm_client *client, const struct commgemm_job *job, void *stream,
                              uint64_t *ret_ticket);

#define COMMGEMM_STREAM_JOBS_MAX 64
struct commgemm_stream_job {
    commgemm_client *client;
    const struct commgemm_job *job;
    void *stream;
    uint64_t ticket; /* set on success */
};
/* Several jobs, of one client or of several, all or none: for a process that holds several ranks of
 * a comm on one GPU, on a stream each. The jobs of one call are in no order, not even those on one
 * stream: what needs another one's results comes in a later call. Every stream says that it has
 * come before the first one waits, so that it does not matter whether the streams share a hardware
 * queue, as they do with CUDA_DEVICE_MAX_CONNECTIONS=1, and under MPS, where a process has two of
 * them unless it asks for more. Submitted one by one, the first rank's wait may then hold up the
 * streams of the others, and READY_TIMEOUT names them. 1 to COMMGEMM_STREAM_JOBS_MAX jobs, of each
 * client no more than its ring_entries. */
int commgemm_submit_on_streams(struct commgemm_stream_job *jobs, uint32_t n_jobs);

struct commgemm_phase {
    uint64_t begin_ns, end_ns; /* since the launch */
    int kind;                  /* commgemm_phase_name() */
    uint32_t device, rank, queue, chunk, peer;
};

struct commgemm_completion {
    uint64_t ticket;
    int status; /* of the job */
    int algorithm;
    uint64_t plan;
    uint64_t comm_number;
    uint64_t queued_ns;  /* submission until every rank had submitted */
    uint64_t waiting_ns; /* from then until the launch */
    uint64_t running_ns; /* launch until done */
    char reason[160];    /* why this algorithm */
    char detail[192];    /* "" on success */
    uint32_t n_phases, phases_lost;
    struct commgemm_phase *phases; /* owned by the completion; NULL unless asked for */
};
/* Frees what the completion owns. NULL and a zeroed completion are allowed. */
void commgemm_completion_fini(struct commgemm_completion *completion);

/* Waits for one job and reaps it. timeout_ms < 0: for ever, 0: look once. Returns OK when the job
 * has ended, whatever its own status is: that is in ret_completion->status (NULL: not wanted).
 * TIMEOUT; NOT_FOUND for a ticket that was never given out or was reaped already. DAEMON_LOST when
 * that is how the job ended: it is reaped, and the completion is written, in this case too. */
int commgemm_wait(commgemm_client *client, uint64_t ticket, int timeout_ms,
                  struct commgemm_completion *ret_completion);

/* Reaps up to max ended jobs, in any order, without waiting; leaves those that a thread waits for.
 * DAEMON_LOST when the daemon is gone and nothing is left to reap. */
int commgemm_reap(commgemm_client *client, struct commgemm_completion *ret_completions,
                  uint32_t max, uint32_t *ret_count);

/* An fd that is readable when a completion may be there, or the daemon is gone: poll it, then call
 * commgemm_reap until it returns none. Owned by the client, the same at every call. */
int commgemm_poll_fd(commgemm_client *client, int *ret_fd);

/* A detached job's completion need not be taken: the library takes it itself, and its place is free
 * again when it ends. commgemm_wait for its ticket is allowed until then. Of those that fail, and
 * that no thread waits for, the first is kept: the first failure since the last call, without
 * phases (NULL: not wanted), and how many there were. *ret_count 0: none, and *ret_first is zeroed.
 */
int commgemm_detached_failures(commgemm_client *client, struct commgemm_completion *ret_first,
                               uint64_t *ret_count);

/* Waits until at most max_left detached jobs are in flight: 0 for all of them, ring_entries / 2 to
 * make room after RING_FULL. TIMEOUT; DAEMON_LOST when the daemon is gone; timeout_ms as in
 * commgemm_wait. */
int commgemm_wait_detached(commgemm_client *client, uint32_t max_left, int timeout_ms);

/* Cancels a job that is on no device yet: it ends with CANCELLED on all ranks. OK also when it is
 * there or has ended already: its completion says which. */
int commgemm_cancel(commgemm_client *client, uint64_t ticket);

/* ---- looking inside ---------------------------------------------------------------------------
 */

/* The daemon's state as JSON text, `{"version":1,"<what>":[...]}`. what: status, sessions, comms,
 * buffers, plans, jobs, algorithms, imports, quotas, tune, doctor. Free *ret_json with free(). */
int commgemm_query(commgemm_client *client, const char *what, char **ret_json);

/* Asks the daemon to take no new work (undo 1: to take it again). Sessions that exist go on, with
 * new comms, plans, buffers and imports, too, until they end, so that a node empties without an
 * error. Those that come get neither these nor rings: DRAINING, from commgemm_connect, which asks
 * for a ring, unless it is told no_ring. They can look inside, submit noops, and use and destroy
 * buffers that are there. Owner of the daemon or root only. */
int commgemm_drain(commgemm_client *client, int undo);

/* What MPS did about the process of a session that was ended: it is off; the process is no client
 * of it; it was terminated there, so that its death harms nobody else; that failed, see note. */
enum commgemm_mps_part {
    COMMGEMM_MPS_OFF,
    COMMGEMM_MPS_NO_CLIENT,
    COMMGEMM_MPS_TERMINATED,
    COMMGEMM_MPS_FAILED
};
struct commgemm_killed {
    /* Of the process that connected; it is not signalled. 0: it has ended, or is of another
     * container. */
    int64_t pid;
    int mps;
    char note[256];
};

/* Ends another session: its calls to the daemon return DAEMON_LOST as if the daemon had gone, its
 * ranks are lost to their comms as if it had died. Under MPS its process is terminated there first:
 * killed with a running kernel it would take all CUDA work on its GPU along. Owner of the daemon or
 * root only. */
int commgemm_kill_session(commgemm_client *client, uint64_t session,
                          struct commgemm_killed *ret_killed);

/* Forgets what auto measured, so that plans made from now on are measured again. Owner of the
 * daemon or root only. */
int commgemm_tune_clear(commgemm_client *client, uint32_t *ret_count);

/* Gives the daemon what another one, or it itself, measured: `record` of rows of
 * commgemm_query("tune"). INVALID_ARGUMENT for one that is no such; those before it may have been
 * taken. Owner of the daemon or root only. */
int commgemm_tune_import(commgemm_client *client, const char *const *records, uint32_t n_records);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
