/* What every verb of commgemmctl works with: the settings of the command line, failures, a session.
 */
#ifndef CGM_CTL_H
#define CGM_CTL_H

#include <stdbool.h>
#include <stdint.h>

#include "client/common/args.h"
#include "client/include/commgemm.h"

struct cgm_ctl {
    const char *verb; /* as in the table: what failures are about */
    const char *socket;
    bool json, help, version;
    bool undo;
    int signal; /* position in the list of the option; -1: none */
    uint64_t bytes;
    int64_t device;
    uint32_t mode;
    const char *shape;
};

/* The one table of verbs and options. */
extern const struct cgm_program cgm_ctl_program;

/* Prints "commgemmctl: <verb>: <status text>: <detail>" and "try: <fix>" (NULL: the status table's)
 * to stderr; returns the status's exit status. */
int cgm_ctl_fail(const struct cgm_ctl *ctl, int status, const char *detail, const char *fix);

/* The same for the library call that just returned `status`. */
int cgm_ctl_fail_call(const struct cgm_ctl *ctl, int status);

/* Opens a session on the chosen socket, without shared memory. OK or a status; says nothing. */
int cgm_ctl_try_connect(const struct cgm_ctl *ctl, commgemm_client **ret_client);

/* The same for verbs that need it: returns 0 or, after saying why, the exit status. */
int cgm_ctl_connect(const struct cgm_ctl *ctl, commgemm_client **ret_client);

/* The daemon's answer to a query as JSON text, to be freed. Returns 0 or, after saying why, the
 * exit status. */
int cgm_ctl_query(const struct cgm_ctl *ctl, const char *what, char **ret_json);

/* The verbs. Each returns the exit status and says what went wrong. */
int cgm_ctl_status(void *settings, int n_words, char **words);
int cgm_ctl_list(void *settings, int n_words, char **words);
int cgm_ctl_buffer_create(void *settings, int n_words, char **words);
int cgm_ctl_buffer_import(void *settings, int n_words, char **words);
int cgm_ctl_buffer_export(void *settings, int n_words, char **words);
int cgm_ctl_buffer_checksum(void *settings, int n_words, char **words);
int cgm_ctl_buffer_destroy(void *settings, int n_words, char **words);
int cgm_ctl_doctor(void *settings, int n_words, char **words);
int cgm_ctl_kill(void *settings, int n_words, char **words);
int cgm_ctl_tune_clear(void *settings, int n_words, char **words);
int cgm_ctl_tune_export(void *settings, int n_words, char **words);
int cgm_ctl_tune_import(void *settings, int n_words, char **words);
int cgm_ctl_drain(void *settings, int n_words, char **words);

/* They print the texts that the table itself makes. */
int cgm_ctl_help(void *settings, int n_words, char **words);
int cgm_ctl_version(void *settings, int n_words, char **words);
int cgm_ctl_completion(void *settings, int n_words, char **words);
int cgm_ctl_manual(void *settings, int n_words, char **words);

#endif
