/* commgemmctl kill: ends another session, in such a way that nobody else's GPU work dies of it. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/ctl/ctl.h"
#include "client/ctl/rows.h"
#include "proto/status.h"

/* In the order of the option's choices. */
static const int signals[] = {SIGTERM, SIGKILL, SIGINT, SIGHUP};

static const char *const parts[] = {
    [COMMGEMM_MPS_OFF] = "MPS is off",
    [COMMGEMM_MPS_NO_CLIENT] = "no client of MPS",
    [COMMGEMM_MPS_TERMINATED] = "terminated by MPS",
    [COMMGEMM_MPS_FAILED] = "MPS failed",
};
#define PART_COUNT (sizeof(parts) / sizeof(parts[0]))

static int read_session(const char *word, uint64_t *ret_session)
{
    char *end;
    errno = 0;
    *ret_session = strtoull(word, &end, 10);
    return errno == 0 && word[0] >= '0' && word[0] <= '9' && *end == '\0' ? CGM_OK
                                                                          : CGM_INVALID_ARGUMENT;
}

static json_int_t find_pid(commgemm_client *client, uint64_t session)
{
    json_int_t pid = 0;
    json_t *rows, *row;
    char *json;
    size_t i;

    if (commgemm_query(client, "sessions", &json) != COMMGEMM_OK)
        return 0;
    rows = cgm_rows_load(json, "sessions");
    json_array_foreach(rows, i,
                       row) if ((uint64_t)json_integer_value(json_object_get(row, "id")) == session)
        pid = json_integer_value(json_object_get(row, "pid"));
    json_decref(rows);
    free(json);
    return pid;
}

/* A handle taken while the session still shows whose process it is: its number may be another's
 * later, and is already when the daemon says then that the process has ended. A negative errno when
 * there is none. */
static int open_process(commgemm_client *client, uint64_t session)
{
    json_int_t pid = find_pid(client, session);
    int process = pid > 0 ? (int)syscall(SYS_pidfd_open, (pid_t)pid, 0) : -1;

    return process >= 0 ? process : pid > 0 ? -errno : -ESRCH;
}

static int send_signal(const struct cgm_ctl *ctl, const struct commgemm_killed *killed, int process)
{
    char detail[160];
    int error = process < 0 ? -process : 0;

    if (killed->pid == 0)
        return 0;
    if (process >= 0 && syscall(SYS_pidfd_send_signal, process, signals[ctl->signal], NULL, 0) != 0)
        error = errno;
    if (error == 0 || error == ESRCH)
        return 0;
    snprintf(detail, sizeof(detail), "the session has ended; process %" PRId64 ": %s", killed->pid,
             strerror(error));
    return cgm_ctl_fail(ctl, cgm_status_of_errno(error), detail, "send it as root, on this node");
}

static int print_killed(const struct cgm_ctl *ctl, uint64_t session,
                        const struct commgemm_killed *killed)
{
    unsigned part = (unsigned)killed->mps < PART_COUNT ? (unsigned)killed->mps : 0;

    if (ctl->json) {
        json_t *pid = killed->pid ? json_integer(killed->pid) : json_null();
        json_t *row = json_pack("{s:I,s:o,s:s,s:s}", "session", (json_int_t)session, "pid", pid,
                                "mps", parts[part], "note", killed->note);
        return cgm_rows_print("kill", json_pack("[o]", row)) == CGM_OK
                   ? 0
                   : cgm_ctl_fail(ctl, CGM_NO_MEMORY, NULL, NULL);
    }
    if (killed->pid == 0)
        printf("session %" PRIu64
               " ended (%s); its process has ended, or is of another container\n",
               session, parts[part]);
    else
        printf("session %" PRIu64 " ended (%s); its process %" PRId64 " %s\n", session, parts[part],
               killed->pid, ctl->signal < 0 ? "is left alone" : "gets the signal");
    return 0;
}

static int report(const struct cgm_ctl *ctl, uint64_t session, const struct commgemm_killed *killed,
                  int process)
{
    char detail[400];

    if (killed->mps == COMMGEMM_MPS_FAILED) {
        snprintf(detail, sizeof(detail),
                 "the session has ended, but MPS did not terminate process %" PRId64 ": %s",
                 killed->pid, killed->note);
        return cgm_ctl_fail(ctl, CGM_IO, detail,
                            "let the process end by itself: killed with a running kernel it takes "
                            "all CUDA work on its GPU along");
    }
    int result = print_killed(ctl, session, killed);
    if (result == 0 && ctl->signal >= 0)
        result = send_signal(ctl, killed, process);
    return result;
}

int cgm_ctl_kill(void *settings, int n_words, char **words)
{
    const struct cgm_ctl *ctl = settings;
    struct commgemm_killed killed;
    commgemm_client *client;
    char detail[160];
    uint64_t session;

    (void)n_words;
    if (read_session(words[0], &session) != CGM_OK) {
        snprintf(detail, sizeof(detail),
                 "SESSION is \"%.64s\"; it must be a number from 1 to %" PRIu64, words[0],
                 UINT64_MAX);
        return cgm_ctl_fail(ctl, CGM_INVALID_ARGUMENT, detail, "commgemmctl sessions");
    }
    int result = cgm_ctl_connect(ctl, &client);
    if (result != 0)
        return result;
    int process = ctl->signal >= 0 ? open_process(client, session) : -1;
    int status = commgemm_kill_session(client, session, &killed);
    if (status == CGM_OK)
        result = report(ctl, session, &killed, process);
    else
        result = cgm_ctl_fail(ctl, status, commgemm_last_error(),
                              status == CGM_PERMISSION  ? "run it as the daemon's user or root"
                              : status == CGM_NOT_FOUND ? "commgemmctl sessions"
                                                        : NULL);
    if (process >= 0)
        close(process);
    commgemm_disconnect(client);
    return result;
}
