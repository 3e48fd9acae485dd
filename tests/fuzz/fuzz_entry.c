/* A ring entry as a client may write it: cgm_entry_check refuses it with words, or every view lies
 * inside memory that the session was granted, and everything it referenced is given back. The input
 * is a list of patches of 10 bytes, offset and 8-byte value, to an entry that is right. */
#include <string.h>

#include "daemon/executor/entry.h"
#include "daemon/executor/executor.h"
#include "daemon/executor/plan.h"
#include "proto/status.h"
#include "tests/fuzz/fuzz.h"

#define PATCH_BYTES 10u
#define SESSION 7u
#define PLAN_AG 100u
#define PLAN_GEMM 101u
#define PLAN_GELU 102u
#define OBJECTS 6u
#define LAST_NUMBER 41u

struct world {
    struct cgm_executor executor;
    struct cgm_poller poller;
    struct cgm_comm comm;
    struct cgm_plan plans[3];
    struct cgm_endpoint endpoint;
    struct cgm_memory memories[OBJECTS];
    struct cgm_grant grants[OBJECTS];
};

static const struct cgm_backend_ops no_ops;

/* Never used as memory: objects are told apart by address. */
static char devices[OBJECTS];

static void plan_init(struct world *world, struct cgm_plan *plan, uint64_t id, int op, int type,
                      uint32_t epilogue)
{
    char detail[256];
    Cgm__PlanCreate request = CGM__PLAN_CREATE__INIT;
    request.op = (uint32_t)op;
    request.comm_type = (uint32_t)type;
    request.m = 64;
    request.n = 32;
    request.k = 48;
    request.dtype = CGM_DTYPE_BF16;
    request.has_epilogue = 1;
    request.epilogue = epilogue;
    FUZZ_CHECK(cgm_spec_init(&request, 2, false, detail, sizeof(detail), &plan->spec) == CGM_OK);
    plan->id = id;
    plan->comm = &world->comm;
    plan->users = 1;
    FUZZ_CHECK(cgm_map_add(&world->poller.plans, id, plan) == CGM_OK);
}

/* Objects 1 to 6: one is for reading only, one tainted, one shares its memory with another. */
static void memories_init(struct world *world)
{
    for (uint32_t i = 0; i < OBJECTS; i++) {
        struct cgm_memory *memory = &world->memories[i];
        memory->id = i + 1;
        memory->generation = i;
        memory->mem = (struct cgm_mem *)(void *)&devices[i == 5 ? 4 : i];
        memory->bytes = 4096u << i;
        memory->tainted = i == 3;
        memory->users = 1;
        world->grants[i] = (struct cgm_grant){memory, i != 2};
        FUZZ_CHECK(cgm_map_add(&world->endpoint.grants, memory->id, &world->grants[i]) == CGM_OK);
    }
}

static struct world *the_world(void)
{
    static struct cgm_gang *no_gangs[CGM_COMM_WINDOW];
    static struct world world;
    if (world.comm.id != 0)
        return &world;
    world.executor.ops = &no_ops;
    world.poller.executor = &world.executor;
    world.comm = (struct cgm_comm){.id = 3, .poller = &world.poller, .size = 2, .users = 1};
    world.comm.sessions[0] = SESSION;
    world.comm.sessions[1] = SESSION + 1;
    world.comm.last_number[0] = LAST_NUMBER;
    world.comm.window = no_gangs;
    FUZZ_CHECK(cgm_map_add(&world.poller.comms, world.comm.id, &world.comm) == CGM_OK);
    world.endpoint.session = SESSION;
    world.endpoint.poller = &world.poller;
    plan_init(&world, &world.plans[0], PLAN_AG, CGM_OP_AG_GEMM, CGM_COMM_TYPE_AG,
              CGM_EPILOGUE_BIAS | CGM_EPILOGUE_ACCUMULATE);
    plan_init(&world, &world.plans[1], PLAN_GEMM, CGM_OP_GEMM, CGM_COMM_TYPE_NONE,
              CGM_EPILOGUE_BIAS | CGM_EPILOGUE_ACCUMULATE);
    plan_init(&world, &world.plans[2], PLAN_GELU, CGM_OP_GEMM, CGM_COMM_TYPE_NONE,
              CGM_EPILOGUE_BIAS | CGM_EPILOGUE_GELU | CGM_EPILOGUE_GRAD);
    memories_init(&world);
    return &world;
}

static struct cgm_entry right_entry(void)
{
    struct cgm_entry entry = {
        .ticket = 1, .plan = PLAN_AG, .comm_number = LAST_NUMBER + 1, .opcode = CGM_OPCODE_RUN};
    entry.operand[CGM_OPERAND_LHS] = (struct cgm_operand){.id = 1};
    entry.operand[CGM_OPERAND_RHS] = (struct cgm_operand){.id = 2, .generation = 1};
    entry.operand[CGM_OPERAND_BIAS] = (struct cgm_operand){.id = 3, .generation = 2};
    entry.operand[CGM_OPERAND_OUT] = (struct cgm_operand){.id = 5, .generation = 4};
    return entry;
}

static void patch(struct cgm_entry *entry, const uint8_t *data, size_t size)
{
    for (; size >= PATCH_BYTES; data += PATCH_BYTES, size -= PATCH_BYTES) {
        size_t offset = (data[0] | (size_t)data[1] << 8) % (sizeof(*entry) - 7);
        memcpy((char *)entry + offset, data + 2, 8);
    }
}

static void check_view(const struct cgm_view *view, const struct cgm_memory *memory)
{
    unsigned __int128 element = cgm_dtype_bytes(view->dtype), end = view->rows - 1;
    FUZZ_CHECK(view->rows > 0 && view->cols > 0 && view->stride >= view->cols);
    end = (end * view->stride + view->cols) * element + view->offset_bytes;
    FUZZ_CHECK(end <= memory->bytes && view->mem == memory->mem);
}

static void check_accepted(const struct world *world, const struct cgm_job *job)
{
    FUZZ_CHECK(job->plan >= &world->plans[0] && job->plan <= &world->plans[2]);
    FUZZ_CHECK(job->memory[CGM_OPERAND_LHS] || job->opcode == CGM_OPCODE_BARRIER);
    FUZZ_CHECK(job->opcode != CGM_OPCODE_RUN ||
               (job->memory[CGM_OPERAND_RHS] && job->memory[CGM_OPERAND_OUT]));
    for (int i = 0; i < CGM_OPERAND_COUNT; i++) {
        if (!job->memory[i])
            continue;
        bool written = CGM_OPERANDS_WRITTEN >> i & 1;
        bool added_to = i == CGM_OPERAND_OUT && job->plan != &world->plans[2];
        check_view(&job->view[i], job->memory[i]);
        FUZZ_CHECK(!written || job->memory[i] != &world->memories[2]);
        FUZZ_CHECK((written && !added_to) || !job->memory[i]->tainted);
    }
}

static void check_given_back(const struct world *world)
{
    for (uint32_t i = 0; i < OBJECTS; i++)
        FUZZ_CHECK(world->memories[i].users == 1);
    for (unsigned i = 0; i < 3; i++)
        FUZZ_CHECK(world->plans[i].users == 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct world *world = the_world();
    struct cgm_entry entry = right_entry();
    char detail[CGM_CQE_DETAIL] = "";
    struct cgm_comm *burns;
    patch(&entry, data, size);
    if (entry.opcode == CGM_OPCODE_NOOP)
        return 0; /* nobody checks more than its ticket */
    struct cgm_job job = {.endpoint = &world->endpoint,
                          .opcode = entry.opcode,
                          .rank = entry.rank,
                          .flags = entry.flags,
                          .chunk = entry.chunk};
    int status = cgm_entry_check(&world->endpoint, &entry, &job, detail, sizeof(detail), &burns);
    FUZZ_CHECK(!burns || burns == &world->comm);
    FUZZ_CHECK(memchr(detail, '\0', sizeof(detail)));
    FUZZ_CHECK(size >= PATCH_BYTES || status == CGM_OK);
    if (status != CGM_OK)
        FUZZ_CHECK(detail[0] != '\0');
    else
        check_accepted(world, &job);
    cgm_job_release(&job);
    check_given_back(world);
    return 0;
}
