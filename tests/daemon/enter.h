/* A session of the library with the daemon of a test. */
#ifndef TEST_ENTER_H
#define TEST_ENTER_H

#include "commgemm.h"
#include "tests/daemon/broker_fixture.h"

/* Waits until there is an executor. A status, as commgemm_last_error says. */
static inline int try_to_enter(const char *socket, commgemm_client **ret_client)
{
    struct commgemm_connect_options options;
    commgemm_connect_options_init(&options);
    options.socket = socket;
    int status = commgemm_connect(&options, ret_client);
    return status == COMMGEMM_OK ? commgemm_wait_executor(*ret_client, WAIT_S * 1000) : status;
}

static inline commgemm_client *enter_at(const char *socket)
{
    commgemm_client *client;
    if (try_to_enter(socket, &client))
        fail_msg("enter: %s", commgemm_last_error());
    return client;
}

static inline commgemm_client *enter(const struct daemon *daemon)
{
    return enter_at(daemon->socket);
}

#endif
