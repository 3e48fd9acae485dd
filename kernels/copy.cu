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

template <typename Word>
__global__ void __launch_bounds__(threads)
    copy(Word *__restrict__ dst, const Word *__restrict__ src, uint64_t rows, uint64_t cols,
         uint64_t dst_stride, uint64_t src_stride)
{
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * threads + threadIdx.x;
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * threads;
    const uint64_t step_rows = step / cols, step_cols = step % cols;
    cursor from = {first / cols, first % cols};
    cursor to = from;
    while (to.row < rows) {
        Word held[depth];
#pragma unroll
        for (unsigned i = 0; i < depth; i++) {
            if (from.row < rows)
                held[i] = src[from.row * src_stride + from.col];
            from.advance(step_rows, step_cols, cols);
        }
#pragma unroll
        for (unsigned i = 0; i < depth; i++) {
            if (to.row < rows)
                dst[to.row * dst_stride + to.col] = held[i];
            to.advance(step_rows, step_cols, cols);
        }
    }
}

// Sizes in bytes.
struct area {
    uint64_t rows, row_bytes, dst_stride, src_stride;
};

area area_of(const cgm_kernel_matrix *dst, const cgm_kernel_matrix *src)
{
    const uint64_t element = cgm_format_info(dst->format)->bytes;
    const uint64_t row_bytes = dst->cols * element;
    if (dst->rows == 1 || (dst->stride == dst->cols && src->stride == src->cols))
        return {1, row_bytes * dst->rows, 0, 0};
    return {dst->rows, row_bytes, dst->stride * element, src->stride * element};
}

template <typename Word>
void launch(const cgm_kernel_matrix *dst, const cgm_kernel_matrix *src, const area &area,
            uint32_t blocks, cudaStream_t stream)
{
    const uint64_t size = sizeof(Word), words = area.rows * (area.row_bytes / size);
    const uint64_t useful = (words + threads - 1) / threads;
    copy<<<static_cast<unsigned>(useful < blocks ? useful : blocks), threads, 0, stream>>>(
        static_cast<Word *>(dst->data), static_cast<const Word *>(src->data), area.rows,
        area.row_bytes / size, area.dst_stride / size, area.src_stride / size);
}

} // namespace

extern "C" cudaError_t cgm_kernel_copy_launch(const cgm_kernel_matrix *dst,
                                              const cgm_kernel_matrix *src, uint32_t blocks,
                                              cudaStream_t stream)
{
    const area area = area_of(dst, src);
    const uint64_t bits = reinterpret_cast<uintptr_t>(dst->data) |
                          reinterpret_cast<uintptr_t>(src->data) | area.row_bytes |
                          area.dst_stride | area.src_stride;
    if (bits % 16 == 0)
        launch<uint4>(dst, src, area, blocks, stream);
    else if (bits % 8 == 0)
        launch<uint2>(dst, src, area, blocks, stream);
    else if (bits % 4 == 0)
        launch<uint32_t>(dst, src, area, blocks, stream);
    else if (bits % 2 == 0)
        launch<uint16_t>(dst, src, area, blocks, stream);
    else
        launch<uint8_t>(dst, src, area, blocks, stream);
    return cudaGetLastError();
}

CGM_KERNEL_ANCHOR(copy, copy<uint4>)
