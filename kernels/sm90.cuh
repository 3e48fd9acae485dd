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

#define CGM_R4(base)                                                                               \
    "%" #base "0, %" #base "1, %" #base "2, %" #base "3, %" #base "4, %" #base "5, %" #base        \
    "6, %" #base "7, %" #base "8, %" #base "9"
#define CGM_S8(d, i)                                                                               \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),    \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define CGM_S64(d, i)                                                                              \
    CGM_S8(d, i), CGM_S8(d, i + 8), CGM_S8(d, i + 16), CGM_S8(d, i + 24), CGM_S8(d, i + 32),       \
        CGM_S8(d, i + 40), CGM_S8(d, i + 48), CGM_S8(d, i + 56)
#define CGM_WGMMA(types)                                                                                                      \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %130, 0;\n"                                                            \
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32." types                                                         \
                 " {%0, %1, %2, %3, %4, %5, %6, %7, "                                                                         \
                 "%8, %9, " CGM_R4(1) ", " CGM_R4(2) ", " CGM_R4(3) ", " CGM_R4(4) ", " CGM_R4(5) ", " CGM_R4(6) ", " CGM_R4( \
                     7) ", " CGM_R4(8) ", " CGM_R4(9) ", " CGM_R4(10) ", " CGM_R4(11) ", %120, "                              \
                                                                                      "%121, "                                \
                                                                                      "%122, "                                \
                                                                                      "%123, "                                \
                                                                                      "%124, "                                \
                                                                                      "%125, "                                \
                                                                                      "%126, "                                \
                                                                                      "%127}, "                               \
                                                                                      "%128, "                                \
                                                                                      "%129, "                                \
                                                                                      "add, 1, "                              \
                                                                                      "1, %131, "                             \
                                                                                      "%132;\n}\n"                            \
                 : CGM_S64(sums, 0), CGM_S64(sums, 64)                                                                        \
                 : "l"(a), "l"(b), "r"(add), "n"(a_lines), "n"(b_lines))

// sums (64 x 256, as the instruction lays them out) = or += a * b, 16 steps of the depth.
// *_lines: whether lines of the operand, not steps, lie next to each other.
template <bool bf16, int a_lines, int b_lines>
__device__ inline void product_64x256(float (&sums)[128], uint64_t a, uint64_t b, int add)
{
    if (bf16)
        CGM_WGMMA("bf16.bf16");
    else
        CGM_WGMMA("f16.f16");
}

#undef CGM_WGMMA
#undef CGM_S64
#undef CGM_S8
#undef CGM_R4

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
