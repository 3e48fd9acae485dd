/* A hole in memory that a client shares, made so slowly that whoever wants to map the memory waits
 * for as long as anybody likes, and cannot map anything else: an executor that takes over
 * everything does not come through. The one after it takes over what others have. */
#include "tests/daemon/broker_fixture.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/send_signal.h"

#define PAGE 4096u
#define LARGE_BYTES (4ull << 20)

#define MAPPINGS 60000u
#define PAGES 128u /* of each */

/* A hole is taken out of every mapping, by a thread of the lowest priority beside one that is never
 * idle. Nobody else can map the memory or unmap it meanwhile, and who tries cannot map anything. */
struct slow_hole {
    pid_t maker, spinner, prober;
    bool *begun, *mapped; /* shared */
};

static void stay_on_one_processor(void)
{
    cpu_set_t set;
    int first = 0;
    sched_getaffinity(0, sizeof(set), &set);
    while (!CPU_ISSET(first, &set))
        first++;
    CPU_ZERO(&set);
    CPU_SET(first, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

/* So many mappings are too many for what a sanitizer would note of each. */
static void make_hole(const struct slow_hole *hole, int fd)
{
    struct sched_param none = {0};
    for (unsigned i = 0; i < MAPPINGS; i++)
        (void)syscall(SYS_mmap, NULL, PAGES * PAGE, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    stay_on_one_processor();
    *(volatile bool *)hole->begun = true;
    sched_setscheduler(0, SCHED_IDLE, &none);
    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, LARGE_BYTES);
    _exit(0);
}

static void spin(void)
{
    stay_on_one_processor();
    for (;;)
        continue;
}

static void probe(const struct slow_hole *hole, int fd)
{
    *(volatile bool *)hole->mapped = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED;
    _exit(0);
}

static pid_t child_of_test(void)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return child;
}

/* False: it does not take long here. */
static bool slow_hole_begin(struct slow_hole *hole, int fd)
{
    hole->begun = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(hole->begun, MAP_FAILED);
    hole->mapped = hole->begun + 1;
    if ((hole->maker = child_of_test()) == 0)
        make_hole(hole, fd);
    for (int naps = 0; !*(volatile bool *)hole->begun; naps++) {
        assert_true(naps < WAIT_S * 100);
        usleep(10000);
    }
    if ((hole->spinner = child_of_test()) == 0)
        spin();
    usleep(200000);
    if ((hole->prober = child_of_test()) == 0)
        probe(hole, fd);
    usleep(500000);
    bool is_slow = !*(volatile bool *)hole->mapped;
    if (!is_slow)
        print_message("a hole is made at once here\n");
    return is_slow;
}

static void slow_hole_end(struct slow_hole *hole)
{
    struct sched_param none = {0};
    pid_t children[] = {hole->spinner, hole->maker, hole->prober};
    sched_setscheduler(hole->maker, SCHED_OTHER, &none);
    for (size_t i = 0; i < sizeof(children) / sizeof(children[0]); i++) {
        send_signal(children[i], SIGKILL);
        waitpid(children[i], NULL, 0);
    }
    munmap(hole->begun, PAGE);
}

struct scene {
    struct daemon daemon;
    struct client attacker, honest;
};

static void test_an_executor_that_cannot_take_over(void **state)
{
    struct scene scene;
    struct slow_hole hole;
    int fd;
    Cgm__BufferOpen open_it = CGM__BUFFER_OPEN__INIT;
    (void)state;
    skip_unless_root();
    daemon_init(&scene.daemon);
    daemon_start(&scene.daemon, "socket_mode=0666", "executor_timeout=2",
                 "executor_start_timeout=2", REAL_EXECUTOR, NULL);
    client_open(&scene.honest, &scene.daemon);
    wait_for_executor(&scene.honest);
    client_open_as(STRANGER, &scene.attacker, &scene.daemon);
    buffer_create(&scene.attacker, NULL, LARGE_BYTES, 0, &fd);
    buffer_create(&scene.honest, "kept", LARGE_BYTES, 0, NULL);
    if (slow_hole_begin(&hole, fd)) {
        uint64_t life = status_number(&scene.honest, "executor_life");
        pid_t executor = (pid_t)status_number(&scene.honest, "executor_pid");
        assert_int_equal(send_signal(executor, SIGKILL), 0);
        wait_for_more(&scene.honest, "executor_life", life);
        wait_for_executor(&scene.honest);
        open_it.name = (char *)(uintptr_t) "kept";
        message_free(client_call(&scene.honest, CGM_MSG_BUFFER_OPEN, &open_it.base, NULL, 0,
                                 CGM_MSG_BUFFER_REPLY));
        buffer_create(&scene.honest, NULL, LARGE_BYTES, 0, NULL); /* and it is mapped */
        if (*(volatile bool *)hole.mapped)
            print_message("the hole was made meanwhile: nothing is shown\n");
    }
    slow_hole_end(&hole);
    close(fd);
    client_close(&scene.attacker);
    client_close(&scene.honest);
    daemon_stop(&scene.daemon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_executor_that_cannot_take_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
