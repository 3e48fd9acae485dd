#include "daemon/broker/attached.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/mps_clients.h"
#include "proto/printable.h"

#define LOOK_AGAIN_MS 100u
#define NAMED_MAX 8u

/* Processes name themselves, and this is read in terminals. */
static void name_of(pid_t pid, char *ret_name, size_t size)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t count = fd >= 0 ? read(fd, ret_name, size - 1) : 0;
    if (fd >= 0)
        close(fd);
    ret_name[count > 0 ? count : 0] = '\0';
    ret_name[strcspn(ret_name, "\n")] = '\0';
    cgm_printable(ret_name);
}

static void list_processes(const struct cgm_mps_client *clients, unsigned count, char *ret_text,
                           size_t size)
{
    size_t used = 0;
    char name[32];
    ret_text[0] = '\0';
    for (unsigned i = 0; i < count && i < NAMED_MAX && used < size; i++) {
        name_of(clients[i].pid, name, sizeof(name));
        used += (size_t)snprintf(ret_text + used, size - used, "%s%d (%s)", i ? ", " : "",
                                 (int)clients[i].pid, name[0] ? name : "of another container");
    }
    if (count > NAMED_MAX && used < size)
        snprintf(ret_text + used, size - used, " and %u more", count - NAMED_MAX);
}

/* Where MPS cannot be asked, starting one is the only way to find out. */
static void on_listed(void *context, const struct cgm_mps_client *clients, unsigned count,
                      const char *note)
{
    struct cgm_broker *broker = context;
    char processes[160], what[256];
    (void)note;
    if (broker->ending || broker->executor.state != CGM_EXECUTOR_DOWN)
        return;
    if (count == 0) {
        cgm_executor_retry(broker);
        return;
    }
    list_processes(clients, count, processes, sizeof(processes));
    snprintf(what, sizeof(what), "the GPU is lost under MPS until these have ended: %s", processes);
    cgm_executor_await(broker, what, LOOK_AGAIN_MS);
}

void cgm_attached_look(struct cgm_broker *broker)
{
    cgm_mps_list_clients(broker, on_listed, broker);
}
