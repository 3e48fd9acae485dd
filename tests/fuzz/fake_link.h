/* The broker of the fuzz targets has no process behind its executor, no peers behind its sockets
 * and no MPS: what it sends is kept here, and starting and killing a process only notes the wish.
 * The linker puts these in place of cgm_mps_look, cgm_tool_run, cgm_starter_init and _run, kill,
 * waitpid, cgm_packet_send_bytes, getsockopt, cgm_clock_ns and cgm_log (tests/fuzz/targets.cmake).
 */
#ifndef CGM_TESTS_FUZZ_FAKE_LINK_H
#define CGM_TESTS_FUZZ_FAKE_LINK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "daemon/broker/tool.h"
#include "proto/packet.h"

struct fake_link {
    struct ucred peer;      /* of the next client */
    uint64_t now_ns;        /* what the broker takes for the time */
    bool full;              /* no socket takes anything */
    bool runs;              /* a process was started */
    int link_fd;            /* its end of the socket */
    bool killed;            /* it is to end */
    bool ended;             /* and is not reaped */
    int status;             /* how */
    bool start_fails;       /* the next one cannot be started */
    bool mps_on;            /* MPS runs, and its control program is asked */
    cgm_tool_fn *tool_done; /* the program that runs; NULL: none */
    void *tool_context;
    /* Every packet that is sent, in order; bytes begin with a cgm_packet_header. */
    void (*on_sent)(int fd, const uint8_t *bytes, size_t size, unsigned n_fds);
};

extern struct fake_link fake_link;

/* What the program that runs has to say. */
void fake_link_end_tool(int status, const char *output);

/* The process has ended, as a signal or by itself. */
void fake_link_end_process(struct cgm_broker *broker, int signal_number);

#endif
