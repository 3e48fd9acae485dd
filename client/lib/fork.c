#include "client/lib/fork.h"

#include <pthread.h>
#include <unistd.h>

#include "client/lib/client.h"
#include "client/lib/cuda_driver.h"
#include "proto/packet.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static commgemm_client *clients; /* of this process; under the lock */

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
    cgm_cuda_before_fork();
}

static void in_parent(void)
{
    cgm_cuda_after_fork();
    pthread_mutex_unlock(&lock);
}

/* Only what is safe between fork and exec. */
static void in_child(void)
{
    for (commgemm_client *client = clients; client; client = client->next) {
        atomic_store(&client->forked, true);
        close(client->socket);
    }
    clients = NULL;
    cgm_cuda_after_fork();
    pthread_mutex_unlock(&lock);
}

static void register_handlers(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
}

int cgm_fork_add(commgemm_client *client)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_handlers);
    pthread_mutex_lock(&lock);
    int status = cgm_socket_new(&client->socket);
    if (status == CGM_OK) {
        client->next = clients;
        clients = client;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void cgm_fork_remove(commgemm_client *client)
{
    pthread_mutex_lock(&lock);
    for (commgemm_client **at = &clients; *at; at = &(*at)->next) {
        if (*at != client)
            continue;
        *at = client->next;
        break;
    }
    close(client->socket);
    pthread_mutex_unlock(&lock);
}
