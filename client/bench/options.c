#include "client/bench/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "client/bench/machine.h"
#include "client/bench/manual.h"
#include "client/common/new_file.h"
#include "proto/status.h"
#include "proto/types.h"

#define FIELD(name) CGM_FIELD(struct cgm_bench_options, name)
#define FLAG(option, field, text)                                                                  \
    {                                                                                              \
        .name = (option), .kind = CGM_ARG_FLAG, FIELD(field), .summary = (text)                    \
    }
#define COUNT(option, field, low, high, text)                                                      \
    {                                                                                              \
        .name = (option), .kind = CGM_ARG_UINT, FIELD(field), .value = "N", .min = (low),          \
        .max = (high), .summary = (text)                                                           \
    }
#define SIZE(option, character, field, text)                                                       \
    {                                                                                              \
        .name = (option), .letter = (character), .kind = CGM_ARG_UINT, FIELD(field), .value = "N", \
        .min = 1, .max = CGM_BENCH_SIZE_LIMIT, .summary = (text)                                   \
    }
#define TYPE(option, field, which, placeholder, text)                                              \
    {                                                                                              \
        .name = (option), .kind = CGM_ARG_TYPE, FIELD(field), .table = (which),                    \
        .value = (placeholder), .summary = (text)                                                  \
    }
#define FILE_NAME(option, field, text)                                                             \
    {                                                                                              \
        .name = (option), .kind = CGM_ARG_PATH, FIELD(field), .value = "FILE", .summary = (text)   \
    }

static const struct cgm_option job_options[] = {
    {.name = "op",
     .kind = CGM_ARG_TYPE,
     FIELD(op),
     .value = "OP",
     .table = CGM_TABLE_OP,
     .max = CGM_OP_COPY_IN - 1, /* which is no operation of a plan */
     .summary = "the operation (see commgemmctl algorithms), default ag_gemm"},
    TYPE("method", method, CGM_TABLE_METHOD, "METHOD", "how to overlap, default auto"),
    FLAG("atomic", atomic, "the method's atomic form (atomic_gemm)"),
    {.name = "algorithm",
     .kind = CGM_ARG_TEXT,
     FIELD(algorithm_name),
     .value = "NAME",
     .summary = "an algorithm by name instead of a method; all_reduce, all_scatter and one_shot "
                "choose the operation too"},
    COUNT("world", world, 1, 64, "ranks; default 4"),
    SIZE("m", 'm', m, "rows of lhs and out; default 4864"),
    SIZE("n", 'n', n, "columns of rhs and out; default 4096"),
    SIZE("k", 'k', k, "columns of lhs, rows of rhs; default 8256"),
    COUNT("rows", rows, 1, CGM_BENCH_SIZE_LIMIT, "active rows, at most m; default m"),
    TYPE("datatype", dtype, CGM_TABLE_DTYPE, "TYPE", "of lhs and rhs, default fp32"),
    TYPE("out-datatype", out_dtype, CGM_TABLE_DTYPE, "TYPE",
         "of out; default as --datatype, with int8 int32"),
    FLAG("transa", transa, "lhs is stored transposed, K x M"),
    FLAG("transb", transb, "rhs is stored transposed, N x K"),
    FLAG("bias", bias, "add a bias of N elements"),
    FLAG("gelu", gelu, "GELU behind that; asks for pre_gelu_out too"),
    FLAG("grad", grad,
         "with --gelu multiply by its derivative instead, with --bias give bias_grad instead"),
    FLAG("accumulate", accumulate, "out += instead of out ="),
    FLAG("aux", aux, "ask for the gathered lhs too"),
};

static const struct cgm_option plan_options[] = {
    TYPE("comm-type", comm_type, CGM_TABLE_COMM_TYPE, "TYPE", "the collective of the plan"),
    {.name = "buffer-shape",
     .kind = CGM_ARG_TEXT,
     FIELD(buffer_shape_text),
     .value = "RxC",
     .summary = "rows and columns of the user buffer; of bulk_ag and bulk_rs what they move, "
                "default as lhs, as out"},
    TYPE("buffer-dtype", buffer_dtype, CGM_TABLE_DTYPE, "TYPE", "of the user buffer"),
    COUNT("tp-size", tp_size, 1, 64, "ranks that share the tensors"),
    COUNT("num-splits", num_splits, 1, 1024, "pieces of a pipelined operation"),
    COUNT("num-max-streams", num_max_streams, 1, 64, "streams for GEMM pieces"),
    COUNT("comm-cga-size", comm_cga_size, 1, 64, "thread block cluster of communication kernels"),
    {.name = "gemm-priority",
     .kind = CGM_ARG_INT,
     FIELD(gemm_priority),
     .value = "N",
     .min = -100,
     .max = 100,
     .summary = "of the GEMM's queue"},
    {.name = "comm-priority",
     .kind = CGM_ARG_INT,
     FIELD(comm_priority),
     .value = "N",
     .min = -100,
     .max = 100,
     .summary = "of the communication's queue"},
    COUNT("num-comm-sm", num_comm_sm, 1, 1024, "SMs for communication"),
    FLAG("set-sm-margin", set_sm_margin, "keep the GEMM off the communication's SMs"),
    FLAG("use-ce", use_ce, "push with copy engines"),
    FLAG("no-ce", no_ce, "push with SMs, --num-comm-sm of them"),
    FLAG("rs-overlap-first-gemm", rs_overlap_first_gemm, "overlap the first piece too"),
    FLAG("aggregate-ag", aggregate_ag, "exchange pairs of chunks first"),
    FLAG("tf32", tf32, "products of fp32 may round their inputs to TF32"),
    {.name = "mode",
     .kind = CGM_ARG_MODE,
     FIELD(mode),
     .value = "MODE",
     .summary = "who may use the plan, octal; default 0600"},
};

static const struct cgm_option run_options[] = {
    FLAG("validate", validate, "check every element against a float64 reference"),
    FLAG("benchmark", benchmark,
         "time the job and what it is made of; the default when nothing else is asked for"),
    COUNT("iters", iters, 1, 1000000, "timed runs; default 100, or fewer at the time limit"),
    COUNT("warmup", warmup, 0, 1000000, "runs before them; default 25"),
    {.name = "time-limit",
     .kind = CGM_ARG_REAL,
     FIELD(time_limit_s),
     .value = "SECONDS",
     .min = 0,
     .max = 1000000,
     .summary = "end the timed runs early unless --iters is given; 0: never; default 60"},
    FLAG("debug", debug, "print every phase of one job"),
    FLAG("compare", compare,
         "time each algorithm of the operation too, in turn with the rest, beside the floor"),
    FILE_NAME("shapes", shapes_file, "one run for each shape of a file; see FILES OF SHAPES"),
    FILE_NAME("csv", csv, "write a comparison or a sweep as CSV, a line for each variant"),
    FILE_NAME("plot", plot, "draw the floor fractions of a comparison or a sweep as an SVG file"),
    FILE_NAME("output-file", output_file, "write the results as JSON; - for standard output"),
    FLAG("json", json, "the same as --output-file -"),
    FILE_NAME("timeline", timeline, "draw one job's phases as an SVG file"),
};

static const struct cgm_option file_options[] = {
    FILE_NAME("lhs", lhs_file, "float32 .npy file of the whole lhs, as stored"),
    FILE_NAME("rhs", rhs_file, "float32 .npy file of the whole rhs, as stored"),
    COUNT("lhs-axis", lhs_axis, 1, 15,
          "axis boundary: dimensions before it are lhs' rows, as stored; default the last one"),
    COUNT("rhs-axis", rhs_axis, 1, 15, "the same for rhs"),
    FILE_NAME("bias-file", bias_file, "float32 .npy file of the bias; implies --bias"),
    FILE_NAME("save-out", save_out, "write the assembled result as float32 .npy"),
    FILE_NAME("save-aux", save_aux, "write the gathered lhs, as stored; implies --aux"),
};

static const struct cgm_option how_options[] = {
    {.name = "socket",
     .kind = CGM_ARG_PATH,
     FIELD(socket),
     .value = "PATH",
     .summary = "the daemon's socket; default $COMMGEMM_SOCKET and so on"},
    {.name = "private",
     .kind = CGM_ARG_CHOICE,
     FIELD(private_daemon),
     .value = "BACKEND",
     .choices = "no|auto|cpu|cuda",
     .implied = "auto",
     .summary = "start a daemon of its own for this run, auto without BACKEND"},
    {.name = "set",
     .kind = CGM_ARG_TEXT,
     FIELD(set),
     .value = "KEY=VALUE[,...]",
     .summary = "configuration of the private daemon"},
    FLAG("one-process", one_process, "one client with all ranks, not one client a rank"),
    FLAG("no-ring", no_ring, "submit through the socket"),
    FLAG("import", import, "operands in the clients' own memory, imported"),
    COUNT("seed", seed, 0, INT64_MAX, "of the random inputs; default random"),
    COUNT("timeout", timeout_s, 1, 1000000, "seconds that one job may take; default 600"),
    COUNT("threads", threads, 1, 1024, "of the reference; default all cores"),
    COUNT("blas-threads", blas_threads, 1, 1024,
          "of OpenBLAS in each client, for openblas_ms; default 1, as one device queue has"),
    {.name = "help",
     .letter = 'h',
     .kind = CGM_ARG_FLAG,
     FIELD(help),
     .summary = "print this and exit"},
    {.name = "version", .kind = CGM_ARG_FLAG, FIELD(version), .summary = "print it and exit"},
    {.name = "completion",
     .kind = CGM_ARG_FLAG,
     FIELD(completion),
     .hidden = true,
     .summary = "print a bash completion script and exit"},
    {.name = "manual",
     .kind = CGM_ARG_FLAG,
     FIELD(manual),
     .hidden = true,
     .summary = "print the manual page and exit"},
};

static const struct cgm_option_table tables[] = {
    CGM_OPTION_TABLE("The job", job_options),
    CGM_OPTION_TABLE("The plan", plan_options),
    CGM_OPTION_TABLE("What to do", run_options),
    CGM_OPTION_TABLE("Tensors from files", file_options),
    CGM_OPTION_TABLE("How", how_options),
};

const struct cgm_program cgm_bench_program = {
    .name = "commgemm-bench",
    .summary = "measure and check GEMM + communication jobs",
    .date = "2026-11-20",
    .usage = "[OPTION]...",
    .description = CGM_BENCH_DESCRIPTION,
    .tables = tables,
    .n_tables = sizeof(tables) / sizeof(tables[0]),
    .sections = cgm_bench_sections,
    .n_sections = CGM_BENCH_SECTIONS,
};

static const struct cgm_bench_options defaults = {
    .op = CGM_OP_AG_GEMM,
    .method = CGM_METHOD_AUTO,
    .algorithm = CGM_ALGO_AUTO,
    .world = 4,
    .m = 4864,
    .n = 4096,
    .k = 8256,
    .dtype = CGM_DTYPE_FP32,
    .out_dtype = -1,
    .comm_type = -1,
    .buffer_dtype = -1,
    .iters = 100,
    .warmup = 25,
    .time_limit_s = 60,
    .timeout_s = 600,
    .blas_threads = 1,
};

/* Iris' spellings: an operation and how it reduces. */
static const struct {
    const char *name;
    int op, algorithm;
} iris_algorithms[] = {
    {"all_reduce", CGM_OP_GEMM_AR, CGM_ALGO_AUTO},
    {"all_scatter", CGM_OP_GEMM_AS, CGM_ALGO_AUTO},
    {"one_shot", CGM_OP_GEMM_AR, CGM_ALGO_ONE_SHOT_AR},
};

static int refuse(char *ret_detail, const char *option, const char *value, const char *why)
{
    snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "--%s%s%s: %s", option, value[0] ? " " : "", value,
             why);
    return CGM_INVALID_ARGUMENT;
}

static bool take_iris_algorithm(struct cgm_bench_options *options)
{
    for (size_t i = 0; i < sizeof(iris_algorithms) / sizeof(iris_algorithms[0]); i++) {
        if (strcmp(options->algorithm_name, iris_algorithms[i].name) != 0)
            continue;
        options->op = iris_algorithms[i].op;
        options->algorithm = iris_algorithms[i].algorithm;
        snprintf(options->note, sizeof(options->note), "--algorithm %s is taken as --op %s%s%s",
                 options->algorithm_name, cgm_type_name(CGM_TABLE_OP, options->op),
                 options->algorithm == CGM_ALGO_AUTO ? "" : " --algorithm ",
                 options->algorithm == CGM_ALGO_AUTO
                     ? ""
                     : cgm_type_name(CGM_TABLE_ALGO, options->algorithm));
        return true;
    }
    return false;
}

static int resolve_algorithm(struct cgm_bench_options *options, bool op_given, char *ret_detail)
{
    if (!options->algorithm_name)
        return CGM_OK;
    int number = cgm_type_number(CGM_TABLE_ALGO, options->algorithm_name);
    if (number >= 0) {
        options->algorithm = number;
        return CGM_OK;
    }
    int op = options->op;
    if (take_iris_algorithm(options)) {
        if (op_given && op != options->op)
            return refuse(ret_detail, "algorithm", options->algorithm_name,
                          "means another operation than --op");
        return CGM_OK;
    }
    char names[512], why[600];
    cgm_type_list(CGM_TABLE_ALGO, names, sizeof(names));
    snprintf(why, sizeof(why), "must be one of %s, all_reduce, all_scatter, one_shot", names);
    return refuse(ret_detail, "algorithm", options->algorithm_name, why);
}

static int resolve_buffer_shape(struct cgm_bench_options *options, char *ret_detail)
{
    if (!options->buffer_shape_text)
        return CGM_OK;
    unsigned long long rows, cols;
    int end = 0;
    if (sscanf(options->buffer_shape_text, "%8llux%8llu%n", &rows, &cols, &end) != 2 ||
        options->buffer_shape_text[end] || !rows || !cols || options->buffer_shape_text[0] == '-')
        return refuse(ret_detail, "buffer-shape", options->buffer_shape_text,
                      "must be rows and columns like 1024x4096");
    options->buffer_shape[0] = rows;
    options->buffer_shape[1] = cols;
    return CGM_OK;
}

static int check_sizes(const struct cgm_bench_options *options, char *ret_detail)
{
    char value[32], why[64];
    if (options->rows <= options->m)
        return CGM_OK;
    snprintf(value, sizeof(value), "%llu", (unsigned long long)options->rows);
    snprintf(why, sizeof(why), "must be 1 to m, which is %llu", (unsigned long long)options->m);
    return refuse(ret_detail, "rows", value, why);
}

static int check_files(struct cgm_bench_options *options, char *ret_detail)
{
    if (options->rhs_file && !options->lhs_file)
        return refuse(ret_detail, "rhs", options->rhs_file, "needs --lhs too");
    if (options->lhs_axis && !options->lhs_file)
        return refuse(ret_detail, "lhs-axis", "", "needs --lhs");
    if (options->rhs_axis && !options->rhs_file)
        return refuse(ret_detail, "rhs-axis", "", "needs --rhs");
    if (options->bias_file && !options->lhs_file)
        return refuse(ret_detail, "bias-file", options->bias_file, "needs --lhs too");
    if (options->save_out && !options->lhs_file)
        return refuse(ret_detail, "save-out", options->save_out,
                      "needs --lhs: results of random "
                      "inputs are not saved");
    if (options->save_aux && !options->lhs_file)
        return refuse(ret_detail, "save-aux", options->save_aux, "needs --lhs");
    if (options->save_out && options->dtype == CGM_DTYPE_INT8)
        return refuse(ret_detail, "save-out", options->save_out,
                      "does not go with --datatype int8: float32 does not hold every int32");
    if (options->lhs_file && options->grad)
        return refuse(ret_detail, "grad", "", "does not go with --lhs");
    if (options->lhs_file && options->accumulate)
        return refuse(ret_detail, "accumulate", "", "does not go with --lhs");
    if (options->bias_file)
        options->bias = true;
    if (options->save_aux)
        options->aux = true;
    return CGM_OK;
}

static bool compares(const struct cgm_bench_options *o)
{
    return o->compare || o->shapes_file;
}

/* What is asked for once cannot be had of many runs, and what a file of shapes says nobody else
 * may say. */
static int check_comparison(const struct cgm_bench_options *o, const struct cgm_args *args,
                            char *ret_detail)
{
    static const char *const said[] = {"op", "m", "n", "k", "rows", "buffer-shape"};
    const struct {
        const char *name;
        bool there;
    } single[] = {{"timeline", o->timeline}, {"debug", o->debug}, {"lhs", o->lhs_file}};
    const char *which = o->shapes_file ? "does not go with --shapes" : "does not go with --compare";
    if (!compares(o) && (o->csv || o->plot))
        return refuse(ret_detail, o->csv ? "csv" : "plot", o->csv ? o->csv : o->plot,
                      "needs --compare or --shapes");
    if (!compares(o))
        return CGM_OK;
    for (size_t i = 0; i < sizeof(single) / sizeof(single[0]); i++)
        if (single[i].there)
            return refuse(ret_detail, single[i].name, "", which);
    if (o->op == CGM_OP_NOOP)
        return refuse(ret_detail, "op", "noop", "has nothing to be compared with");
    for (size_t i = 0; o->shapes_file && i < sizeof(said) / sizeof(said[0]); i++)
        if (cgm_args_given(&cgm_bench_program, args, said[i]))
            return refuse(ret_detail, said[i], "", "does not go with --shapes: the file says it");
    return CGM_OK;
}

/* Of what is written only the report goes to standard output as well. */
static int check_pictures(const struct cgm_bench_options *o, char *ret_detail)
{
    const struct {
        const char *name, *path;
    } files[] = {{"csv", o->csv}, {"plot", o->plot}, {"timeline", o->timeline}};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (files[i].path && !strcmp(files[i].path, "-"))
            return refuse(ret_detail, files[i].name, "-",
                          "must be the name of a file; --output-file alone takes -");
    return CGM_OK;
}

static int check_rest(const struct cgm_bench_options *options, char *ret_detail)
{
    if (options->set && !options->private_daemon)
        return refuse(ret_detail, "set", options->set, "needs --private");
    if (options->socket && options->private_daemon)
        return refuse(ret_detail, "socket", options->socket, "does not go with --private");
    if (options->use_ce && options->no_ce)
        return refuse(ret_detail, "no-ce", "", "does not go with --use-ce");
    bool bulk = options->op == CGM_OP_BULK_AG || options->op == CGM_OP_BULK_RS;
    if (bulk && options->lhs_file)
        return refuse(ret_detail, "lhs", options->lhs_file,
                      "does not go with bulk_ag and bulk_rs, whose other buffer has no file");
    if (options->op == CGM_OP_NOOP && (options->lhs_file || options->timeline || options->debug))
        return refuse(ret_detail, "op", "noop", "has no tensors and no phases");
    return CGM_OK;
}

static bool given(const struct cgm_args *args, const char *name)
{
    return cgm_args_given(&cgm_bench_program, args, name);
}

static void take_given(const struct cgm_args *args, struct cgm_bench_options *options)
{
    options->iters_given = given(args, "iters");
    options->sizes_given[0] = given(args, "m");
    options->sizes_given[1] = given(args, "n");
    options->sizes_given[2] = given(args, "k");
    if (!given(args, "seed") &&
        getrandom(&options->seed, sizeof(options->seed), 0) != sizeof(options->seed))
        options->seed = (uint64_t)getpid();
    if (!given(args, "seed"))
        options->seed >>= 32; /* short enough to be typed again */
    if (!options->threads)
        options->threads = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
    bool else_asked = options->validate || options->lhs_file || options->timeline || options->debug;
    if (options->iters_given || !else_asked || compares(options))
        options->benchmark = true;
    if (options->json && !options->output_file)
        options->output_file = "-";
}

/* What Iris' benchmark takes and this program does not: better words than "unknown option". */
static int refuse_foreign(int argc, char **argv, char *ret_detail)
{
    static const struct {
        const char *name, *why;
    } foreign[] = {
#define X(name, label, why) {(name), (why)},
        CGM_BENCH_FOREIGN_OPTIONS(X)
#undef X
    };
    for (int i = 1; i < argc; i++)
        for (size_t f = 0; f < sizeof(foreign) / sizeof(foreign[0]); f++) {
            size_t length = strlen(foreign[f].name);
            if (!strncmp(argv[i], "--", 2) && !strncmp(argv[i] + 2, foreign[f].name, length) &&
                (!argv[i][2 + length] || argv[i][2 + length] == '='))
                return refuse(ret_detail, foreign[f].name, "", foreign[f].why);
        }
    return CGM_OK;
}

int cgm_bench_options_parse(int argc, char **argv, char *ret_detail,
                            struct cgm_bench_options *ret_options)
{
    struct cgm_args args = {0};
    *ret_options = defaults;
    int status = refuse_foreign(argc, argv, ret_detail);
    if (status)
        return status;
    status = cgm_args_parse(&cgm_bench_program, argc, argv, ret_options, &args);
    if (status) {
        snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "%s", args.detail);
        return status;
    }
    if (ret_options->help || ret_options->version || ret_options->manual || ret_options->completion)
        return CGM_OK;
    if (args.n_words) {
        snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "%s: unexpected argument", args.words[0]);
        return CGM_INVALID_ARGUMENT;
    }
    take_given(&args, ret_options);
    cgm_machine_command(argc, argv, ret_options->command, sizeof(ret_options->command));
    if (!(status = check_comparison(ret_options, &args, ret_detail)) &&
        !(status = resolve_algorithm(ret_options, given(&args, "op"), ret_detail)) &&
        !(status = resolve_buffer_shape(ret_options, ret_detail)) &&
        !(status = check_files(ret_options, ret_detail)) &&
        !(status = check_pictures(ret_options, ret_detail)) &&
        !(status = ret_options->lhs_file ? CGM_OK : check_sizes(ret_options, ret_detail)))
        status = check_rest(ret_options, ret_detail);
    return status;
}

static int probe(const char *option, const char *path, char *ret_detail)
{
    if (!path || !strcmp(path, "-") || cgm_new_file_probe(path) == CGM_OK)
        return CGM_OK;
    snprintf(ret_detail, CGM_BENCH_DETAIL_BYTES, "--%s %s: cannot write: %s", option, path,
             strerror(errno));
    return CGM_IO;
}

int cgm_bench_options_probe_outputs(const struct cgm_bench_options *options, char *ret_detail)
{
    const struct {
        const char *option, *path;
    } outputs[] = {
        {"output-file", options->output_file},
        {"timeline", options->timeline},
        {"csv", options->csv},
        {"plot", options->plot},
        {"save-out", options->save_out},
        {"save-aux", options->save_aux},
    };
    int status = CGM_OK;
    for (size_t i = 0; !status && i < sizeof(outputs) / sizeof(outputs[0]); i++)
        status = probe(outputs[i].option, outputs[i].path, ret_detail);
    return status;
}
