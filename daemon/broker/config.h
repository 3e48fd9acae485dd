/* The configuration: `key = value` lines of a file, and --set. One table has every key with its
 * kind, default, limits and help; parser, error texts and the printed default file come from it. */
#ifndef CGM_CONFIG_H
#define CGM_CONFIG_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define CGM_CONFIG_TEXT_BYTES 256

enum cgm_config_backend { CGM_CONFIG_AUTO, CGM_CONFIG_CPU, CGM_CONFIG_CUDA };

/* X(key, KIND, default, min, max or choices, help). TEXT: length in bytes. */
#define CGM_CONFIG_KEYS(X)                                                                         \
    X(socket, TEXT, "", 0, 107,                                                                    \
      "Where to listen. Empty: $COMMGEMM_SOCKET, else $XDG_RUNTIME_DIR/commgemm/commgemmd.sock, "  \
      "else /run/commgemm/commgemmd.sock. A socket handed over by systemd comes before all these") \
    X(socket_mode, MODE, "0660", 0, 0777, "Permission bits of the socket")                         \
    X(socket_group, TEXT, "", 0, 63, "Group of the socket. Empty: the daemon's")                   \
    X(backend, CHOICE, "auto", 0, "auto|cpu|cuda",                                                 \
      "Which executor to run; auto: cuda where its executor is installed and starts, else cpu")    \
    X(devices, NUMBER, "4", 1, 64, "Devices of the CPU backend; CUDA uses at most so many GPUs")   \
    X(executor, TEXT, "", 0, 255,                                                                  \
      "Path of the executor. Empty: found in $COMMGEMM_LIBEXEC, beside the daemon or in "          \
      "../libexec/commgemm from there")                                                            \
    X(join_timeout, NUMBER, "600", 1, 4000000,                                                     \
      "Seconds from the first rank's join or submission until all must have come")                 \
    X(ready_timeout, NUMBER, "600", 1, 4000000,                                                    \
      "Seconds from then until every rank's stream must have reached the job")                     \
    X(job_timeout, NUMBER, "300", 0, 4000000,                                                      \
      "Seconds that a launched job may run when those before it on its ranks have ended; 0: no "   \
      "limit")                                                                                     \
    X(executor_timeout, NUMBER, "30", 0, 4000000,                                                  \
      "Seconds without an answer after which the executor is killed and started anew; 0: no "      \
      "limit")                                                                                     \
    X(executor_start_timeout, NUMBER, "60", 1, 4000000,                                            \
      "Seconds that an executor may take for each step of its start")                              \
    X(spin_us, NUMBER, "50", 0, 10000000,                                                          \
      "Microseconds that the executor polls without work before it sleeps, sooner where others "   \
      "want its processor; with CUDA at least 100000")                                             \
    X(log_level, CHOICE, "info", 0, "error|warning|info|debug", "What is logged; SIGHUP rereads")  \
    X(max_sessions, NUMBER, "1024", 1, 65536,                                                      \
      "Sessions of all users together, the last eighth for those with fewer than 16")              \
    X(quota_bytes, NUMBER, "1099511627776", 0, 1000000000000000000,                                \
      "Bytes of buffers (whole pages) and plans of one user; 0: no limit, also below")             \
    X(quota_buffers, NUMBER, "16384", 0, 65536, "Buffers that one user may hold")                  \
    X(quota_opens, NUMBER, "131072", 0, 1000000000,                                                \
      "Buffers that the sessions of one user may have open, each counted for every session")       \
    X(quota_sessions, NUMBER, "512", 0, 65536, "Sessions that one user may hold")                  \
    X(quota_plans, NUMBER, "1024", 0, 65536, "Plans that one user may hold")                       \
    X(quota_imports, NUMBER, "8192", 0, 65536, "Imports that one user may hold")                   \
    X(quota_import_bytes, NUMBER, "4398046511104", 0, 1000000000000000000,                         \
      "Bytes of one user's imports together, whether or not there is memory behind them: they "    \
      "take addresses of the executor. With the CPU backend at most four times the node's memory") \
    X(quota_comms, NUMBER, "512", 0, 4096, "Comms that one user may create")                       \
    X(quota_ranks, NUMBER, "1024", 0, 262144,                                                      \
      "Ranks that the comms of one user may have together, those of a comm once for each pair of " \
      "gemm_priority and comm_priority that its plans ever had, and for (0, 0)")                   \
    X(quota_jobs, NUMBER, "65536", 0, 1000000000,                                                  \
      "Jobs in flight that one user's sessions have room for: the entries of their rings, 256 of " \
      "one without")                                                                               \
    X(quota_fds, NUMBER, "32768", 0, 1000000000,                                                   \
      "File descriptors of one user's sessions, buffers, imports and plans, here or in the "       \
      "executor; at most a quarter of what the daemon may open, and of vm.max_map_count")          \
    X(connection_rate, NUMBER, "4000", 0, 1000000,                                                 \
      "Connections that one user may open in a second; 0: no limit")                               \
    X(user_share, NUMBER, "10", 1, 100,                                                            \
      "Percent of a processor that one user's requests may take of the daemon while another user " \
      "can submit jobs; the rest of them is answered later. Not for root and the daemon's own "    \
      "user. 100: no limit")                                                                       \
    X(import_idle, NUMBER, "3600", 0, 4000000,                                                     \
      "Seconds without a job after which an import's memory is closed; the next job that names "   \
      "it "                                                                                        \
      "gets STALE. 0: never")                                                                      \
    X(state_dir, TEXT, "", 0, 255,                                                                 \
      "Folder in which the daemon keeps what auto measured. Empty: $STATE_DIRECTORY, else "        \
      "$XDG_STATE_HOME/commgemm, else ~/.local/state/commgemm. none: it is forgotten")             \
    X(tune_ms, NUMBER, "3000", 0, 600000,                                                          \
      "Milliseconds for which a plan with the method auto may time its algorithms and their "      \
      "parameters before it is made, preparing them included; 0: they are estimated")              \
    X(graphs_from, NUMBER, "3", 0, 1000000,                                                        \
      "From which launch of a plan with the same operands on a job is enqueued as a whole, on a "  \
      "GPU as a CUDA graph; that launch takes a few milliseconds more. 0: never")                  \
    X(hello_timeout, NUMBER, "10", 1, 3600,                                                        \
      "Seconds from the connection until the client must have said Hello")                         \
    X(mps_control, TEXT, "", 0, 255, "Path of nvidia-cuda-mps-control. Empty: found in $PATH")     \
    X(test_delay_us, NUMBER, "0", 0, 1000000,                                                      \
      "For tests: the executor waits a random time of up to this before every operation")          \
    X(test_steps, TEXT, "", 0, 255,                                                                \
      "For tests: a file in which a test says where the daemon stops itself. Empty: nowhere")

#define CGM_CONFIG_FIELD_TEXT(key) char key[CGM_CONFIG_TEXT_BYTES];
#define CGM_CONFIG_FIELD_NUMBER(key) uint64_t key;
#define CGM_CONFIG_FIELD_MODE(key) uint64_t key;
#define CGM_CONFIG_FIELD_CHOICE(key) uint64_t key; /* position in the list */

struct cgm_config {
#define X(key, KIND, fallback, min, max, help) CGM_CONFIG_FIELD_##KIND(key)
    CGM_CONFIG_KEYS(X)
#undef X
};

void cgm_config_init(struct cgm_config *ret_config);

/* OK, or INVALID_ARGUMENT with a sentence that names the key, the value and the limits. */
int cgm_config_set(struct cgm_config *config, const char *key, const char *value, char *ret_detail,
                   size_t size);

/* "key=value", as --set takes it. */
int cgm_config_set_pair(struct cgm_config *config, const char *pair, char *ret_detail, size_t size);

/* Reads a file over what is there already. The detail begins with "file:line: ". What may keep its
 * reader waiting, or has no end, is refused with IO and a detail that names it. */
int cgm_config_load(struct cgm_config *config, const char *path, char *ret_detail, size_t size);

/* The default configuration as a commented file: help as "# text", settings as "#key = value". */
void cgm_config_print(FILE *out);

#endif
