/* What the checks of a plan's request share: spec.c has their order, spec_sizes.c and spec_knobs.c
 * those of their subject. Each check has one subject; a refusal names the field, its value and the
 * limits. */
#ifndef CGM_SPEC_CHECK_H
#define CGM_SPEC_CHECK_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "daemon/executor/operation_table.h"

struct cgm_check {
    const Cgm__PlanCreate *request;
    const struct cgm_operation_row *row; /* NULL before cgm_spec_init has checked op */
    struct cgm_spec *spec;               /* what is checked so far */
    char *detail;
    size_t detail_bytes;
};

/* Writes the detail. Returns the status. */
__attribute__((format(printf, 3, 4))) int cgm_check_refuse(const struct cgm_check *check,
                                                           int status, const char *format, ...);

static inline const char *cgm_check_op_name(const struct cgm_check *check)
{
    return cgm_type_name(CGM_TABLE_OP, check->spec->op);
}

static inline const char *cgm_check_dtype_name(int dtype)
{
    return cgm_type_name(CGM_TABLE_DTYPE, dtype);
}

/* ---- tables of fields: 32 bits in the request and in the spec ----------------------------------
 */

#define CGM_CHECK_REQUEST(field) offsetof(Cgm__PlanCreate, field)
#define CGM_CHECK_SPEC(field) offsetof(struct cgm_spec, field)

static inline uint32_t cgm_check_load(const struct cgm_check *check, size_t offset)
{
    uint32_t value;
    memcpy(&value, (const char *)check->request + offset, sizeof value);
    return value;
}

static inline void cgm_check_store(const struct cgm_check *check, size_t offset, int32_t value)
{
    memcpy((char *)check->spec + offset, &value, sizeof value);
}

/* ---- spec_sizes.c: dimensions, counts, the user buffer -----------------------------------------
 */

/* k of a collective is not used and not kept. */
int cgm_check_sizes(struct cgm_check *check);
int cgm_check_sharding(struct cgm_check *check);

/* a2av: how many rows go from whom to whom. They add up to m, of which the ranks hold parts. */
int cgm_check_counts(struct cgm_check *check);

/* Of bulk_ag and bulk_rs: what they move beside the GEMM. The dimensions before the last one are
 * its rows. */
int cgm_check_moved_buffer(struct cgm_check *check);
int cgm_check_matrices(struct cgm_check *check);

/* As the seed gives it: any number of dimensions that make as many elements. All zero: absent. */
int cgm_check_buffer_shape(struct cgm_check *check);

/* ---- spec_knobs.c: what is tuned, and its defaults ---------------------------------------------
 */

int cgm_check_knobs(struct cgm_check *check);
int cgm_check_tp_size(struct cgm_check *check);

/* Switches of one operation's algorithms. */
int cgm_check_switches(struct cgm_check *check);
int cgm_check_tf32(struct cgm_check *check);

/* One set of defaults where ranks exchange chunks, one where collectives run. Pushes by copy
 * engines need no multiprocessors; products need not spare any where nothing runs beside them.
 * Always OK. */
int cgm_check_fill_defaults(struct cgm_check *check);

#endif
