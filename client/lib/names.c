#include "client/include/commgemm.h"
#include "proto/status.h"
#include "proto/types.h"

const char *commgemm_version(void)
{
    return COMMGEMM_RELEASE;
}

const char *commgemm_strerror(int status)
{
    return cgm_status_text(status);
}

const char *commgemm_status_name(int status)
{
    return cgm_status_name(status);
}

const char *commgemm_status_cause(int status)
{
    return cgm_status_cause(status);
}

const char *commgemm_status_fix(int status)
{
    return cgm_status_fix(status);
}

const char *commgemm_dtype_name(int dtype)
{
    return cgm_type_name(CGM_TABLE_DTYPE, dtype);
}

const char *commgemm_op_name(int op)
{
    return cgm_type_name(CGM_TABLE_OP, op);
}

const char *commgemm_method_name(int method)
{
    return cgm_type_name(CGM_TABLE_METHOD, method);
}

const char *commgemm_algorithm_name(int algorithm)
{
    return cgm_type_name(CGM_TABLE_ALGO, algorithm);
}

const char *commgemm_phase_name(int kind)
{
    return cgm_type_name(CGM_TABLE_PHASE, kind);
}

static int number_of(enum cgm_type_table table, const char *name)
{
    return name ? cgm_type_number(table, name) : -1;
}

int commgemm_dtype_from_name(const char *name)
{
    return number_of(CGM_TABLE_DTYPE, name);
}

int commgemm_op_from_name(const char *name)
{
    return number_of(CGM_TABLE_OP, name);
}

int commgemm_method_from_name(const char *name)
{
    return number_of(CGM_TABLE_METHOD, name);
}

int commgemm_algorithm_from_name(const char *name)
{
    return number_of(CGM_TABLE_ALGO, name);
}

size_t commgemm_dtype_bytes(int dtype)
{
    return cgm_dtype_bytes(dtype);
}
