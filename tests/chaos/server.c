#include "tests/chaos/server.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/backend.h"
#include "tests/chaos/chaos.h"

#define WAIT_MS 120000u
/* Fds, memories and threads that the libraries of CUDA make when needed: NCCL has 16 fds more from
 * the first communicator of two devices on. */
#define SPARE_OF_DRIVER 32u
#define STEP_US 2000u
/* ThreadSanitizer's own thread begins when a process makes its first one. */
#ifdef __SANITIZE_THREAD__
#define SPARE_OF_SANITIZER 1u
#else
#define SPARE_OF_SANITIZER 0u
#endif

static bool complain(const char *what)
{
    printf("chaos: %s: %s\n", what, commgemm_last_error());
    return false;
}

/* ---- the daemon -------------------------------------------------------------------------------
 */

bool chaos_server_start(struct chaos_server *server, uint32_t devices, const char *set)
{
    char detail[CGM_BENCH_DETAIL_BYTES];
    memset(server, 0, sizeof(*server));
    server->executor_fd = -1;
    if (cgm_private_daemon_start(test_backend(), devices, set, detail, &server->daemon)) {
        printf("chaos: %s\n", detail);
        return false;
    }
    return true;
}

void chaos_server_stop(struct chaos_server *server)
{
    chaos_server_close_eye(server);
    if (server->executor_fd >= 0)
        close(server->executor_fd);
    cgm_private_daemon_stop(&server->daemon);
}

static void learn_executor(struct chaos_server *server)
{
    if (server->executor_fd >= 0)
        close(server->executor_fd);
    server->executor = (pid_t)chaos_server_number(server, "executor_pid");
    server->executor_fd = (int)syscall(SYS_pidfd_open, server->executor, 0);
    server->deaths = chaos_server_number(server, "executor_deaths");
}

void chaos_server_signal_executor(const struct chaos_server *server, int number)
{
    if (server->executor_fd >= 0 &&
        syscall(SYS_pidfd_send_signal, server->executor_fd, number, NULL, 0) != 0 && errno != ESRCH)
        printf("chaos: signal %d to the executor: %s\n", number, strerror(errno));
}

bool chaos_server_look(struct chaos_server *server)
{
    struct commgemm_connect_options options;
    commgemm_connect_options_init(&options);
    options.socket = server->daemon.socket;
    options.name = "chaos";
    options.no_ring = 1;
    if (commgemm_connect(&options, &server->eye))
        return complain("the daemon does not let the coordinator in");
    if (commgemm_wait_executor(server->eye, WAIT_MS))
        return complain("no executor serves");
    learn_executor(server);
    return true;
}

void chaos_server_close_eye(struct chaos_server *server)
{
    commgemm_disconnect(server->eye);
    server->eye = NULL;
}

uint64_t chaos_server_number(struct chaos_server *server, const char *key)
{
    char pattern[64], *text, *at;
    uint64_t number = 0;
    snprintf(pattern, sizeof(pattern), "\"%s\":", key);
    if (!server->eye || commgemm_query(server->eye, "status", &text))
        return 0;
    if ((at = strstr(text, pattern)))
        number = strtoull(at + strlen(pattern), NULL, 10);
    free(text);
    return number;
}

bool chaos_server_await_executor(struct chaos_server *server, uint64_t deaths)
{
    for (uint32_t waited = 0; waited < WAIT_MS * 1000; waited += STEP_US) {
        if (chaos_server_number(server, "executor_deaths") >= deaths &&
            chaos_server_number(server, "executor_life")) {
            if (commgemm_wait_executor(server->eye, WAIT_MS))
                return complain("no executor serves again");
            learn_executor(server);
            return true;
        }
        chaos_sleep_us(STEP_US);
    }
    return complain("the executor was not started again");
}

/* ---- what is used -----------------------------------------------------------------------------
 */

static uint32_t count_entries(pid_t pid, const char *folder)
{
    char path[64];
    uint32_t count = 0;
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, folder);
    DIR *dir = opendir(path);
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count > 2 ? count - 2 : 0;
}

static uint32_t count_memories(pid_t pid)
{
    char path[64], line[512];
    uint32_t count = 0;
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file))
        count += strstr(line, "/memfd:") != NULL;
    if (file)
        fclose(file);
    return count;
}

static struct chaos_usage usage_of(pid_t pid)
{
    return (struct chaos_usage){count_entries(pid, "fd"), count_memories(pid),
                                count_entries(pid, "task")};
}

static bool lower(uint32_t *base, uint32_t now, uint32_t spare)
{
    if (now <= *base)
        *base = now;
    return now <= *base + spare;
}

/* Whether a process uses no more than it ever did with nothing there, and what is spare. What was
 * freed a moment late the first time lowers the base. */
static bool is_back(struct chaos_usage *base, const struct chaos_usage *now, uint32_t spare)
{
    bool fds = lower(&base->fds, now->fds, spare),
         memories = lower(&base->memories, now->memories, spare);
    return lower(&base->threads, now->threads, spare) && fds && memories;
}

/* The eye has looked into the kept buffers: with the daemon's help it has an import for that. */
static bool objects_are_gone(struct chaos_server *server)
{
    uint64_t of_eye = test_backend_is_cuda() ? 1 : 0;
    return chaos_server_number(server, "sessions") == 1 &&
           chaos_server_number(server, "comms") == 0 && chaos_server_number(server, "plans") == 0 &&
           chaos_server_number(server, "imports") <= of_eye &&
           chaos_server_number(server, "buffers") == CHAOS_KEPT;
}

static bool says_what_is_left(struct chaos_server *server, bool gone)
{
    static const char *const keys[] = {"sessions", "comms", "plans", "imports", "buffers"};
    const pid_t pids[] = {server->daemon.pid, server->executor};
    if (!gone)
        for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
            printf("chaos: left: %s %llu\n", keys[i],
                   (unsigned long long)chaos_server_number(server, keys[i]));
    for (int i = 0; i < 2; i++) {
        struct chaos_usage now = usage_of(pids[i]);
        printf("chaos: %s: %u fds (%u at first), %u mapped memories (%u), %u threads (%u)\n",
               i ? "executor" : "daemon", now.fds, server->base[i].fds, now.memories,
               server->base[i].memories, now.threads, server->base[i].threads);
    }
    return false;
}

bool chaos_server_is_clean(struct chaos_server *server)
{
    uint32_t spare = test_backend_is_cuda() ? SPARE_OF_DRIVER : 0;
    bool gone = false;
    if (!server->has_base)
        memset(server->base, 0xff, sizeof(server->base));
    server->has_base = true;
    for (uint32_t waited = 0; waited < WAIT_MS / 4 * 1000; waited += STEP_US) {
        gone = objects_are_gone(server);
        if (gone) {
            struct chaos_usage now[2] = {usage_of(server->daemon.pid), usage_of(server->executor)};
            bool back = is_back(&server->base[0], &now[0], SPARE_OF_SANITIZER);
            if (is_back(&server->base[1], &now[1], spare + SPARE_OF_SANITIZER) && back)
                return true;
        }
        chaos_sleep_us(STEP_US);
    }
    return says_what_is_left(server, gone);
}

/* ---- kept buffers -----------------------------------------------------------------------------
 */

bool chaos_kept_create(struct chaos_server *server, struct chaos_board *board)
{
    struct commgemm_buffer buffer;
    char name[32];
    for (uint32_t i = 0; i < CHAOS_KEPT; i++) {
        snprintf(name, sizeof(name), "kept.%u", i);
        atomic_store(&board->kept[i].begun, 0);
        atomic_store(&board->kept[i].ended, 0);
        if (commgemm_buffer_create(server->eye, name, CHAOS_KEPT_BYTES, -1, 0, 0, &buffer))
            return complain("a kept buffer");
        commgemm_buffer_close(server->eye, buffer.id);
    }
    return true;
}

static bool bytes_are_right(struct chaos_board *board, uint32_t at, const unsigned char *bytes)
{
    uint32_t begun = atomic_load(&board->kept[at].begun),
             ended = atomic_load(&board->kept[at].ended);
    for (uint32_t i = 0; i < CHAOS_KEPT_BYTES; i++) {
        if (bytes[i] == chaos_kept_byte(at, ended, i) || bytes[i] == chaos_kept_byte(at, begun, i))
            continue;
        printf("chaos: kept.%u: byte %u is %u; it was written %u times, and %u were done\n", at, i,
               bytes[i], begun, ended);
        return false;
    }
    return true;
}

static bool rewrite(struct chaos_server *server, struct chaos_board *board, uint32_t at,
                    const struct commgemm_buffer *buffer)
{
    unsigned char bytes[CHAOS_KEPT_BYTES];
    uint32_t version = atomic_load(&board->kept[at].begun);
    for (uint32_t i = 0; i < CHAOS_KEPT_BYTES; i++)
        bytes[i] = chaos_kept_byte(at, version, i);
    atomic_store(&board->kept[at].ended, version);
    if (commgemm_buffer_write(server->eye, buffer, 0, bytes, sizeof(bytes)) ||
        (buffer->tainted && commgemm_buffer_rewritten(server->eye, buffer)))
        return complain("writing a kept buffer");
    return true;
}

/* With an executor that dies in the middle of a copy, where the daemon makes them. */
static bool may_be_tainted(const struct chaos_board *board)
{
    return test_backend_is_cuda() && atomic_load(&board->kills) > 0;
}

bool chaos_kept_check(struct chaos_server *server, struct chaos_board *board)
{
    for (uint32_t i = 0; i < CHAOS_KEPT; i++) {
        unsigned char bytes[CHAOS_KEPT_BYTES];
        struct commgemm_buffer buffer;
        char name[32];
        snprintf(name, sizeof(name), "kept.%u", i);
        if (commgemm_buffer_open(server->eye, name, 0, 0, &buffer))
            return complain("opening a kept buffer");
        if (buffer.tainted && !may_be_tainted(board))
            return complain("no job wrote a kept buffer, and it is tainted");
        if (buffer.tainted && !rewrite(server, board, i, &buffer))
            return false;
        if (commgemm_buffer_read(server->eye, &buffer, 0, bytes, sizeof(bytes)))
            return complain("reading a kept buffer");
        if (!bytes_are_right(board, i, bytes))
            return false;
        if (atomic_load(&board->kept[i].begun) != atomic_load(&board->kept[i].ended) &&
            !rewrite(server, board, i, &buffer))
            return false;
        commgemm_buffer_close(server->eye, buffer.id);
    }
    return true;
}
