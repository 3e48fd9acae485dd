/* What whoever started the daemon has left to it: which signals are blocked or ignored, timers, the
 * umask, open or closed file descriptors. None of it is meant for the daemon but the sockets of
 * systemd, and the executor would inherit it, too. */
#ifndef CGM_INHERITED_H
#define CGM_INHERITED_H

/* Makes it what a daemon expects. At the very beginning: there is one thread, which has opened
 * nothing that is not close-on-exec. */
void cgm_inherited_reset(void);

#endif
