/* What the files of the CPU backend share. A device is a number: its memory is memfds, its queues
 * are threads. Every device of the node reads and writes all memory. */
#ifndef CGM_CPU_H
#define CGM_CPU_H

#include "daemon/executor/backend.h"
#include "daemon/executor/cpu/park.h"
#include "daemon/executor/cpu/seats.h"
#include "daemon/executor/host/holes.h"
#include "proto/spin.h"

#define CGM_CPU_DEVICES_DEFAULT 4u
#define CGM_CPU_DEVICES_MAX 64u
/* A signal wakes all who sleep where its flag does, and users' threads wait by the thousand. */
#define CGM_CPU_PARKS 8192u

struct cgm_backend {
    struct cgm_backend_options options;
    uint32_t devices;
    struct cgm_spin spin; /* of all queues: there are more than processors */
    struct cgm_seats seats;
    struct cgm_gemm_panels *panels; /* of each seat; gemm.h */
    /* Where the waiters of flags sleep. Not in the flag: who saw the value may free it. */
    struct cgm_park parks[CGM_CPU_PARKS];
    _Atomic uint32_t next_park;
};

struct cgm_mem {
    char *base;
    uint64_t bytes;  /* whole pages */
    uint64_t filled; /* from the start on: so many of ours exist, of an import may be mapped */
    int fd;          /* ours; -1: an import */
    bool read_only;
    struct cgm_hole_watch *watch; /* of an import; NULL: none */
};

struct cgm_flag {
    _Atomic uint64_t value;
    struct cgm_park *park; /* one of the backend's, shared with other flags */
    struct cgm_backend *backend;
    enum cgm_flag_kind kind;
};

int cgm_cpu_mem_alloc(struct cgm_backend *backend, uint32_t device, uint64_t bytes, uint32_t flags,
                      struct cgm_mem **ret_mem);
int cgm_cpu_mem_export(struct cgm_mem *mem, int *ret_fd);
int cgm_cpu_mem_adopt(struct cgm_backend *backend, uint32_t device, int fd, uint64_t bytes,
                      struct cgm_mem **ret_mem);
int cgm_cpu_mem_import(struct cgm_backend *backend, uint32_t device,
                       const struct cgm_memory_segment *segments, uint32_t n_segments,
                       bool read_only, char *ret_detail, size_t detail_bytes,
                       struct cgm_mem **ret_mem);
int cgm_cpu_mem_fill(struct cgm_mem *mem, uint64_t *bytes);
void cgm_cpu_mem_drain(struct cgm_mem *mem, uint64_t *bytes);
uint64_t cgm_cpu_mem_bytes(const struct cgm_mem *mem);
void cgm_cpu_mem_free(struct cgm_mem *mem);
bool cgm_cpu_mem_has_holes(const struct cgm_mem *mem);

int cgm_cpu_flag_new(struct cgm_backend *backend, uint32_t device, enum cgm_flag_kind kind,
                     struct cgm_flag **ret_flag);
uint64_t cgm_cpu_flag_read(const struct cgm_flag *flag);
void cgm_cpu_flag_free(struct cgm_flag *flag);
/* Does not touch the flag after the store. */
void cgm_cpu_flag_signal(struct cgm_flag *flag, uint64_t value);
/* Returns when the flag has the value, or soon after run->status (NULL: no run) is a failure. */
void cgm_cpu_flag_wait(struct cgm_flag *flag, uint64_t value, const struct cgm_run *run);

int cgm_cpu_queue_new(struct cgm_backend *backend, uint32_t device, int priority, uint32_t beside,
                      struct cgm_queue **ret_queue);
void cgm_cpu_queue_free(struct cgm_queue *queue);
uint32_t cgm_cpu_queue_count(const struct cgm_queue *queue);
uint64_t cgm_cpu_queue_worked_ns(const struct cgm_queue *queue);

/* The operations; enqueue.c. */
void cgm_cpu_set_run(struct cgm_queue *queue, struct cgm_run *run);
int cgm_cpu_copy(struct cgm_queue *queue, const struct cgm_copy *copy);
int cgm_cpu_gemm(struct cgm_queue *queue, const struct cgm_gemm *gemm);
int cgm_cpu_flagged_gemm(struct cgm_queue *queue, const struct cgm_flagged_gemm *flagged);
int cgm_cpu_reduce(struct cgm_queue *queue, const struct cgm_reduce *reduce);
int cgm_cpu_activate(struct cgm_queue *queue, const struct cgm_activation *activation);
int cgm_cpu_sum(struct cgm_queue *queue, const struct cgm_sum *sum);
int cgm_cpu_poison(struct cgm_queue *queue, const struct cgm_view *view);
int cgm_cpu_signal(struct cgm_queue *queue, struct cgm_flag *flag, uint64_t value);
int cgm_cpu_wait(struct cgm_queue *queue, struct cgm_flag *flag, uint64_t value,
                 const struct cgm_label *label);
int cgm_cpu_signal_all(struct cgm_queue *queue, const struct cgm_flag_value *signals,
                       uint32_t count);
int cgm_cpu_wait_all(struct cgm_queue *queue, const struct cgm_wait *waits, uint32_t count);

int cgm_cpu_record_begin(struct cgm_queue *queue, struct cgm_queue **ret_stand_in);
int cgm_cpu_record_end(struct cgm_queue *stand_in, struct cgm_recording **ret_recording);
int cgm_cpu_replay(struct cgm_queue *queue, struct cgm_recording *recording, uint64_t raise);
void cgm_cpu_recording_free(struct cgm_recording *recording);

#endif
