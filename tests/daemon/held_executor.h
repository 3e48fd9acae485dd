/* What an executor that can be held waits for: a file in a folder of its own. */
#ifndef HELD_EXECUTOR_H
#define HELD_EXECUTOR_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define HELD_DEVICE 3u
#define SLOW_DEVICE 2u /* making one of its queues takes 0.3 ms */
#define HELD_GATE "COMMGEMM_TEST_GATE"

struct gate {
    char folder[32], path[48];
};

/* For executors that are started from here on. */
static inline int gate_shut(struct gate *gate)
{
    snprintf(gate->folder, sizeof(gate->folder), "/tmp/cgm-gate.XXXXXX");
    if (!mkdtemp(gate->folder))
        return -1;
    snprintf(gate->path, sizeof(gate->path), "%s/gate", gate->folder);
    return setenv(HELD_GATE, gate->path, 1);
}

/* In such an executor. */
static inline void gate_await(void)
{
    const char *gate = getenv(HELD_GATE);
    while (gate && access(gate, F_OK) < 0)
        usleep(1000);
}

static inline void gate_open(const struct gate *gate)
{
    close(open(gate->path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
}

static inline void gate_remove(const struct gate *gate)
{
    unlink(gate->path);
    rmdir(gate->folder);
}

#endif
