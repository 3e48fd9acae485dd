// Copies by multiprocessors instead of copy engines: within a device, or to and from a peer.
#include "kernels/device_kernels.h"
#include "kernels/number_format.h"

namespace
{

constexpr unsigned threads = 512;
// Loads that a thread has in the air: a link's latency is a hundred times that of one load.
constexpr unsigned depth = 8;

// Where a thread is in a matrix of `cols` words a row; goes on by the same distance each time,
// which takes no division.
struct cursor {
    uint64_t row, col;

    __device__ void advance(uint64_t rows, uint64_t cols_more, uint64_t cols)
    {
        row += rows;
        col += cols_more;
        if (col >= cols) {
            col -= cols;
            row++;
        }
    }
};

// In words.
struct area {
    void *dst;
    const void *src;
    uint64_t rows, cols, dst_stride, src_stride;
};

struct areas {
    area of[CGM_KERNEL_COPIES_MAX]; // one for each row of blocks
};

template <typename Word> __global__ void __launch_bounds__(threads) copy(const areas areas)
{
    const area &area = areas.of[blockIdx.y];
    Word *__restrict__ dst = static_cast<Word *>(area.dst);
    const Word *__restrict__ src = static_cast<const Word *>(area.src);
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * threads + threadIdx.x;
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * threads;
    const uint64_t step_rows = step / area.cols, step_cols = step % area.cols;
    cursor from = {first / area.cols, first % area.cols};
    cursor to = from;
    while (to.row < area.rows) {
        Word held[depth];
#pragma unroll
        for (unsigned i = 0; i < depth; i++) {
            if (from.row < area.rows)
                held[i] = src[from.row * area.src_stride + from.col];
            from.advance(step_rows, step_cols, area.cols);
        }
#pragma unroll
        for (unsigned i = 0; i < depth; i++) {
            if (to.row < area.rows)
                dst[to.row * area.dst_stride + to.col] = held[i];
            to.advance(step_rows, step_cols, area.cols);
        }
    }
}

// In bytes.
area area_of(const cgm_kernel_copy *copy)
{
    const cgm_kernel_matrix &dst = copy->dst, &src = copy->src;
    const uint64_t element = cgm_format_info(dst.format)->bytes, row_bytes = dst.cols * element;
    if (dst.rows == 1 || (dst.stride == dst.cols && src.stride == src.cols))
        return {dst.data, src.data, 1, row_bytes * dst.rows, 0, 0};
    return {dst.data, src.data, dst.rows, row_bytes, dst.stride * element, src.stride * element};
}

uint64_t alignment_bits(const area &area)
{
    return reinterpret_cast<uintptr_t>(area.dst) | reinterpret_cast<uintptr_t>(area.src) |
           area.cols | area.dst_stride | area.src_stride;
}

template <typename Word>
void launch(areas &bytes, uint32_t count, uint32_t blocks, cudaStream_t stream)
{
    uint64_t useful = 1;
    for (uint32_t i = 0; i < count; i++) {
        area &area = bytes.of[i];
        area.cols /= sizeof(Word);
        area.dst_stride /= sizeof(Word);
        area.src_stride /= sizeof(Word);
        const uint64_t wanted = (area.rows * area.cols + threads - 1) / threads;
        useful = wanted > useful ? wanted : useful;
    }
    blocks = blocks > count ? blocks / count : 1;
    const dim3 grid(static_cast<unsigned>(useful < blocks ? useful : blocks), count);
    copy<Word><<<grid, threads, 0, stream>>>(bytes);
}

} // namespace

extern "C" cudaError_t cgm_kernel_copies_launch(const cgm_kernel_copy *copies, uint32_t count,
                                                uint32_t blocks, cudaStream_t stream)
{
    areas areas;
    uint64_t bits = 0;
    for (uint32_t i = 0; i < count; i++) {
        areas.of[i] = area_of(&copies[i]);
        bits |= alignment_bits(areas.of[i]);
    }
    if (bits % 16 == 0)
        launch<uint4>(areas, count, blocks, stream);
    else if (bits % 8 == 0)
        launch<uint2>(areas, count, blocks, stream);
    else if (bits % 4 == 0)
        launch<uint32_t>(areas, count, blocks, stream);
    else if (bits % 2 == 0)
        launch<uint16_t>(areas, count, blocks, stream);
    else
        launch<uint8_t>(areas, count, blocks, stream);
    return cudaGetLastError();
}

CGM_KERNEL_ANCHOR(copy, copy<uint4>)
