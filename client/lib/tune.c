#include <string.h>

#include "client/lib/client.h"

/* Of one message, which must fit into a packet. */
#define BATCH_BYTES 32768u

static int call(commgemm_client *client, const Cgm__Tune *tune, uint32_t *ret_count)
{
    struct cgm_reply reply;
    int status = cgm_client_call(client, CGM_MSG_TUNE, &tune->base, CGM_MSG_TUNE_REPLY, &reply);
    if (status != CGM_OK)
        return status;
    *ret_count = ((const Cgm__TuneReply *)reply.message)->count;
    cgm_reply_fini(&reply);
    return CGM_OK;
}

int commgemm_tune_clear(commgemm_client *client, uint32_t *ret_count)
{
    Cgm__Tune tune = CGM__TUNE__INIT;
    int status = cgm_check_client(client);
    if (status == CGM_OK)
        status = cgm_check_pointer(ret_count, "ret_count");
    tune.has_clear = tune.clear = 1;
    return status == CGM_OK ? call(client, &tune, ret_count) : status;
}

/* How many of the records go into one message; at least one, if there is any. */
static uint32_t batch(const char *const *records, uint32_t n)
{
    size_t bytes = 0;
    uint32_t count = 0;
    while (count < n && bytes < BATCH_BYTES)
        bytes += strlen(records[count++]) + 8;
    return count;
}

int commgemm_tune_import(commgemm_client *client, const char *const *records, uint32_t n_records)
{
    int status = cgm_check_client(client);
    if (status == CGM_OK)
        status = cgm_check_pointer(records, "records");
    for (uint32_t i = 0; status == CGM_OK && i < n_records; i++)
        status = cgm_check_pointer(records[i], "a record of records");
    if (status != CGM_OK)
        return status;
    uint32_t done = 0;
    do { /* also without records: whoever may not import is told so */
        Cgm__Tune tune = CGM__TUNE__INIT;
        uint32_t unused;
        tune.record = (char **)(uintptr_t)(records + done);
        tune.n_record = batch(records + done, n_records - done);
        done += (uint32_t)tune.n_record;
        status = call(client, &tune, &unused);
    } while (status == CGM_OK && done < n_records);
    return status;
}
