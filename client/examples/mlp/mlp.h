/* A tensor-parallel MLP as a framework would run it, one process a rank:
 *
 *   pre = x w1 + b1     ag_gemm: x sharded by rows, w1 and b1 by columns
 *   act = max(pre, 0)   in the process itself, on its own shard
 *   y = act w2          gemm_rs: act sharded by columns, w2 by rows, y by rows
 *
 * Every tensor's shard is a named buffer in bf16, so that whoever comes later finds it. x, w1, b1
 * and w2 come from float32 .npy files. The products are run twice, serially and overlapped. */
#ifndef MLP_H
#define MLP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "commgemm.h"

#define MLP_WORLD_MAX 64u

enum mlp_tensor {
    MLP_X,
    MLP_W1,
    MLP_B1,
    MLP_W2,
    MLP_PRE_SERIAL,
    MLP_PRE,
    MLP_ACT,
    MLP_Y_SERIAL,
    MLP_Y,
    MLP_TENSORS,
    MLP_NO_TENSOR = -1,
};

struct mlp {
    const char *folder; /* of the .npy files and of what the processes tell each other */
    uint32_t world;
    uint64_t m, k, h; /* x is m x k, w1 k x h, w2 h x k */
};

/* A rank's part of a whole tensor. */
struct mlp_block {
    uint64_t row, col, rows, cols;
};

/* One product of the forward pass. */
struct mlp_job {
    int op, method;
    enum mlp_tensor lhs, rhs, bias, out;
};
#define MLP_JOBS 4u
/* The first two give pre, the others y. */
extern const struct mlp_job mlp_jobs[MLP_JOBS];

/* What rank 0 measured of one job. */
struct mlp_figure {
    char algorithm[64];
    double ms;      /* median, launch until done */
    double overlap; /* share of the communication during which the same device multiplied */
};

/* Everything below ends the process with words when it fails: this is a program. */
void mlp_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Fails unless a call of the library returned OK. */
void mlp_check(int status, const char *what);

/* Makes the four .npy files: fresh random numbers. */
void mlp_make_files(const char *folder);

/* Reads the sizes from the files. */
void mlp_open(const char *folder, uint32_t world, struct mlp *ret_mlp);

const char *mlp_tensor_name(enum mlp_tensor tensor);
bool mlp_tensor_has_file(enum mlp_tensor tensor);
struct mlp_block mlp_tensor_block(const struct mlp *mlp, enum mlp_tensor tensor, uint32_t rank);
uint64_t mlp_block_bytes(const struct mlp_block *block);
/* Reads a block of a tensor that has a file into bf16. */
void mlp_tensor_read(const struct mlp *mlp, enum mlp_tensor tensor, const struct mlp_block *block,
                     void *ret_values);

#define MLP_NAME_BYTES 32u
/* The name of a rank's buffer. */
void mlp_buffer_name(enum mlp_tensor tensor, uint32_t rank, char *ret_name);

#define MLP_PATH_BYTES 4096u
/* folder/name, with "-rank" behind the name when rank is not negative. */
void mlp_path(const struct mlp *mlp, const char *name, int rank, char *ret_path);

/* The four commands. */
void mlp_rank_load(const struct mlp *mlp, const char *socket, uint32_t rank);
void mlp_rank_find(const struct mlp *mlp, const char *socket, uint32_t rank);
void mlp_report(const struct mlp *mlp, const char *socket);

#endif
