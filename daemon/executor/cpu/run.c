/* What a queue's thread does with each kind of record: one row each. */
#include <time.h>

#include "daemon/executor/cpu/queue.h"
#include "proto/status.h"
#include "proto/step.h"

static void run_copy(struct cgm_queue *queue, const struct cgm_record *record)
{
    cgm_matrix_copy(&record->of.copy.dst, &record->of.copy.src, &queue->seat);
}

static void run_gemm(struct cgm_queue *queue, const struct cgm_record *record)
{
    cgm_gemm_multiply(&record->of.gemm, queue->backend->panels, &queue->seat);
}

static void run_sources(struct cgm_queue *queue, const struct cgm_record *record)
{
    for (uint32_t i = 0; i < record->of.sources.count; i++)
        queue->sources[record->of.sources.first + i] = record->of.sources.matrix[i];
}

static void run_reduce(struct cgm_queue *queue, const struct cgm_record *record)
{
    cgm_matrix_reduce(&record->of.reduce, queue->sources, &queue->seat);
}

static void run_activate(struct cgm_queue *queue, const struct cgm_record *record)
{
    cgm_matrix_activate(&record->of.activation, &queue->seat);
}

static void run_sum(struct cgm_queue *queue, const struct cgm_record *record)
{
    cgm_matrix_sum(&record->of.sum, &queue->seat);
}

/* Of memory with holes there is nothing that could be given up. */
static void give_up(const struct cgm_record *record)
{
    struct cgm_run *run = record->run;
    if (run && atomic_load(&run->give_up) != CGM_OK && !cgm_holes_missed())
        atomic_store(&run->given_up, true);
}

static void run_poison(struct cgm_queue *queue, const struct cgm_record *record)
{
    if (!cgm_matrix_poison(&record->of.poison, &queue->seat))
        give_up(record);
}

/* After the store the run may be gone: nothing looks at it any more. */
static void run_signal(struct cgm_queue *queue, const struct cgm_record *record)
{
    (void)queue;
    cgm_cpu_flag_signal(record->of.flag.flag, record->of.flag.value);
}

/* A wait that does not hold the queue: it is no phase, and the thread keeps its seat. */
static bool is_over(const struct cgm_record *record)
{
    return record->kind == CGM_RECORD_WAIT &&
           cgm_cpu_flag_read(record->of.flag.flag) >= record->of.flag.value;
}

static void run_wait(struct cgm_queue *queue, const struct cgm_record *record)
{
    if (!is_over(record))
        cgm_seat_give(&queue->seat);
    cgm_cpu_flag_wait(record->of.flag.flag, record->of.flag.value, record->run);
}

#define NO_PHASE (-1)

static const struct {
    void (*run)(struct cgm_queue *queue, const struct cgm_record *record);
    int phase;
    bool always; /* in a failed run too */
    bool seated; /* it computes */
} kinds[] = {
    [CGM_RECORD_COPY] = {run_copy, CGM_PHASE_COPY, false, true},
    [CGM_RECORD_GEMM] = {run_gemm, CGM_PHASE_GEMM, false, true},
    [CGM_RECORD_SOURCES] = {run_sources, NO_PHASE, false, false},
    [CGM_RECORD_REDUCE] = {run_reduce, CGM_PHASE_REDUCE, false, true},
    [CGM_RECORD_ACTIVATE] = {run_activate, CGM_PHASE_EPILOGUE, false, true},
    [CGM_RECORD_SUM] = {run_sum, CGM_PHASE_EPILOGUE, false, true},
    [CGM_RECORD_POISON] = {run_poison, CGM_PHASE_FILL, true, true},
    [CGM_RECORD_SIGNAL] = {run_signal, NO_PHASE, true, false},
    [CGM_RECORD_WAIT] = {run_wait, CGM_PHASE_WAIT, false, false},
};

/* Work of nobody's run is that of a test. */
static const _Atomic int *abort_of(const struct cgm_record *record)
{
    if (!record->run)
        return NULL;
    return kinds[record->kind].always ? &record->run->give_up : &record->run->status;
}

/* False: aborted before there was one. */
static bool take_seat(struct cgm_queue *queue, const struct cgm_record *record)
{
    cgm_seat_serve(&queue->seat, record->run ? record->run->uid : 0, abort_of(record));
    return cgm_seat_take(&queue->seat);
}

/* Memory of clients that may get holes. */
struct watched {
    struct cgm_hole_watch *watches[CGM_HOLES_AT_ONCE];
    uint32_t count;
};

static void watch(struct watched *watched, const struct cgm_matrix *matrices, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (matrices[i].data && matrices[i].watch && watched->count < CGM_HOLES_AT_ONCE)
            watched->watches[watched->count++] = matrices[i].watch;
}

static void watch_all(struct watched *watched, const struct cgm_queue *queue,
                      const struct cgm_record *record)
{
    const struct cgm_matrix_gemm *gemm = &record->of.gemm;
    const struct cgm_matrix_reduce *reduce = &record->of.reduce;
    const struct cgm_matrix_activation *activation = &record->of.activation;
    watched->count = 0;
    switch (record->kind) {
    case CGM_RECORD_COPY:
        watch(watched, &record->of.copy.dst, 1);
        watch(watched, &record->of.copy.src, 1);
        break;
    case CGM_RECORD_GEMM:
        watch(watched, &gemm->out, 1);
        watch(watched, &gemm->a, 1);
        watch(watched, &gemm->b, 1);
        watch(watched, &gemm->bias, 1);
        break;
    case CGM_RECORD_REDUCE:
        watch(watched, &reduce->dst, 1);
        watch(watched, &reduce->bias, 1);
        watch(watched, queue->sources, reduce->n_src);
        break;
    case CGM_RECORD_ACTIVATE:
        watch(watched, &activation->out, 1);
        watch(watched, &activation->input, 1);
        break;
    case CGM_RECORD_SUM:
        watch(watched, &record->of.sum.dst, 1);
        watch(watched, &record->of.sum.src, 1);
        break;
    case CGM_RECORD_POISON:
        watch(watched, &record->of.poison, 1);
        break;
    default:
        break;
    }
}

/* What is read of a hole is nothing, and what is written is lost. */
static void run_watched(struct cgm_queue *queue, const struct cgm_record *record)
{
    struct watched watched;
    int running = CGM_OK;
    watch_all(&watched, queue, record);
    if (cgm_holes_begin(watched.watches, watched.count))
        kinds[record->kind].run(queue, record);
    if (cgm_holes_end() && record->run)
        atomic_compare_exchange_strong(&record->run->status, &running, CGM_STALE);
}

static void run_kind(struct cgm_queue *queue, const struct cgm_record *record)
{
    if (!kinds[record->kind].seated)
        kinds[record->kind].run(queue, record);
    else if (take_seat(queue, record))
        run_watched(queue, record);
    else if (kinds[record->kind].always)
        give_up(record);
}

static void phase_add(const struct cgm_queue *queue, const struct cgm_record *record,
                      uint64_t begin_ns)
{
    struct cgm_run *run = record->run;
    uint32_t index = atomic_fetch_add(&run->n_phases, 1);
    if (index >= run->phases_max)
        return;
    run->phases[index] = (struct cgm_phase){
        .begin_ns = begin_ns - run->begin_ns,
        .end_ns = cgm_cpu_now_ns() - run->begin_ns,
        .kind = (uint16_t)kinds[record->kind].phase,
        .device = (uint16_t)queue->device,
        .rank = record->label.rank,
        .queue = record->label.queue,
        .chunk = record->label.chunk,
        .peer_or_zero = record->label.peer,
    };
}

/* xorshift64. */
static void delay(struct cgm_queue *queue, uint32_t limit_us)
{
    uint64_t x = queue->delay_state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    queue->delay_state = x;
    uint64_t ns = x % (limit_us * 1000ull);
    struct timespec pause = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    cgm_seat_give(&queue->seat);
    nanosleep(&pause, NULL);
}

void cgm_record_run(struct cgm_queue *queue, const struct cgm_record *record)
{
    struct cgm_run *run = record->run;
    int phase = kinds[record->kind].phase;
    bool failed = run && atomic_load(&run->status) != CGM_OK;
    if (phase != NO_PHASE)
        cgm_step(CGM_STEP_PHASE, (unsigned)phase);
    if (failed && !kinds[record->kind].always)
        return;
    if (queue->backend->options.test_delay_us && !failed)
        delay(queue, queue->backend->options.test_delay_us);
    if (phase == NO_PHASE || !run || !run->phases || is_over(record)) {
        run_kind(queue, record);
        return;
    }
    uint64_t begin_ns = cgm_cpu_now_ns();
    run_kind(queue, record);
    phase_add(queue, record, begin_ns);
}
