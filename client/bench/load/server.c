#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/bench/load/load.h"
#include "client/bench/options.h"

#define WAIT_MS 60000
#define SETTLE_MS 10000u
#define STEP_US 10000u
#define KEPT_KIB_MAX (16u * 1024)

bool cgm_load_fail(const char *what)
{
    printf("commgemm-load: %s: %s\n", what, commgemm_last_error());
    return false;
}

bool cgm_load_start(struct cgm_load_server *server, uint32_t devices, const char *set)
{
    char detail[CGM_BENCH_DETAIL_BYTES];
    commgemm_client *client;
    memset(server, 0, sizeof(*server));
    if (cgm_private_daemon_start("cpu", devices, set, detail, &server->daemon)) {
        printf("commgemm-load: %s\n", detail);
        return false;
    }
    bool right = cgm_load_connect(server, 2, &client);
    if (right) {
        right = cgm_load_find_executor(server, client);
        commgemm_disconnect(client);
    }
    return right;
}

bool cgm_load_connect(const struct cgm_load_server *server, uint32_t entries,
                      commgemm_client **ret_client)
{
    struct commgemm_connect_options options;
    commgemm_connect_options_init(&options);
    options.socket = server->daemon.socket;
    options.ring_entries = entries;
    if (commgemm_connect(&options, ret_client))
        return cgm_load_fail("connect");
    if (commgemm_wait_executor(*ret_client, WAIT_MS) == COMMGEMM_OK)
        return true;
    commgemm_disconnect(*ret_client);
    return cgm_load_fail("executor");
}

bool cgm_load_find_executor(struct cgm_load_server *server, commgemm_client *client)
{
    char *text;
    if (commgemm_query(client, "status", &text))
        return cgm_load_fail("status");
    const char *at = strstr(text, "\"executor_pid\":");
    server->executor = at ? atoi(at + strlen("\"executor_pid\":")) : 0;
    free(text);
    return server->executor > 0 || cgm_load_fail("there is no executor");
}

/* ---- what processes use -----------------------------------------------------------------------
 */

struct cgm_usage cgm_load_usage(int pid)
{
    struct cgm_usage usage = {0};
    char path[64], line[256];
    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file)) {
        if (strncmp(line, "VmRSS:", 6) == 0)
            usage.rss_kib = strtoull(line + 6, NULL, 10);
        if (strncmp(line, "VmHWM:", 6) == 0)
            usage.peak_kib = strtoull(line + 6, NULL, 10);
    }
    if (file)
        fclose(file);
    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    DIR *dir = opendir(path);
    while (dir && readdir(dir))
        usage.fds++;
    if (dir)
        closedir(dir);
    usage.fds -= usage.fds > 2 ? 2 : usage.fds;
    return usage;
}

static bool is_back(const struct cgm_usage *before, const struct cgm_usage *after)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they keep what is freed */
    if (after->rss_kib > before->rss_kib + KEPT_KIB_MAX)
        return false;
#endif
    return after->fds <= before->fds;
}

void cgm_load_settle(const struct cgm_load_server *server, const struct cgm_usage before[2],
                     struct cgm_usage ret_after[2])
{
    for (uint32_t waited = 0; waited < SETTLE_MS * 1000; waited += STEP_US) {
        ret_after[0] = cgm_load_usage(server->daemon.pid);
        ret_after[1] = cgm_load_usage(server->executor);
        if (is_back(&before[0], &ret_after[0]) && is_back(&before[1], &ret_after[1]))
            return;
        usleep(STEP_US);
    }
}

bool cgm_load_is_back(const struct cgm_usage before[2], const struct cgm_usage after[2])
{
    bool back = is_back(&before[0], &after[0]) && is_back(&before[1], &after[1]);
    if (!back)
        printf("commgemm-load: something was not given back\n");
    return back;
}

void cgm_load_print_usage(const char *after_what, const struct cgm_usage before[2],
                          const struct cgm_usage after[2])
{
    static const char *const names[] = {"daemon", "executor"};
    for (int i = 0; i < 2; i++) {
        char text[96], note[96];
        snprintf(text, sizeof(text), "  %s after %s, resident", names[i], after_what);
        snprintf(note, sizeof(note), "before: %llu; at most: %llu",
                 (unsigned long long)before[i].rss_kib, (unsigned long long)after[i].peak_kib);
        cgm_load_figure(text, (double)after[i].rss_kib, "KiB", note);
        snprintf(text, sizeof(text), "  %s after %s, file descriptors", names[i], after_what);
        snprintf(note, sizeof(note), "before: %llu", (unsigned long long)before[i].fds);
        cgm_load_figure(text, (double)after[i].fds, "", note);
    }
}

void cgm_load_figure(const char *text, double value, const char *unit, const char *note)
{
    printf("%-56s %12.3f %-4s%s%s%s\n", text, value, unit, note ? "  (" : "", note ? note : "",
           note ? ")" : "");
}

uint64_t cgm_load_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
