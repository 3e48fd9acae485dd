#include "client/ctl/ctl.h"

#define FIELD(field) CGM_FIELD(struct cgm_ctl, field)
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct cgm_option global_options[] = {
    {.name = "socket",
     .letter = 's',
     .kind = CGM_ARG_PATH,
     FIELD(socket),
     .summary = "the daemon's socket; default: $COMMGEMM_SOCKET, else "
                "$XDG_RUNTIME_DIR/commgemm/commgemmd.sock, else /run/commgemm/commgemmd.sock"},
    {.name = "json",
     .letter = 'j',
     .kind = CGM_ARG_FLAG,
     FIELD(json),
     .summary = "print one JSON object: {\"version\":1,\"VERB\":[...]}; sizes in bytes, times in "
                "the unit of their name"},
    {.name = "help",
     .letter = 'h',
     .kind = CGM_ARG_FLAG,
     FIELD(help),
     .ends = true,
     .summary = "print help, for one verb when it is given"},
    {.name = "version",
     .letter = 'V',
     .kind = CGM_ARG_FLAG,
     FIELD(version),
     .ends = true,
     .summary = "print the release"},
};

#define MODE_OPTION                                                                                \
    {                                                                                              \
        .name = "mode", .kind = CGM_ARG_MODE, FIELD(mode),                                         \
        .summary = "who may open it, octal like a file's; default 0600"                            \
    }
#define DEVICE_OPTION                                                                              \
    {                                                                                              \
        .name = "device", .kind = CGM_ARG_INT, FIELD(device), .min = 0, .max = 1023,               \
        .summary = "the device that holds it; default 0"                                           \
    }

static const struct cgm_option create_options[] = {
    {.name = "bytes",
     .letter = 'b',
     .kind = CGM_ARG_BYTES,
     FIELD(bytes),
     .min = 1,
     .value = "N",
     .summary = "the size in bytes, also with K, M, G or T (times 1024); required"},
    MODE_OPTION,
    DEVICE_OPTION,
};
static const struct cgm_option import_options[] = {MODE_OPTION, DEVICE_OPTION};
static const struct cgm_option export_options[] = {
    {.name = "shape",
     .kind = CGM_ARG_TEXT,
     FIELD(shape),
     .value = "RxC",
     .summary = "rows and columns of the array, or N for one dimension; default: all of the buffer "
                "in one dimension"},
};
static const struct cgm_option drain_options[] = {
    {.name = "undo", .kind = CGM_ARG_FLAG, FIELD(undo), .summary = "take new work again"},
};

static const struct cgm_option kill_options[] = {
    {.name = "signal",
     .kind = CGM_ARG_CHOICE,
     FIELD(signal),
     .choices = "term|kill|int|hup",
     .summary = "also send its process a signal"},
};

static const struct cgm_verb verbs[] = {
    {.name = "status",
     .arguments = "",
     .run = cgm_ctl_status,
     .summary = "print the state of the daemon and its executor",
     .description = "This program's own session is among those counted. Jobs are counted from the "
                    "start of the daemon; sleeps of the poller and launches that were replayed "
                    "from that of the executor that runs."},
    {.name = "sessions",
     .arguments = "",
     .run = cgm_ctl_list,
     .summary = "list the connected processes and the ranks that they hold"},
    {.name = "comms",
     .arguments = "",
     .run = cgm_ctl_list,
     .summary = "list the communicators, and which of their ranks are missing"},
    {.name = "buffers",
     .arguments = "",
     .run = cgm_ctl_list,
     .summary = "list the buffers that the daemon owns",
     .description =
         "What a tainted buffer holds is not to be trusted: a job was writing it when an "
         "executor died, or failed and left there what it was. It must be written again, by "
         "one job or by a program that says so, before a job may read it."},
    {.name = "buffers create",
     .arguments = "NAME",
     .min_words = 1,
     .max_words = 1,
     .table = CGM_OPTION_TABLE("Options of this verb", create_options),
     .run = cgm_ctl_buffer_create,
     .summary = "create a named buffer of zeros",
     .description = "It lives until it is destroyed or the daemon ends."},
    {.name = "buffers import",
     .arguments = "NAME FILE",
     .min_words = 2,
     .max_words = 2,
     .table = CGM_OPTION_TABLE("Options of this verb", import_options),
     .run = cgm_ctl_buffer_import,
     .summary = "create a named buffer from a .npy file of float32",
     .description = "The elements are stored in C order and nothing else is: a buffer has no shape "
                    "and no type. The buffer must not exist yet."},
    {.name = "buffers export",
     .arguments = "NAME FILE",
     .min_words = 2,
     .max_words = 2,
     .table = CGM_OPTION_TABLE("Options of this verb", export_options),
     .run = cgm_ctl_buffer_export,
     .summary = "write a named buffer to a .npy file of float32",
     .description = "The buffer's bytes are taken as float32 elements in C order. An existing file "
                    "is replaced."},
    {.name = "buffers checksum",
     .arguments = "NAME",
     .min_words = 1,
     .max_words = 1,
     .run = cgm_ctl_buffer_checksum,
     .summary = "print the checksum of a named buffer",
     .description = "It is XXH64 with seed 0 over all bytes, in hexadecimal."},
    {.name = "buffers destroy",
     .arguments = "NAME",
     .min_words = 1,
     .max_words = 1,
     .run = cgm_ctl_buffer_destroy,
     .summary = "remove a named buffer",
     .description = "Sessions that have it open keep their reference. Its owner or root only."},
    {.name = "plans",
     .arguments = "",
     .run = cgm_ctl_list,
     .summary = "list the plans, their algorithms and why these were chosen"},
    {.name = "jobs",
     .arguments = "",
     .run = cgm_ctl_list,
     .summary = "list the jobs that are not done",
     .description = "All of them, by session. One that comes or ends while they are listed may be "
                    "there or not."},
    {.name = "imports",
     .arguments = "",
     .run = cgm_ctl_list,
     .summary = "list the memory of clients that the daemon has open"},
    {.name = "quotas",
     .arguments = "",
     .run = cgm_ctl_list,
     .summary = "list what each user holds and what it may hold",
     .description =
         "Users that hold nothing are not listed. What is ending has been given up, but jobs "
         "use it still, or it is being freed; with it a user has at most twice what "
         "it may hold. The limits are the daemon's configuration, commgemmd(8)."},
    {.name = "algorithms",
     .arguments = "",
     .run = cgm_ctl_list,
     .summary = "list what the running backend can do"},
    {.name = "tune",
     .arguments = "",
     .run = cgm_ctl_list,
     .summary = "list what method auto measured; also tune show",
     .description =
         "When a plan of method auto is made, the algorithms that it could use are run on its "
         "shapes, then variants of the best one, and the fastest is kept for the next plan like "
         "it, in the daemon's state_dir (commgemmd(8)). A row has the algorithm that was chosen, "
         "the parameter that is not as by default, if one is, its time in microseconds, and those "
         "of the others; - is one that failed, or that there was no time for. It holds for "
         "the platform that it names, and the same release."},
    {.name = "tune show",
     .arguments = "",
     .run = cgm_ctl_list,
     .hidden = true,
     .summary = "list what method auto measured"},
    {.name = "tune clear",
     .arguments = "",
     .run = cgm_ctl_tune_clear,
     .summary = "forget it: plans are measured again",
     .description = "Plans that there are keep their algorithm. Owner of the daemon or root only."},
    {.name = "tune export",
     .arguments = "FILE",
     .min_words = 1,
     .max_words = 1,
     .run = cgm_ctl_tune_export,
     .summary = "write it to a file",
     .description =
         "An existing file is replaced; a pipe, a device and what a link leads to are written to."},
    {.name = "tune import",
     .arguments = "FILE",
     .min_words = 1,
     .max_words = 1,
     .run = cgm_ctl_tune_import,
     .summary = "take what a file of another daemon has",
     .description =
         "It is added to what there is, and used on nodes of the same platform and release. A "
         "file that is cut off, was changed, or is of a release with another format is refused. "
         "Owner of the daemon or root only."},
    {.name = "doctor",
     .arguments = "",
     .run = cgm_ctl_doctor,
     .summary = "check this machine and the daemon, and say how to fix what is wrong",
     .description = "It works without a running daemon too; one that is stopped it waits for. A "
                    "failure ends it with exit status 1, a "
                    "warning does not."},
    {.name = "drain",
     .arguments = "",
     .table = CGM_OPTION_TABLE("Options of this verb", drain_options),
     .run = cgm_ctl_drain,
     .summary = "let the daemon take no new work; what exists goes on",
     .description = "Sessions that exist go on in everything until they end; those that come can "
                    "only look inside, submit noops, and use and destroy buffers that are there. "
                    "Owner of the daemon or root only."},
    {.name = "kill",
     .arguments = "SESSION",
     .min_words = 1,
     .max_words = 1,
     .table = CGM_OPTION_TABLE("Options of this verb", kill_options),
     .run = cgm_ctl_kill,
     .summary = "end a session, sparing the others on its GPU",
     .description =
         "Its process finds the daemon gone. If the process is a client of MPS, MPS terminates it "
         "first: killed with a running kernel it would take all CUDA work on its GPU along. If "
         "that fails, no signal is sent. A process that has ended, and left its session to another "
         "one, is given neither: its number may be somebody else's. Owner of the daemon or root "
         "only."},
    {.name = "help",
     .arguments = "[VERB]",
     .max_words = 2,
     .run = cgm_ctl_help,
     .summary = "print the list of verbs, or help for one"},
    {.name = "version", .arguments = "", .run = cgm_ctl_version, .summary = "print the release"},
    {.name = "completion",
     .arguments = "bash",
     .min_words = 1,
     .max_words = 1,
     .run = cgm_ctl_completion,
     .summary = "print a completion script to be sourced"},
    {.name = "man",
     .arguments = "",
     .run = cgm_ctl_manual,
     .hidden = true,
     .summary = "print the source of the man page"},
};

static const struct cgm_section sections[] = {
    {"output",
     "Without --json, verbs that list print a table with a line of headings; a value that "
     "is not known is shown as \"-\". Sizes are in units of 1024.\n\n"
     "With --json, rows of sessions have pid, uid and ranks (each \"comm:rank\"); rows that "
     "list buffers have name, bytes, owner, mode, generation and tainted; the row of status "
     "has pid, executor_pid, backend, jobs_done, jobs_failed, sessions and buffers. Noops are "
     "done without a launch, and jobs may fail without one. A verb "
     "that changes something prints what it changed: buffers create, import and export name, "
     "bytes, id and generation; buffers checksum has \"checksum\" in the "
     "place of VERB, the others of buffers \"buffers\". Jobs of a session without a ring are "
     "null. Help, version and completion are text. More keys may come; none goes while "
     "version is 1.\n\n"
     "A failure is one line on standard error, \"commgemmctl: what: status: detail\", and "
     "one that begins with \"try:\"."},
    {"exit status", "    0  success\n"
                    "    1  failed\n"
                    "    2  wrong usage: a verb, option or value\n"
                    "    3  the daemon is not running\n"
                    "    4  permission denied\n"
                    "    5  protocol versions do not match"},
    {"examples", "    commgemmctl buffers import weights weights.npy --mode 0640\n"
                 "    commgemmctl buffers checksum weights\n"
                 "    commgemmctl buffers export weights copy.npy --shape 4096x1024\n"
                 "    commgemmctl sessions --json | jq '.sessions[].pid'\n"
                 "    . <(commgemmctl completion bash)"},
    {"see also", "commgemmd(8), commgemm(7), commgemm-bench(1), libcommgemm(3)"},
};

static const struct cgm_option_table tables[] = {CGM_OPTION_TABLE(NULL, global_options)};

const struct cgm_program cgm_ctl_program = {
    .name = "commgemmctl",
    .summary = "look into and control the commgemm daemon",
    .usage = "[OPTION]... VERB [ARGUMENT]...",
    .description =
        "commgemmctl asks the running commgemmd of this node what it holds, and creates, "
        "fills, reads and removes its named buffers.",
    .tables = tables,
    .n_tables = COUNT(tables),
    .verbs = verbs,
    .n_verbs = COUNT(verbs),
    .sections = sections,
    .n_sections = COUNT(sections),
    .date = "2026-11-20",
};
