/* What auto measured outlives daemons: read again, and only from a file that nobody spoilt. */
#include "tests/daemon/tuning_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/send_signal.h"

/* Time to measure everything, however busy the machine is: "no time for 1" is not kept. */
#define ENOUGH "tune_ms=120000"

struct kept {
    struct daemon daemon;
    char state[96], setting[120], file[128];
};

static void kept_init(struct kept *kept)
{
    daemon_init(&kept->daemon);
    snprintf(kept->state, sizeof(kept->state), "%s/state", kept->daemon.folder);
    snprintf(kept->setting, sizeof(kept->setting), "state_dir=%s", kept->state);
    snprintf(kept->file, sizeof(kept->file), "%s/timings", kept->state);
}

static void end_life(struct kept *kept)
{
    send_signal(kept->daemon.pid, SIGTERM);
    assert_int_equal(daemon_wait(&kept->daemon), 0);
}

/* One life of the daemon, with a plan of gemm_rs. */
static void live(struct kept *kept, const char *executor, struct commgemm_plan *ret_plan)
{
    daemon_start(&kept->daemon, executor, BACKEND, kept->setting, ENOUGH, NULL);
    commgemm_client *client = enter(&kept->daemon);
    if (make_plan(client, join(client, "all"), COMMGEMM_OP_GEMM_RS, SIDE, ret_plan))
        fail_msg("plan: %s", commgemm_last_error());
    run_job(client, ret_plan);
    commgemm_disconnect(client);
    end_life(kept);
}

static bool is_kept(const struct commgemm_plan *plan)
{
    return strstr(plan->reason, "; kept since ") != NULL;
}

/* Also how many lines of the log have it. */
static int count_in_log(const struct kept *kept, const char *text)
{
    char path[128], line[1024];
    int count = 0;
    snprintf(path, sizeof(path), "%s/log", kept->daemon.folder);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file))
        count += strstr(line, text) != NULL;
    if (file)
        fclose(file);
    return count;
}

static void test_survives_the_daemon(void **state)
{
    (void)state;
    struct kept kept;
    struct commgemm_plan first, second;
    struct stat info;
    kept_init(&kept);
    live(&kept, EXECUTOR, &first);
    assert_contains(first.reason, " measured ");
    assert_false(is_kept(&first));
    assert_int_equal(stat(kept.file, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);
    for (int i = 0; i < 2; i++) {
        live(&kept, EXECUTOR, &second);
        assert_true(is_kept(&second));
        assert_int_equal(second.algorithm, first.algorithm);
        assert_memory_equal(second.reason, first.reason, strlen(first.reason));
    }
    assert_int_equal(count_in_log(&kept, "ignored"), 0);
    daemon_stop(&kept.daemon);
}

static void cut(const char *path)
{
    assert_int_equal(truncate(path, 100), 0);
}

static void empty(const char *path)
{
    assert_int_equal(truncate(path, 0), 0);
}

static void flip(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    char byte;
    assert_int_equal(pread(fd, &byte, 1, 60), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, 60), 1);
    close(fd);
}

static void grow(const char *path)
{
    assert_int_equal(truncate(path, 1 << 30), 0);
}

static void open_to_all(const char *path)
{
    assert_int_equal(chmod(path, 0666), 0);
}

static void make_link(const char *path)
{
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/dev/zero", path), 0);
}

static void make_pipe(const char *path)
{
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
}

static void give_away(const char *path)
{
    if (geteuid() == 0)
        assert_int_equal(chown(path, 12345, 12345), 0);
    else
        open_to_all(path);
}

/* Ignored with a warning, and replaced by what is measured again. */
static void test_bad_files(void **state)
{
    static void (*const spoil[])(const char *path) = {cut,       empty,       flip,      grow,
                                                      make_link, open_to_all, make_pipe, give_away};
    (void)state;
    struct kept kept;
    struct commgemm_plan plan;
    kept_init(&kept);
    live(&kept, EXECUTOR, &plan);
    for (int i = 0; i < (int)(sizeof(spoil) / sizeof(spoil[0])); i++) {
        spoil[i](kept.file);
        live(&kept, EXECUTOR, &plan);
        assert_false(is_kept(&plan));
        assert_int_equal(count_in_log(&kept, "it is ignored"), i + 1);
        live(&kept, EXECUTOR, &plan);
        assert_true(is_kept(&plan));
    }
    daemon_stop(&kept.daemon);
}

static void make_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}

/* Where nothing can be kept, or others may write, the daemon says so and works without. */
static void test_bad_folders(void **state)
{
    (void)state;
    struct kept kept;
    struct commgemm_plan plan;
    kept_init(&kept);
    make_file(kept.state);
    live(&kept, EXECUTOR, &plan);
    assert_false(is_kept(&plan));
    assert_int_equal(unlink(kept.state), 0);
    assert_int_equal(mkdir(kept.state, 0700), 0);
    assert_int_equal(chmod(kept.state, 0777), 0);
    live(&kept, EXECUTOR, &plan);
    live(&kept, EXECUTOR, &plan);
    assert_false(is_kept(&plan));
    strcpy(kept.setting, "state_dir=/proc/1/no/such");
    live(&kept, EXECUTOR, &plan);
    assert_contains(plan.reason, " measured ");
    assert_int_equal(count_in_log(&kept, "is forgotten with the daemon"), 4);
    daemon_stop(&kept.daemon);
}

#define PACED "executor=" CGM_BIN_DIR "/paced_executor"

static void plan_splits(commgemm_client *client, uint64_t comm, uint32_t num_splits,
                        struct commgemm_plan *ret_plan)
{
    if (make_split_plan(client, comm, COMMGEMM_OP_GEMM_RS, SIDE, num_splits, ret_plan))
        fail_msg("plan: %s", commgemm_last_error());
}

static unsigned splits_in(const char *reason)
{
    const char *at = strstr(reason, "auto: split_pipelined_rs num_splits=");
    return at ? (unsigned)strtoul(at + strlen("auto: split_pipelined_rs num_splits="), NULL, 10)
              : 0;
}

/* The number of pieces that is fastest here is found, used and remembered. */
static void test_varies(void **state)
{
    (void)state;
    struct kept kept;
    struct commgemm_plan plan, again;
    char others[400];
    struct client raw;
    kept_init(&kept);
    daemon_start(&kept.daemon, PACED, BACKEND, kept.setting, ENOUGH, NULL);
    commgemm_client *client = enter(&kept.daemon);
    uint64_t comm = join(client, "all");
    plan_splits(client, comm, 0, &plan);
    print_message("%s\n", plan.reason);
    unsigned splits = splits_in(plan.reason);
    assert_true(splits == 8 || splits == 16);
    assert_int_equal(run_job(client, &plan), RANKS * splits);
    client_open(&raw, &kept.daemon);
    query_value(&raw, CGM_QUERY_TUNE, NULL, NULL, "others", others, sizeof(others));
    client_close(&raw);
    assert_contains(others, "split_pipelined_rs rs_overlap_first_gemm=1 ");
    /* What is asked for is not varied, also where it is what the default would be. */
    plan_splits(client, comm, RANKS, &plan);
    print_message("%s\n", plan.reason);
    assert_null(strstr(plan.reason, "num_splits"));
    commgemm_disconnect(client);
    end_life(&kept);
    live(&kept, PACED, &again);
    assert_true(is_kept(&again));
    assert_int_equal(splits_in(again.reason), splits);
    daemon_stop(&kept.daemon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_survives_the_daemon),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_bad_folders),
        cmocka_unit_test(test_varies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
