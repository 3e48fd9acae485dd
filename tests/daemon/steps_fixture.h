/* A daemon that stops itself at a step (proto/step.h), or its executor does. */
#ifndef TEST_STEPS_FIXTURE_H
#define TEST_STEPS_FIXTURE_H

#include "tests/daemon/broker_fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/step.h"

struct scene {
    struct daemon daemon;
    struct cgm_step_page *steps;
};

static inline void scene_open(struct scene *scene, const char *setting, const char *executor)
{
    char path[96], steps[128];
    daemon_init(&scene->daemon);
    snprintf(path, sizeof(path), "%s/steps", scene->daemon.folder);
    snprintf(steps, sizeof(steps), "test_steps=%s", path);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, sizeof(*scene->steps)), 0);
    scene->steps = mmap(NULL, sizeof(*scene->steps), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    assert_ptr_not_equal(scene->steps, MAP_FAILED);
    daemon_start(&scene->daemon, setting, steps, executor, NULL);
}

static inline void scene_close(struct scene *scene)
{
    munmap(scene->steps, sizeof(*scene->steps));
    daemon_stop(&scene->daemon);
}

static inline void arm(struct scene *scene, uint32_t place, uint32_t value)
{
    atomic_store(&scene->steps->armed, place << 16 | value);
}

/* The process that has stopped there. */
static inline pid_t await_stop(struct scene *scene)
{
    pid_t pid = 0;
    for (unsigned naps = 0; pid == 0; naps++) {
        assert_true(naps < WAIT_S * 200);
        usleep(5000);
        pid = atomic_exchange(&scene->steps->pid, 0);
    }
    return pid;
}

#endif
