/* A session of the library with the daemon of a test. */
#ifndef TEST_ENTER_H
#define TEST_ENTER_H

#include "commgemm.h"
#include "tests/daemon/broker_fixture.h"

/* Waits until there is an executor. */
static inline commgemm_client *enter_at(const char *socket)
{
    commgemm_client *client;
    struct commgemm_connect_options options;
    commgemm_connect_options_init(&options);
    options.socket = socket;
    assert_int_equal(commgemm_connect(&options, &client), COMMGEMM_OK);
    assert_int_equal(commgemm_wait_executor(client, WAIT_S * 1000), COMMGEMM_OK);
    return client;
}

static inline commgemm_client *enter(const struct daemon *daemon)
{
    return enter_at(daemon->socket);
}

#endif
