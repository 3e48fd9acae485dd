/* What the users of the tables in args.h share: walking them and describing a value. */
#ifndef CGM_ARGS_TABLE_H
#define CGM_ARGS_TABLE_H

#include "client/common/args.h"

/* Option `i` of the program's tables followed by those of the verb (may be NULL); NULL behind the
 * last one. */
const struct cgm_option *cgm_option_at(const struct cgm_program *program,
                                       const struct cgm_verb *verb, unsigned i);

/* The placeholder for the option's value; NULL for a flag. */
const char *cgm_option_value(const struct cgm_option *option);

/* Its spellings with `separator` between them, for CHOICE and TYPE; else "". */
void cgm_option_choices(const struct cgm_option *option, const char *separator, char *ret_text,
                        size_t size);

/* Converts and stores a value (NULL for a flag) into the settings. OK, or INVALID_ARGUMENT and
 * ret_detail of CGM_ARGS_DETAIL_BYTES. */
int cgm_option_store(const struct cgm_option *option, const char *text, void *settings,
                     char *ret_detail);

/* True when the verb has two words and the first one is `word`. */
bool cgm_verb_is_under(const struct cgm_verb *verb, const char *word);

/* True when one of the program's verbs is. */
bool cgm_verbs_are_under(const struct cgm_program *program, const char *word);

#endif
