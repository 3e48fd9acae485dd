#include "daemon/broker/mps_clients.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/mps.h"
#include "proto/status.h"

#define STEP_LIMIT_MS 3000u
#define SERVERS_MAX 64u

/* From question to question. */
struct listing {
    struct cgm_broker *broker;
    cgm_mps_clients_fn *done;
    void *context;
    pid_t servers[SERVERS_MAX];
    unsigned n_servers, asked;
    struct cgm_mps_client clients[CGM_MPS_CLIENTS_MAX];
    unsigned count;
};

/* ---- the control program ----------------------------------------------------------------------
 */

static void describe_failure(const struct cgm_broker *broker, const char *command, int status,
                             const char *output, char *ret_note, size_t size)
{
    size_t length = strcspn(output, "\n");
    snprintf(ret_note, size, "%s of %.200s %s%s%.*s", command, cgm_mps_tool(&broker->config),
             status == CGM_TIMEOUT ? "does not answer" : "failed", length ? ": " : "",
             (int)(length < 200 ? length : 200), output);
}

static int ask(struct cgm_broker *broker, const char *command, cgm_tool_fn *done, void *context,
               char *ret_why, unsigned size)
{
    char input[96];
    snprintf(input, sizeof(input), "%s\n", command);
    return cgm_tool_run(broker, cgm_mps_tool(&broker->config), input, STEP_LIMIT_MS, done, context,
                        ret_why, size);
}

/* The next line that is a number and nothing else; 0: there is none. */
static pid_t next_pid(const char **text)
{
    while (**text) {
        char *end;
        long pid = strtol(*text, &end, 10);
        bool alone = end != *text && (*end == '\n' || *end == '\r' || *end == '\0');
        *text += strcspn(*text, "\n");
        *text += **text == '\n';
        if (alone && pid > 0 && pid <= INT32_MAX)
            return (pid_t)pid;
    }
    return 0;
}

/* ---- the list ---------------------------------------------------------------------------------
 */

static void finish(struct listing *listing, const char *note)
{
    listing->done(listing->context, listing->clients, listing->count, note);
    free(listing);
}

static void on_clients(void *context, int status, const char *output);

static void ask_next_server(struct listing *listing)
{
    char command[64], why[384];
    if (listing->asked == listing->n_servers) {
        finish(listing, "");
        return;
    }
    snprintf(command, sizeof(command), "get_client_list %d", (int)listing->servers[listing->asked]);
    if (ask(listing->broker, command, on_clients, listing, why, sizeof(why)) != CGM_OK)
        finish(listing, why);
}

static void on_clients(void *context, int status, const char *output)
{
    struct listing *listing = context;
    char note[512];
    pid_t pid;
    if (status != CGM_OK) {
        describe_failure(listing->broker, "get_client_list", status, output, note, sizeof(note));
        finish(listing, note);
        return;
    }
    while (listing->count < CGM_MPS_CLIENTS_MAX && (pid = next_pid(&output)) != 0)
        listing->clients[listing->count++] =
            (struct cgm_mps_client){listing->servers[listing->asked], pid};
    listing->asked++;
    ask_next_server(listing);
}

static void on_servers(void *context, int status, const char *output)
{
    struct listing *listing = context;
    char note[512];
    pid_t pid;
    if (status != CGM_OK) {
        describe_failure(listing->broker, "get_server_list", status, output, note, sizeof(note));
        finish(listing, note);
        return;
    }
    while (listing->n_servers < SERVERS_MAX && (pid = next_pid(&output)) != 0)
        listing->servers[listing->n_servers++] = pid;
    ask_next_server(listing);
}

void cgm_mps_list_clients(struct cgm_broker *broker, cgm_mps_clients_fn *done, void *context)
{
    char why[384];
    struct listing *listing = calloc(1, sizeof(*listing));
    if (!listing) {
        done(context, NULL, 0, "no memory to ask MPS");
        return;
    }
    listing->broker = broker;
    listing->done = done;
    listing->context = context;
    if (ask(broker, "get_server_list", on_servers, listing, why, sizeof(why)) != CGM_OK)
        finish(listing, why);
}

/* ---- the end of one ---------------------------------------------------------------------------
 */

struct ending {
    struct cgm_broker *broker;
    cgm_mps_terminated_fn *done;
    void *context;
    pid_t pid;
};

static void end(struct ending *ending, enum cgm_mps_part part, const char *note)
{
    ending->done(ending->context, part, note);
    free(ending);
}

static void on_terminated(void *context, int status, const char *output)
{
    struct ending *ending = context;
    char note[512] = "";
    if (status != CGM_OK)
        describe_failure(ending->broker, "terminate_client", status, output, note, sizeof(note));
    end(ending, status == CGM_OK ? CGM_MPS_TERMINATED : CGM_MPS_FAILED, note);
}

static void on_listed(void *context, const struct cgm_mps_client *clients, unsigned count,
                      const char *note)
{
    struct ending *ending = context;
    char command[64], why[384];
    unsigned i = 0;
    while (i < count && clients[i].pid != ending->pid)
        i++;
    if (i == count) {
        end(ending, note[0] ? CGM_MPS_FAILED : CGM_MPS_NO_CLIENT, note);
        return;
    }
    snprintf(command, sizeof(command), "terminate_client %d %d", (int)clients[i].server,
             (int)ending->pid);
    if (ask(ending->broker, command, on_terminated, ending, why, sizeof(why)) != CGM_OK)
        end(ending, CGM_MPS_FAILED, why);
}

void cgm_mps_terminate(struct cgm_broker *broker, pid_t pid, cgm_mps_terminated_fn *done,
                       void *context)
{
    struct ending *ending = calloc(1, sizeof(*ending));
    if (!ending) {
        done(context, CGM_MPS_FAILED, "no memory to ask MPS");
        return;
    }
    *ending = (struct ending){broker, done, context, pid};
    cgm_mps_list_clients(broker, on_listed, ending);
}
