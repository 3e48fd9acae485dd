/* Client memory on a real device, through daemon, executor and library: addresses that are used
 * again, virtual memory, memory that cannot be exported. */
#include "tests/gpu/stream_fixture.h"

/* Frees out and allocates at the same address until the driver gives it again. */
static void test_an_address_that_is_used_again(void **state)
{
    struct rank ranks[WORLD];
    unsigned reused = 0;
    ranks_of_one(ranks, *state, "reuse");
    for (uint32_t round = 0; round < 20; round++) {
        struct commgemm_stream_job jobs[WORLD];
        for (uint32_t i = 0; i < WORLD; i++) {
            void *before = ranks[i].out;
            cuda_ok(cudaFree(ranks[i].out));
            cuda_ok(cudaMalloc((void **)&ranks[i].out, WORLD * SHARD_FLOATS * 4 + 4096 * round));
            reused += ranks[i].out == before;
        }
        for (uint32_t i = 0; i < WORLD; i++) {
            rank_prepare(&ranks[i], round);
            jobs[i] =
                (struct commgemm_stream_job){ranks[i].client, &ranks[i].job, ranks[i].stream, 0};
        }
        ok(commgemm_submit_on_streams(jobs, WORLD));
        for (uint32_t i = 0; i < WORLD; i++)
            rank_fetch(&ranks[i]);
        for (uint32_t i = 0; i < WORLD; i++)
            rank_check(&ranks[i], jobs[i].ticket, round);
    }
    print_message("%u of 80 allocations had the address of the one before\n", reused);
    commgemm_disconnect(ranks[0].client);
    for (uint32_t i = 0; i < WORLD; i++)
        rank_fini(&ranks[i]);
}

struct driver {
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                       unsigned long long);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
    CUresult (*unmap)(CUdeviceptr, size_t);
    CUresult (*access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
    CUresult (*release)(CUmemGenericAllocationHandle);
};

static void *entry(const char *name)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult found;
    cuda_ok(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
    assert_non_null(function);
    return function;
}

static void driver_find(struct driver *d)
{
    *(void **)&d->reserve = entry("cuMemAddressReserve");
    *(void **)&d->create = entry("cuMemCreate");
    *(void **)&d->map = entry("cuMemMap");
    *(void **)&d->unmap = entry("cuMemUnmap");
    *(void **)&d->access = entry("cuMemSetAccess");
    *(void **)&d->release = entry("cuMemRelease");
}

#define UNIT (2ull << 20)

static void vmm_map(const struct driver *d, CUdeviceptr at, CUmemAllocationHandleType type)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = type,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    };
    CUmemAccessDesc access = {.location = properties.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    assert_int_equal(d->create(&handle, UNIT, &properties, 0), CUDA_SUCCESS);
    assert_int_equal(d->map(at, UNIT, 0, handle, 0), CUDA_SUCCESS);
    assert_int_equal(d->release(handle), CUDA_SUCCESS);
    assert_int_equal(d->access(at, UNIT, &access, 1), CUDA_SUCCESS);
}

/* As PyTorch's expandable segments: several mappings in one range, one of them replaced. */
static void test_virtual_memory(void **state)
{
    commgemm_client *client = client_new(*state);
    struct commgemm_operand first, again, after;
    struct driver d;
    CUdeviceptr base = 0, plain = 0;
    cuda_ok(cudaFree(NULL));
    driver_find(&d);
    assert_int_equal(d.reserve(&base, 4 * UNIT, 0, 0, 0), CUDA_SUCCESS);
    for (unsigned i = 0; i < 3; i++)
        vmm_map(&d, base + i * UNIT, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    ok(commgemm_import_pointer(client, base + UNIT + 4096, UNIT, &first));
    assert_int_equal(first.offset_bytes, 4096);
    ok(commgemm_import_pointer(client, base + 2 * UNIT, UNIT, &again));
    assert_int_equal(again.id, first.id);
    assert_int_equal(d.unmap(base + 2 * UNIT, UNIT), CUDA_SUCCESS);
    refused(commgemm_import_pointer(client, base + UNIT + 4096, UNIT, &after),
            COMMGEMM_INVALID_ARGUMENT, "are mapped");
    vmm_map(&d, base + 2 * UNIT, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    ok(commgemm_import_pointer(client, base + UNIT + 4096, UNIT, &after));
    assert_int_not_equal(after.id, first.id);
    assert_int_equal(d.reserve(&plain, UNIT, 0, 0, 0), CUDA_SUCCESS);
    vmm_map(&d, plain, CU_MEM_HANDLE_TYPE_NONE);
    refused(commgemm_import_pointer(client, plain, 4096, &first), COMMGEMM_NOT_SUPPORTED,
            "expandable_segments:False");
    commgemm_disconnect(client);
}

static void test_memory_that_cannot_be_exported(void **state)
{
    commgemm_client *client = client_new(*state);
    struct commgemm_operand operand;
    void *managed, *pinned, *pooled, *plain;
    float local = 0;
    cuda_ok(cudaMallocManaged(&managed, 4096, cudaMemAttachGlobal));
    cuda_ok(cudaMallocHost(&pinned, 4096));
    cuda_ok(cudaMallocAsync(&pooled, 4096, NULL));
    cuda_ok(cudaStreamSynchronize(NULL));
    cuda_ok(cudaMalloc(&plain, 64 << 20));
    refused(commgemm_import_pointer(client, (uintptr_t)managed, 64, &operand),
            COMMGEMM_NOT_SUPPORTED, "cudaMallocManaged");
    refused(commgemm_import_pointer(client, (uintptr_t)pinned, 64, &operand),
            COMMGEMM_NOT_SUPPORTED, "host memory");
    refused(commgemm_import_pointer(client, (uintptr_t)pooled, 64, &operand),
            COMMGEMM_NOT_SUPPORTED, "cudaMallocAsync");
    refused(commgemm_import_pointer(client, (uintptr_t)&local, 4, &operand),
            COMMGEMM_INVALID_ARGUMENT, "not known");
    refused(commgemm_import_pointer(client, (uintptr_t)plain + 4096, 64 << 20, &operand),
            COMMGEMM_INVALID_ARGUMENT, "of the allocation");
    ok(commgemm_import_pointer(client, (uintptr_t)plain, 64 << 20, &operand));
    cuda_ok(cudaFree(plain));
    refused(commgemm_import_pointer(client, (uintptr_t)plain, 64, &operand),
            COMMGEMM_INVALID_ARGUMENT, "not known");
    cuda_ok(cudaFree(managed));
    cuda_ok(cudaFreeHost(pinned));
    cuda_ok(cudaFreeAsync(pooled, NULL));
    commgemm_disconnect(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_address_that_is_used_again),
        cmocka_unit_test(test_virtual_memory),
        cmocka_unit_test(test_memory_that_cannot_be_exported),
    };
    streams_init();
    return streams_have_device() ? cmocka_run_group_tests(tests, start_daemon, stop_daemon) : 77;
}
