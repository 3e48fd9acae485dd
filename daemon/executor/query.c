#include "daemon/executor/query.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/executor/algorithm.h"
#include "daemon/executor/endpoint.h"
#include "daemon/executor/gang.h"
#include "daemon/executor/plan.h"
#include "daemon/executor/quiet.h"
#include "proto/messages.h"
#include "proto/status.h"

typedef unsigned long long ull;

#define ROWS_MAX 100u
#define FIELDS_MAX 24u
#define VALUE_BYTES 320u
#define DOCTOR_KEPT_NS 60000000000ull

/* One page of rows under construction; strings live in it. */
struct page {
    Cgm__QueryReply reply;
    Cgm__Row *pointers[ROWS_MAX];
    Cgm__Row rows[ROWS_MAX];
    char *keys[ROWS_MAX][FIELDS_MAX];
    char *values[ROWS_MAX][FIELDS_MAX];
    char text[ROWS_MAX][FIELDS_MAX][VALUE_BYTES];
};

static Cgm__Row *page_row(struct page *page)
{
    size_t i = page->reply.n_row;
    if (i == ROWS_MAX)
        return NULL;
    cgm__row__init(&page->rows[i]);
    page->rows[i].key = page->keys[i];
    page->rows[i].value = page->values[i];
    page->pointers[i] = &page->rows[i];
    page->reply.row = page->pointers;
    page->reply.n_row++;
    return &page->rows[i];
}

/* Values are JSON text: numbers as they are, strings with their quotes. None of ours need escapes.
 */
static void row_add(struct page *page, Cgm__Row *row, const char *key, const char *format, ...)
{
    size_t i = (size_t)(row - page->rows), field = row->n_key;
    va_list arguments;
    if (field == FIELDS_MAX)
        return;
    va_start(arguments, format);
    vsnprintf(page->text[i][field], VALUE_BYTES, format, arguments);
    va_end(arguments);
    page->keys[i][field] = (char *)(uintptr_t)key;
    page->values[i][field] = page->text[i][field];
    row->n_key = row->n_value = field + 1;
}

/* Text of any length and from anywhere: cut off, and what JSON would have to escape replaced. */
static void row_add_text(struct page *page, Cgm__Row *row, const char *key, const char *text)
{
    char plain[VALUE_BYTES - 2];
    snprintf(plain, sizeof(plain), "%s", text);
    for (char *c = plain; *c; c++)
        if (*c == '"' || *c == '\\' || (unsigned char)*c < 0x20)
            *c = '\'';
    row_add(page, row, key, "\"%s\"", plain);
}

static void query_status(struct page *page, struct cgm_poller *poller, uint64_t after)
{
    (void)after;
    const struct cgm_poller_counters *c = &poller->counters;
    struct cgm_executor *executor = poller->executor;
    Cgm__Row *row = page_row(page);
    row_add(page, row, "devices", "%u", executor->n_devices);
    row_add(page, row, "allocations", "%llu",
            (ull)(c->allocations + executor->ops->allocations(executor->backend)));
    row_add(page, row, "syscalls", "%llu", (ull)c->syscalls);
    row_add(page, row, "poller_sleeps", "%llu", (ull)c->sleeps);
    row_add(page, row, "replays", "%llu", (ull)c->replays);
    row_add(page, row, "recorded", "%llu", (ull)poller->recorded);
}

/* ---- jobs -----------------------------------------------------------------------------------
 *
 * Of one session after the other. The cursor is the session and how many of its jobs' places were
 * seen: what comes and goes in between moves nothing else. */

#define PLACES (2ull * CGM_RING_ENTRIES_MAX)
#define ALL_PLACES (PLACES - 1)
/* A page ends when it has so many rows, or has looked at so many places; a session is some. */
#define JOBS_PER_PAGE 32u
#define LOOKS_PER_PAGE 2048u
#define LOOKS_PER_SESSION 16u

static void job_row(struct page *page, const struct cgm_job *job, uint64_t now_ns)
{
    const struct cgm_gang *gang = job->gang;
    const struct cgm_plan *plan = job->plan; /* NULL: a noop */
    Cgm__Row *row = page_row(page);
    if (!row)
        return;
    row_add(page, row, "session", "%llu", (ull)job->endpoint->session);
    row_add(page, row, "ticket", "%llu", (ull)job->ticket);
    row_add(page, row, "comm", "%llu", plan ? (ull)plan->comm->id : 0);
    row_add(page, row, "number", "%llu", (ull)job->comm_number);
    row_add(page, row, "rank", "%u", job->rank);
    row_add(page, row, "op", "\"%s\"", cgm_job_name(job));
    row_add(page, row, "algorithm", "\"%s\"",
            plan && job->opcode == CGM_OPCODE_RUN ? plan->algorithm->name : "");
    row_add(page, row, "state", "\"%s\"", gang ? cgm_gang_state_name(gang->state) : "waiting");
    row_add(page, row, "age_ms", "%llu", (ull)(now_ns - job->accept_ns) / 1000000);
}

/* Its jobs from a place on, as far as the page goes; how many places were seen. */
static uint32_t endpoint_jobs(struct page *page, const struct cgm_endpoint *endpoint, uint32_t from,
                              uint32_t *looks, uint64_t now_ns)
{
    uint32_t i = from;
    for (; i < endpoint->used_jobs; i++, --*looks) {
        if (page->reply.n_row == JOBS_PER_PAGE || *looks == 0)
            return i;
        if (endpoint->tickets[i] != 0)
            job_row(page, &endpoint->jobs[i], now_ns);
    }
    return ALL_PLACES;
}

static const struct cgm_endpoint *endpoint_from(const struct cgm_poller *poller, uint64_t session)
{
    const struct cgm_endpoint *endpoint = poller->first_endpoint;
    while (endpoint && endpoint->session < session)
        endpoint = endpoint->next;
    return endpoint;
}

static void query_jobs(struct page *page, struct cgm_poller *poller, uint64_t after)
{
    uint64_t now_ns = cgm_now_ns(), session = after / PLACES;
    uint32_t looks = LOOKS_PER_PAGE;
    const struct cgm_endpoint *endpoint = endpoint_from(poller, session);
    for (; endpoint && !page->reply.has_next; endpoint = endpoint->next) {
        uint64_t from = endpoint->session == session ? after % PLACES : 0;
        uint64_t seen = ALL_PLACES;
        if (endpoint->in_flight > 0)
            seen = endpoint_jobs(page, endpoint, (uint32_t)from, &looks, now_ns);
        looks -= looks < LOOKS_PER_SESSION ? looks : LOOKS_PER_SESSION;
        page->reply.next = endpoint->session * PLACES + seen;
        page->reply.has_next = seen != ALL_PLACES || (looks == 0 && endpoint->next);
    }
}

/* ---- what never changes ---------------------------------------------------------------------
 */

static void ops_list(uint32_t ops, char *ret_text, size_t size)
{
    size_t used = 0;
    ret_text[0] = '\0';
    for (int op = 0; op < 32 && used + 16 < size; op++)
        if (ops >> op & 1)
            used += (size_t)snprintf(ret_text + used, size - used, "%s%s", used ? ", " : "",
                                     cgm_type_name(CGM_TABLE_OP, op));
}

static void query_algorithms(struct page *page, struct cgm_poller *poller, uint64_t after)
{
    (void)after;
    char ops[VALUE_BYTES - 2], parameters[VALUE_BYTES - 2];
    for (size_t i = 0; i < cgm_algorithm_count; i++) {
        const struct cgm_algorithm *a = cgm_algorithms[i];
        Cgm__Row *row = page_row(page);
        if (!row)
            return;
        ops_list(a->ops, ops, sizeof(ops));
        row_add(page, row, "number", "%d", a->number);
        row_add(page, row, "name", "\"%s\"", a->name);
        row_add(page, row, "ops", "\"%s\"", ops);
        row_add(page, row, "method", "\"%s\"", cgm_type_name(CGM_TABLE_METHOD, a->method));
        row_add(page, row, "atomic", "%s", a->atomic ? "true" : "false");
        row_add(page, row, "backend", "\"%s\"", poller->executor->ops->name);
        cgm_parameter_list(a->parameters, parameters, sizeof(parameters));
        row_add(page, row, "parameters", "\"%s\"", parameters);
        row_add(page, row, "summary", "\"%s\"", a->summary);
    }
}

static void doctor_row(struct page *page, const char *check, enum cgm_doctor_result result,
                       const char *text, const char *fix)
{
    static const char *const results[] = {"ok", "warning", "failure"};
    Cgm__Row *row = page_row(page);
    if (!row)
        return;
    row_add_text(page, row, "check", check);
    row_add_text(page, row, "result", results[result]);
    row_add_text(page, row, "text", text);
    row_add_text(page, row, "fix", fix);
}

static void device_row(struct page *page, uint32_t device, int status, const char *name)
{
    char check[32];
    snprintf(check, sizeof(check), "device %u", device);
    doctor_row(page, check, status == CGM_OK ? CGM_DOCTOR_OK : CGM_DOCTOR_FAILURE,
               status == CGM_OK ? name : cgm_status_text(status), "");
}

/* As they were at the start: to look again takes longer than jobs on their way should wait. */
static void query_devices(struct page *page, struct cgm_poller *poller, uint64_t after)
{
    (void)after;
    for (uint32_t device = 0; device < poller->executor->n_devices; device++)
        device_row(page, device, CGM_OK, poller->executor->info[device].name);
}

static const struct {
    uint32_t what;
    void (*rows)(struct page *page, struct cgm_poller *poller, uint64_t after);
} queries[] = {
    {CGM_QUERY_STATUS, query_status},
    {CGM_QUERY_JOBS, query_jobs},
    {CGM_QUERY_ALGORITHMS, query_algorithms},
    {CGM_QUERY_DOCTOR, query_devices},
};

static struct page *page_new(void)
{
    struct page *page = calloc(1, sizeof(*page));
    if (page)
        cgm__query_reply__init(&page->reply);
    return page;
}

static void answer(struct cgm_request *request, const struct page *page)
{
    cgm_request_answer(request, CGM_MSG_QUERY_REPLY, &page->reply.base, NULL, 0);
}

/* ---- a doctor that measures -----------------------------------------------------------------
 *
 * It holds up launches, so its findings are kept for a while and whoever asks in the meantime gets
 * the same. */

/* The poller's; the mapper fills the page while `runs`. */
static struct {
    struct cgm_quiet quiet;
    struct page *page;
    uint64_t measured_ns;
    bool runs;
    struct cgm_request *waiting; /* linked by their tasks */
} doctor;

static void doctor_add(void *context, const char *check, enum cgm_doctor_result result,
                       const char *text, const char *fix)
{
    doctor_row(context, check, result, text, fix);
}

static void doctor_run(struct cgm_quiet *quiet)
{
    struct cgm_executor *executor = quiet->poller->executor;
    struct cgm_device_info info;
    for (uint32_t device = 0; device < executor->n_devices; device++) {
        int status = executor->ops->device_info(executor->backend, device, &info);
        device_row(doctor.page, device, status, info.name);
    }
    executor->ops->doctor(executor->backend, doctor_add, doctor.page);
}

static void doctor_done(struct cgm_quiet *quiet)
{
    (void)quiet;
    doctor.runs = false;
    doctor.measured_ns = cgm_now_ns();
    while (doctor.waiting) {
        struct cgm_request *request = doctor.waiting;
        doctor.waiting = (struct cgm_request *)request->task.next;
        cgm_query_on_query(request); /* it is known now */
    }
}

static void doctor_ask(struct cgm_request *request)
{
    struct page *page = NULL;
    if (!doctor.runs && doctor.page && cgm_now_ns() - doctor.measured_ns < DOCTOR_KEPT_NS) {
        answer(request, doctor.page);
        return;
    }
    if (!doctor.runs && !(page = page_new())) {
        cgm_request_fail(request, CGM_NO_MEMORY, "query: out of host memory");
        return;
    }
    request->task.next = (struct cgm_task *)doctor.waiting;
    doctor.waiting = request;
    if (doctor.runs)
        return;
    free(doctor.page);
    doctor.page = page;
    doctor.runs = true;
    doctor.quiet.run = doctor_run;
    doctor.quiet.done = doctor_done;
    cgm_quiet_post(&request->executor->poller, &doctor.quiet);
}

/* ---- one at a time -------------------------------------------------------------------------- */

static void query_answer(struct cgm_request *request)
{
    static struct page page; /* the poller's; what was never used takes no memory */
    const Cgm__Query *m = (const Cgm__Query *)request->message;
    cgm__query_reply__init(&page.reply);
    for (size_t i = 0; i < sizeof(queries) / sizeof(queries[0]); i++)
        if (queries[i].what == m->what)
            queries[i].rows(&page, &request->executor->poller, m->has_after ? m->after : 0);
    answer(request, &page);
}

void cgm_query_on_query(struct cgm_request *request)
{
    struct cgm_poller *poller = &request->executor->poller;
    request->task.next = NULL;
    *(poller->first_query ? &poller->last_query->next : &poller->first_query) = &request->task;
    poller->last_query = &request->task;
}

bool cgm_query_step(struct cgm_poller *poller)
{
    struct cgm_request *request = (struct cgm_request *)poller->first_query;
    if (!request)
        return false;
    poller->first_query = request->task.next;
    if (((const Cgm__Query *)request->message)->what == CGM_QUERY_DOCTOR &&
        poller->executor->ops->doctor)
        doctor_ask(request);
    else
        query_answer(request);
    return true;
}
