/* The one table of the fault suite: every step of the protocol and of a job's life at which
 * something is struck. A row names the gate of a client's life (life.h) behind which the step comes
 * and the step itself; a row without a step strikes while both clients stand at the gate. Adding a
 * step = one row here; phases of algorithms are found by running them. */
#ifndef CASES_H
#define CASES_H

#include "proto/messages.h"
#include "proto/step.h"
#include "tests/fault/life.h"

enum {
    RESTART = 1 << 0,  /* the step comes when an executor was killed at the gate */
    HALVED = 1 << 1,   /* one rank may have its result while the other's is lost */
    MESSAGES = 1 << 2, /* sessions without rings */
};

struct step_row {
    enum gate gate;
    enum cgm_step_place place; /* 0: none */
    unsigned value;
    unsigned flags;
};

#define AT_GATE(gate)                                                                              \
    {                                                                                              \
        GATE_##gate, 0, 0, 0                                                                       \
    }
#define CLIENT(gate, message)                                                                      \
    {                                                                                              \
        GATE_##gate, CGM_STEP_CLIENT_REQUEST, CGM_MSG_##message, 0                                 \
    }
/* A request that broker and executor settle between them: received, answered, answer received. */
#define SETTLED(gate, message, flags)                                                              \
    {GATE_##gate, CGM_STEP_EXECUTOR_REQUEST, CGM_MSG_##message, flags},                            \
        {GATE_##gate, CGM_STEP_EXECUTOR_ANSWER, CGM_MSG_##message, flags},                         \
    {                                                                                              \
        GATE_##gate, CGM_STEP_BROKER_ANSWERED, CGM_MSG_##message, flags                            \
    }
#define BROKER(gate, step, flags)                                                                  \
    {                                                                                              \
        GATE_##gate, CGM_STEP_BROKER, CGM_BROKER_STEP_##step, flags                                \
    }
#define JOB(gate, step, flags)                                                                     \
    {                                                                                              \
        GATE_##gate, CGM_STEP_JOB, CGM_JOB_STEP_##step, flags                                      \
    }

static const struct step_row step_rows[] = {
    /* a session */
    AT_GATE(CONNECT),
    BROKER(CONNECT, ACCEPT, 0),
    CLIENT(CONNECT, HELLO),
    CLIENT(CONNECT, RING_SETUP),
    SETTLED(CONNECT, SESSION_ADD, 0),
    /* its buffers */
    AT_GATE(BUFFERS),
    CLIENT(BUFFERS, BUFFER_CREATE),
    SETTLED(BUFFERS, BUFFER_ALLOC, 0),
    SETTLED(BUFFERS, GRANT, 0),
    CLIENT(BUFFERS, BUFFER_OPEN),
    /* its import */
    AT_GATE(IMPORT),
    CLIENT(IMPORT, IMPORT_CREATE),
    SETTLED(IMPORT, IMPORT_ADD, 0),
    /* its comm */
    AT_GATE(JOIN),
    CLIENT(JOIN, COMM_JOIN),
    SETTLED(JOIN, COMM_ADD, 0),
    /* its plan */
    AT_GATE(PLAN),
    CLIENT(PLAN, PLAN_CREATE),
    SETTLED(PLAN, PLAN_MEASURE, 0),
    SETTLED(PLAN, PLAN_ADD, 0),
    CLIENT(PLAN, PLAN_CHUNK),
    CLIENT(PLAN, QUERY),
    SETTLED(PLAN, QUERY, 0),
    /* a job */
    AT_GATE(SUBMIT),
    JOB(SUBMIT, COPY, 0),
    JOB(SUBMIT, MATCH, 0),
    JOB(SUBMIT, READY, 0),
    JOB(SUBMIT, LAUNCH, 0),
    JOB(SUBMIT, ENQUEUE, 0),
    JOB(SUBMIT, DONE, 0),
    JOB(SUBMIT, END, 0),
    JOB(SUBMIT, COMPLETE, 0),
    JOB(SUBMIT, REAP, 0),
    {GATE_WAIT, 0, 0, HALVED}, /* the job ends meanwhile */
    /* a job that travels by message */
    {GATE_SUBMIT, CGM_STEP_CLIENT_REQUEST, CGM_MSG_SUBMIT, MESSAGES},
    SETTLED(SUBMIT, SUBMIT_FORWARD, MESSAGES | HALVED),
    /* the end */
    AT_GATE(CLOSE),
    CLIENT(CLOSE, IMPORT_RELEASE),
    SETTLED(CLOSE, IMPORT_REMOVE, HALVED),
    CLIENT(CLOSE, PLAN_DESTROY),
    SETTLED(CLOSE, PLAN_REMOVE, HALVED),
    CLIENT(CLOSE, COMM_LEAVE),
    SETTLED(CLOSE, COMM_REMOVE, HALVED),
    CLIENT(CLOSE, BUFFER_CLOSE),
    CLIENT(CLOSE, BUFFER_DESTROY),
    SETTLED(CLOSE, BUFFER_REMOVE, HALVED),
    BROKER(CLOSE, SESSION_END, HALVED),
    SETTLED(CLOSE, SESSION_REMOVE, HALVED),
    /* an executor's death and its successor's start */
    BROKER(SUBMIT, EXECUTOR_LOST, RESTART),
    BROKER(SUBMIT, EXECUTOR_START, RESTART),
    {GATE_SUBMIT, CGM_STEP_BROKER_ANSWERED, CGM_MSG_EXECUTOR_SETUP, RESTART},
    SETTLED(SUBMIT, BUFFER_ADOPT, RESTART),
    SETTLED(SUBMIT, SESSION_ADD, RESTART),
    SETTLED(SUBMIT, GRANT, RESTART),
    SETTLED(SUBMIT, IMPORT_ADD, RESTART),
    SETTLED(SUBMIT, COMM_ADD, RESTART),
    SETTLED(SUBMIT, PLAN_ADD, RESTART),
    BROKER(SUBMIT, REPLAYED, RESTART),
    BROKER(WAIT, EXECUTOR_LOST, RESTART | HALVED),
};
#define STEP_ROWS (sizeof(step_rows) / sizeof(step_rows[0]))

#endif
