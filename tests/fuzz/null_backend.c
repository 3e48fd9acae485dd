#include "tests/fuzz/null_backend.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "proto/status.h"
#include "tests/fuzz/fuzz.h"

#define MEM_BYTES_MAX (1ull << 40)
#define HELD_MAX 4096u

struct cgm_mem {
    uint64_t bytes;
    unsigned unfilled, undrained; /* slices */
};
struct cgm_queue {
    uint32_t device;
    struct cgm_run *run;
};
struct cgm_flag {
    uint64_t value;
};
struct cgm_group {
    uint32_t size;
};

static struct {
    struct cgm_flag *flag;
    uint64_t value;
} held[HELD_MAX];
static unsigned n_held;

struct null_backend null_backend;

static int next_status(void)
{
    int status = null_backend.next_status;
    null_backend.next_status = CGM_OK;
    return status;
}

/* ---- devices and memory ----------------------------------------------------------------------
 */

static uint32_t device_count(struct cgm_backend *backend)
{
    (void)backend;
    return NULL_DEVICES;
}

static int device_info(struct cgm_backend *backend, uint32_t device,
                       struct cgm_device_info *ret_info)
{
    (void)backend;
    FUZZ_CHECK(device < NULL_DEVICES);
    *ret_info = (struct cgm_device_info){
        .uuid = "GPU-0",
        .name = "null",
        .bytes_total = MEM_BYTES_MAX,
        .bytes_free = MEM_BYTES_MAX / 2,
        .sms = 8,
        .priority_greatest = -2,
    };
    ret_info->uuid[4] = (char)('0' + device);
    return CGM_OK;
}

static int mem_alloc(struct cgm_backend *backend, uint32_t device, uint64_t bytes, uint32_t flags,
                     struct cgm_mem **ret_mem)
{
    (void)backend;
    FUZZ_CHECK(device < NULL_DEVICES);
    int status = next_status();
    if (status == CGM_OK && (flags || bytes == 0 || bytes > MEM_BYTES_MAX))
        status = flags ? CGM_NOT_SUPPORTED : CGM_NO_MEMORY;
    if (status != CGM_OK)
        return status;
    *ret_mem = malloc(sizeof(**ret_mem));
    FUZZ_CHECK(*ret_mem);
    (*ret_mem)->bytes = bytes;
    (*ret_mem)->unfilled = (*ret_mem)->undrained = bytes > CGM_MEM_AT_ONCE ? 2 : 0;
    null_backend.mems++;
    return CGM_OK;
}

static int mem_export(struct cgm_mem *mem, int *ret_fd)
{
    FUZZ_CHECK(mem->bytes > 0);
    *ret_fd = fcntl(0, F_DUPFD_CLOEXEC, 3);
    return *ret_fd < 0 ? CGM_IO : CGM_OK;
}

static int mem_adopt(struct cgm_backend *backend, uint32_t device, int fd, uint64_t bytes,
                     struct cgm_mem **ret_mem)
{
    return fd < 0 ? CGM_BAD_MESSAGE : mem_alloc(backend, device, bytes, 0, ret_mem);
}

static int mem_import(struct cgm_backend *backend, uint32_t device,
                      const struct cgm_memory_segment *segments, uint32_t n_segments,
                      bool read_only, char *ret_detail, size_t detail_bytes,
                      struct cgm_mem **ret_mem)
{
    uint64_t bytes = 0;
    (void)read_only;
    for (uint32_t i = 0; i < n_segments; i++)
        if (segments[i].kind != 1 || segments[i].fd < 0 ||
            __builtin_add_overflow(bytes, segments[i].length, &bytes)) {
            snprintf(ret_detail, detail_bytes, "segment %u is none", i);
            return CGM_INVALID_ARGUMENT;
        }
    return mem_alloc(backend, device, bytes, 0, ret_mem);
}

/* Every slice is as much as was asked for. */
static int mem_fill(struct cgm_mem *mem, uint64_t *bytes)
{
    int status = mem->unfilled && *bytes ? next_status() : CGM_OK;
    if (mem->unfilled && *bytes && status == CGM_OK) {
        mem->unfilled--;
        *bytes = 0;
    }
    return status;
}

static void mem_drain(struct cgm_mem *mem, uint64_t *bytes)
{
    if (mem->undrained && *bytes) {
        mem->undrained--;
        *bytes = 0;
    }
}

static uint64_t mem_bytes(const struct cgm_mem *mem)
{
    return mem->bytes;
}

static void mem_free(struct cgm_mem *mem)
{
    FUZZ_CHECK(mem && null_backend.mems > 0);
    null_backend.mems--;
    free(mem);
}

/* ---- queues and flags ------------------------------------------------------------------------
 */

static int queue_new(struct cgm_backend *backend, uint32_t device, int priority, uint32_t beside,
                     struct cgm_queue **ret_queue)
{
    (void)backend;
    (void)priority;
    (void)beside;
    int status = next_status();
    if (status != CGM_OK)
        return status;
    *ret_queue = calloc(1, sizeof(**ret_queue));
    FUZZ_CHECK(*ret_queue && device < NULL_DEVICES);
    null_backend.queues++;
    return CGM_OK;
}

static void queue_free(struct cgm_queue *queue)
{
    null_backend_let_go();
    null_backend.queues--;
    free(queue);
}

/* Everything is done at once. */
static uint32_t queue_count(const struct cgm_queue *queue)
{
    (void)queue;
    return 0;
}

static int flag_new(struct cgm_backend *backend, uint32_t device, enum cgm_flag_kind kind,
                    struct cgm_flag **ret_flag)
{
    (void)backend;
    (void)kind;
    FUZZ_CHECK(device < NULL_DEVICES);
    int status = next_status();
    if (status != CGM_OK)
        return status;
    *ret_flag = calloc(1, sizeof(**ret_flag));
    FUZZ_CHECK(*ret_flag);
    null_backend.flags++;
    return CGM_OK;
}

static uint64_t flag_read(const struct cgm_flag *flag)
{
    return flag->value;
}

static void flag_free(struct cgm_flag *flag)
{
    for (unsigned i = 0; i < n_held; i++)
        FUZZ_CHECK(held[i].flag != flag);
    null_backend.flags--;
    free(flag);
}

static void set_run(struct cgm_queue *queue, struct cgm_run *run)
{
    int running = CGM_OK;
    queue->run = run;
    if (run && null_backend.run_status != CGM_OK)
        atomic_compare_exchange_strong(&run->status, &running, null_backend.run_status);
    null_backend.run_status = CGM_OK;
}

static int raise_flag(struct cgm_queue *queue, struct cgm_flag *flag, uint64_t value)
{
    FUZZ_CHECK(queue);
    if (!null_backend.hold) {
        flag->value = value > flag->value ? value : flag->value;
        return CGM_OK;
    }
    FUZZ_CHECK(n_held < HELD_MAX);
    held[n_held].flag = flag;
    held[n_held++].value = value;
    return CGM_OK;
}

void null_backend_let_go(void)
{
    for (unsigned i = 0; i < n_held; i++)
        if (held[i].value > held[i].flag->value)
            held[i].flag->value = held[i].value;
    n_held = 0;
}

static int await(struct cgm_queue *queue, struct cgm_flag *flag, uint64_t value,
                 const struct cgm_label *label)
{
    FUZZ_CHECK(queue && flag && label && value > 0);
    return CGM_OK;
}

static int raise_all(struct cgm_queue *queue, const struct cgm_flag_value *signals, uint32_t count)
{
    FUZZ_CHECK(count > 0 && count <= CGM_FLAGS_AT_ONCE);
    for (uint32_t i = 0; i < count; i++)
        raise_flag(queue, signals[i].flag, signals[i].value);
    return CGM_OK;
}

static int await_all(struct cgm_queue *queue, const struct cgm_wait *waits, uint32_t count)
{
    FUZZ_CHECK(count > 0 && count <= CGM_FLAGS_AT_ONCE);
    for (uint32_t i = 0; i < count; i++)
        await(queue, waits[i].until.flag, waits[i].until.value, &waits[i].label);
    return CGM_OK;
}

/* ---- work ------------------------------------------------------------------------------------
 */

static void check_view(const struct cgm_view *view)
{
    uint64_t end;
    FUZZ_CHECK(view->mem && view->rows > 0 && view->cols > 0 && view->stride >= view->cols);
    FUZZ_CHECK(cgm_dtype_bytes(view->dtype) > 0);
    FUZZ_CHECK(cgm_view_end(view, &end) && end <= view->mem->bytes);
}

static void check_same_shape(const struct cgm_view *a, const struct cgm_view *b)
{
    FUZZ_CHECK(a->rows == b->rows && a->cols == b->cols);
}

static int copy(struct cgm_queue *queue, const struct cgm_copy *c)
{
    FUZZ_CHECK(queue->run && c->dst.dtype == c->src.dtype);
    check_view(&c->dst);
    check_view(&c->src);
    check_same_shape(&c->dst, &c->src);
    return next_status();
}

static void check_also(const struct cgm_view *also, uint32_t count, const struct cgm_view *like)
{
    FUZZ_CHECK(count <= CGM_ALSO_MAX);
    for (uint32_t i = 0; i < count; i++) {
        check_view(&also[i]);
        check_same_shape(like, &also[i]);
    }
}

static void check_gemm(const struct cgm_gemm *g, const struct cgm_view *a,
                       const struct cgm_view *out)
{
    uint64_t depth = g->transa ? a->rows : a->cols;
    check_view(a);
    check_view(&g->b);
    check_view(out);
    FUZZ_CHECK((g->transa ? a->cols : a->rows) == out->rows);
    FUZZ_CHECK((g->transb ? g->b.cols : g->b.rows) == depth);
    if (g->bias.mem)
        check_view(&g->bias);
}

static int gemm(struct cgm_queue *queue, const struct cgm_gemm *g)
{
    FUZZ_CHECK(queue->run);
    check_gemm(g, &g->a, &g->out);
    FUZZ_CHECK((g->transb ? g->b.rows : g->b.cols) == g->out.cols);
    return next_status();
}

static int flagged_gemm(struct cgm_queue *queue, const struct cgm_flagged_gemm *flagged)
{
    FUZZ_CHECK(queue->run && flagged->n_parts >= 1 && flagged->n_parts <= CGM_GEMM_PARTS_MAX);
    for (uint32_t i = 0; i < flagged->n_parts; i++) {
        const struct cgm_gemm_part *part = &flagged->parts[i];
        check_gemm(&flagged->gemm, &part->a, &part->out);
        check_also(part->also, part->n_also, &part->out);
        if (part->publish.flag)
            raise_flag(queue, part->publish.flag, part->publish.value);
    }
    return next_status();
}

static int reduce(struct cgm_queue *queue, const struct cgm_reduce *r)
{
    FUZZ_CHECK(queue->run && r->n_src >= 1 && r->n_src <= CGM_REDUCE_SOURCES_MAX);
    check_view(&r->dst);
    for (uint32_t i = 0; i < r->n_src; i++) {
        check_view(&r->src[i]);
        check_same_shape(&r->dst, &r->src[i]);
    }
    check_also(r->also, r->n_also, &r->dst);
    if (r->bias.mem)
        check_view(&r->bias);
    return next_status();
}

static int activate(struct cgm_queue *queue, const struct cgm_activation *a)
{
    FUZZ_CHECK(queue->run && (a->input.mem || a->kind == CGM_ACTIVATION_GELU));
    check_view(&a->out);
    if (a->input.mem) {
        check_view(&a->input);
        check_same_shape(&a->out, &a->input);
    }
    return next_status();
}

static int sum(struct cgm_queue *queue, const struct cgm_sum *s)
{
    FUZZ_CHECK(queue->run);
    check_view(&s->dst);
    check_view(&s->src);
    FUZZ_CHECK(s->dst.rows == 1 && s->dst.cols == (s->across ? s->src.rows : s->src.cols));
    return next_status();
}

static int poison(struct cgm_queue *queue, const struct cgm_view *view)
{
    FUZZ_CHECK(queue);
    check_view(view);
    return CGM_OK;
}

/* Memory of the operands may be gone: only shapes count. */
static int prepare_gemm(struct cgm_queue *queue, const struct cgm_gemm *g, enum cgm_prepare how)
{
    FUZZ_CHECK(queue && g->out.rows > 0 && g->out.cols > 0 && how <= CGM_PREPARE_TRIALS);
    if (how == CGM_PREPARE_KNOWN && g->out.rows % 2)
        return CGM_NOT_FOUND;
    return next_status();
}

static int prepare_flagged_gemm(struct cgm_queue *queue, const struct cgm_flagged_gemm *flagged,
                                enum cgm_prepare how)
{
    FUZZ_CHECK(queue && flagged->n_parts > 0 && how <= CGM_PREPARE_TRIALS);
    return next_status();
}

static int group_new(struct cgm_backend *backend, const uint32_t *devices, uint32_t size,
                     char *ret_text, size_t text_bytes, struct cgm_group **ret_group)
{
    (void)backend;
    for (uint32_t i = 0; i < size; i++)
        FUZZ_CHECK(devices[i] < NULL_DEVICES && (i == 0 || devices[i] != devices[i - 1]));
    snprintf(ret_text, text_bytes, null_backend.groups ? "null 1.0" : "there is none here");
    if (!null_backend.groups)
        return CGM_NOT_SUPPORTED;
    *ret_group = malloc(sizeof(**ret_group));
    FUZZ_CHECK(*ret_group);
    (*ret_group)->size = size;
    null_backend.group_count++;
    return CGM_OK;
}

static void group_free(struct cgm_group *group)
{
    FUZZ_CHECK(group->size > 0);
    null_backend.group_count--;
    free(group);
}

static int collective(struct cgm_queue *queue, struct cgm_group *group, uint32_t rank,
                      const struct cgm_collective *c)
{
    FUZZ_CHECK(queue->run && rank < group->size && c->dst.dtype == c->src.dtype);
    check_view(&c->dst);
    check_view(&c->src);
    FUZZ_CHECK((c->dst.rows == 1 || c->dst.stride == c->dst.cols) &&
               (c->src.rows == 1 || c->src.stride == c->src.cols));
    return next_status();
}

static bool release_waits(struct cgm_backend *backend, const struct cgm_run *run)
{
    (void)backend;
    FUZZ_CHECK(atomic_load(&run->status) != CGM_OK);
    return false;
}

static void warm_up(struct cgm_backend *backend, uint32_t device)
{
    (void)backend;
    FUZZ_CHECK(device < NULL_DEVICES);
}

static void finish_phases(struct cgm_backend *backend, struct cgm_run *run)
{
    (void)backend;
    FUZZ_CHECK(run->phases);
}

static void look(struct cgm_backend *backend)
{
    (void)backend;
}

static uint64_t allocations(struct cgm_backend *backend)
{
    (void)backend;
    return 0;
}

const struct cgm_backend_ops null_backend_ops = {
    .name = "null",
    .device_count = device_count,
    .device_info = device_info,
    .mem_alloc = mem_alloc,
    .mem_export = mem_export,
    .mem_adopt = mem_adopt,
    .mem_import = mem_import,
    .mem_bytes = mem_bytes,
    .mem_free = mem_free,
    .mem_fill = mem_fill,
    .mem_drain = mem_drain,
    .queue_new = queue_new,
    .queue_free = queue_free,
    .queue_count = queue_count,
    .flag_new = flag_new,
    .flag_read = flag_read,
    .flag_free = flag_free,
    .set_run = set_run,
    .copy = copy,
    .gemm = gemm,
    .flagged_gemm = flagged_gemm,
    .reduce = reduce,
    .activate = activate,
    .sum = sum,
    .poison = poison,
    .signal = raise_flag,
    .wait = await,
    .wait_all = await_all,
    .signal_all = raise_all,
    .allocations = allocations,
    .prepare_gemm = prepare_gemm,
    .prepare_flagged_gemm = prepare_flagged_gemm,
    .group_new = group_new,
    .group_free = group_free,
    .collective = collective,
    .release_waits = release_waits,
    .warm_up = warm_up,
    .finish_phases = finish_phases,
    .check = look,
};
