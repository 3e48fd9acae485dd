/* Every message: number on the wire, name, protobuf type. Numbers are never reused. */
#ifndef CGM_MESSAGES_H
#define CGM_MESSAGES_H

#include "commgemm.pb-c.h"

/* X(number, SYMBOL, protobuf-c type prefix, C type) */
#define CGM_MESSAGES(X)                                                                            \
    X(1, HELLO, hello, Hello)                                                                      \
    X(2, HELLO_REPLY, hello_reply, HelloReply)                                                     \
    X(3, ERROR, error, Error)                                                                      \
    X(4, OK, ok, Ok)                                                                               \
    X(5, RING_SETUP, ring_setup, RingSetup)                                                        \
    X(6, RING, ring, Ring)                                                                         \
    X(7, EXECUTOR_LOST, executor_lost, ExecutorLost)                                               \
    X(8, COMM_CREATE, comm_create, CommCreate)                                                     \
    X(9, COMM_REPLY, comm_reply, CommReply)                                                        \
    X(10, COMM_JOIN, comm_join, CommJoin)                                                          \
    X(11, COMM_LEAVE, comm_leave, CommLeave)                                                       \
    X(12, BUFFER_CREATE, buffer_create, BufferCreate)                                              \
    X(13, BUFFER_OPEN, buffer_open, BufferOpen)                                                    \
    X(14, BUFFER_REPLY, buffer_reply, BufferReply)                                                 \
    X(15, BUFFER_CLOSE, buffer_close, BufferClose)                                                 \
    X(16, BUFFER_DESTROY, buffer_destroy, BufferDestroy)                                           \
    X(17, BUFFER_REWRITTEN, buffer_rewritten, BufferRewritten)                                     \
    X(18, IMPORT_CREATE, import_create, ImportCreate)                                              \
    X(19, IMPORT_REPLY, import_reply, ImportReply)                                                 \
    X(20, IMPORT_RELEASE, import_release, ImportRelease)                                           \
    X(21, PLAN_CREATE, plan_create, PlanCreate)                                                    \
    X(22, PLAN_REPLY, plan_reply, PlanReply)                                                       \
    X(23, PLAN_DESTROY, plan_destroy, PlanDestroy)                                                 \
    X(24, PLAN_DESTROY_ALL, plan_destroy_all, PlanDestroyAll)                                      \
    X(25, PLAN_DESTROY_ALL_REPLY, plan_destroy_all_reply, PlanDestroyAllReply)                     \
    X(26, PLAN_CHUNK, plan_chunk, PlanChunk)                                                       \
    X(27, PLAN_CHUNK_REPLY, plan_chunk_reply, PlanChunkReply)                                      \
    X(28, SUBMIT, submit, Submit)                                                                  \
    X(29, COMPLETION, completion, Completion)                                                      \
    X(30, CANCEL, cancel, Cancel)                                                                  \
    X(31, QUERY, query, Query)                                                                     \
    X(32, QUERY_REPLY, query_reply, QueryReply)                                                    \
    X(33, DRAIN, drain, Drain)                                                                     \
    X(34, MEMORY_COPY, memory_copy, MemoryCopy)                                                    \
    X(35, SESSION_KILL, session_kill, SessionKill)                                                 \
    X(36, SESSION_KILL_REPLY, session_kill_reply, SessionKillReply)                                \
    X(37, IMPORT_IDLE, import_idle, ImportIdle)                                                    \
    X(38, TUNE, tune, Tune)                                                                        \
    X(39, TUNE_REPLY, tune_reply, TuneReply)                                                       \
    X(40, BUFFER_CHECK, buffer_check, BufferCheck)                                                 \
    X(64, EXECUTOR_SETUP, executor_setup, ExecutorSetup)                                           \
    X(65, EXECUTOR_HELLO, executor_hello, ExecutorHello)                                           \
    X(66, SESSION_ADD, session_add, SessionAdd)                                                    \
    X(67, SESSION_REMOVE, session_remove, SessionRemove)                                           \
    X(68, COMM_ADD, comm_add, CommAdd)                                                             \
    X(69, COMM_REMOVE, comm_remove, CommRemove)                                                    \
    X(70, BUFFER_ALLOC, buffer_alloc, BufferAlloc)                                                 \
    X(71, MEMORY, memory, Memory)                                                                  \
    X(72, BUFFER_ADOPT, buffer_adopt, BufferAdopt)                                                 \
    X(73, BUFFER_REMOVE, buffer_remove, BufferRemove)                                              \
    X(74, GRANT, grant, Grant)                                                                     \
    X(75, REVOKE, revoke, Revoke)                                                                  \
    X(76, IMPORT_ADD, import_add, ImportAdd)                                                       \
    X(77, IMPORT_REMOVE, import_remove, ImportRemove)                                              \
    X(78, PLAN_ADD, plan_add, PlanAdd)                                                             \
    X(79, PLAN_ADDED, plan_added, PlanAdded)                                                       \
    X(80, PLAN_REMOVE, plan_remove, PlanRemove)                                                    \
    X(81, SUBMIT_FORWARD, submit_forward, SubmitForward)                                           \
    X(82, COMPLETION_FORWARD, completion_forward, CompletionForward)                               \
    X(83, CANCEL_FORWARD, cancel_forward, CancelForward)                                           \
    X(84, BUFFER_RESTORED, buffer_restored, BufferRestored)                                        \
    X(85, SESSION_BAD, session_bad, SessionBad)                                                    \
    X(86, SHUTDOWN, shutdown, Shutdown)                                                            \
    X(87, COMM_RANK_LEFT, comm_rank_left, CommRankLeft)                                            \
    X(88, COPY_FORWARD, copy_forward, CopyForward)                                                 \
    X(89, PING, ping, Ping)                                                                        \
    X(90, EXECUTOR_TROUBLE, executor_trouble, ExecutorTrouble)                                     \
    X(91, PLAN_MEASURE, plan_measure, PlanMeasure)                                                 \
    X(92, PLAN_MEASURED, plan_measured, PlanMeasured)                                              \
    X(93, BUFFER_TAINTED, buffer_tainted, BufferTainted)

enum cgm_message_type {
#define X(number, SYMBOL, name, Type) CGM_MSG_##SYMBOL = (number),
    CGM_MESSAGES(X)
#undef X
};

/* What Query asks for; a spelling is also commgemmctl's verb. X(number, SYMBOL, spelling) */
#define CGM_QUERIES(X)                                                                             \
    X(0, STATUS, "status")                                                                         \
    X(1, SESSIONS, "sessions")                                                                     \
    X(2, COMMS, "comms")                                                                           \
    X(3, BUFFERS, "buffers")                                                                       \
    X(4, PLANS, "plans")                                                                           \
    X(5, JOBS, "jobs")                                                                             \
    X(6, ALGORITHMS, "algorithms")                                                                 \
    X(7, DOCTOR, "doctor")                                                                         \
    X(8, IMPORTS, "imports")                                                                       \
    X(9, QUOTAS, "quotas")                                                                         \
    X(10, TUNE, "tune")

enum cgm_query {
#define X(number, SYMBOL, spelling) CGM_QUERY_##SYMBOL = (number),
    CGM_QUERIES(X)
#undef X
};

/* NULL for an unknown type. */
const ProtobufCMessageDescriptor *cgm_message_descriptor(int type);
const char *cgm_message_name(int type);

/* What an executor says of its own end. */
enum cgm_trouble {
    CGM_TROUBLE_DEVICE_LOST, /* its context is dead, and it ends */
    CGM_TROUBLE_STUCK,       /* a job does not end, and it cannot end itself without harm */
};

/* What MPS did about the process of a session that was ended. */
enum cgm_mps_part {
    CGM_MPS_OFF,
    CGM_MPS_NO_CLIENT,
    CGM_MPS_TERMINATED,
    CGM_MPS_FAILED,
};

/* In an epilogue field. */
enum cgm_epilogue {
    CGM_EPILOGUE_BIAS = 1u << 0,
    CGM_EPILOGUE_GELU = 1u << 1,
    CGM_EPILOGUE_GRAD = 1u << 2,
    CGM_EPILOGUE_ACCUMULATE = 1u << 3,
    CGM_EPILOGUE_ALL = (1u << 4) - 1,
};

/* Limits that both sides enforce, so that a refusal can name them. */
#define CGM_NAME_BYTES_MAX                                                                         \
    63u /* of comms, buffers and programs: [A-Za-z0-9._:-], first not '.'                          \
         */
#define CGM_COMM_SIZE_MAX 64u
#define CGM_QUEUE_SETS_MAX 4u     /* of a comm, one for each pair of priorities: see queue_set.h */
#define CGM_DIM_MAX 2147483647ull /* of elements, also from row to row of a product: an int */
#define CGM_BUFFER_BYTES_MAX (1ull << 46)
#define CGM_IMPORT_SEGMENTS_MAX 64u

/* True when a name is 1 to CGM_NAME_BYTES_MAX characters of [A-Za-z0-9._:-] and starts with none of
 * '.', '-', ':'. */
int cgm_name_is_valid(const char *name);

/* Rejoins "X is <value>; it must be ..." texts: printf into detail, returns `status`. */
int cgm_detail(char *ret_detail, size_t size, int status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#ifdef __clang_analyzer__ /* It looks at one file at a time, and must know what comes back. */
static inline int cgm_second(int first, int second)
{
    (void)first;
    return second;
}
#define cgm_detail(detail, size, status, ...)                                                      \
    cgm_second(cgm_detail((detail), (size), (status), __VA_ARGS__), (status))
#endif

#endif
