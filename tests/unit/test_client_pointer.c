/* Imports from device pointers, over a fake driver. */
#include "tests/unit/client_fixture.h"

#include "tests/unit/fake_cuda.h"

#define BASE 0x7f0000000000ull
#define MIB (1ull << 20)

static void open_fake(struct fixture *f)
{
    setenv("COMMGEMM_LIBCUDA", FAKE_CUDA, 1);
    fixture_open(f, NULL, 4, 0, 0);
}

static void close_fake(struct fixture *f)
{
    fixture_close(f);
    assert_string_equal(fake_cuda_complaint(), "");
}

static void add_malloc(uint64_t base, uint64_t bytes)
{
    fake_memory_add(&(struct fake_memory){
        .base = base, .bytes = bytes, .memory_type = 2, .ipc_capable = true, .device = 3});
}

static struct commgemm_operand import(struct fixture *f, uint64_t pointer, uint64_t bytes)
{
    struct commgemm_operand operand;
    memset(&operand, 0xff, sizeof(operand));
    assert_ok(commgemm_import_pointer(f->client, pointer, bytes, &operand));
    assert_int_equal(operand.row_stride_bytes, 0);
    return operand;
}

/* The imports since the session began, with ids relative to the first. */
static void assert_imports(struct fixture *f, uint64_t first, const char *format, ...)
{
    char wanted[256], seen[1024];
    unsigned offsets[6];
    va_list arguments;
    va_start(arguments, format);
    for (int i = 0; i < 6; i++)
        offsets[i] = (unsigned)first + (i < (int)strlen(format) ? va_arg(arguments, unsigned) : 0);
    va_end(arguments);
    size_t used = 0;
    for (size_t i = 0; i < strlen(format); i++)
        used += (size_t)snprintf(wanted + used, sizeof(wanted) - used,
                                 format[i] == '-' ? "-%u " : "+%u:1 ", offsets[i]);
    fake_imports(f->fake, seen, sizeof(seen));
    assert_string_equal(seen, wanted);
}

static void test_an_allocation_is_exported_once(void **state)
{
    struct fixture f;
    char uuid[64];
    (void)state;
    open_fake(&f);
    add_malloc(BASE, 4 * MIB);
    struct commgemm_operand first = import(&f, BASE + 256, MIB);
    assert_int_equal(first.offset_bytes, 256);
    assert_int_equal(first.generation, 1);
    uint64_t requests = fake_requests(f.fake);
    for (uint64_t offset = 0; offset < 4 * MIB; offset += MIB / 2) {
        struct commgemm_operand again = import(&f, BASE + offset, MIB / 2);
        assert_int_equal(again.id, first.id);
        assert_int_equal(again.offset_bytes, offset);
        assert_int_equal(again.generation, first.generation);
    }
    assert_int_equal(fake_requests(f.fake), requests);
    assert_imports(&f, first.id, "+", 0u);
    fake_import_uuid(f.fake, uuid, sizeof(uuid));
    assert_string_equal(uuid, "GPU-abababab-abab-abab-abab-ababababab03");
    fake_memory_remove(BASE);
    close_fake(&f);
}

static void test_reuse_of_an_address_is_noticed(void **state)
{
    struct fixture f;
    (void)state;
    open_fake(&f);
    add_malloc(BASE, 4 * MIB);
    uint64_t first = import(&f, BASE, MIB).id;
    fake_memory_remove(BASE);
    add_malloc(BASE, 4 * MIB);
    assert_int_equal(import(&f, BASE, MIB).id, first + 1);
    fake_memory_remove(BASE);
    add_malloc(BASE - MIB, 2 * MIB);
    struct commgemm_operand third = import(&f, BASE, MIB);
    assert_int_equal(third.id, first + 2);
    assert_int_equal(third.offset_bytes, MIB);
    assert_imports(&f, first, "+-+-+", 0u, 0u, 1u, 1u, 2u);
    fake_memory_remove(BASE);
    close_fake(&f);
}

/* What was freed is given back as soon as something new is imported. */
/* However late this side learns of the import itself. */
static void test_one_that_is_closed_at_once(void **state)
{
    struct commgemm_operand operand;
    struct fixture f;
    (void)state;
    open_fake(&f);
    add_malloc(BASE, MIB);
    fake_close_imports(f.fake, true);
    int status = commgemm_import_pointer(f.client, BASE, MIB, &operand);
    assert_true(status == COMMGEMM_OK || status == COMMGEMM_STALE);
    fake_close_imports(f.fake, false);
    usleep(50000);
    uint64_t second = import(&f, BASE, MIB).id;
    assert_int_equal(import(&f, BASE, MIB).id, second);
    assert_imports(&f, second - 1, "+-+", 0u, 0u, 1u);
    fake_memory_remove(BASE);
    close_fake(&f);
}

static void test_freed_memory_is_released(void **state)
{
    struct fixture f;
    struct commgemm_operand operand;
    (void)state;
    open_fake(&f);
    add_malloc(BASE, MIB);
    uint64_t first = import(&f, BASE, 1).id;
    fake_memory_remove(BASE);
    assert_refused(commgemm_import_pointer(f.client, BASE, 1, &operand), COMMGEMM_INVALID_ARGUMENT,
                   "freed memory");
    add_malloc(BASE + 8 * MIB, MIB);
    assert_int_equal(import(&f, BASE + 8 * MIB, 1).id, first + 1);
    assert_ok(commgemm_import_release(f.client, first + 1));
    assert_int_equal(import(&f, BASE + 8 * MIB, 1).id, first + 2);
    assert_imports(&f, first, "+-+-+", 0u, 0u, 1u, 1u, 2u);
    fake_memory_remove(BASE + 8 * MIB);
    close_fake(&f);
}

static void test_ranges_are_checked(void **state)
{
    struct fixture f;
    struct commgemm_operand operand;
    (void)state;
    open_fake(&f);
    add_malloc(BASE, MIB);
    assert_refused(commgemm_import_pointer(f.client, BASE, 0, &operand), COMMGEMM_INVALID_ARGUMENT,
                   "bytes is 0");
    assert_refused(commgemm_import_pointer(f.client, BASE + 4096, MIB, &operand),
                   COMMGEMM_INVALID_ARGUMENT, "1044480 of the allocation of 1048576 bytes");
    import(&f, BASE, MIB);
    assert_refused(commgemm_import_pointer(f.client, BASE + 4096, MIB, &operand),
                   COMMGEMM_INVALID_ARGUMENT, "bytes is 1048576");
    assert_refused(commgemm_import_pointer(f.client, BASE, UINT64_MAX, &operand),
                   COMMGEMM_INVALID_ARGUMENT, "bytes is");
    assert_refused(commgemm_import_pointer(f.client, BASE, 1, NULL), COMMGEMM_INVALID_ARGUMENT,
                   "ret_operand");
    fake_memory_remove(BASE);
    close_fake(&f);
}

static void test_what_cannot_be_exported_is_named(void **state)
{
    static const struct {
        struct fake_memory memory;
        int status;
        const char *text;
    } cases[] = {
        {{.memory_type = 0}, COMMGEMM_INVALID_ARGUMENT, "not known to the CUDA driver"},
        {{.memory_type = 1}, COMMGEMM_NOT_SUPPORTED, "host memory"},
        {{.memory_type = 2, .managed = true}, COMMGEMM_NOT_SUPPORTED, "cudaMallocManaged"},
        {{.memory_type = 1, .managed = true}, COMMGEMM_NOT_SUPPORTED, "cudaMallocManaged"},
        {{.memory_type = 2, .pooled = true}, COMMGEMM_NOT_SUPPORTED, "cudaMallocAsync"},
        {{.memory_type = 2, .pooled = true, .fd_capable = true}, COMMGEMM_NOT_SUPPORTED, "pool"},
        {{.memory_type = 2, .mapping_bytes = MIB},
         COMMGEMM_NOT_SUPPORTED,
         "expandable_segments:False"},
        {{.memory_type = 2, .device = 5}, COMMGEMM_NOT_SUPPORTED, "MIG instance"},
    };
    struct fixture f;
    struct commgemm_operand operand;
    (void)state;
    open_fake(&f);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fake_memory memory = cases[i].memory;
        memory.base = BASE;
        memory.bytes = MIB;
        fake_memory_add(&memory);
        assert_refused(commgemm_import_pointer(f.client, BASE, 64, &operand), cases[i].status,
                       cases[i].text);
        fake_memory_remove(BASE);
    }
    add_malloc(BASE, MIB);
    fake_cuda_fail(FAKE_IPC, 1, 0);
    assert_refused(commgemm_import_pointer(f.client, BASE, 64, &operand), COMMGEMM_NOT_SUPPORTED,
                   "cuIpcGetMemHandle: CUDA_ERROR_INVALID_VALUE");
    import(&f, BASE, 64);
    fake_memory_remove(BASE);
    close_fake(&f);
}

/* A range over several mappings is one import; a mapping that is replaced ends it. */
static void test_mappings_of_virtual_memory(void **state)
{
    struct fixture f;
    struct commgemm_operand operand;
    char seen[256], wanted[256];
    (void)state;
    open_fake(&f);
    fake_memory_add(&(struct fake_memory){.base = BASE,
                                          .bytes = 8 * MIB,
                                          .memory_type = 2,
                                          .fd_capable = true,
                                          .mapping_bytes = 2 * MIB});
    struct commgemm_operand first = import(&f, BASE + 3 * MIB, 4 * MIB);
    assert_int_equal(first.offset_bytes, MIB);
    assert_int_equal(first.generation, 3);
    assert_int_equal(import(&f, BASE + 2 * MIB, 4096).id, first.id);
    struct commgemm_operand whole = import(&f, BASE, 8 * MIB);
    assert_int_equal(whole.id, first.id + 1);
    assert_int_equal(import(&f, BASE + 3 * MIB, MIB).id, first.id);
    fake_memory_remove(BASE + 6 * MIB);
    assert_refused(commgemm_import_pointer(f.client, BASE + 5 * MIB, 2 * MIB, &operand),
                   COMMGEMM_INVALID_ARGUMENT, "only 1048576 are mapped");
    fake_memory_map(BASE + 6 * MIB, 2 * MIB);
    struct commgemm_operand again = import(&f, BASE + 5 * MIB, 2 * MIB);
    assert_int_equal(again.generation, 2);
    snprintf(wanted, sizeof(wanted), "+%u:3 +%u:4 -%u -%u +%u:2 ", (unsigned)first.id,
             (unsigned)whole.id, (unsigned)first.id, (unsigned)whole.id, (unsigned)again.id);
    fake_imports(f.fake, seen, sizeof(seen));
    assert_string_equal(seen, wanted);
    fake_cuda_fail(FAKE_EXPORT, 1, 1);
    assert_refused(commgemm_import_pointer(f.client, BASE, 8 * MIB, &operand),
                   COMMGEMM_NOT_SUPPORTED, "cuMemExportToShareableHandle");
    for (int i = 0; i < 4; i++)
        fake_memory_remove(BASE + 2 * MIB * (unsigned)i);
    close_fake(&f);
}

static void test_too_many_mappings(void **state)
{
    struct fixture f;
    struct commgemm_operand operand;
    (void)state;
    open_fake(&f);
    fake_memory_add(&(struct fake_memory){.base = BASE,
                                          .bytes = 130 * MIB,
                                          .memory_type = 2,
                                          .fd_capable = true,
                                          .mapping_bytes = 2 * MIB});
    assert_refused(commgemm_import_pointer(f.client, BASE, 130 * MIB, &operand),
                   COMMGEMM_NOT_SUPPORTED, "more than 64 mappings");
    assert_int_equal(import(&f, BASE, 128 * MIB).generation, 64);
    for (unsigned i = 0; i < 65; i++)
        fake_memory_remove(BASE + 2 * MIB * i);
    close_fake(&f);
}

#define THREADS 6
#define ALLOCATIONS 20

static void *import_all(void *argument)
{
    struct fixture *f = argument;
    uintptr_t wrong = 0;
    for (unsigned round = 0; round < 200; round++) {
        uint64_t offset = rand() % 100;
        struct commgemm_operand operand;
        uint64_t pointer = BASE + 4 * MIB * (round % ALLOCATIONS) + offset;
        wrong += commgemm_import_pointer(f->client, pointer, 1000, &operand) != COMMGEMM_OK ||
                 operand.offset_bytes != offset;
    }
    return (void *)wrong;
}

static void test_many_threads_import_once(void **state)
{
    struct fixture f;
    pthread_t threads[THREADS];
    char seen[1024];
    unsigned count = 0;
    (void)state;
    open_fake(&f);
    for (unsigned i = 0; i < ALLOCATIONS; i++)
        add_malloc(BASE + 4 * MIB * i, MIB);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, import_all, &f), 0);
    for (int i = 0; i < THREADS; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    fake_imports(f.fake, seen, sizeof(seen));
    for (const char *c = seen; *c; c++)
        count += *c == '+';
    assert_int_equal(count, ALLOCATIONS);
    assert_null(strchr(seen, '-'));
    for (unsigned i = 0; i < ALLOCATIONS; i++)
        fake_memory_remove(BASE + 4 * MIB * i);
    close_fake(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_allocation_is_exported_once),
        cmocka_unit_test(test_reuse_of_an_address_is_noticed),
        cmocka_unit_test(test_one_that_is_closed_at_once),
        cmocka_unit_test(test_freed_memory_is_released),
        cmocka_unit_test(test_ranges_are_checked),
        cmocka_unit_test(test_what_cannot_be_exported_is_named),
        cmocka_unit_test(test_mappings_of_virtual_memory),
        cmocka_unit_test(test_too_many_mappings),
        cmocka_unit_test(test_many_threads_import_once),
    };
    seed_random();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
