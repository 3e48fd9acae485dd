#include "tests/daemon/mps_service.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/send_signal.h"

/* ---- a control daemon -------------------------------------------------------------------------
 */

static _Noreturn void stay(const char *name)
{
    prctl(PR_SET_NAME, name);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(STDOUT_FILENO);
    for (;;)
        pause();
}

/* Words: the server's uid, then perhaps -M. Says that it is there by closing standard output. */
int be_control(char **words)
{
    int ready[2];
    char byte;
    if (pipe(ready) < 0)
        return 1;
    if (fork() == 0) {
        if (setuid((uid_t)atoi(words[0])) < 0)
            _exit(1);
        prctl(PR_SET_NAME, "nvidia-cuda-mps-server");
        close(ready[0]);
        close(ready[1]);
        stay("nvidia-cuda-mps-server");
    }
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 0)
        return 1;
    stay("nvidia-cuda-mps-control");
}

void write_file(const char *folder, const char *name, const char *text, mode_t mode)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(chmod(path, mode), 0);
}

static int listen_in(const char *folder)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_true((size_t)snprintf(address.sun_path, sizeof(address.sun_path), "%s/control", folder) <
                sizeof(address.sun_path));
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 4), 0);
    return fd;
}

void service_start(struct service *service, const struct daemon *daemon, uid_t server_uid,
                   const char *option)
{
    char uid[16], pid[16], byte;
    int ready[2];
    snprintf(service->folder, sizeof(service->folder), "%s/mps", daemon->folder);
    assert_int_equal(mkdir(service->folder, 0755), 0);
    service->listener = listen_in(service->folder);
    snprintf(uid, sizeof(uid), "%u", (unsigned)server_uid);
    assert_int_equal(pipe(ready), 0);
    service->control = fork();
    assert_true(service->control >= 0);
    if (service->control == 0) {
        dup2(ready[1], STDOUT_FILENO);
        close(ready[0]);
        close(ready[1]);
        execl("/proc/self/exe", "test", CONTROL_WORD, uid, option, (char *)NULL);
        _exit(1);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 0);
    close(ready[0]);
    snprintf(pid, sizeof(pid), "%d\n", (int)service->control);
    write_file(service->folder, "nvidia-cuda-mps-control.pid", pid, 0644);
}

void service_stop(struct service *service)
{
    send_signal(service->control, SIGKILL);
    waitpid(service->control, NULL, 0);
    close(service->listener);
}

/* ---- a control program: notes its command, answers from a file, fails or hangs on demand ------
 */

static const char program[] = "#!/bin/sh\n"
                              "cd \"${0%/*}\" || exit 9\n"
                              "read -r line\n"
                              "echo \"$line\" >>commands\n"
                              "command=${line%% *}\n"
                              "if [ -e \"hang.$command\" ]; then sleep 600; fi\n"
                              "if [ -e \"stop.$command\" ]; then kill -STOP $PPID; fi\n"
                              "if [ -e \"answer.$command\" ]; then cat \"answer.$command\"; fi\n"
                              "[ ! -e \"fail.$command\" ]\n";

void program_install(const struct daemon *daemon, char *ret_setting, size_t size)
{
    char own_pid[16];
    write_file(daemon->folder, "control", program, 0755);
    snprintf(own_pid, sizeof(own_pid), "%d\n", (int)getpid());
    write_file(daemon->folder, "answer.get_server_list", SERVER "\n", 0644);
    write_file(daemon->folder, "answer.get_client_list", own_pid, 0644);
    snprintf(ret_setting, size, "mps_control=%s/control", daemon->folder);
}

void expect_commands(const struct daemon *daemon, const char *expected)
{
    char path[256], text[1024] = "";
    snprintf(path, sizeof(path), "%s/commands", daemon->folder);
    FILE *file = fopen(path, "re");
    if (file) {
        text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
        fclose(file);
    }
    assert_string_equal(text, expected);
}

void folder_use(struct daemon *daemon)
{
    char path[128];
    daemon_init(daemon);
    snprintf(path, sizeof(path), "%s/mps", daemon->folder);
    setenv("CUDA_MPS_PIPE_DIRECTORY", path, 1);
}

void cuda_setting(const struct daemon *daemon, char *ret_setting, size_t size)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/commgemm-executor-cuda", daemon->folder);
    assert_int_equal(symlink(CGM_BIN_DIR "/fake_executor", path), 0);
    write_file(daemon->folder, "backend", "cuda", 0644);
    snprintf(ret_setting, size, "executor=%s", path);
}
