/* The n-th call fails, n = 1, 2, 3, ... until none is left: each allocation and each call that
 * makes, receives or maps something, in the daemon, in the executor and in the library
 * (failing_calls.h). Each time a daemon starts, a client runs an errand, and the daemon ends. The
 * daemon survives or says why it does not start, the library refuses with a status that fits, and
 * the next errand goes well; fds and allocated blocks are then what they are where nothing has
 * failed.
 *
 *   test_failing [-a] [-v] [-n N] [WHO] [FAMILY]
 *       -a: every n, else one in STRIDE; -n: one n alone; -v: names each
 *       WHO: broker, executor, client; FAMILY: memory, system */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/random.h"
#include "proto/packet.h"
#include "proto/status.h"
#include "tests/fault/errand.h"
#include "tests/fault/failing_calls.h"
#include "tests/fault/node.h"
#include "tests/send_signal.h"

#define SKIPPED 77 /* as CTest knows it */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CALLS_ARE_TAKEN 1
#else
#define CALLS_ARE_TAKEN 0
#endif

#define STRIDE 13
#define WORKERS 4
#define START_S 30
#define ERRAND_S 40
#define END_S 30

static const char *const whos[] = {"broker", "executor", "client"};
static const char *const families[] = {"memory", "system"};

/* What the daemon's processes have when nothing has failed, after two errands. */
struct state {
    long broker_fds, executor_fds;
    int64_t broker_blocks, executor_blocks;
};

struct run {
    char folder[64], socket[96], page_path[96], log_path[96];
    struct failing_page *page;
    pid_t daemon;
    enum failing_who who;
    enum failing_family family;
    uint64_t at, seed;
    struct errand_result first, second;
    char why[512];
};

static struct {
    _Atomic uint64_t next;
    _Atomic uint32_t fired, failed, aborted;
} * shared;

#define FAIL(run, ...) (snprintf((run)->why, sizeof((run)->why), __VA_ARGS__), false)

/* ---- processes ---------------------------------------------------------------------------------
 */

static void put_between(const struct run *run, bool broker)
{
    setenv("CGM_FAILING_CALLS", run->page_path, 1);
    if (broker || run->who == FAILING_CLIENT)
        setenv("LD_PRELOAD", FAILING_CALLS, 1);
}

static void exec_daemon(const struct run *run)
{
    char state_dir[160];
    const char *const settings[] = {
        "executor=" CGM_BIN_DIR "/commgemm-executor-cpu",
        state_dir,
        "devices=2",
        "spin_us=0",
        "executor_start_timeout=5",
        "tune_ms=50",
    };
    const char *arguments[3 + 2 * sizeof(settings) / sizeof(settings[0]) + 1] = {
        CGM_BIN_DIR "/commgemmd", "--socket", run->socket};
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        arguments[3 + 2 * i] = "--set";
        arguments[4 + 2 * i] = settings[i];
    }
    snprintf(state_dir, sizeof(state_dir), "state_dir=%s/state", run->folder);
    int fd = open(run->log_path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(fd, STDERR_FILENO); /* and fd stays: something that the daemon does not know */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    unsetenv("JOURNAL_STREAM");
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    if (run->who != FAILING_CLIENT)
        put_between(run, true);
    execv(arguments[0], (char *const *)(uintptr_t)arguments);
    _exit(99);
}

/* The exit status, 1000 + signal, or -1: it still runs. */
static int exit_status(pid_t pid)
{
    int status;
    if (waitpid(pid, &status, WNOHANG) == 0)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static bool is_listening(const struct run *run)
{
    int fd;
    if (cgm_socket_connect(run->socket, &fd) != CGM_OK)
        return false;
    close(fd);
    return true;
}

/* true: it serves; else *ret_status is how it ended, or -1: it hangs. */
static bool start_daemon(struct run *run, int *ret_status)
{
    bool listens = false;
    *ret_status = -1;
    run->daemon = fork();
    if (run->daemon == 0)
        exec_daemon(run);
    NODE_AWAIT(START_S,
               (listens = is_listening(run)) || (*ret_status = exit_status(run->daemon)) >= 0);
    if (*ret_status >= 0)
        run->daemon = 0;
    return listens;
}

static int end_daemon(struct run *run)
{
    int status = -1;
    send_signal(run->daemon, SIGTERM);
    if (!NODE_AWAIT(END_S, (status = exit_status(run->daemon)) >= 0)) {
        send_signal(run->daemon, SIGKILL);
        waitpid(run->daemon, NULL, 0);
    }
    run->daemon = 0;
    return status;
}

/* The errand's own process is this program again, which says on fd 3 how it went. */
static void exec_errand(const struct run *run, int fd)
{
    char seed[32];
    const char *arguments[] = {"/proc/self/exe", "-e", run->socket, seed, NULL};
    snprintf(seed, sizeof(seed), "%ju", (uintmax_t)run->seed);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(fd, 3);
    if (run->who == FAILING_CLIENT)
        put_between(run, false);
    execv(arguments[0], (char *const *)(uintptr_t)arguments);
    _exit(99);
}

static int main_of_errand(const char *socket, const char *seed)
{
    struct errand_result result;
    errand_run(socket, strtoull(seed, NULL, 10), &result);
    return write(3, &result, sizeof(result)) != sizeof(result);
}

static bool run_errand(struct run *run, struct errand_result *ret_result)
{
    int pipes[2], status = -1;
    memset(ret_result, 0, sizeof(*ret_result));
    if (pipe2(pipes, O_CLOEXEC) < 0)
        return FAIL(run, "no pipe");
    pid_t pid = fork();
    if (pid == 0)
        exec_errand(run, pipes[1]);
    close(pipes[1]);
    if (!NODE_AWAIT(ERRAND_S, (status = exit_status(pid)) >= 0)) {
        send_signal(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    bool told = read(pipes[0], ret_result, sizeof(*ret_result)) == sizeof(*ret_result);
    close(pipes[0]);
    if (status == 0 && told)
        return true;
    if (status == ERRAND_OWN_FAILURE && run->who == FAILING_CLIENT)
        return true;
    return status < 0 ? FAIL(run, "the errand hangs")
                      : FAIL(run, "the errand's process ended with %d", status);
}

/* ---- what a failure may lead to
 * ------------------------------------------------------------------
 */

static bool is_in(const char *frame, const char *const *libraries)
{
    while (*libraries && strncmp(frame, *libraries, strlen(*libraries)) != 0)
        libraries++;
    return *libraries;
}

/* It was the event loop's library that called what failed, and that ends the process then. */
static bool is_of_event_loop(const struct failing_page *page)
{
    static const char *const below[] = {"libfailing", "libc.", "libpthread", "ld-", NULL};
    static const char *const loop[] = {"libuv", NULL};
    uint32_t i = 0, depth = page->depth < 16 ? page->depth : 16;
    while (i < depth && is_in(page->stack[i], below))
        i++;
    return i < depth && is_in(page->stack[i], loop);
}

static bool is_fitting(int status)
{
    static const int statuses[] = {
        CGM_OK,          CGM_NO_MEMORY,   CGM_IO,         CGM_EXECUTOR_LOST,
        CGM_NO_EXECUTOR, CGM_DAEMON_LOST, CGM_NOT_RUNNING};
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
        if (statuses[i] == status)
            return true;
    return false;
}

static bool check_result(struct run *run, const struct errand_result *result, const char *which,
                         bool must_be_well)
{
    if (result->status == CGM_OK || (!must_be_well && is_fitting(result->status)))
        return true;
    return FAIL(run, "%s errand: %s: %s: %s", which, result->call, cgm_status_name(result->status),
                result->detail);
}

static bool log_says_something(const struct run *run)
{
    char text[4096];
    int fd = open(run->log_path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text)) : -1;
    if (fd >= 0)
        close(fd);
    return n > 10;
}

/* It may only end before it serves, with a reason and a status; or where the event loop's library
 * ends it. */
static bool check_no_start(struct run *run, int status)
{
    if (status == 1000 + SIGABRT && is_of_event_loop(run->page)) {
        atomic_fetch_add(&shared->aborted, 1);
        return true;
    }
    if (status < 0)
        return FAIL(run, "the daemon hangs while it starts");
    if (status == 0 || status >= 1000)
        return FAIL(run, "the daemon ends with %d while it starts", status);
    return log_says_something(run) || FAIL(run, "the daemon does not say why it ends");
}

static pid_t executor_of(const struct run *run)
{
    struct node node = {.broker = run->daemon};
    return node_executor(&node);
}

static struct state state_of(const struct run *run)
{
    return (struct state){
        process_load(run->daemon).fds,
        process_load(executor_of(run)).fds,
        atomic_load(&run->page->blocks[FAILING_BROKER]),
        atomic_load(&run->page->blocks[FAILING_EXECUTOR]),
    };
}

/* What the C library keeps of the first thread that has ended, for the next one. The broker has one
 * when it hangs up on a socket with something unread. */
#define BLOCKS_OF_A_THREAD 1
/* A thread that is refused a table of its own has its fd in the daemon's. */
static long fds_more(const struct run *run)
{
    return strcmp(run->page->call, "unshare") == 0;
}

/* The counter of blocks goes on over the lives of executors: it says something about one alone. */
static bool is_same(const struct run *run, const struct state *now, const struct state *expected)
{
    return now->broker_fds <= expected->broker_fds + fds_more(run) &&
           now->executor_fds <= expected->executor_fds &&
           (run->who != FAILING_BROKER ||
            now->broker_blocks <= expected->broker_blocks + BLOCKS_OF_A_THREAD);
}

static bool check_state(struct run *run, const struct state *expected)
{
    struct state now;
    if (!expected || NODE_AWAIT(5, (now = state_of(run), is_same(run, &now, expected))))
        return true;
    return FAIL(run,
                "left: broker %ld fds (of %ld), %jd blocks (of %jd), executor %ld fds (of %ld)",
                now.broker_fds, expected->broker_fds, (intmax_t)now.broker_blocks,
                (intmax_t)expected->broker_blocks, now.executor_fds, expected->executor_fds);
}

/* ---- one n -------------------------------------------------------------------------------------
 */

/* It may have been ended in the event loop while it served: true, run->daemon is 0. Its sockets are
 * closed some time before its parent hears of its end. */
static bool check_gone(struct run *run, const struct errand_result *result)
{
    int status = exit_status(run->daemon);
    bool lost = result->status == CGM_NOT_RUNNING || result->status == CGM_DAEMON_LOST;
    if (status < 0 && !(lost && NODE_AWAIT(5, (status = exit_status(run->daemon)) >= 0)))
        return true;
    run->daemon = 0;
    if (status != 1000 + SIGABRT || !is_of_event_loop(run->page))
        return FAIL(run, "the daemon ended with %d while it served", status);
    atomic_fetch_add(&shared->aborted, 1);
    return true;
}

static bool live(struct run *run, const struct state *expected)
{
    int status;
    if (!start_daemon(run, &status))
        return check_no_start(run, status);
    if (!run_errand(run, &run->first) || !check_gone(run, &run->first))
        return false;
    if (!run->daemon)
        return true;
    if (!check_result(run, &run->first, "first", !atomic_load(&run->page->fired)))
        return false;
    if (!atomic_load(&run->page->fired))
        return true; /* it may in the end of the daemon */
    if (!run_errand(run, &run->second) || !check_gone(run, &run->second))
        return false;
    if (!run->daemon)
        return true;
    return check_result(run, &run->second, "second", true) && check_state(run, expected);
}

/* The first errand measures its plan, the second one is told. */
static void forget_times(const struct run *run)
{
    char path[160];
    snprintf(path, sizeof(path), "%s/state/timings", run->folder);
    unlink(path);
}

static bool run_once(struct run *run, uint64_t at, const struct state *expected)
{
    memset((void *)run->page, 0, sizeof(*run->page));
    run->page->who = run->who;
    run->page->family = run->family;
    atomic_store(&run->page->at, at);
    run->at = at;
    run->why[0] = '\0';
    unlink(run->log_path);
    forget_times(run);
    bool passed = live(run, expected);
    if (!run->daemon)
        return passed;
    int status = end_daemon(run);
    if (passed && status == 1000 + SIGABRT && is_of_event_loop(run->page)) {
        atomic_fetch_add(&shared->aborted, 1);
        return true;
    }
    if (passed && status != 0)
        return FAIL(run, "the daemon ends with %d", status);
    return passed;
}

static void run_init(struct run *run, enum failing_who who, enum failing_family family,
                     uint64_t seed)
{
    *run = (struct run){
        .folder = "/tmp/cgm-failing-XXXXXX", .who = who, .family = family, .seed = seed};
    if (!mkdtemp(run->folder))
        exit(2);
    snprintf(run->socket, sizeof(run->socket), "%s/socket", run->folder);
    snprintf(run->page_path, sizeof(run->page_path), "%s/page", run->folder);
    snprintf(run->log_path, sizeof(run->log_path), "%s/log", run->folder);
    int fd = open(run->page_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(*run->page)) < 0)
        exit(2);
    run->page = mmap(NULL, sizeof(*run->page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (run->page == MAP_FAILED)
        exit(2);
}

static void run_fini(struct run *run)
{
    static const char *const names[] = {"socket", "socket.lock", "page", "log", "state/timings"};
    char path[160];
    if (run->daemon) {
        send_signal(run->daemon, SIGKILL);
        waitpid(run->daemon, NULL, 0);
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", run->folder, names[i]);
        unlink(path);
    }
    snprintf(path, sizeof(path), "%s/state", run->folder);
    rmdir(path);
    rmdir(run->folder);
    munmap(run->page, sizeof(*run->page));
}

static void show(const struct run *run)
{
    const struct failing_page *page = run->page;
    fprintf(stderr, "FAILED %s, %s, n = %ju: %s\n       %s\n", whos[run->who],
            families[run->family], (uintmax_t)run->at, page->call, run->why);
    for (uint32_t i = 0; i < page->depth && i < 16; i++)
        fprintf(stderr, "         %s\n", page->stack[i]);
}

/* ---- all n -------------------------------------------------------------------------------------
 */

struct sweep {
    uint64_t first, last, step;
    bool verbose;
    struct state expected;
};

static int work(enum failing_who who, enum failing_family family, const struct sweep *sweep,
                uint64_t seed)
{
    struct run run;
    uint64_t at;
    run_init(&run, who, family, seed);
    while ((at = atomic_fetch_add(&shared->next, sweep->step)) <= sweep->last) {
        bool passed = run_once(&run, at, &sweep->expected);
        if (!passed) {
            show(&run);
            atomic_fetch_add(&shared->failed, 1);
        }
        if (atomic_load(&run.page->fired))
            atomic_fetch_add(&shared->fired, 1);
        if (sweep->verbose)
            printf("%s %s %s %ju: %s in %s: %s %s\n", passed ? "passed" : "FAILED", whos[who],
                   families[family], (uintmax_t)at, run.page->call,
                   run.page->depth ? run.page->stack[0] : "", run.first.call,
                   cgm_status_name(run.first.status));
    }
    run_fini(&run);
    return 0;
}

/* How many calls there are when none fails, and what is there afterwards. */
static bool rehearse(enum failing_who who, enum failing_family family, uint64_t seed,
                     struct state *ret_state, uint64_t *ret_calls)
{
    struct run run;
    run_init(&run, who, family, seed);
    bool passed = run_once(&run, 0, NULL);
    *ret_calls = atomic_load(&run.page->calls[who][family]);
    if (passed) { /* the same, and a look before the end */
        int status;
        struct state later;
        memset((void *)run.page, 0, sizeof(*run.page));
        passed = start_daemon(&run, &status) && run_errand(&run, &run.first) &&
                 run_errand(&run, &run.second);
        later = state_of(&run);
        do {
            *ret_state = later;
            usleep(100000);
            later = state_of(&run);
        } while (memcmp(&later, ret_state, sizeof(later)) != 0);
        if (run.daemon)
            end_daemon(&run);
    }
    if (!passed)
        show(&run);
    run_fini(&run);
    return passed;
}

static bool sweep_calls(enum failing_who who, enum failing_family family, struct sweep *sweep,
                        uint64_t seed)
{
    uint64_t calls;
    int status, failed = 0;
    if (!rehearse(who, family, seed, &sweep->expected, &calls))
        return false;
    if (sweep->last == 0 || sweep->last > calls)
        sweep->last = calls;
    memset((void *)shared, 0, sizeof(*shared));
    atomic_store(&shared->next, sweep->first);
    for (int i = 0; i < WORKERS; i++)
        if (fork() == 0)
            exit(work(who, family, sweep, seed));
    while (wait(&status) > 0)
        failed += status != 0;
    printf("%s, %s: %ju calls, %u failed one by one, %u of them ended the process in the event "
           "loop, %u went wrong\n",
           whos[who], families[family], (uintmax_t)calls, atomic_load(&shared->fired),
           atomic_load(&shared->aborted), atomic_load(&shared->failed));
    return failed == 0 && atomic_load(&shared->failed) == 0;
}

static bool is_wanted(char **names, const char *const *all, size_t count, size_t index)
{
    bool any = false;
    for (char **name = names; *name; name++)
        for (size_t i = 0; i < count; i++) {
            if (strcmp(*name, all[i]) != 0)
                continue;
            any = true;
            if (i == index)
                return true;
        }
    return !any;
}

int main(int argc, char **argv)
{
    bool all = false, verbose = false, passed = true;
    uint64_t only = 0, seed = cgm_random_seed();
    int option;
    if (argc == 4 && strcmp(argv[1], "-e") == 0)
        return main_of_errand(argv[2], argv[3]);
    while ((option = getopt(argc, argv, "avn:")) != -1) {
        all |= option == 'a';
        verbose |= option == 'v';
        if (option == 'n')
            only = strtoull(optarg, NULL, 10);
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (CALLS_ARE_TAKEN) {
        printf("skipped: a sanitizer stands between the program and these calls itself\n");
        return SKIPPED;
    }
    printf("seed 0x%llx\n", (unsigned long long)seed);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 2;
    for (unsigned who = 0; who < FAILING_WHO_COUNT; who++)
        for (unsigned family = 0; family < FAILING_FAMILY_COUNT; family++) {
            struct sweep sweep = {only  ? only
                                  : all ? 1
                                        : 1 + seed % STRIDE,
                                  only,
                                  all || only ? 1 : STRIDE,
                                  verbose,
                                  {0}};
            if (is_wanted(argv + optind, whos, FAILING_WHO_COUNT, who) &&
                is_wanted(argv + optind, families, FAILING_FAMILY_COUNT, family))
                passed &= sweep_calls(who, family, &sweep, seed);
        }
    return !passed;
}
