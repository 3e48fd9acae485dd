/* What a round that hangs, or went wrong, leaves to look at. Without a debugger: /proc says where
 * in the kernel every thread is, the daemon says which jobs it has, clients say what they do. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/chaos/server.h"
#include "tests/send_signal.h"

/* The first `lines` lines of a file, on lines of their own. */
static void print_file(const char *path, int lines)
{
    char line[256];
    FILE *file = fopen(path, "re");
    while (file && lines-- > 0 && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = '\0';
        printf("      %s\n", line);
    }
    if (file)
        fclose(file);
}

static void print_word(pid_t pid, const char *task, const char *name)
{
    char path[320], text[128] = "?";
    snprintf(path, sizeof(path), "/proc/%d/task/%s/%s", (int)pid, task, name);
    FILE *file = fopen(path, "re");
    if (file && !fgets(text, sizeof(text), file))
        strcpy(text, "?");
    if (file)
        fclose(file);
    text[strcspn(text, "\n")] = '\0';
    printf(" %s %s;", name, text);
}

static void print_threads(const char *who, pid_t pid, bool stacks)
{
    char path[320];
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    struct dirent *entry;
    printf("  %s, pid %d%s\n", who, (int)pid, dir ? "" : ": gone");
    while (stacks && dir && (entry = readdir(dir))) {
        if (entry->d_name[0] == '.')
            continue;
        printf("    thread %s:", entry->d_name);
        print_word(pid, entry->d_name, "comm");
        print_word(pid, entry->d_name, "wchan");
        print_word(pid, entry->d_name, "syscall");
        printf("\n");
        snprintf(path, sizeof(path), "/proc/%d/task/%s/stack", (int)pid, entry->d_name);
        print_file(path, 6);
    }
    if (dir)
        closedir(dir);
}

/* commgemmctl beside this program, for at most five seconds. */
static void print_listing(const struct chaos_server *server, const char *what)
{
    char path[PATH_MAX], *slash;
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 16);
    path[length > 0 ? length : 0] = '\0';
    if (!(slash = strrchr(path, '/')))
        return;
    strcpy(slash + 1, "commgemmctl");
    char *arguments[] = {path, "--socket", (char *)server->daemon.socket, (char *)what, NULL};
    pid_t pid;
    printf("  commgemmctl %s:\n", what);
    fflush(stdout);
    if (posix_spawn(&pid, path, NULL, NULL, arguments, environ))
        return;
    for (int i = 0; i < 500 && waitpid(pid, NULL, WNOHANG) == 0; i++) {
        if (i == 499) {
            send_signal(pid, SIGKILL);
            waitpid(pid, NULL, 0);
            printf("    no answer within 5 s\n");
        }
        chaos_sleep_us(10000);
    }
}

static void print_log(const struct chaos_server *server)
{
    char line[512], last[40][512];
    unsigned n = 0;
    FILE *file = fopen(server->daemon.log, "re");
    while (file && fgets(line, sizeof(line), file))
        memcpy(last[n++ % 40], line, sizeof(line));
    if (file)
        fclose(file);
    printf("  the daemon's log ends with:\n");
    for (unsigned i = n > 40 ? n - 40 : 0; i < n; i++)
        printf("    %s", last[i % 40]);
}

static void print_script(const struct chaos_script *script)
{
    static const char *const arenas[] = {"buffer", "named", "import", "remote"};
    char text[400];
    for (uint32_t i = 0; i < script->n_clients; i++) {
        const struct chaos_client_script *client = &script->client[i];
        printf("  client %u: %u entries%s, dies at %u, leaves at %u, arenas", i,
               client->ring_entries, client->no_ring ? " no ring" : "", client->die_at,
               client->leave_at);
        for (uint32_t k = 0; k < client->n_arenas; k++)
            printf(" %s", arenas[client->arena[k]]);
        printf("\n");
    }
    for (uint32_t i = 0; i < script->n_comms; i++) {
        printf("  comm %u: clients", i);
        for (uint32_t rank = 0; rank < script->comm[i].world; rank++)
            printf(" %u", script->comm[i].client[rank]);
        printf("\n");
    }
    for (uint32_t i = 0; i < script->n_batches; i++)
        for (uint32_t k = 0; k < script->n_jobs[i]; k++) {
            chaos_job_text(script, &script->job[i][k], text, sizeof(text));
            printf("  job %u.%u: comm %u plan %u: %s\n", i, k, script->job[i][k].comm,
                   script->job[i][k].plan, text);
        }
    for (uint32_t i = 0; i < script->n_faults; i++)
        printf("  fault %u: stage %u, after %u us, for %u us, client %u\n",
               (unsigned)script->fault[i].kind, script->fault[i].stage, script->fault[i].delay_us,
               script->fault[i].lasts_us, script->fault[i].client);
}

void chaos_diagnose(const struct chaos_server *server, const struct chaos_board *board, bool hung)
{
    static const char *const listings[] = {"status", "jobs", "sessions", "comms"};
    uint64_t now_ns = chaos_now_ns();
    print_script(&board->script);
    printf("chaos: order %u: verb %u, argument %u\n", atomic_load(&board->order), board->verb,
           board->argument);
    for (uint32_t i = 0; i < board->script.n_clients; i++) {
        const struct chaos_client *client = &board->client[i];
        char who[256];
        if (!client->pid)
            continue;
        snprintf(who, sizeof(who), "client %u, arrived at %u: %.128s, for %.1f s", i,
                 atomic_load(&client->arrived), client->step,
                 (double)(now_ns - atomic_load(&client->step_ns)) / 1e9);
        print_threads(who, client->pid, hung);
    }
    if (server->daemon.pid)
        print_threads("daemon", server->daemon.pid, hung);
    if (server->executor)
        print_threads("executor", server->executor, hung);
    for (size_t i = 0; server->daemon.pid && i < sizeof(listings) / sizeof(listings[0]); i++)
        print_listing(server, listings[i]);
    print_log(server);
    fflush(stdout);
}
