/* commgemm-bench on .npy files: what comes out of the daemon against a product computed here, files
 * that do not fit, and files that are none. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/common/npy.h"
#include "kernels/number_format.h"
#include "tests/seed.h"

#define BENCH CGM_BIN_DIR "/commgemm-bench --private=cpu "

static struct cgm_random rng;
static char folder[] = "/tmp/test_bench_npy.XXXXXX";
static char output[4096];

/* Runs the bench in the folder; its exit status, its words in `output`. */
static int bench(const char *format, ...)
{
    char arguments[1024], line[2048];
    va_list list;
    va_start(list, format);
    vsnprintf(arguments, sizeof(arguments), format, list);
    va_end(list);
    snprintf(line, sizeof(line), "cd %s && TMPDIR=%s " BENCH "%s 2>&1", folder, folder, arguments);
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    output[fread(output, 1, sizeof(output) - 1, pipe)] = '\0';
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void path_of(const char *name, char *ret_path, size_t size)
{
    snprintf(ret_path, size, "%s/%s", folder, name);
}

/* A random matrix in a file; the caller frees the values. */
static float *make(const char *name, unsigned dimensions, uint64_t rows, uint64_t cols)
{
    char path[128], detail[CGM_NPY_DETAIL_BYTES];
    float *values = malloc(rows * cols * sizeof(*values));
    cgm_random_fill(&rng, CGM_FILL_NORMAL, values, rows * cols);
    path_of(name, path, sizeof(path));
    assert_int_equal(cgm_npy_save(path, dimensions, rows, cols, values, detail), 0);
    return values;
}

static float *load(const char *name, uint64_t rows, uint64_t cols)
{
    char path[128], detail[CGM_NPY_DETAIL_BYTES];
    struct cgm_npy npy;
    path_of(name, path, sizeof(path));
    if (cgm_npy_open(path, &npy, detail))
        fail_msg("%s; %s", detail, output);
    assert_int_equal(npy.rows, rows);
    assert_int_equal(npy.cols, cols);
    float *values = malloc(rows * cols * sizeof(*values));
    assert_int_equal(cgm_npy_read(&npy, values, detail), 0);
    cgm_npy_close(&npy);
    return values;
}

struct shape {
    uint64_t m, n, k;
    bool transa, transb;
    int format;
};

static void check_product(const struct shape *s, const float *a, const float *b, const float *bias,
                          const float *out, double unit)
{
    for (uint64_t row = 0; row < s->m; row++)
        for (uint64_t col = 0; col < s->n; col++) {
            double sum = bias ? (double)bias[col] : 0, size = fabs(sum);
            for (uint64_t i = 0; i < s->k; i++) {
                double term = (double)a[s->transa ? i * s->m + row : row * s->k + i] *
                              (double)b[s->transb ? col * s->k + i : i * s->n + col];
                sum += term;
                size += fabs(term);
            }
            double found = (double)out[row * s->n + col];
            if (!(fabs(found - sum) <= size * (unit * 4 + 1e-6)))
                fail_msg("out[%d, %d] is %g, expected %g", (int)row, (int)col, found, sum);
        }
}

static void round_to(int format, float *values, uint64_t count)
{
    cgm_format_round(format, values, count);
}

static void test_products(void **state)
{
    (void)state;
    static const char *const ops[] = {"ag_gemm", "gemm_rs", "gemm"};
    static const char *const types[] = {"fp32", "fp16", "bf16"};
    for (unsigned trial = 0; trial < 9; trial++) {
        uint64_t world = 1 + cgm_random_below(&rng, 4);
        struct shape s = {
            world * (1 + cgm_random_below(&rng, 20)), world * (1 + cgm_random_below(&rng, 20)),
            world * (1 + cgm_random_below(&rng, 20)), cgm_random_below(&rng, 2) != 0,
            cgm_random_below(&rng, 2) != 0,           (int)(trial % 3)};
        const char *op = ops[trial / 3];
        float *a = make("a.npy", 2, s.transa ? s.k : s.m, s.transa ? s.m : s.k);
        float *b = make("b.npy", 2, s.transb ? s.n : s.k, s.transb ? s.k : s.n);
        float *bias = make("bias.npy", 1, 1, s.n);
        bool aux = !strcmp(op, "ag_gemm");
        int status = bench("--op %s --world %d --datatype %s %s %s --lhs a.npy --rhs b.npy "
                           "--bias-file bias.npy --save-out d.npy %s %s",
                           op, (int)world, types[s.format], s.transa ? "--transa" : "",
                           s.transb ? "--transb" : "", aux ? "--save-aux x.npy" : "",
                           trial % 2 ? "--validate" : "");
        if (status)
            fail_msg("exit status %d: %s", status, output);
        float *out = load("d.npy", s.m, s.n);
        round_to(s.format, a, s.m * s.k);
        round_to(s.format, b, s.k * s.n);
        round_to(s.format, bias, s.n);
        check_product(&s, a, b, bias, out, cgm_format_info(s.format)->unit);
        if (aux) {
            float *gathered = load("x.npy", s.transa ? s.k : s.m, s.transa ? s.m : s.k);
            assert_memory_equal(gathered, a, s.m * s.k * sizeof(*a));
            free(gathered);
        }
        free(out);
        free(bias);
        free(b);
        free(a);
    }
}

/* A file of this header and these values, in C order. */
static void write_tensor(const char *name, const char *shape, const float *values, uint64_t count)
{
    char path[128], header[119];
    path_of(name, path, sizeof(path));
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    memset(header, ' ', sizeof(header));
    int length = snprintf(header, sizeof(header),
                          "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }", shape);
    header[length] = ' ';
    fwrite("\x93NUMPY\x01\0\x76\0", 1, 10, file);
    fwrite(header, 1, 118, file);
    fwrite(values, sizeof(*values), count, file);
    assert_int_equal(fclose(file), 0);
}

/* Batch and sequence make the rows; hidden the depth; heads and their size the columns. */
static void test_many_dimensions(void **state)
{
    (void)state;
    struct shape s = {2 * 6, 4 * 3, 5, false, false, CGM_FORMAT_FP32};
    float *a = make("a.npy", 2, s.m, s.k), *b = make("b.npy", 2, s.k, s.n);
    write_tensor("a4.npy", "(2, 3, 2, 5)", a, s.m * s.k);
    write_tensor("b3.npy", "(5, 4, 3)", b, s.k * s.n);
    int status = bench("--op ag_gemm --world 2 --lhs a4.npy --rhs b3.npy --rhs-axis 1 "
                       "--save-out d.npy --validate --gelu");
    if (status)
        fail_msg("exit status %d: %s", status, output);
    status = bench("--op ag_gemm --world 2 --lhs a4.npy --lhs-axis 3 --rhs b3.npy --rhs-axis 1 "
                   "--save-out d.npy");
    if (status)
        fail_msg("exit status %d: %s", status, output);
    float *out = load("d.npy", s.m, s.n);
    check_product(&s, a, b, NULL, out, cgm_format_info(s.format)->unit);
    free(out);
    free(b);
    free(a);
}

static void test_collectives(void **state)
{
    (void)state;
    float *parts = make("parts.npy", 2, 3 * 6, 5);
    assert_int_equal(bench("--op rs --world 3 --lhs parts.npy --save-out sum.npy"), 0);
    float *sum = load("sum.npy", 6, 5);
    for (int i = 0; i < 30; i++)
        assert_true(fabsf(sum[i] - (parts[i] + parts[30 + i] + parts[60 + i])) < 1e-5f);
    assert_int_equal(bench("--op ag --world 3 --lhs parts.npy --save-out all.npy"), 0);
    float *all = load("all.npy", 18, 5);
    assert_memory_equal(all, parts, 90 * sizeof(*all));
    free(all);
    free(sum);
    free(parts);
}

static void refuse(const char *words, const char *arguments)
{
    int status = bench("%s", arguments);
    if (status == 0 || status > 5 || !strstr(output, words))
        fail_msg("%s: exit status %d, \"%s\" lacks \"%s\"", arguments, status, output, words);
}

static void test_refusals(void **state)
{
    (void)state;
    free(make("a.npy", 2, 8, 6));
    free(make("b.npy", 2, 6, 4));
    free(make("c.npy", 2, 7, 4));
    free(make("bias.npy", 1, 1, 5));
    char path[128];
    path_of("text.npy", path, sizeof(path));
    FILE *text = fopen(path, "w");
    assert_non_null(text);
    fputs("no numbers at all", text);
    fclose(text);
    refuse("c.npy", "--op ag_gemm --world 2 --lhs a.npy --rhs c.npy --save-out d.npy");
    refuse("bias.npy", "--op ag_gemm --world 2 --lhs a.npy --rhs b.npy --bias-file bias.npy");
    refuse("text.npy", "--op ag_gemm --world 2 --lhs text.npy --rhs b.npy");
    refuse("missing.npy", "--op ag_gemm --world 2 --lhs missing.npy --rhs b.npy");
    refuse("rhs", "--op ag_gemm --world 2 --lhs a.npy");
    refuse("rhs", "--op ag --world 2 --lhs a.npy --rhs b.npy");
    refuse("-k 7", "--op ag_gemm --world 2 -k 7 --lhs a.npy --rhs b.npy");
    refuse("no/d.npy", "--op ag_gemm --world 2 --lhs a.npy --rhs b.npy --save-out no/d.npy");
    refuse("8", "--op ag_gemm --world 3 --lhs a.npy --rhs b.npy");
    refuse("/dev/full", "--op ag_gemm --world 2 --lhs a.npy --rhs b.npy --output-file /dev/full");
    refuse("an axis boundary is from 1", "--op gemm --lhs a.npy --rhs b.npy --lhs-axis 2");
    refuse("needs --rhs", "--op ag --lhs a.npy --rhs-axis 1");
    path_of("d.npy", path, sizeof(path));
    assert_int_equal(access(path, F_OK), 0); /* of the runs before; a refusal leaves it alone */
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char line[128];
    snprintf(line, sizeof(line), "rm -rf %s", folder);
    return system(line);
}

int main(void)
{
    test_seed(&rng);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_many_dimensions),
        cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
