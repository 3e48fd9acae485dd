#include "daemon/broker/mps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/broker/config.h"

#define DIRECTORY_DEFAULT "/tmp/nvidia-mps"
#define CONTROL_NAME "nvidia-cuda-mps-control"
#define NAME_PREFIX "nvidia-cuda-mps" /* as much as the kernel keeps of a process's name */

const char *cgm_mps_tool(const struct cgm_config *config)
{
    return config->mps_control[0] ? config->mps_control : CONTROL_NAME;
}

/* The file's beginning, as a text. The number of bytes, 0 when it cannot be read. Where there is no
 * MPS anybody may have made the directory: a pipe of this name must not keep the daemon waiting. */
static size_t read_file(const char *path, char *ret_text, size_t size)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    bool is_file = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    ssize_t count = is_file ? read(fd, ret_text, size - 1) : -1;
    if (fd >= 0)
        close(fd);
    ret_text[count > 0 ? count : 0] = '\0';
    return count > 0 ? (size_t)count : 0;
}

/* ---- processes --------------------------------------------------------------------------------
 */

static bool is_of_mps(pid_t pid)
{
    char path[64], name[32];
    snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    return read_file(path, name, sizeof(name)) > 0 &&
           strncmp(name, NAME_PREFIX, strlen(NAME_PREFIX)) == 0;
}

static bool uid_of_process(pid_t pid, uid_t *ret_uid)
{
    char path[64], text[2048];
    unsigned uid;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    read_file(path, text, sizeof(text));
    const char *line = strstr(text, "\nUid:");
    if (!line || sscanf(line, "\nUid: %u", &uid) != 1)
        return false;
    *ret_uid = uid;
    return true;
}

/* The process that says it is the control daemon, if it is visible and one. */
static pid_t find_control(const char *directory)
{
    char path[256], text[32];
    snprintf(path, sizeof(path), "%s/" CONTROL_NAME ".pid", directory);
    read_file(path, text, sizeof(text));
    pid_t pid = (pid_t)strtol(text, NULL, 10);
    return pid > 0 && is_of_mps(pid) ? pid : 0;
}

/* Only root's serves many users, and only root's words, or this user's, are read: others could keep
 * whoever reads theirs waiting. */
static bool has_multi_user_option(pid_t control)
{
    static const char *const spellings[] = {"-M", "-multiuser-server", "--multiuser-server"};
    char path[64], text[1024];
    uid_t uid;
    if (!uid_of_process(control, &uid) || (uid != 0 && uid != geteuid()))
        return false;
    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)control);
    size_t count = read_file(path, text, sizeof(text));
    for (size_t at = 0; at < count; at += strlen(text + at) + 1)
        for (size_t i = 0; i < sizeof(spellings) / sizeof(spellings[0]); i++)
            if (strcmp(text + at, spellings[i]) == 0)
                return true;
    return false;
}

/* The servers are its children; in single-user mode there is one, of the uid that it serves. */
static bool find_server_uid(pid_t control, uid_t *ret_uid)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)control, (int)control);
    read_file(path, text, sizeof(text));
    char *at = text, *end;
    for (long pid = strtol(at, &end, 10); end != at; pid = strtol(at, &end, 10)) {
        if (is_of_mps((pid_t)pid) && uid_of_process((pid_t)pid, ret_uid))
            return true;
        at = end;
    }
    return false;
}

/* ---- the service ------------------------------------------------------------------------------
 */

/* A socket of the wrong type is told apart from one where nobody listens, and the one who listens
 * notices nothing. */
static bool is_listened_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || strlen(path) >= sizeof(address.sun_path)) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    strcpy(address.sun_path, path);
    int error = connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ? errno : 0;
    close(fd);
    return error == 0 || error == EPROTOTYPE;
}

/* A control daemon that is no root can start servers of its own uid only. */
static void find_bond(struct cgm_mps *mps, uid_t owner)
{
    uid_t control_uid = owner;
    mps->is_bound = find_server_uid(mps->control, &mps->uid);
    if (mps->is_bound)
        return;
    if (mps->control)
        uid_of_process(mps->control, &control_uid);
    mps->is_bound = control_uid != 0;
    mps->uid = control_uid;
}

void cgm_mps_look(struct cgm_mps *ret_mps)
{
    const char *given = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char path[256];
    struct stat st;
    memset(ret_mps, 0, sizeof(*ret_mps));
    snprintf(ret_mps->directory, sizeof(ret_mps->directory), "%s",
             given && given[0] ? given : DIRECTORY_DEFAULT);
    snprintf(path, sizeof(path), "%s/control", ret_mps->directory);
    if (stat(path, &st) < 0)
        return;
    ret_mps->control = find_control(ret_mps->directory);
    ret_mps->on = ret_mps->control != 0 || is_listened_to(path);
    if (!ret_mps->on)
        return;
    ret_mps->mode_known = ret_mps->control != 0;
    ret_mps->is_multi = ret_mps->mode_known && has_multi_user_option(ret_mps->control);
    find_bond(ret_mps, st.st_uid);
}

bool cgm_mps_excludes(const struct cgm_mps *mps, uid_t uid)
{
    return mps->on && mps->mode_known && !mps->is_multi && mps->is_bound && mps->uid != uid;
}
