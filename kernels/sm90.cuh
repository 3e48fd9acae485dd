// Hopper's own instructions: barriers in shared memory, bulk tensor copies, warpgroup products.
#ifndef CGM_SM90_CUH
#define CGM_SM90_CUH

#include <cuda.h>
#include <stdint.h>

namespace cgm
{

__device__ inline uint32_t shared_address(const void *at)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

// ---- mbarriers ---------------------------------------------------------------------------------

__device__ inline void barrier_init(uint32_t barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

__device__ inline void barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives, and lets the phase end only when so many bytes have come, too.
__device__ inline void barrier_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

// Until the phase of this parity is over.
__device__ inline void barrier_wait(uint32_t barrier, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred over;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
                 "@over bra end;\n"
                 "bra again;\n"
                 "end:\n"
                 "}\n" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

// After barrier_init, before the copy engine may see the barriers.
__device__ inline void barriers_publish()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- bulk tensor copies ------------------------------------------------------------------------

__device__ inline void tensor_prefetch(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// The box whose first element is (inner, outer), to shared memory; arrives at the barrier.
__device__ inline void tensor_load(uint32_t to, const CUtensorMap *map, int32_t inner,
                                   int32_t outer, uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                 "l"(map), "r"(inner), "r"(outer), "r"(barrier)
                 : "memory");
}

// The box in shared memory to (inner, outer) on; what lies outside of the matrix is left out.
__device__ inline void tensor_store(const CUtensorMap *map, int32_t inner, int32_t outer,
                                    uint32_t from)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
        "r"(inner), "r"(outer), "r"(from)
        : "memory");
}

__device__ inline void stores_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until this thread's stores need their shared memory no more.
__device__ inline void stores_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// Until they are done, and seen by what follows in this thread.
__device__ inline void stores_wait()
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
}

__device__ inline void shared_store(uint32_t to, uint4 words)
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words.x), "r"(words.y),
                 "r"(words.z), "r"(words.w)
                 : "memory");
}

// What was written to shared memory is seen by the copy engine's stores that follow.
__device__ inline void copies_follow_shared()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// What was read by ordinary loads is seen by the copy engine's loads that follow.
__device__ inline void copies_follow()
{
    asm volatile("fence.proxy.async;" ::: "memory");
}

// ---- products ----------------------------------------------------------------------------------

__device__ inline void products_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ inline void products_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int left> __device__ inline void products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
}

#define CGM_S8(d, i)                                                                               \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),    \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define CGM_S64(d, i)                                                                              \
    CGM_S8(d, i), CGM_S8(d, i + 8), CGM_S8(d, i + 16), CGM_S8(d, i + 24), CGM_S8(d, i + 32),       \
        CGM_S8(d, i + 40), CGM_S8(d, i + 48), CGM_S8(d, i + 56)
#define CGM_64_NAMES                                                                               \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                       \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "             \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define CGM_128_NAMES                                                                              \
    CGM_64_NAMES                                                                                   \
    ", "                                                                                           \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "             \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, "   \
    "%127"

// names: of the sums; numbers: those of the other arguments, which follow.
#define CGM_WGMMA(cols, types, names, a_at, b_at, add_at, a_lines_at, b_lines_at, ...)             \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #add_at ", 0;\n"                         \
                 "wgmma.mma_async.sync.aligned.m64n" #cols "k16.f32." types " {" names "}, "       \
                 "%" #a_at ", %" #b_at ", add, 1, 1, %" #a_lines_at ", %" #b_lines_at ";\n}\n"     \
                 : __VA_ARGS__                                                                     \
                 : "l"(a), "l"(b), "r"(add), "n"(a_lines), "n"(b_lines))
#define CGM_WGMMA_256(types)                                                                       \
    CGM_WGMMA(256, types, CGM_128_NAMES, 128, 129, 130, 131, 132, CGM_S64(sums, 0),                \
              CGM_S64(sums, 64))
#define CGM_WGMMA_128(types)                                                                       \
    CGM_WGMMA(128, types, CGM_64_NAMES, 64, 65, 66, 67, 68, CGM_S64(sums, 0))

// sums (64 x 256, or 64 x 128, as the instruction lays them out) = or += a * b, 16 steps of the
// depth. *_lines: whether lines of the operand, not steps, lie next to each other.
template <bool bf16, int a_lines, int b_lines>
__device__ inline void product(float (&sums)[128], uint64_t a, uint64_t b, int add)
{
    if (bf16)
        CGM_WGMMA_256("bf16.bf16");
    else
        CGM_WGMMA_256("f16.f16");
}

template <bool bf16, int a_lines, int b_lines>
__device__ inline void product(float (&sums)[64], uint64_t a, uint64_t b, int add)
{
    if (bf16)
        CGM_WGMMA_128("bf16.bf16");
    else
        CGM_WGMMA_128("f16.f16");
}

#undef CGM_WGMMA_128
#undef CGM_WGMMA_256
#undef CGM_WGMMA
#undef CGM_128_NAMES
#undef CGM_64_NAMES
#undef CGM_S64
#undef CGM_S8

// Shares the registers of a block anew.
template <int count> __device__ inline void registers_take()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}

template <int count> __device__ inline void registers_give()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}

// Of `threads` threads that use this number.
__device__ inline void named_barrier(uint32_t number, uint32_t threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

} // namespace cgm

#endif
