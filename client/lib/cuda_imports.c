#include "client/lib/cuda_imports.h"

#include <stdlib.h>
#include <string.h>

#include "client/lib/cuda_pointer.h"
#include "client/lib/import.h"

struct cgm_cuda_import {
    uint64_t base, bytes; /* of all parts */
    uint64_t id;
    uint32_t generation;
    uint32_t n_parts;
    bool idle;                    /* closed by the daemon */
    struct cgm_cuda_part parts[]; /* without a gap between them */
};

void cgm_cuda_imports_init(struct cgm_cuda_imports *imports)
{
    pthread_mutex_init(&imports->importing, NULL);
    pthread_mutex_init(&imports->lock, NULL);
}

void cgm_cuda_imports_fini(struct cgm_cuda_imports *imports)
{
    for (uint32_t i = 0; i < imports->count; i++)
        free(imports->table[i]);
    free(imports->table);
    pthread_mutex_destroy(&imports->lock);
    pthread_mutex_destroy(&imports->importing);
}

/* ---- the table, under its lock ----------------------------------------------------------------
 */

static void table_remove(struct cgm_cuda_imports *imports, uint32_t i)
{
    free(imports->table[i]);
    imports->table[i] = imports->table[--imports->count];
}

/* Room for one more; the table itself may move. */
static int table_reserve(struct cgm_cuda_imports *imports)
{
    if (imports->count < imports->capacity)
        return CGM_OK;
    uint32_t capacity = imports->capacity ? 2 * imports->capacity : 16;
    struct cgm_cuda_import **table = realloc(imports->table, capacity * sizeof(table[0]));
    if (!table)
        return cgm_fail_plain(CGM_NO_MEMORY);
    imports->table = table;
    imports->capacity = capacity;
    return CGM_OK;
}

void cgm_cuda_imports_forget(struct cgm_cuda_imports *imports, uint64_t id)
{
    pthread_mutex_lock(&imports->lock);
    for (uint32_t i = 0; i < imports->count; i++)
        if (imports->table[i]->id == id) {
            table_remove(imports, i);
            break;
        }
    pthread_mutex_unlock(&imports->lock);
}

void cgm_cuda_imports_on_idle(struct cgm_cuda_imports *imports, uint64_t id)
{
    pthread_mutex_lock(&imports->lock);
    for (uint32_t i = 0; i < imports->count; i++)
        if (imports->table[i]->id == id)
            imports->table[i]->idle = true;
    pthread_mutex_unlock(&imports->lock);
}

/* ---- what is still there ----------------------------------------------------------------------
 */

/* Whether the parts that lie in this range are the ones that were exported. */
static bool is_current(const struct cgm_cuda_driver *driver, const struct cgm_cuda_import *import,
                       uint64_t address, uint64_t bytes)
{
    for (uint32_t i = 0; i < import->n_parts; i++) {
        const struct cgm_cuda_part *part = &import->parts[i];
        if (part->base < address + bytes && address < part->base + part->bytes &&
            cgm_cuda_identity(driver, part->base) != part->identity)
            return false;
    }
    return true;
}

static bool covers(const struct cgm_cuda_import *import, uint64_t address, uint64_t bytes)
{
    return import->base <= address && address - import->base < import->bytes &&
           bytes <= import->bytes - (address - import->base);
}

/* The operand of a known import; false when there is none that is current. */
static bool find(struct cgm_cuda_imports *imports, const struct cgm_cuda_driver *driver,
                 uint64_t address, uint64_t bytes, struct commgemm_operand *ret_operand)
{
    bool found = false;
    pthread_mutex_lock(&imports->lock);
    for (uint32_t i = 0; i < imports->count && !found; i++) {
        const struct cgm_cuda_import *import = imports->table[i];
        if (import->idle || !covers(import, address, bytes) ||
            !is_current(driver, import, address, bytes))
            continue;
        *ret_operand = (struct commgemm_operand){.id = import->id,
                                                 .offset_bytes = address - import->base,
                                                 .generation = import->generation};
        found = true;
    }
    pthread_mutex_unlock(&imports->lock);
    return found;
}

/* Takes one import out of the table whose memory is no more, or was closed; 0: there is none. */
static uint64_t take_stale(struct cgm_cuda_imports *imports, const struct cgm_cuda_driver *driver)
{
    uint64_t id = 0;
    pthread_mutex_lock(&imports->lock);
    for (uint32_t i = 0; i < imports->count && id == 0; i++) {
        const struct cgm_cuda_import *import = imports->table[i];
        if (!import->idle && is_current(driver, import, import->base, import->bytes))
            continue;
        id = import->id;
        table_remove(imports, i);
    }
    pthread_mutex_unlock(&imports->lock);
    return id;
}

/* The daemon answers after an import's last job: what is opened next under the same address, and
 * perhaps with the same handle, never meets the old one. */
static int release_stale(commgemm_client *client, const struct cgm_cuda_driver *driver)
{
    uint64_t id;
    struct cgm_kept_error kept;
    cgm_error_keep(&kept);
    while ((id = take_stale(&client->imports, driver))) {
        int status = cgm_import_release(client, id);
        if (status != CGM_OK && status != CGM_NOT_FOUND)
            return status;
    }
    cgm_error_restore(&kept);
    return CGM_OK;
}

/* ---- a new one --------------------------------------------------------------------------------
 */

struct importing {
    struct cgm_cuda_imports *imports;
    struct cgm_cuda_import *import; /* NULL: it is in the table */
};

/* Before the daemon can say that it has closed it. There is room for it. */
static void take_imported(void *argument, int type, struct cgm_reply *reply)
{
    struct importing *importing = argument;
    struct cgm_cuda_imports *imports = importing->imports;
    const Cgm__ImportReply *imported = (const Cgm__ImportReply *)reply->message;
    if (type != CGM_MSG_IMPORT_REPLY || !imported || reply->cut)
        return;
    importing->import->id = imported->id;
    importing->import->generation = imported->generation;
    pthread_mutex_lock(&imports->lock);
    imports->table[imports->count++] = importing->import;
    pthread_mutex_unlock(&imports->lock);
    importing->import = NULL;
}

static int send(commgemm_client *client, const struct cgm_cuda_driver *driver,
                const struct cgm_cuda_memory *memory, struct importing *importing)
{
    struct commgemm_segment segments[CGM_IMPORT_SEGMENTS_MAX];
    const struct cgm_import_origin origin = {.device = -1,
                                             .uuid = memory->uuid,
                                             .address = memory->parts[0].base,
                                             .driver_buffer_id = memory->parts[0].identity,
                                             .take = take_imported,
                                             .argument = importing};
    uint64_t id;
    uint32_t generation;
    int status = cgm_cuda_memory_export(driver, memory, segments);
    if (status != CGM_OK)
        return status;
    status = cgm_import_create(client, segments, memory->n_parts, &origin, &id, &generation);
    cgm_cuda_segments_close(segments, memory->n_parts);
    return status;
}

static struct cgm_cuda_import *import_new(const struct cgm_cuda_memory *memory)
{
    size_t parts_bytes = memory->n_parts * sizeof(memory->parts[0]);
    const struct cgm_cuda_part *last = &memory->parts[memory->n_parts - 1];
    struct cgm_cuda_import *import = calloc(1, sizeof(*import) + parts_bytes);
    if (!import)
        return NULL;
    import->base = memory->parts[0].base;
    import->bytes = last->base + last->bytes - import->base;
    import->n_parts = memory->n_parts;
    memcpy(import->parts, memory->parts, parts_bytes);
    return import;
}

static int reserve(struct cgm_cuda_imports *imports)
{
    pthread_mutex_lock(&imports->lock);
    int status = table_reserve(imports);
    pthread_mutex_unlock(&imports->lock);
    return status;
}

/* Under `importing`, so that the room stays. */
static int import_memory(commgemm_client *client, const struct cgm_cuda_driver *driver,
                         const struct cgm_cuda_memory *memory)
{
    struct cgm_cuda_imports *imports = &client->imports;
    struct importing importing = {imports, import_new(memory)};
    int status = importing.import ? reserve(imports) : cgm_fail_plain(CGM_NO_MEMORY);
    if (status == CGM_OK)
        status = release_stale(client, driver);
    if (status == CGM_OK)
        status = send(client, driver, memory, &importing);
    free(importing.import);
    return status;
}

static int import_pointer(commgemm_client *client, const struct cgm_cuda_driver *driver,
                          uint64_t pointer, uint64_t bytes, struct commgemm_operand *ret_operand)
{
    struct cgm_cuda_memory memory;
    int status = cgm_cuda_memory_find(driver, pointer, bytes, &memory);
    if (status == CGM_OK)
        status = import_memory(client, driver, &memory);
    if (status != CGM_OK || find(&client->imports, driver, pointer, bytes, ret_operand))
        return status;
    return cgm_fail(CGM_STALE,
                    "device_pointer %#llx was freed while it was being imported, or the daemon has "
                    "closed it: import it again",
                    (unsigned long long)pointer);
}

int commgemm_import_pointer(commgemm_client *client, uint64_t device_pointer, uint64_t bytes,
                            struct commgemm_operand *ret_operand)
{
    const struct cgm_cuda_driver *driver;
    int status = cgm_check_client(client);
    if (status == CGM_OK)
        status = cgm_check_pointer(ret_operand, "ret_operand");
    if (status != CGM_OK)
        return status;
    if (bytes == 0 || bytes > CGM_BUFFER_BYTES_MAX)
        return cgm_fail(CGM_INVALID_ARGUMENT, "bytes is %llu; it must be 1 to %llu",
                        (unsigned long long)bytes, CGM_BUFFER_BYTES_MAX);
    status = cgm_cuda_load(&driver);
    if (status != CGM_OK || find(&client->imports, driver, device_pointer, bytes, ret_operand))
        return status;
    pthread_mutex_lock(&client->imports.importing);
    if (!find(&client->imports, driver, device_pointer, bytes, ret_operand))
        status = import_pointer(client, driver, device_pointer, bytes, ret_operand);
    pthread_mutex_unlock(&client->imports.importing);
    return status;
}
