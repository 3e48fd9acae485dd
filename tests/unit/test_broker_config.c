#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/broker/config.h"
#include "proto/status.h"

static int load_bytes(const char *text, size_t bytes, struct cgm_config *ret_config,
                      char *ret_detail, size_t size)
{
    char path[] = "/tmp/cgm-config-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, bytes), bytes);
    close(fd);
    cgm_config_init(ret_config);
    int status = cgm_config_load(ret_config, path, ret_detail, size);
    unlink(path);
    return status;
}

static int load(const char *text, struct cgm_config *ret_config, char *ret_detail, size_t size)
{
    return load_bytes(text, strlen(text), ret_config, ret_detail, size);
}

static void test_defaults(void **state)
{
    struct cgm_config config;
    (void)state;
    cgm_config_init(&config);
    assert_int_equal(config.devices, 4);
    assert_int_equal(config.join_timeout, 600);
    assert_int_equal(config.ready_timeout, 600);
    assert_int_equal(config.job_timeout, 300);
    assert_int_equal(config.spin_us, 50);
    assert_int_equal(config.socket_mode, 0660);
    assert_int_equal(config.max_sessions, 1024);
    assert_int_equal(config.backend, CGM_CONFIG_AUTO);
    assert_string_equal(config.socket, "");
}

static void test_file(void **state)
{
    struct cgm_config config;
    char detail[512];
    (void)state;
    assert_int_equal(load("# comment\n\ndevices = 8 # eight\nsocket=/tmp/a#b\n  backend = cpu\n"
                          "log_level = debug\nsocket_mode = 0600\n",
                          &config, detail, sizeof(detail)),
                     CGM_OK);
    assert_int_equal(config.devices, 8);
    assert_string_equal(config.socket, "/tmp/a#b");
    assert_int_equal(config.backend, CGM_CONFIG_CPU);
    assert_int_equal(config.log_level, 3);
    assert_int_equal(config.socket_mode, 0600);
}

static void test_errors_name_file_line_key_and_limits(void **state)
{
    static const struct {
        const char *text, *line, *words[3];
    } rows[] = {
        {"devices = 4\ndevises = 4\n", ":2: ", {"devises", "there is no key", "devices"}},
        {"\n\ndevices = 65\n", ":3: ", {"devices", "65", "from 1 to 64"}},
        {"devices = 0x4\n", ":1: ", {"devices", "0x4", "number"}},
        {"devices = 4\rnonsense\rspin_us = 2\n", ":1: ", {"carriage return", "", ""}},
        {"\rdevices = 4\n", ":1: ", {"carriage return", "", ""}},
        {"socket = /tmp/a ;b\n", ":1: ", {"';'", "key = value", ""}},
        {"devices: 4\n", ":1: ", {"key = value", "", ""}},
        {"devices =\n", ":1: ", {"devices", "''", "number"}},
        {"devices = -1\n", ":1: ", {"devices", "-1", "from 1 to 64"}},
        {"join_timeout = 99999999999999999999\n", ":1: ", {"join_timeout", "from 1", "4000000"}},
        {"backend = gpu\n", ":1: ", {"backend", "gpu", "auto|cpu|cuda"}},
        {"backend = cp\n", ":1: ", {"backend", "'cp'", "auto|cpu|cuda"}},
        {"socket_mode = 0668\n", ":1: ", {"socket_mode", "0668", "octal"}},
        {"\n[daemon]\ndevices = 4\n", ":2: ", {"[daemon]", "section", ""}},
        {"devices = 4\n[daemon] # the last line", ":2: ", {"[daemon]", "section", ""}},
        {"[daemon\ndevices = 4\n", ":1: ", {"[daemon", "section", ""}},
        {"devices = 4\n\nspin_us = 1\ndevices = 4\n", ":4: ", {"devices", "line 1", "already"}},
        {"devices\n", ":1: ", {"key = value", "", ""}},
        {"devices\nspin_us = x\n", ":1: ", {"key = value", "", ""}},
        {"\xef\xbb\xbf[daemon]\n", ":1: ", {"[daemon]", "section", ""}},
        {"socket = /a\n  b\n", ":2: ", {"key = value", "", ""}},
    };
    struct cgm_config config;
    char detail[512];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(load(rows[i].text, &config, detail, sizeof(detail)), CGM_INVALID_ARGUMENT);
        assert_non_null(strstr(detail, rows[i].line));
        for (int w = 0; w < 3; w++)
            assert_non_null(strstr(detail, rows[i].words[w]));
    }
}

/* Without the end that a text has. */
static void overwrite(char *text, const char *begin)
{
    while (*begin)
        *text++ = *begin++;
}

static void test_long_lines(void **state)
{
    struct cgm_config config;
    char detail[512], text[1200];
    (void)state;
    memset(text, 'x', sizeof(text));
    overwrite(text, "# ");
    strcpy(text + 1000, "\ndevices = 5\n");
    assert_int_equal(load(text, &config, detail, sizeof(detail)), CGM_OK);
    assert_int_equal(config.devices, 5);
    overwrite(text, "socket = ");
    assert_int_equal(load(text, &config, detail, sizeof(detail)), CGM_INVALID_ARGUMENT);
    assert_non_null(strstr(detail, ":1: "));
    assert_non_null(strstr(detail, "longer"));
}

static void test_a_line_with_nul(void **state)
{
    static const char text[] = "devices = 5\nuser_share = 50\0 and more\n";
    struct cgm_config config;
    char detail[512];
    (void)state;
    assert_int_equal(load_bytes(text, sizeof(text) - 1, &config, detail, sizeof(detail)),
                     CGM_INVALID_ARGUMENT);
    assert_non_null(strstr(detail, ":2: "));
    assert_non_null(strstr(detail, "NUL"));
}

static void expect_unreadable(const char *path, const char *why)
{
    struct cgm_config config;
    char detail[512] = "";
    cgm_config_init(&config);
    assert_int_equal(cgm_config_load(&config, path, detail, sizeof(detail)), CGM_IO);
    assert_non_null(strstr(detail, path));
    assert_non_null(strstr(detail, why));
}

/* Each at once, whatever it is. */
static void test_what_is_no_file(void **state)
{
    struct cgm_config config;
    char detail[512], folder[] = "/tmp/cgm-config-XXXXXX", path[64];
    (void)state;
    cgm_config_init(&config);
    expect_unreadable("/nonexistent/f", "No such file");
    expect_unreadable("/tmp", "directory");
    expect_unreadable("/dev/zero", "longer than");
    assert_int_equal(cgm_config_load(&config, "/dev/null", detail, sizeof(detail)), CGM_OK);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/file", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_unreadable(path, "no file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mknod(path, S_IFSOCK | 0600, 0), 0);
    expect_unreadable(path, "");
    assert_int_equal(unlink(path), 0);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 1ll << 32), 0);
    close(fd);
    expect_unreadable(path, "longer than");
    unlink(path);
    rmdir(folder);
}

static void test_pairs(void **state)
{
    struct cgm_config config;
    char detail[512], value[400];
    (void)state;
    cgm_config_init(&config);
    assert_int_equal(cgm_config_set_pair(&config, "devices=3", detail, sizeof(detail)), CGM_OK);
    assert_int_equal(config.devices, 3);
    assert_int_equal(cgm_config_set_pair(&config, "devices", detail, sizeof(detail)),
                     CGM_INVALID_ARGUMENT);
    memset(value, 'x', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    assert_int_equal(cgm_config_set(&config, "socket", value, detail, sizeof(detail)),
                     CGM_INVALID_ARGUMENT);
    assert_non_null(strstr(detail, "107"));
}

/* Every line that the daemon prints is a comment or, without its mark, a line that it takes. */
static void test_printed_file_is_accepted(void **state)
{
    char *text = NULL, line[256], detail[512];
    size_t size;
    int keys = 0;
    struct cgm_config config, defaults;
    (void)state;
    FILE *out = open_memstream(&text, &size);
    cgm_config_print(out);
    fclose(out);
    cgm_config_init(&config);
    cgm_config_init(&defaults);
    FILE *in = fmemopen(text, size, "r");
    while (fgets(line, sizeof(line), in)) {
        char *equal = strstr(line, " =");
        assert_true(line[0] == '\n' || line[0] == '#');
        assert_true(strlen(line) < 102);
        if (line[0] == '\n' || line[1] == ' ' || !equal)
            continue;
        *equal = '\0';
        char *value = equal + 2 + strspn(equal + 2, " ");
        value[strcspn(value, "\n")] = '\0';
        assert_int_equal(cgm_config_set(&config, line + 1, value, detail, sizeof(detail)), CGM_OK);
        keys++;
    }
    fclose(in);
    free(text);
#define X(key, KIND, fallback, min, max, help) +1
    assert_int_equal(keys, CGM_CONFIG_KEYS(X));
#undef X
    assert_memory_equal(&config, &defaults, sizeof(config));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_errors_name_file_line_key_and_limits),
        cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_a_line_with_nul),
        cmocka_unit_test(test_what_is_no_file),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_printed_file_is_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
