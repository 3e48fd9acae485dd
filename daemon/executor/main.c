/* commgemm-executor-<backend>: started by commgemmd with its end of the control socket as fd 3. */
#include <fcntl.h>
#include <stdio.h>

#include "daemon/executor/executor.h"

#define LINK_FD 3

int main(void)
{
    if (fcntl(LINK_FD, F_SETFD, FD_CLOEXEC) < 0) {
        fprintf(stderr, "commgemm-executor-%s: it is started by commgemmd, not by hand\n",
                CGM_BACKEND.name);
        return 2;
    }
    return cgm_executor_serve(&CGM_BACKEND, LINK_FD);
}
