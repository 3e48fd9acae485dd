/* copy_in: into each chunk and into the whole user buffer, with rows up to the capacity, and
 * nowhere else. */
#include "tests/algo/trial.h"

static uint32_t copy_in_chunk; /* of the launch that runs */

static int copy_in_enqueue(const struct cgm_launch *launch, uint32_t rank)
{
    return cgm_copy_in_enqueue(launch, rank, copy_in_chunk);
}

/* A chunk holds rows `skip` and following of what was copied in; makes it NaN again. */
static void judge_copy_in(const struct trial *trial, uint32_t rank, uint32_t chunk, uint64_t skip)
{
    const struct job *job = &trial->jobs[0];
    const struct cgm_view *lhs = &trial->launches[0].operands[rank][CGM_OPERAND_LHS];
    struct cgm_view view = view_in_chunk(trial, job->rows, rank, chunk);
    size_t bytes = cgm_dtype_bytes(view.dtype);
    struct arena *user = &trial->rig->user[rank];
    unsigned char *at = user->base + view.offset_bytes;
    for (uint64_t row = 0; row < view.rows; row++) {
        const unsigned char *source =
            job->before[rank] + lhs->offset_bytes + (skip + row) * lhs->stride * bytes;
        assert_memory_equal(at + row * view.stride * bytes, source, view.cols * bytes);
        memset(at + row * view.stride * bytes, POISON, view.cols * bytes);
    }
}

static void copy_in_place(struct trial *trial, uint32_t rank, const struct cgm_shape *shape)
{
    struct job *job = &trial->jobs[0];
    struct arena *arena = &trial->rig->operands[0][rank];
    struct matrix values =
        matrix_new(WHOLE, 1, shape->rows, shape->cols, shape->dtype, &rng, CGM_FILL_WIDE);
    struct part part = matrix_part(&values, 1, 0);
    struct cgm_view *lhs = &trial->launches[0].operands[rank][CGM_OPERAND_LHS];
    arena->used = 0;
    *lhs = place(arena, shape, false);
    part_store(&part, false, lhs, arena->base);
    host_view_push(&arena->view, 0, arena->used);
    job->used[rank] = arena->used;
    job->before[rank] = must_alloc(arena->used + GUARD_BYTES);
    trial->launches[0].after[rank] = job->again[rank] = must_alloc(arena->used + GUARD_BYTES);
    memcpy(job->before[rank], arena->base, arena->used + GUARD_BYTES);
    matrix_free(&values);
}

static void try_copy_in(struct rig *rig, const struct config *config)
{
    struct trial trial = {.config = config, .rig = rig};
    trial_plan(&trial);
    uint32_t chunks = cgm_operation_chunks(&trial.spec);
    uint32_t chunk = pick(3) == 0 ? UINT32_MAX : (uint32_t)pick(chunks);
    struct cgm_algorithm copy_in = {.enqueue = copy_in_enqueue};
    struct cgm_shape shape;
    uint64_t offset, stride, step = cgm_operation_rows_step(&trial.spec);
    trial.jobs[0].rows = step * (1 + pick(trial.spec.m / step));
    trial.launches[0].arenas = rig->operands[0];
    trial.launches[0].launch.rows = trial.jobs[0].rows;
    copy_in_chunk = chunk;
    assert_true(
        cgm_operation_chunk(&trial.spec, trial.jobs[0].rows, chunk, &offset, &stride, &shape));
    rig_set_plan(rig, &trial.spec, &copy_in, false);
    for (uint32_t rank = 0; rank < config->world; rank++)
        copy_in_place(&trial, rank, &shape);
    assert_int_equal(rig_run(rig, &trial.spec, &copy_in, trial.launches, 1), CGM_OK);
    for (uint32_t rank = 0; rank < config->world; rank++) {
        host_view_pull(&rig->user[rank].view, 0, rig->user[rank].used + GUARD_BYTES);
        for (uint32_t i = 0; i < chunks; i++)
            if (chunk == UINT32_MAX || chunk == i)
                judge_copy_in(&trial, rank, i, chunk == i ? 0 : i * (shape.rows / chunks));
        for (size_t i = 0; i < rig->user[rank].used + GUARD_BYTES; i++)
            assert_int_equal(rig->user[rank].base[i], POISON);
    }
    job_fini(&trial.jobs[0], config->world);
}

static void test_copy_in(void **state)
{
    (void)state;
    struct rig *rig = rig_open(4, 0);
    for (int i = 0; i < 500; i++) {
        size_t type = pick(TYPES_SAME);
        struct config config = {.algorithm = cgm_algorithm_find(CGM_ALGO_NO_OVERLAP),
                                .op = layouts[pick(LAYOUTS)].op,
                                .dtype = types[type].dtype,
                                .out_dtype = types[type].out_dtype,
                                .buffer_dtype = -1,
                                .world = worlds[pick(WORLDS)]};
        config.transa = layouts[layout_of(config.op)].rhs != NOTHING && pick(2);
        pick_rest(&config);
        try_copy_in(rig, &config);
    }
    rig_close(rig);
}

int main(void)
{
    seed_trials();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_copy_in)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
