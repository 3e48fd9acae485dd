#include "daemon/broker/tune.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/comm.h"
#include "daemon/broker/log.h"
#include "daemon/broker/plan.h"
#include "daemon/broker/session.h"
#include "proto/status.h"
#include "proto/types.h"

/* Plans are often made one after the other: they are saved together. */
#define SAVE_AFTER_MS 1000u

/* ---- plans -------------------------------------------------------------------------------------
 */

static bool key_of(const struct cgm_broker *broker, const struct cgm_plan *plan,
                   struct cgm_timing *ret_timing)
{
    const struct cgm_comm *comm = cgm_registry_find(&broker->comms, plan->comm);
    Cgm__PlanCreate *create = cgm__plan_create__unpack(NULL, plan->request_bytes, plan->request);
    bool is_kept = comm && create && broker->config.tune_ms > 0 &&
                   create->algorithm == CGM_ALGO_AUTO && create->method == CGM_METHOD_AUTO &&
                   cgm_timing_of_plan(create, COMMGEMM_RELEASE, broker->executor.platform,
                                      comm->devices, comm->size, ret_timing);
    if (create)
        cgm__plan_create__free_unpacked(create, NULL);
    return is_kept;
}

void cgm_tune_recall(struct cgm_broker *broker, struct cgm_plan *plan)
{
    struct cgm_timing timing;
    if (key_of(broker, plan, &timing))
        cgm_timings_find(&broker->timings, &timing, &plan->times);
}

static void on_save(uv_timer_t *timer)
{
    struct cgm_broker *broker = timer->data;
    cgm_timings_save(&broker->timings);
}

static void save_soon(struct cgm_broker *broker)
{
    if (!uv_is_active((uv_handle_t *)&broker->save_timer))
        uv_timer_start(&broker->save_timer, on_save, SAVE_AFTER_MS, 0);
}

void cgm_tune_remember(struct cgm_broker *broker, const struct cgm_plan *plan)
{
    struct cgm_timing timing;
    if (!key_of(broker, plan, &timing))
        return;
    timing.times = plan->times;
    if (cgm_timings_add(&broker->timings, &timing, plan->owner.uid) == CGM_OK)
        save_soon(broker);
}

/* ---- listing -----------------------------------------------------------------------------------
 */

/* As the plan's reason says it. */
static uint64_t microseconds(uint64_t ns)
{
    return (ns + 500) / 1000;
}

/* "fused_ag num_splits=8". */
static void name_tried(const struct cgm_times *times, uint32_t i, char *ret_text, size_t size)
{
    char variant[CGM_VARIANT_TEXT];
    cgm_variant_write(times->variant[i], variant);
    snprintf(ret_text, size, "%s%s%s", cgm_type_name(CGM_TABLE_ALGO, (int)times->algorithm[i]),
             variant[0] ? " " : "", variant);
}

static void list_times(const struct cgm_times *times, char *ret_text, size_t size)
{
    size_t used = 0;
    char name[96], time[24];
    ret_text[0] = '\0';
    for (uint32_t i = 1; i < times->n && used < size; i++) {
        name_tried(times, i, name, sizeof(name));
        snprintf(time, sizeof(time), "%ju", (uintmax_t)microseconds(times->ns[i]));
        used += (size_t)snprintf(ret_text + used, size - used, "%s%s %s", i > 1 ? ", " : "", name,
                                 times->ns[i] ? time : "-");
    }
}

static void timing_row(const char *line, struct cgm_rows *rows)
{
    struct cgm_timing t;
    char text[CGM_TIMING_LINE_BYTES], detail[128];
    struct tm broken;
    if (cgm_timing_read(line, detail, sizeof(detail), &t) != CGM_OK)
        return;
    time_t at = (time_t)t.times.at_s;
    cgm_rows_begin(rows);
    cgm_rows_text(rows, "op", cgm_type_name(CGM_TABLE_OP, (int)t.fields[CGM_TIMING_op]));
    cgm_rows_number(rows, "m", (uint64_t)t.fields[CGM_TIMING_m]);
    cgm_rows_number(rows, "n", (uint64_t)t.fields[CGM_TIMING_n]);
    cgm_rows_number(rows, "k", (uint64_t)t.fields[CGM_TIMING_k]);
    cgm_rows_text(rows, "dtype", cgm_type_name(CGM_TABLE_DTYPE, (int)t.fields[CGM_TIMING_dtype]));
    cgm_rows_number(rows, "world", t.world);
    cgm_rows_text(rows, "algorithm", cgm_type_name(CGM_TABLE_ALGO, (int)t.times.algorithm[0]));
    cgm_variant_write(t.times.variant[0], text);
    cgm_rows_text(rows, "parameters", text);
    cgm_rows_number(rows, "us", microseconds(t.times.ns[0]));
    list_times(&t.times, text, sizeof(text));
    cgm_rows_text(rows, "others", text);
    if (!gmtime_r(&at, &broken) || !strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &broken))
        text[0] = '\0';
    cgm_rows_text(rows, "measured", text);
    cgm_rows_text(rows, "release", t.release);
    cgm_rows_text(rows, "platform", t.platform);
    cgm_rows_text(rows, "record", line);
}

void cgm_tune_rows(const struct cgm_broker *broker, uint64_t after, struct cgm_rows *rows)
{
    const struct cgm_timings *timings = &broker->timings;
    for (uint64_t i = after; i < timings->count; i++) {
        timing_row(timings->entries[i].line, rows);
        if (!cgm_rows_are_full(rows) || i + 1 == timings->count)
            continue;
        rows->reply->has_next = 1;
        rows->reply->next = i + 1;
        return;
    }
}

/* ---- changes -----------------------------------------------------------------------------------
 */

static int import(struct cgm_request *request, const Cgm__Tune *tune)
{
    struct cgm_timing timing;
    char detail[128];
    for (size_t i = 0; i < tune->n_record; i++)
        if (cgm_timing_read(tune->record[i], detail, sizeof(detail), &timing) != CGM_OK)
            return cgm_refuse(request, CGM_INVALID_ARGUMENT, "record %zu: %s", i, detail);
    for (size_t i = 0; i < tune->n_record; i++)
        if (cgm_timing_read(tune->record[i], detail, sizeof(detail), &timing) != CGM_OK ||
            cgm_timings_add(&request->broker->timings, &timing, request->session->uid) != CGM_OK)
            return cgm_refuse(request, CGM_NO_MEMORY, "no memory for record %zu", i);
    return CGM_OK;
}

int cgm_tune_on_tune(struct cgm_request *request)
{
    struct cgm_broker *broker = request->broker;
    const Cgm__Tune *tune = (const Cgm__Tune *)request->message;
    Cgm__TuneReply reply = CGM__TUNE_REPLY__INIT;
    reply.count = tune->clear ? cgm_timings_clear(&broker->timings) : (uint32_t)tune->n_record;
    int status = import(request, tune);
    int error = tune->clear ? cgm_timings_save(&broker->timings) : 0;
    if (!tune->clear)
        save_soon(broker);
    if (status != CGM_OK)
        return status;
    if (error)
        return cgm_refuse(request, CGM_IO,
                          "%u timings were cleared, but the next daemon has them again: %s: %s",
                          reply.count, broker->timings.path, strerror(error));
    cgm_log_info("timings: %u %s by session %ju", reply.count,
                 tune->clear ? "were cleared" : "came", (uintmax_t)request->session->id);
    cgm_reply(request, CGM_MSG_TUNE_REPLY, &reply.base);
    return CGM_OK;
}
