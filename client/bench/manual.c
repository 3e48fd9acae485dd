#include "client/bench/manual.h"

static const char report_text[] =
    "--output-file writes one JSON object. backend, op, method, algorithm and reason say what ran; "
    "world_size, m, n, k, rows, datatype and out_datatype its size. success is false when a check "
    "failed; max_error_ratio is the largest error as a part of its bound (at most 1 is right, null "
    "when nothing was checked or an element was no number), max_error_at says where. ms, ms_min, "
    "ms_max and ms_p99 are the job's times in milliseconds, ms the median; gemm_ms, comm_ms and "
    "serial_ms the medians of the GEMM alone, the collective alone and no_overlap; running_ms is "
    "the time inside the executor. openblas_ms is OpenBLAS in the client (fp32 gemm only, "
    "--blas-threads). floor_ms, floor_fraction and overlap_efficiency are null on the CPU backend. "
    "tflops is 2 m n k over ms. Every argument follows under its long name with underscores.\n"
    "\n"
    "For --op noop it has roundtrip_us_p50 and _p99 (from submit until the completion is reaped, "
    "both sides polling), sleeping_roundtrip_us_p50 and _p99 (both sides asleep before each), "
    "jobs_per_s (64 in flight from one session), socket_us_p50 (a plain Unix-socket round trip), "
    "socket_sleeping_us_p50 (the same with pauses) and raw_poll_us_p50 (a bare ping-pong of two "
    "processes in shared memory), measured in turn; the keys of plan, result and times are null.";

static const char files_text[] =
    "--lhs, --rhs and --bias-file name float32 .npy files of whole matrices, as stored: with "
    "--transa the file of lhs has K rows and M columns, with --transb the file of rhs has N rows "
    "and K columns. A file with more dimensions is taken as a matrix: --lhs-axis and "
    "--rhs-axis say which dimensions make its rows. They are rounded to --datatype (the bias to "
    "--out-datatype), sharded as the "
    "operation says, run once, and the assembled result is written by --save-out as float32, M "
    "rows and N columns. For rs and ar the file of lhs holds one M x N matrix of every rank behind "
    "the other. m, n and k come from the files; where they are given too they must agree. Where "
    "every rank has all of the result, all ranks must have the same.";

static const char exit_text[] =
    "0: success. 1: the run failed, or a result was wrong. 2: the command line or a file it names "
    "is wrong. 3: the daemon is not running, or went away. 4: permission denied. 5: the versions "
    "of program and daemon do not match.";

static const char iris_text[] =
    "The interface follows Iris' GEMM benchmark, as far as it has a meaning here:\n"
    "\n"
    "    -m, -n, -k                  the same, with the same defaults\n"
    "    --debug                     --debug (prints every phase)\n"
    "    --validate                  --validate (by a bound for every element)\n"
    "    --benchmark                 --benchmark\n"
    "    --datatype                  --datatype, all of its types and int32\n"
    "    --algorithm all_reduce      --op gemm_ar\n"
    "    --algorithm all_scatter     --op gemm_as\n"
    "    --algorithm one_shot        --op gemm_ar --algorithm one_shot_ar\n"
    "    --output_file               --output-file (both spellings are taken)\n"
    "    mpirun -np W                --world W\n"
    "    --gemm_sms, --total_sms     --num-comm-sm and --set-sm-margin, the other way round\n"
    "    --COMMUNICATION_TILE_M      --num-splits, as a number of pieces\n"
    "    --COMMUNICATION_TILE_N      no counterpart\n"
    "    --communication_block_size  no counterpart\n"
    "    --BLK_M, --BLK_N, --BLK_K   no counterpart: the backend chooses\n"
    "    --gsize_m                   no counterpart\n"
    "    --two_tiles                 no counterpart\n"
    "    --num_stages                no counterpart\n"
    "    --num_warps                 no counterpart\n"
    "    --waves_per_eu              no counterpart\n"
    "    --mfmaInstrSize             no counterpart\n"
    "    --kpack                     no counterpart\n"
    "    --heap_size                 no counterpart: buffers are allocated as they are needed\n";

static const char examples_text[] =
    "    commgemm-bench --private --op ag_gemm --world 4 -m 1024 -n 1024 -k 1024 --validate\n"
    "    commgemm-bench --op gemm_rs --method ring_exchange --datatype bf16 --benchmark "
    "--output-file rs.json\n"
    "    commgemm-bench --op ag_gemm --lhs A.npy --rhs B.npy --bias-file b.npy --save-out D.npy\n"
    "    commgemm-bench --private --op ag_gemm -m 2048 -n 2048 -k 2048 --timeline job.svg\n"
    "    commgemm-bench --private=cpu --op noop\n";

const struct cgm_section cgm_bench_sections[CGM_BENCH_SECTIONS] = {
    {"report", report_text},        {"tensors from files", files_text}, {"exit status", exit_text},
    {"options of Iris", iris_text}, {"examples", examples_text},
};
