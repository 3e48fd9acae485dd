#include "client/bench/manual.h"

static const char report_text[] =
    "--output-file writes one JSON object. backend, op, method, algorithm and reason say what ran; "
    "world_size, m, n, k, rows, datatype and out_datatype its size. success is false when a check "
    "failed; max_error_ratio is the largest error as a part of its bound (at most 1 is right, null "
    "when nothing was checked or an element was no number), max_error_at says where. ms, ms_min, "
    "ms_max and ms_p99 are the job's times in milliseconds, ms the median; gemm_ms, comm_ms and "
    "serial_ms the medians of the GEMM alone, the collective alone and no_overlap; running_ms is "
    "the time inside the executor. openblas_ms is OpenBLAS in the client (fp32 gemm only, "
    "--blas-threads). communication_ms is comm_ms under Iris' name; "
    "global_m, global_n and global_k are the whole product's sizes, local_m, local_n and local_k "
    "those "
    "that one rank multiplies. floor_ms and floor_fraction are null but with --compare and "
    "--shapes, "
    "overlap_efficiency on the CPU backend. "
    "tflops is 2 m n k over ms. machine has the names of processor (cpu) and GPUs and the number "
    "of "
    "processors; command is the command line, date the day. Every argument follows under its long "
    "name with underscores.\n"
    "\n"
    "For --op noop it has roundtrip_us_p50 and _p99 (from submit until the completion is reaped, "
    "both sides polling), sleeping_roundtrip_us_p50 and _p99 (both sides asleep before each), "
    "jobs_per_s (64 in flight from one session), socket_us_p50 (a plain Unix-socket round trip), "
    "socket_sleeping_us_p50 (the same with pauses) and raw_poll_us_p50 (a bare ping-pong of two "
    "processes in shared memory), measured in turn; the keys of plan, result and times are null.";

static const char comparison_text[] =
    "--compare times in turn, on the same operands: the job as it was asked for (auto, unless "
    "--method or --algorithm say otherwise), no_overlap, the product of one rank alone, the "
    "collective alone, and each algorithm that commgemmctl algorithms lists for the operation. On "
    "GPUs of their own the ranks' no_overlap is the vendor's libraries in sequence, NCCL and "
    "cuBLASLt, "
    "as its reason says. An algorithm that refuses the plan is named with its reason. With "
    "--validate each one's results "
    "are checked. speedup is no_overlap's median over the variant's.\n"
    "\n"
    "The floor is what no job can go below: the longer of the product alone and of the bytes that "
    "a "
    "rank sends at the links' rate, which is the best all-gather of a buffer of 32 MiB for each "
    "rank "
    "(of 1 MiB on the CPU backend), measured before the first shape. The floor fraction is the "
    "floor "
    "over the time of the job. On the CPU backend product and communication share the processors, "
    "so that the figure is there to try things out.\n"
    "\n"
    "--output-file then has a list variants with variant, algorithm, reason, refused, ms, ms_min, "
    "ms_max, ms_p99, running_ms, speedup, floor_fraction and max_error_ratio of each, and "
    "link_gb_per_s. "
    "With --shapes it has a list rows with one such object, and its name, for each shape; a shape "
    "that "
    "was refused has status and error. --csv has a line for each variant of each shape, --plot "
    "bars.";

static const char shapes_text[] =
    "--shapes names a text file with one job on each line; each is run as if it had been given on "
    "the command line, with --compare beside every algorithm, and a table of all ends the output:\n"
    "\n"
    "    # op    m     n     k    type  layout  name\n"
    "    ag_gemm 8192  10240 8192 bf16  NT      name=qkv    # a comment\n"
    "    ar      512   8192  0    fp16\n"
    "\n"
    "Sizes are the whole product's, 1 to 16777216; k may be 0 where there is no product. Type, "
    "layout "
    "(of lhs and rhs, T for transposed) and name may be left out or come in any order; type and "
    "layout "
    "are then those of the command line. # begins a comment. A line that is wrong is an error with "
    "its number. Installed are share/commgemm/shapes/peers.shapes, on which commgemm is compared "
    "with "
    "NCCL and PyTorch, and frameworks.shapes.";

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

#define ROW(name, label, ours) "    " label ours "\n"
static const char iris_text[] =
    "The interface follows Iris' GEMM benchmark, as far as it has a meaning here. Its algorithms:\n"
    "\n"
    "    --algorithm all_reduce      --op gemm_ar: two shots, fused or in sequence, as auto takes\n"
    "    --algorithm all_scatter     --op gemm_as\n"
    "    --algorithm one_shot        --op gemm_ar --algorithm one_shot_ar\n"
    "\n"
    "Its options that are taken here too, in both spellings of the dashes:\n"
    "\n"
    "    -h, --help                  the same\n"
    "    -m, -n, -k                  the same, with the same defaults\n"
    "    --debug                     prints every phase of a job, from its timeline\n"
    "    --validate                  by a bound for every element, on random numbers\n"
    "    --benchmark                 the same; the default when nothing else is asked for\n"
    "    --datatype                  all of its types, and int32; default fp32 as there\n"
    "    --output_file               --output-file; without it nothing is written\n"
    "\n"
    "Its other options are refused with these words:\n"
    "\n" CGM_BENCH_FOREIGN_OPTIONS(
        ROW) "\n"
             "How it is run, and its reference programs of product and collective alone:\n"
             "\n"
             "    mpirun -np W                --world W\n"
             "    run.sh --num-gpus W         --world W\n"
             "    run.sh --collective NAME    gemm_ms, communication_ms and serial_ms of every run "
             "are the\n"
             "                                product alone, the collective alone and both in "
             "sequence;\n"
             "                                --op ag and --op ar run a collective by itself\n";
#undef ROW

static const char examples_text[] =
    "    commgemm-bench --private --op ag_gemm --world 4 -m 1024 -n 1024 -k 1024 --validate\n"
    "    commgemm-bench --op gemm_rs --method ring_exchange --datatype bf16 --benchmark "
    "--output-file rs.json\n"
    "    commgemm-bench --op ag_gemm --lhs A.npy --rhs B.npy --bias-file b.npy --save-out D.npy\n"
    "    commgemm-bench --private --op ag_gemm -m 2048 -n 2048 -k 2048 --timeline job.svg\n"
    "    commgemm-bench --private --op gemm_rs -m 2048 -n 2048 -k 2048 --compare --json\n"
    "    commgemm-bench --private --shapes my.shapes --compare --csv my.csv --plot my.svg\n"
    "    commgemm-bench --private=cpu --op noop\n";

const struct cgm_section cgm_bench_sections[CGM_BENCH_SECTIONS] = {
    {"report", report_text},          {"comparisons", comparison_text},
    {"files of shapes", shapes_text}, {"tensors from files", files_text},
    {"exit status", exit_text},       {"options of Iris", iris_text},
    {"examples", examples_text},      {"see also", "commgemmctl(1), commgemmd(8), commgemm(7)"},
};
