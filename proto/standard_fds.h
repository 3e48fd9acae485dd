/* Standard input, output and error of a process whose starter may have closed them. */
#ifndef CGM_STANDARD_FDS_H
#define CGM_STANDARD_FDS_H

#include <stdbool.h>

/* Opens those that are closed on /dev/null, before anything else gets their numbers: a socket or a
 * file would be written to as if it were a terminal. What is written to standard output fails then,
 * as it did; standard error takes everything. */
void cgm_standard_fds_open(void);

/* Whether all that was printed has been written; else standard error says, in the program's name,
 * that it was not. At the program's end: nobody looks later. */
bool cgm_standard_output_ends_well(const char *program);

#endif
