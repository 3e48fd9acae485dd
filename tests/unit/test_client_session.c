#include "tests/unit/client_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "tests/send_signal.h"

#ifdef __SANITIZE_THREAD__
#define SANITIZED_FOR_THREADS 1
#else
#define SANITIZED_FOR_THREADS 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static int connect_to(const char *path, commgemm_client **ret_client)
{
    struct commgemm_connect_options options;
    commgemm_connect_options_init(&options);
    options.socket = path;
    return commgemm_connect(&options, ret_client);
}

static void test_info_is_the_daemons(void **state)
{
    struct fixture f;
    struct commgemm_info info;
    char name[64];
    (void)state;
    fixture_open(&f, NULL, 4, 0, 0);
    assert_ok(commgemm_get_info(f.client, &info));
    assert_int_equal(info.devices, FAKE_DEVICES);
    assert_int_equal(info.protocol, 1);
    assert_int_equal(info.executor_life, 1);
    assert_string_equal(info.release, "9.9.9");
    assert_string_equal(info.backend, "cpu");
    fake_client_name(f.fake, name, sizeof(name));
    assert_string_equal(name, "test_client_session");
    fixture_close(&f);
}

static void test_no_daemon(void **state)
{
    char folder[] = "/tmp/test-client-XXXXXX", path[64], detail[128];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    commgemm_client *client;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/sock", folder);
    snprintf(detail, sizeof(detail), "cannot connect to %s", path);
    assert_refused(connect_to(path, &client), COMMGEMM_NOT_RUNNING, detail);
    /* A stale socket file: bound once, nobody listens. */
    int stale = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    assert_int_equal(bind(stale, (struct sockaddr *)&address, sizeof(address)), 0);
    close(stale);
    assert_refused(connect_to(path, &client), COMMGEMM_NOT_RUNNING, detail);
    unlink(path);
    rmdir(folder);
}

static void test_the_environment_names_the_socket(void **state)
{
    struct fake_broker *fake = fake_start(NULL);
    commgemm_client *client;
    (void)state;
    setenv("COMMGEMM_SOCKET", fake_socket(fake), 1);
    assert_ok(commgemm_connect(NULL, &client));
    commgemm_disconnect(client);
    unsetenv("COMMGEMM_SOCKET");
    fake_stop(fake);
}

static void test_bad_options_are_named(void **state)
{
    struct commgemm_connect_options options;
    commgemm_client *client = NULL;
    char long_path[200];
    (void)state;
    commgemm_connect_options_init(&options);
    assert_refused(commgemm_connect(&options, NULL), COMMGEMM_INVALID_ARGUMENT, "ret_client");
    options.ring_entries = 100;
    assert_refused(commgemm_connect(&options, &client), COMMGEMM_INVALID_ARGUMENT,
                   "ring_entries is 100; it must be a power of two, 2 to 4096");
    options.ring_entries = 4;
    options.no_ring = 2;
    assert_refused(commgemm_connect(&options, &client), COMMGEMM_INVALID_ARGUMENT, "no_ring is 2");
    options.no_ring = 1;
    options.ring_entries = 512;
    assert_refused(commgemm_connect(&options, &client), COMMGEMM_INVALID_ARGUMENT,
                   "ring_entries is 512; with no_ring it must be at most 256");
    options.no_ring = 0;
    options.name = "two words";
    assert_refused(commgemm_connect(&options, &client), COMMGEMM_INVALID_ARGUMENT, "two words");
    options.name = NULL;
    memset(long_path, 'x', sizeof(long_path));
    long_path[sizeof(long_path) - 1] = '\0';
    options.socket = long_path;
    assert_refused(commgemm_connect(&options, &client), COMMGEMM_INVALID_ARGUMENT, "socket");
    assert_null(client);
}

static void test_struct_size(void **state)
{
    struct fake_broker *fake = fake_start(NULL);
    struct commgemm_connect_options options;
    commgemm_client *client;
    (void)state;
    commgemm_connect_options_init(&options);
    options.struct_size = sizeof(options) + 8;
    assert_refused(commgemm_connect(&options, &client), COMMGEMM_INVALID_ARGUMENT, "struct_size");
    options.struct_size = 0;
    assert_refused(commgemm_connect(&options, &client), COMMGEMM_INVALID_ARGUMENT,
                   "commgemm_connect_options_init");
    /* An older program knew the socket alone; what lies behind is not read. */
    options.socket = fake_socket(fake);
    options.ring_entries = 12345;
    options.struct_size = offsetof(struct commgemm_connect_options, name);
    assert_ok(commgemm_connect(&options, &client));
    commgemm_disconnect(client);
    fake_stop(fake);
}

/* A program of an older header has less room, one of a newer header more than the library knows. */
static void test_structures_of_other_headers(void **state)
{
    struct {
        struct commgemm_job job;
        unsigned char behind[32];
    } space;
    const size_t older = offsetof(struct commgemm_job, deadline_ms);
    const unsigned char *bytes = (const unsigned char *)&space;
    (void)state;
    memset(&space, 0xaa, sizeof(space));
    commgemm_job_init_sized(&space.job, older);
    assert_int_equal(space.job.struct_size, older);
    assert_int_equal(space.job.kind, COMMGEMM_JOB_RUN);
    assert_int_equal(space.job.chunk, COMMGEMM_WHOLE_BUFFER);
    for (size_t i = older; i < sizeof(space); i++)
        assert_int_equal(bytes[i], 0xaa);
    memset(&space, 0xaa, sizeof(space));
    commgemm_job_init_sized(&space.job, sizeof(space));
    assert_int_equal(space.job.struct_size, sizeof(space));
    for (size_t i = sizeof(space.job); i < sizeof(space); i++)
        assert_int_equal(bytes[i], 0);
}

static void test_other_version_is_refused(void **state)
{
    struct fake_broker *fake = fake_start(&(struct fake_options){.version = 7});
    commgemm_client *client;
    (void)state;
    assert_refused(connect_to(fake_socket(fake), &client), COMMGEMM_VERSION, "protocol 7");
    fake_stop(fake);
}

static void test_null_clients(void **state)
{
    struct commgemm_info info;
    uint64_t number;
    (void)state;
    assert_refused(commgemm_get_info(NULL, &info), COMMGEMM_INVALID_ARGUMENT, "client is NULL");
    assert_refused(commgemm_comm_create(NULL, "a", 1, 0, &number), COMMGEMM_INVALID_ARGUMENT,
                   "client is NULL");
    assert_refused(commgemm_wait(NULL, 1, 0, NULL), COMMGEMM_INVALID_ARGUMENT, "client is NULL");
    commgemm_disconnect(NULL);
    commgemm_completion_fini(NULL);
}

static void *fail_elsewhere(void *argument)
{
    (void)argument;
    commgemm_wait(NULL, 1, 0, NULL);
    return strstr(commgemm_last_error(), "client") ? argument : NULL;
}

static void test_last_error_is_the_threads_own(void **state)
{
    pthread_t thread;
    void *result;
    int token;
    (void)state;
    assert_refused(commgemm_connect(NULL, NULL), COMMGEMM_INVALID_ARGUMENT, "ret_client");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, &token), 0);
    pthread_join(thread, &result);
    assert_ptr_equal(result, &token);
    assert_non_null(strstr(commgemm_last_error(), "ret_client"));
}

/* In the child every call is refused, and the socket is not kept open. */
static int child_of(const struct fixture *f)
{
    struct commgemm_info info;
    uint64_t ticket;
    struct commgemm_job job;
    commgemm_client *own;
    commgemm_job_init(&job);
    job.kind = COMMGEMM_JOB_NOOP;
    if (commgemm_get_info(f->client, &info) != COMMGEMM_INVALID_ARGUMENT ||
        commgemm_submit(f->client, &job, &ticket) != COMMGEMM_INVALID_ARGUMENT ||
        !strstr(commgemm_last_error(), "fork"))
        return 1;
    commgemm_disconnect(f->client);
    if (SANITIZED_FOR_THREADS) /* it allows no new thread in a child */
        return 0;
    if (commgemm_connect(&f->options, &own) != COMMGEMM_OK)
        return 2;
    if (commgemm_submit(own, &job, &ticket) != COMMGEMM_OK ||
        commgemm_wait(own, ticket, -1, NULL) != COMMGEMM_OK)
        return 3;
    commgemm_disconnect(own);
    return 0;
}

static bool thread_sleeps(const char *id)
{
    char path[64], line[128] = "";
    snprintf(path, sizeof(path), "/proc/self/task/%.20s/stat", id);
    FILE *file = fopen(path, "re");
    if (!file)
        return true;
    bool sleeps = !fgets(line, sizeof(line), file) || strstr(line, ") S ");
    fclose(file);
    return sleeps;
}

/* But this one, all at a time. In a child nobody would unlock what a thread of ours had locked, and
 * a sanitizer's allocator has locks. */
static void await_sleeping_threads(void)
{
    unsigned awake;
    do {
        DIR *tasks = opendir("/proc/self/task");
        const struct dirent *task;
        assert_non_null(tasks);
        awake = 0;
        while ((task = readdir(tasks)))
            if (task->d_name[0] != '.' && atoi(task->d_name) != getpid())
                awake += !thread_sleeps(task->d_name);
        closedir(tasks);
        usleep(1000);
    } while (awake > 0);
}

static void test_fork(void **state)
{
    struct fixture f;
    int status;
    (void)state;
    fixture_open(&f, NULL, 4, 0, 0);
    await_sleeping_threads();
    pid_t child = fork();
    if (child == 0)
        _exit(child_of(&f));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_ok(commgemm_wait(f.client, submit_noop(f.client, 0), -1, NULL));
    fixture_close(&f);
}

struct importer {
    commgemm_client *client;
    atomic_bool ends;
};

static void *look_for_a_driver(void *argument)
{
    struct importer *importer = argument;
    struct commgemm_operand operand;
    while (!importer->ends)
        commgemm_import_pointer(importer->client, 0x12345000, 64, &operand);
    return NULL;
}

static int importing_child(const struct fixture *f)
{
    struct commgemm_operand operand;
    commgemm_client *own;
    alarm(20);
    if (commgemm_connect(&f->options, &own) != COMMGEMM_OK)
        return 1;
    if (commgemm_import_pointer(own, 0x12345000, 64, &operand) != COMMGEMM_NOT_SUPPORTED)
        return 2;
    commgemm_disconnect(own);
    return 0;
}

/* Whatever another thread is about. */
static void test_fork_beside_a_search_for_the_driver(void **state)
{
    struct fixture f;
    pthread_t thread;
    (void)state;
    if (SANITIZED) /* await_sleeping_threads */
        skip();
    setenv("COMMGEMM_LIBCUDA", "/proc/self/no-driver", 1);
    fixture_open(&f, NULL, 4, 0, 0);
    struct importer importer = {.client = f.client};
    assert_int_equal(pthread_create(&thread, NULL, look_for_a_driver, &importer), 0);
    for (int i = 0; i < 20; i++) {
        int status;
        usleep(1000);
        pid_t child = fork();
        if (child == 0)
            _exit(importing_child(&f));
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    importer.ends = true;
    pthread_join(thread, NULL);
    fixture_close(&f);
    unsetenv("COMMGEMM_LIBCUDA");
}

static void say_and_exit(int number)
{
    static const char text[] = "a signal came to the watcher\n";
    (void)number;
    if (write(2, text, sizeof(text) - 1) < 0)
        _exit(3);
    _exit(2);
}

/* With every other thread blocking it, the fake broker's too, a signal must stay pending. */
static void test_the_watcher_takes_no_signals(void **state)
{
    sigset_t set, pending;
    commgemm_client *client;
    (void)state;
    if (SANITIZED_FOR_THREADS) /* it has a thread of its own that takes signals */
        skip();
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    struct fake_broker *fake = fake_start(NULL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    signal(SIGUSR1, say_and_exit);
    assert_ok(connect_to(fake_socket(fake), &client));
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    send_signal(getpid(), SIGUSR1);
    usleep(20000);
    sigpending(&pending);
    assert_true(sigismember(&pending, SIGUSR1));
    signal(SIGUSR1, SIG_IGN);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    commgemm_disconnect(client);
    fake_stop(fake);
}

static int count_fds(void)
{
    int count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += dup2(fd, fd) == fd;
    return count;
}

static void test_sessions_leave_no_fds(void **state)
{
    struct fake_broker *fake = fake_start(NULL);
    commgemm_client *client;
    struct commgemm_buffer buffer;
    int fd;
    (void)state;
    int before = count_fds();
    for (int i = 0; i < 5; i++) {
        assert_ok(connect_to(fake_socket(fake), &client));
        assert_ok(commgemm_poll_fd(client, &fd));
        assert_ok(commgemm_buffer_create(client, NULL, 4096, -1, 0, 0, &buffer));
        commgemm_disconnect(client);
    }
    fake_stop(fake);
    /* The listener of the fake broker was counted. */
    assert_int_equal(count_fds(), before - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_info_is_the_daemons),
        cmocka_unit_test(test_no_daemon),
        cmocka_unit_test(test_the_environment_names_the_socket),
        cmocka_unit_test(test_bad_options_are_named),
        cmocka_unit_test(test_struct_size),
        cmocka_unit_test(test_structures_of_other_headers),
        cmocka_unit_test(test_other_version_is_refused),
        cmocka_unit_test(test_null_clients),
        cmocka_unit_test(test_last_error_is_the_threads_own),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_fork_beside_a_search_for_the_driver),
        cmocka_unit_test(test_the_watcher_takes_no_signals),
        cmocka_unit_test(test_sessions_leave_no_fds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
