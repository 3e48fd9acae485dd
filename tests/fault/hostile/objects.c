/* Attacks on what the daemon keeps: thousands of everything, and the objects of others. */
#include <string.h>
#include <unistd.h>

#include "proto/types.h"
#include "tests/fault/hostile/hostile.h"

#define MANY 2000

/* Keeps what comes back from filling up. */
static bool go_on(struct hostile *hostile, struct line *line, int i)
{
    return i % 16 || line_drain(hostile, line, NULL, NULL);
}

void attack_comms(struct hostile *hostile)
{
    struct line line;
    uint32_t ranks[CGM_COMM_SIZE_MAX];
    bool alive = line_open(hostile, &line);
    for (uint32_t i = 0; i < CGM_COMM_SIZE_MAX; i++)
        ranks[i] = i;
    for (int i = 0; alive && i < MANY; i++) {
        Cgm__CommJoin join = CGM__COMM_JOIN__INIT;
        Cgm__CommCreate create = CGM__COMM_CREATE__INIT;
        create.size = join.size = 1 + (uint32_t)chance(CGM_COMM_SIZE_MAX);
        join.name = (char *)(uintptr_t)(chance(2) ? "h" : "honest");
        join.has_create = join.create = join.has_size = 1;
        join.has_id = (protobuf_c_boolean)chance(2);
        join.id = odd_number(hostile);
        join.n_ranks = chance(3) ? join.size : 1;
        join.ranks = ranks;
        alive = (chance(2) ? line_send(hostile, &line, CGM_MSG_COMM_CREATE, &create.base, NULL, 0)
                           : line_send(hostile, &line, CGM_MSG_COMM_JOIN, &join.base, NULL, 0)) &&
                go_on(hostile, &line, i);
    }
    line_close(&line);
}

static void send_theft(struct hostile *hostile, struct line *line)
{
    Cgm__BufferOpen open_it = CGM__BUFFER_OPEN__INIT;
    Cgm__BufferDestroy destroy = CGM__BUFFER_DESTROY__INIT;
    Cgm__MemoryCopy copy = CGM__MEMORY_COPY__INIT;
    Cgm__PlanChunk chunk = CGM__PLAN_CHUNK__INIT;
    Cgm__Cancel cancel = CGM__CANCEL__INIT;
    open_it.has_id = destroy.has_id = open_it.has_read_only = 1;
    open_it.read_only = (protobuf_c_boolean)chance(2);
    open_it.id = destroy.id = odd_number(hostile);
    copy.dst = odd_number(hostile);
    copy.src = odd_number(hostile);
    copy.dst_offset = chance(4) ? 0 : odd_number(hostile);
    copy.bytes = chance(2) ? 4096 : odd_number(hostile);
    chunk.plan = odd_number(hostile);
    cancel.ticket = odd_number(hostile);
    line_send(hostile, line, CGM_MSG_BUFFER_OPEN, &open_it.base, NULL, 0);
    line_send(hostile, line, CGM_MSG_BUFFER_DESTROY, &destroy.base, NULL, 0);
    line_send(hostile, line, CGM_MSG_MEMORY_COPY, &copy.base, NULL, 0);
    line_send(hostile, line, CGM_MSG_PLAN_CHUNK, &chunk.base, NULL, 0);
    line_send(hostile, line, CGM_MSG_CANCEL, &cancel.base, NULL, 0);
}

/* As many as the quota has, named and not, and the ids of everybody else. */
void attack_buffers(struct hostile *hostile)
{
    struct line line;
    char name[16];
    bool alive = line_open(hostile, &line);
    for (int i = 0; alive && i < MANY; i++) {
        Cgm__BufferCreate create = CGM__BUFFER_CREATE__INIT;
        create.bytes = chance(100) ? 1 + chance(5000) : odd_number(hostile);
        if (chance(10) == 0) {
            name[0] = 'h';
            memset(name + 1, 'a' + (int)chance(26), 3);
            name[4] = '\0';
            create.name = name;
        }
        alive = line_send(hostile, &line, CGM_MSG_BUFFER_CREATE, &create.base, NULL, 0) &&
                go_on(hostile, &line, i);
        if (chance(20) == 0)
            send_theft(hostile, &line);
    }
    line_close(&line);
}

static uint64_t join_alone(struct hostile *hostile, struct line *line, uint32_t size)
{
    Cgm__CommCreate create = CGM__COMM_CREATE__INIT;
    Cgm__CommJoin join = CGM__COMM_JOIN__INIT;
    uint32_t ranks[CGM_COMM_SIZE_MAX];
    for (uint32_t i = 0; i < size; i++)
        ranks[i] = i;
    create.size = size;
    line_send(hostile, line, CGM_MSG_COMM_CREATE, &create.base, NULL, 0);
    ProtobufCMessage *reply = line_reply(hostile, line, CGM_MSG_COMM_REPLY, NULL, NULL);
    join.has_id = 1;
    join.id = reply ? ((Cgm__CommReply *)reply)->id : 0;
    cgm_message_free(reply);
    join.n_ranks = size;
    join.ranks = ranks;
    line_send(hostile, line, CGM_MSG_COMM_JOIN, &join.base, NULL, 0);
    cgm_message_free(line_reply(hostile, line, CGM_MSG_COMM_REPLY, NULL, NULL));
    return join.id;
}

/* Small ones by the hundred, and sizes where products of them overflow. */
void attack_plans(struct hostile *hostile)
{
    struct line line;
    if (!line_open(hostile, &line))
        return;
    uint32_t size = 1u << chance(3);
    uint64_t comm = join_alone(hostile, &line, size);
    bool alive = true;
    for (int i = 0; alive && i < MANY / 10; i++) {
        Cgm__PlanCreate create = CGM__PLAN_CREATE__INIT;
        bool huge = chance(3) == 0;
        create.comm = comm;
        create.op = (uint32_t)chance(13);
        create.method = (uint32_t)chance(5);
        create.comm_type = (uint32_t)chance(3);
        create.dtype = (uint32_t)chance(3);
        create.m = huge ? odd_number(hostile) : size * (1 + chance(16));
        create.n = huge ? odd_number(hostile) : size * (1 + chance(16));
        create.k = huge ? odd_number(hostile) : size * (1 + chance(16));
        create.has_algorithm = (protobuf_c_boolean)chance(2);
        create.algorithm = chance(4) ? (uint32_t)chance(24) : 255;
        create.has_num_splits = create.has_epilogue = (protobuf_c_boolean)(chance(4) == 0);
        create.num_splits = (uint32_t)odd_number(hostile);
        create.epilogue = (uint32_t)chance(16);
        alive = line_send(hostile, &line, CGM_MSG_PLAN_CREATE, &create.base, NULL, 0) &&
                go_on(hostile, &line, i);
    }
    usleep(20000);
    line_close(&line);
}

/* Of 64 pieces each, of memory that then changes: holes, writes, nothing left behind it. */
void attack_imports(struct hostile *hostile)
{
    struct line line;
    uint32_t kind[CGM_IMPORT_SEGMENTS_MAX];
    uint64_t offset[CGM_IMPORT_SEGMENTS_MAX], length[CGM_IMPORT_SEGMENTS_MAX];
    int fds[CGM_IMPORT_SEGMENTS_MAX], fd = sealed_memfd(1 << 20);
    bool alive = line_open(hostile, &line);
    for (uint32_t i = 0; i < CGM_IMPORT_SEGMENTS_MAX; i++) {
        kind[i] = 1;
        offset[i] = chance(128) * 4096;
        length[i] = 4096 * (1 + chance(64));
        fds[i] = fd;
    }
    for (int i = 0; alive && fd >= 0 && i < MANY / 10; i++) {
        Cgm__ImportCreate create = CGM__IMPORT_CREATE__INIT;
        Cgm__ImportRelease release = CGM__IMPORT_RELEASE__INIT;
        create.n_kind = create.n_offset = create.n_length = CGM_IMPORT_SEGMENTS_MAX;
        create.kind = kind;
        create.offset = offset;
        create.length = length;
        release.id = odd_number(hostile);
        alive = line_send(hostile, &line, CGM_MSG_IMPORT_CREATE, &create.base, fds,
                          CGM_IMPORT_SEGMENTS_MAX) &&
                line_send(hostile, &line, CGM_MSG_IMPORT_RELEASE, &release.base, NULL, 0) &&
                go_on(hostile, &line, i);
    }
    if (fd >= 0)
        close(fd);
    line_close(&line);
}
