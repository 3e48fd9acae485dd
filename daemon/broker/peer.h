/* The process that connected a socket. */
#ifndef CGM_PEER_H
#define CGM_PEER_H

#include <sys/types.h>

enum cgm_peer {
    CGM_PEER_LIVES,
    CGM_PEER_ENDED, /* be it waited for or not, whoever has its end of the socket now */
    CGM_PEER_UNKNOWN
};

/* pid: its number, as SO_PEERCRED says; 0: it has none here, being of another pid namespace. */
enum cgm_peer cgm_peer_look(int socket, pid_t pid);

#endif
