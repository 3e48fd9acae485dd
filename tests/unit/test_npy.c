#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/common/npy.h"
#include "proto/status.h"

static char folder[] = "/tmp/test_npy.XXXXXX";
static char path[64];
static char detail[CGM_NPY_DETAIL_BYTES];

/* Writes a file of magic, version, header length (or `claimed`, if not 0), header and data. */
static void write_file(unsigned version, const char *header, size_t claimed, const void *data,
                       size_t data_bytes)
{
    size_t length = claimed != 0 ? claimed : strlen(header);
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    fwrite("\x93NUMPY", 1, 6, file);
    fputc((int)version, file);
    fputc(0, file);
    for (unsigned i = 0; i < (version == 1 ? 2u : 4u); i++)
        fputc((int)(length >> (8 * i) & 0xff), file);
    fwrite(header, 1, strlen(header), file);
    fwrite(data, 1, data_bytes, file);
    assert_int_equal(fclose(file), 0);
}

static void expect_refused(int expected_status, const char *words)
{
    struct cgm_npy npy = {.fd = -77};

    detail[0] = '\0';
    assert_int_equal(cgm_npy_open(path, &npy, detail), expected_status);
    assert_int_equal(npy.fd, -77); /* outputs are written on success alone */
    if (strstr(detail, path) == NULL || strstr(detail, words) == NULL)
        fail_msg("\"%s\" lacks \"%s\" or the path", detail, words);
}

static float *random_values(size_t count)
{
    float *values = malloc(count * sizeof(*values) + 1);

    assert_non_null(values);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(drand48() - 0.5);
    return values;
}

static void test_what_is_saved_is_read(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        unsigned dimensions = 1 + (unsigned)(lrand48() % 2);
        uint64_t rows = dimensions == 1 ? 1 : (uint64_t)(lrand48() % 50);
        uint64_t cols = (uint64_t)(lrand48() % 500);
        float *values = random_values(rows * cols), *read = random_values(rows * cols);
        struct cgm_npy npy;

        assert_int_equal(cgm_npy_save(path, dimensions, rows, cols, values, detail), CGM_OK);
        assert_int_equal(cgm_npy_open(path, &npy, detail), CGM_OK);
        assert_int_equal(npy.dimensions, dimensions);
        assert_int_equal(npy.rows, rows);
        assert_int_equal(npy.cols, cols);
        assert_int_equal(npy.bytes, rows * cols * sizeof(float));
        assert_int_equal(npy.data_offset % 64, 0);
        assert_int_equal(cgm_npy_read(&npy, read, detail), CGM_OK);
        assert_memory_equal(read, values, rows * cols * sizeof(float));
        cgm_npy_close(&npy);
        free(values);
        free(read);
    }
}

static void test_blocks_agree_in_both_orders(void **state)
{
    enum { ROWS = 37, COLS = 23 };
    float *values = random_values(ROWS * COLS), turned[ROWS * COLS], block[ROWS * COLS];
    const char *orders[] = {"False", "True"};

    (void)state;
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++)
            turned[c * ROWS + r] = values[r * COLS + c];
    for (int order = 0; order < 2; order++) {
        char header[128];
        struct cgm_npy npy;
        snprintf(header, sizeof(header), "{\"shape\" :(%d,%d) , 'fortran_order':%s,'descr': '<f4'}",
                 ROWS, COLS, orders[order]);
        write_file(2 + (unsigned)order, header, 0, order ? turned : values, sizeof(turned));
        assert_int_equal(cgm_npy_open(path, &npy, detail), CGM_OK);
        for (int round = 0; round < 20; round++) {
            uint64_t row = (uint64_t)lrand48() % ROWS, col = (uint64_t)lrand48() % COLS;
            uint64_t rows = 1 + (uint64_t)lrand48() % (ROWS - row);
            uint64_t cols = round % 3 == 0 ? 0 : 1 + (uint64_t)lrand48() % (COLS - col);
            if (round % 5 == 4) {
                col = 0;
                cols = COLS;
            }
            assert_int_equal(cgm_npy_read_block(&npy, row, rows, col, cols, block, COLS, detail),
                             CGM_OK);
            for (uint64_t r = 0; r < rows; r++)
                assert_memory_equal(block + r * COLS, values + (row + r) * COLS + col,
                                    cols * sizeof(float));
        }
        cgm_npy_close(&npy);
    }
    free(values);
}

static void test_blocks_are_written(void **state)
{
    enum { ROWS = 8, COLS = 12, HALF = 6 };
    float *values = random_values(ROWS * COLS), read[ROWS * COLS];
    struct cgm_npy npy;

    (void)state;
    assert_int_equal(cgm_npy_create(path, 2, ROWS, COLS, &npy, detail), CGM_OK);
    for (uint64_t part = 0; part < 2; part++)
        assert_int_equal(cgm_npy_write_block(&npy, 0, ROWS, part * HALF, HALF, values + part * HALF,
                                             COLS, detail),
                         CGM_OK);
    assert_int_equal(cgm_npy_finish(&npy, detail), CGM_OK);
    assert_int_equal(cgm_npy_open(path, &npy, detail), CGM_OK);
    assert_int_equal(cgm_npy_read(&npy, read, detail), CGM_OK);
    assert_memory_equal(read, values, sizeof(read));
    cgm_npy_close(&npy);
    free(values);
}

/* As a matrix at every axis boundary; the elements keep their order. */
static void test_many_dimensions(void **state)
{
    static const uint64_t shapes[][2] = {{2, 60}, {6, 20}, {24, 5}};
    float *values = random_values(120), read[120];
    struct cgm_npy npy;

    (void)state;
    write_file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4, 5)}", 0, values,
               120 * sizeof(*values));
    assert_int_equal(cgm_npy_open(path, &npy, detail), CGM_OK);
    assert_int_equal(npy.dimensions, 4);
    assert_true(npy.rows == 24 && npy.cols == 5);
    for (unsigned axis = 1; axis < 4; axis++) {
        assert_int_equal(cgm_npy_collapse(&npy, axis, detail), CGM_OK);
        assert_true(npy.rows == shapes[axis - 1][0] && npy.cols == shapes[axis - 1][1]);
        assert_int_equal(cgm_npy_read(&npy, read, detail), CGM_OK);
        assert_memory_equal(read, values, sizeof(read));
    }
    assert_int_equal(cgm_npy_collapse(&npy, 0, detail), CGM_INVALID_ARGUMENT);
    assert_int_equal(cgm_npy_collapse(&npy, 4, detail), CGM_INVALID_ARGUMENT);
    assert_non_null(strstr(detail, "it has 4 dimensions"));
    cgm_npy_close(&npy);
    free(values);
}

static void test_headers_that_are_refused(void **state)
{
    static const struct {
        const char *header, *words;
    } cases[] = {
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }", "'<f8'"},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", "'>f4'"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "'|O'"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "no simple type"},
        {"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (1,)}", "fortran_order"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': ()}", "0 dimensions"},
        {"{'descr': '<f4', 'fortran_order': False, "
         "'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)}",
         "17 dimensions; expected 1 to 16"},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (1, 1, 1)}", "in C order"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 0, 4294967296)}",
         "overflows"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1)}", "'shape'"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", "'shape'"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1 1)}", "comma"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,", "'shape'"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': 1}", "'shape'"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,)}", "2^64"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
         "overflows"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 1)}",
         "overflows"},
        {"{'descr': '<f4', 'fortran_order': False}", "lacks 'shape'"},
        {"{'descr': '<f4', 'descr': '<f4'}", "'descr' twice"},
        {"{'descr': '<f4', 'order': 1}", "'order'"},
        {"{'descr': '<f4' 'fortran_order': False}", "comma"},
        {"{'descr': '<f4", "no simple type"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", "goes on"},
        {"[]", "no dictionary"},
        {" ", "no dictionary"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_file(1, cases[i].header, 0, "\0\0\0\0", 4);
        expect_refused(CGM_INVALID_ARGUMENT, cases[i].words);
    }
}

static const char one[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n";

static void test_files_that_are_refused(void **state)
{
    (void)state;
    write_file(1, one, 0, "abc", 3);
    expect_refused(CGM_INVALID_ARGUMENT, "truncated");
    write_file(1, one, 0, "abcde", 5);
    expect_refused(CGM_INVALID_ARGUMENT, "trailing bytes");
    write_file(1, one, 500, "abcd", 4);
    expect_refused(CGM_INVALID_ARGUMENT, "truncated: its header");
    write_file(4, one, 0, "abcd", 4);
    expect_refused(CGM_INVALID_ARGUMENT, "version 4.0");
    write_file(0, one, 0, "abcd", 4);
    expect_refused(CGM_INVALID_ARGUMENT, "version 0.0");
    assert_int_equal(truncate(path, 9), 0);
    expect_refused(CGM_INVALID_ARGUMENT, "ends inside its header");
    assert_int_equal(truncate(path, 3), 0);
    expect_refused(CGM_INVALID_ARGUMENT, "no .npy file");
    assert_int_equal(truncate(path, 0), 0);
    expect_refused(CGM_INVALID_ARGUMENT, "no .npy file");
    assert_int_equal(unlink(path), 0);
    expect_refused(CGM_IO, "No such file");
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_refused(CGM_INVALID_ARGUMENT, "not a regular file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    expect_refused(CGM_INVALID_ARGUMENT, "not a regular file");
    assert_int_equal(rmdir(path), 0);
}

static void test_a_file_that_shrinks_is_an_error(void **state)
{
    float values[64] = {0};
    struct cgm_npy npy;

    (void)state;
    assert_int_equal(cgm_npy_save(path, 1, 1, 64, values, detail), CGM_OK);
    assert_int_equal(cgm_npy_open(path, &npy, detail), CGM_OK);
    assert_int_equal(truncate(path, 200), 0);
    assert_int_equal(cgm_npy_read(&npy, values, detail), CGM_INVALID_ARGUMENT);
    assert_non_null(strstr(detail, "shorter"));
    cgm_npy_close(&npy);
}

/* Cut at every length and flipped at every byte of the header: never a crash, and success only for
 * what still is the same file. */
static void test_damage_is_survived(void **state)
{
    float values[6] = {1, 2, 3, 4, 5, 6};
    unsigned char bytes[256];
    struct cgm_npy npy;

    (void)state;
    assert_int_equal(cgm_npy_save(path, 2, 2, 3, values, detail), CGM_OK);
    int fd = open(path, O_RDWR);
    ssize_t size = pread(fd, bytes, sizeof(bytes), 0);
    assert_true(size > 64 && size < (ssize_t)sizeof(bytes));
    for (ssize_t i = 0; i < size - (ssize_t)sizeof(values); i++) {
        unsigned char wrong = bytes[i] ^ (unsigned char)(1 + lrand48() % 255);
        assert_int_equal(pwrite(fd, &wrong, 1, i), 1);
        if (cgm_npy_open(path, &npy, detail) == CGM_OK) {
            assert_int_equal(npy.rows * npy.cols, 6);
            assert_int_equal(cgm_npy_read(&npy, values, detail), CGM_OK);
            cgm_npy_close(&npy);
        }
        assert_int_equal(pwrite(fd, &bytes[i], 1, i), 1);
    }
    while (--size >= 0) {
        assert_int_equal(ftruncate(fd, size), 0);
        expect_refused(CGM_INVALID_ARGUMENT, "");
    }
    close(fd);
}

static void test_a_failed_write_names_the_path(void **state)
{
    static const float values[2] = {1, 2};
    char missing[96];

    (void)state;
    assert_int_equal(cgm_npy_save("/dev/full", 1, 1, 2, values, detail), CGM_IO);
    assert_non_null(strstr(detail, "/dev/full"));
    assert_int_equal(access("/dev/full", F_OK), 0);
    snprintf(missing, sizeof(missing), "%s/none/x.npy", folder);
    assert_int_equal(cgm_npy_save(missing, 1, 1, 2, values, detail), CGM_IO);
    assert_non_null(strstr(detail, missing));
}

/* Some file systems take any size: so it is limited here. */
static void test_a_file_that_is_too_large_leaves_nothing(void **state)
{
    struct rlimit few = {.rlim_cur = 1 << 20}, usual;
    struct cgm_npy npy;

    (void)state;
    unlink(path);
    assert_int_equal(cgm_npy_create(path, 2, UINT64_MAX, 2, &npy, detail), CGM_INVALID_ARGUMENT);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &usual), 0);
    few.rlim_max = usual.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    int status = cgm_npy_create(path, 2, 1ull << 31, 1ull << 29, &npy, detail);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(status, CGM_IO);
    assert_int_not_equal(access(path, F_OK), 0);
}

static unsigned count_files(void)
{
    unsigned count = 0;
    DIR *entries = opendir(folder);
    const struct dirent *entry;

    assert_non_null(entries);
    while ((entry = readdir(entries)) != NULL)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(entries);
    return count;
}

/* Until another one is complete. Behind a link nothing can be kept: what would look whole is not
 * left. */
static void test_what_was_there_stays(void **state)
{
    static const float before[2] = {1, 2}, after[2] = {3, 4};
    float values[2];
    char link[96];
    struct cgm_npy npy;
    struct stat info;

    (void)state;
    assert_int_equal(cgm_npy_save(path, 1, 1, 2, before, detail), CGM_OK);
    unsigned files = count_files();
    for (int finishes = 0; finishes < 2; finishes++) {
        assert_int_equal(cgm_npy_create(path, 1, 1, 2, &npy, detail), CGM_OK);
        assert_int_equal(cgm_npy_write_block(&npy, 0, 1, 0, 2, after, 0, detail), CGM_OK);
        if (finishes)
            assert_int_equal(cgm_npy_finish(&npy, detail), CGM_OK);
        else
            cgm_npy_discard(&npy);
        assert_int_equal(count_files(), files);
        assert_int_equal(cgm_npy_open(path, &npy, detail), CGM_OK);
        assert_int_equal(cgm_npy_read(&npy, values, detail), CGM_OK);
        cgm_npy_close(&npy);
        assert_memory_equal(values, finishes ? after : before, sizeof(values));
    }
    snprintf(link, sizeof(link), "%s/link.npy", folder);
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(cgm_npy_create(link, 1, 1, 2, &npy, detail), CGM_OK);
    cgm_npy_discard(&npy);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, 0);
    assert_int_equal(cgm_npy_save(link, 1, 1, 2, after, detail), CGM_OK);
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    unlink(link);
    unlink(path);
}

static int set_up(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof(path), "%s/x.npy", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_saved_is_read),
        cmocka_unit_test(test_blocks_agree_in_both_orders),
        cmocka_unit_test(test_blocks_are_written),
        cmocka_unit_test(test_many_dimensions),
        cmocka_unit_test(test_headers_that_are_refused),
        cmocka_unit_test(test_files_that_are_refused),
        cmocka_unit_test(test_a_file_that_shrinks_is_an_error),
        cmocka_unit_test(test_damage_is_survived),
        cmocka_unit_test(test_a_failed_write_names_the_path),
        cmocka_unit_test(test_a_file_that_is_too_large_leaves_nothing),
        cmocka_unit_test(test_what_was_there_stays),
    };
    long seed = (long)time(NULL) ^ (long)getpid();

    printf("seed %ld\n", seed);
    srand48(seed);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
