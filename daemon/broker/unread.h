/* What lies in a socket that nobody has read, without taking it. */
#ifndef CGM_UNREAD_H
#define CGM_UNREAD_H

#include <stdbool.h>

enum cgm_unread { CGM_UNREAD_NOTHING, CGM_UNREAD_NO_FDS, CGM_UNREAD_PERHAPS_FDS };

/* Of the first packet; with SO_PASSCRED, which tells one of no bytes from the end. */
enum cgm_unread cgm_unread_first(int fd);

/* Whether the first packet may have fds; without SO_PASSCRED. */
bool cgm_unread_has_fds(int fd);

#endif
