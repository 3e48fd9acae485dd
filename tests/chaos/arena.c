#include "tests/chaos/arena.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/types.h"
#include "tests/backend.h"

#define GUARD 512u

static bool is_import(const struct chaos_arena *arena)
{
    return arena->kind == CHAOS_ARENA_IMPORT;
}

/* Buffers of the CUDA backend are device memory. */
static bool is_mapped(const struct chaos_arena *arena)
{
    return is_import(arena) || (arena->kind != CHAOS_ARENA_REMOTE && !test_backend_is_cuda());
}

bool chaos_arena_init(struct chaos_arena *arena, enum chaos_arena_kind kind)
{
    memset(arena, 0, sizeof(*arena));
    arena->kind = kind;
    arena->fresh = true;
    arena->shadow = calloc(1, CHAOS_ARENA_BYTES);
    if (arena->shadow && !is_mapped(arena))
        arena->memory = calloc(1, CHAOS_ARENA_BYTES);
    return arena->shadow && (is_mapped(arena) || arena->memory);
}

/* ---- making it, and what became of it ---------------------------------------------------------
 */

static int make_import(struct chaos_arena *arena, commgemm_client *client)
{
    struct commgemm_segment segment = {.kind = COMMGEMM_SEGMENT_FD, .length = CHAOS_ARENA_BYTES};
    segment.fd = memfd_create("chaos", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (segment.fd < 0 || ftruncate(segment.fd, CHAOS_ARENA_BYTES) ||
        fcntl(segment.fd, F_ADD_SEALS, F_SEAL_SHRINK)) {
        close(segment.fd);
        return COMMGEMM_NO_MEMORY;
    }
    int status =
        commgemm_import(client, &segment, 1, -1, 0, &arena->buffer.id, &arena->buffer.generation);
    if (status == COMMGEMM_OK) {
        void *memory =
            mmap(NULL, CHAOS_ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, segment.fd, 0);
        arena->memory = memory == MAP_FAILED ? NULL : memory;
    }
    close(segment.fd);
    return status == COMMGEMM_OK && !arena->memory ? COMMGEMM_NO_MEMORY : status;
}

static int make_buffer(struct chaos_arena *arena, commgemm_client *client)
{
    const char *name = arena->kind == CHAOS_ARENA_NAMED ? arena->name : NULL;
    int status = commgemm_buffer_create(client, name, CHAOS_ARENA_BYTES, -1, 0, 0, &arena->buffer);
    /* The reply to an earlier try was lost with an executor. */
    if (status == COMMGEMM_EXISTS)
        status = commgemm_buffer_open(client, name, 0, 0, &arena->buffer);
    if (status == COMMGEMM_OK && is_mapped(arena))
        status = commgemm_buffer_map(client, &arena->buffer, (void **)&arena->memory);
    return status;
}

static int look_again(struct chaos_arena *arena, commgemm_client *client)
{
    if (is_import(arena))
        return COMMGEMM_OK;
    int status = commgemm_buffer_open(client, NULL, arena->buffer.id, 0, &arena->buffer);
    if (status != COMMGEMM_OK || !arena->buffer.tainted)
        return status;
    /* What it should hold is known, so it is written again: by hand, or by the daemon. */
    if (is_mapped(arena)) {
        memcpy(arena->memory, arena->shadow, CHAOS_ARENA_BYTES);
        return commgemm_buffer_rewritten(client, &arena->buffer);
    }
    status = commgemm_buffer_write(client, &arena->buffer, 0, arena->shadow, CHAOS_ARENA_BYTES);
    return status == COMMGEMM_OK ? commgemm_buffer_rewritten(client, &arena->buffer) : status;
}

int chaos_arena_open(struct chaos_arena *arena, commgemm_client *client)
{
    if (arena->buffer.id)
        return look_again(arena, client);
    return is_import(arena) ? make_import(arena, client) : make_buffer(arena, client);
}

bool chaos_arena_is_current(const struct chaos_arena *arena, commgemm_client *client)
{
    struct commgemm_buffer now = {.id = arena->buffer.id, .generation = arena->buffer.generation};
    int status =
        is_import(arena) ? COMMGEMM_OK : commgemm_buffer_open(client, NULL, now.id, 0, &now);
    return status == COMMGEMM_OK && now.generation == arena->buffer.generation;
}

/* ---- a batch ----------------------------------------------------------------------------------
 */

void chaos_arena_reset(struct chaos_arena *arena, struct cgm_random *random)
{
    uint64_t bytes = arena->used + GUARD;
    memset(arena->memory, (int)cgm_random_below(random, 256), bytes);
    arena->used = 0;
}

bool chaos_arena_place(struct chaos_arena *arena, const struct cgm_matrix *matrix, bool written,
                       struct cgm_random *random, struct chaos_place *ret_place)
{
    uint64_t element = cgm_dtype_bytes(matrix->dtype);
    uint64_t offset = (arena->used + element - 1) / element * element;
    offset += element * cgm_random_below(random, 16);
    uint64_t stride = matrix->shard_cols + cgm_random_below(random, 4);
    uint64_t end = offset + matrix->shard_rows * stride * element;
    if (end + GUARD > CHAOS_ARENA_BYTES)
        return false;
    arena->used = end;
    *ret_place = (struct chaos_place){arena, offset, stride, written};
    return true;
}

static unsigned char *row_of(unsigned char *base, const struct chaos_place *place,
                             const struct cgm_matrix *matrix, uint64_t row)
{
    return base + place->offset + row * place->stride * cgm_dtype_bytes(matrix->dtype);
}

void chaos_place_put(const struct chaos_place *place, const struct cgm_matrix *matrix,
                     const void *shard)
{
    uint64_t bytes = matrix->shard_cols * cgm_dtype_bytes(matrix->dtype);
    for (uint64_t row = 0; row < matrix->shard_rows; row++)
        memcpy(row_of(place->arena->memory, place, matrix, row), (const char *)shard + row * bytes,
               bytes);
}

void chaos_place_get(const struct chaos_place *place, const struct cgm_matrix *matrix,
                     void *ret_shard)
{
    uint64_t bytes = matrix->shard_cols * cgm_dtype_bytes(matrix->dtype);
    for (uint64_t row = 0; row < matrix->shard_rows; row++)
        memcpy((char *)ret_shard + row * bytes, row_of(place->arena->memory, place, matrix, row),
               bytes);
}

int chaos_arena_push(struct chaos_arena *arena, commgemm_client *client)
{
    uint64_t bytes = arena->used + GUARD;
    memcpy(arena->shadow, arena->memory, bytes);
    return is_mapped(arena)
               ? COMMGEMM_OK
               : commgemm_buffer_write(client, &arena->buffer, 0, arena->memory, bytes);
}

int chaos_arena_pull(struct chaos_arena *arena, commgemm_client *client)
{
    return is_mapped(arena) ? COMMGEMM_OK
                            : commgemm_buffer_read(client, &arena->buffer, 0, arena->memory,
                                                   arena->used + GUARD);
}

void chaos_arena_forgive(const struct chaos_place *place, const struct cgm_matrix *matrix)
{
    uint64_t bytes = matrix->shard_cols * cgm_dtype_bytes(matrix->dtype);
    for (uint64_t row = 0; row < matrix->shard_rows; row++)
        memcpy(row_of(place->arena->shadow, place, matrix, row),
               row_of(place->arena->memory, place, matrix, row), bytes);
}

uint64_t chaos_arena_damage(const struct chaos_arena *arena)
{
    uint64_t bytes = arena->used + GUARD;
    for (uint64_t i = 0; i < bytes; i++)
        if (arena->memory[i] != arena->shadow[i])
            return i;
    return UINT64_MAX;
}

struct commgemm_operand chaos_place_operand(const struct chaos_place *place, int dtype)
{
    struct commgemm_operand operand = {0};
    if (!place->arena)
        return operand;
    operand.id = place->arena->buffer.id;
    operand.generation = place->arena->buffer.generation;
    operand.offset_bytes = place->offset;
    operand.row_stride_bytes = place->stride * cgm_dtype_bytes(dtype);
    return operand;
}
