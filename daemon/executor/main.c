/* commgemm-executor-<backend>: started by commgemmd with its end of the control socket as fd 3. */
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "daemon/executor/executor.h"

#define LINK_FD 3

/* Blocks from this size on are mapped, and unmapped when they are freed. Left to itself the library
 * raises the limit to what was freed once, and a crowd of queues that has gone stays resident. */
#define MMAP_FROM_BYTES (128 * 1024)

/* Of a broker's end the socket says nothing while one of its threads cannot end. */
#define BROKER_ENDS SIGUSR1

static void on_brokers_end(int number)
{
    (void)number;
    shutdown(LINK_FD, SHUT_RDWR);
}

int main(void)
{
    struct sigaction action = {.sa_handler = on_brokers_end, .sa_flags = SA_RESTART};
    /* A terminal sends them to both; it is the broker that knows what they mean. */
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    mallopt(M_MMAP_THRESHOLD, MMAP_FROM_BYTES);
    if (fcntl(LINK_FD, F_SETFD, FD_CLOEXEC) < 0) {
        fprintf(stderr, "commgemm-executor-%s: it is started by commgemmd, not by hand\n",
                CGM_BACKEND.name);
        return 2;
    }
    sigaction(BROKER_ENDS, &action, NULL);
    prctl(PR_SET_PDEATHSIG, BROKER_ENDS);
    return cgm_executor_serve(&CGM_BACKEND, LINK_FD);
}
