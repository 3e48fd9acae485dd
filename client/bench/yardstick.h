/* What submission is compared with: a plain Unix-socket round trip and a bare ping-pong in shared
 * memory, each with a process of its own on the other side. */
#ifndef CGM_BENCH_YARDSTICK_H
#define CGM_BENCH_YARDSTICK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct cgm_yardstick {
    pid_t socket_pid, poll_pid;
    int socket;
    struct cgm_ping_pong *shared;
};

/* Forks both partners; call it before there are threads. */
int cgm_yardstick_start(struct cgm_yardstick *ret_yardstick);
void cgm_yardstick_stop(struct cgm_yardstick *yardstick);

/* `count` round trips, each in nanoseconds; before each one a pause of pause_us, so that both sides
 * are asleep. False when the partner is gone. */
bool cgm_yardstick_socket(const struct cgm_yardstick *yardstick, uint64_t count, uint64_t pause_us,
                          double *ret_ns);
bool cgm_yardstick_poll(const struct cgm_yardstick *yardstick, uint64_t count, double *ret_ns);

double cgm_now_ns(void);
void cgm_pause_us(uint64_t us);

#endif
