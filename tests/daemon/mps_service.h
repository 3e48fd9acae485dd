/* An MPS of the test's own: a control daemon with a server, which are this program started once
 * more, and a control program that does as it is told by files beside it. */
#ifndef CGM_TEST_MPS_SERVICE_H
#define CGM_TEST_MPS_SERVICE_H

#include "tests/daemon/broker_fixture.h"

#define SERVER "4242"            /* the server that the control program lists */
#define CONTROL_WORD "--control" /* main's first argument in the control daemon */

struct service {
    char folder[128];
    pid_t control;
    int listener;
};

/* What main returns where its first argument is CONTROL_WORD; words: what follows it. */
int be_control(char **words);

/* Where the daemon looks for MPS. Calls daemon_init. */
void folder_use(struct daemon *daemon);

/* option: "-M" or NULL. */
void service_start(struct service *service, const struct daemon *daemon, uid_t server_uid,
                   const char *option);
void service_stop(struct service *service);

/* Files in the daemon's folder are the program's orders: hang.COMMAND, stop.COMMAND,
 * answer.COMMAND, fail.COMMAND. */
void write_file(const char *folder, const char *name, const char *text, mode_t mode);
void program_install(const struct daemon *daemon, char *ret_setting, size_t size);
/* All that the program was told, a line each. */
void expect_commands(const struct daemon *daemon, const char *expected);

/* A fake executor whose name says that it is for CUDA. */
void cuda_setting(const struct daemon *daemon, char *ret_setting, size_t size);

#endif
