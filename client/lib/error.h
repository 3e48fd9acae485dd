/* The calling thread's last error, and the argument checks that all calls share. */
#ifndef CGM_CLIENT_ERROR_H
#define CGM_CLIENT_ERROR_H

#include <stddef.h>

#include "proto/messages.h"
#include "proto/status.h"

#define CGM_ERROR_BYTES 1024

/* Notes the detail for commgemm_last_error and returns `status`. */
int cgm_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same with the status's own text, for a status that needs no detail. */
int cgm_fail_plain(int status);

/* For a call that goes on after something has failed: commgemm_last_error says again what it said
 * before. */
struct cgm_kept_error {
    char text[CGM_ERROR_BYTES];
};
void cgm_error_keep(struct cgm_kept_error *ret_kept);
void cgm_error_restore(const struct cgm_kept_error *kept);

/* INVALID_ARGUMENT naming the parameter when the pointer is NULL. */
int cgm_check_pointer(const void *pointer, const char *name);

/* INVALID_ARGUMENT when a name that is given is not one (proto/messages.h), or when it is needed
 * and not given. */
int cgm_check_name(const char *name, const char *field, int needed);

/* INVALID_ARGUMENT when it has other bits than a file's nine. 0 is the default, 0600. */
int cgm_check_mode(unsigned mode);

/* A structure with a struct_size as the library knows it: `given` itself when it has our size, else
 * the defaults in `ret_copy` with the caller's shorter part over them. INVALID_ARGUMENT when it is
 * larger, or was never set up by `init`. */
int cgm_check_struct(const void *given, size_t size, const char *init, void *ret_copy,
                     const void **ret_known);

#ifdef __clang_analyzer__ /* It looks at one file at a time, and must know what comes back. */
#define cgm_fail(status, ...) cgm_second(cgm_fail((status), __VA_ARGS__), (status))
#define cgm_fail_plain(status) cgm_second(cgm_fail_plain(status), (status))
#define cgm_check_pointer(pointer, name)                                                           \
    cgm_second(cgm_check_pointer((pointer), (name)), (pointer) ? CGM_OK : CGM_INVALID_ARGUMENT)
#endif

#endif
