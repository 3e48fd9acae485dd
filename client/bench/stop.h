/* Whether the user wants the program to end: SIGINT, SIGTERM and SIGHUP are remembered, every wait
 * of the parent looks at them, and what was started is ended on the ordinary way out. */
#ifndef CGM_BENCH_STOP_H
#define CGM_BENCH_STOP_H

void cgm_stop_catch(void);

/* For a process that the program starts: signals end it again. */
void cgm_stop_forget(void);

/* The signal, or 0. */
int cgm_stop_signal(void);

#endif
