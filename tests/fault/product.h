/* The numbers of one collective operation of two ranks: what each rank has of the operands, and
 * what it must find in its output. Both ranks make the same matrices from the same seed. */
#ifndef PRODUCT_H
#define PRODUCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PRODUCT_WORLD 2u
#define PRODUCT_M 64u /* of the whole product */
#define PRODUCT_N 64u
#define PRODUCT_K 64u
#define PRODUCT_BYTES_MAX (PRODUCT_M * PRODUCT_N * sizeof(float)) /* of any operand of one rank */

/* One row for each operation that the suite can check. */
bool product_knows(int op);

/* Writes one rank's lhs and rhs, rows next to each other. false: there is no such operand. */
bool product_lhs(int op, uint64_t seed, uint32_t rank, float *ret_values);
bool product_rhs(int op, uint64_t seed, uint32_t rank, float *ret_values);

/* Whether one rank's output is right, against the float64 reference. */
bool product_is_right(int op, uint64_t seed, uint32_t rank, const float *out);

#endif
