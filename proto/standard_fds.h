/* Standard input, output and error of a process whose starter may have closed them. */
#ifndef CGM_STANDARD_FDS_H
#define CGM_STANDARD_FDS_H

/* Opens those that are closed on /dev/null, before anything else gets their numbers: a socket or a
 * file would be written to as if it were a terminal. What is written to standard output fails then,
 * as it did; standard error takes everything. */
void cgm_standard_fds_open(void);

#endif
