/* commgemmd: the command line of the broker. */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "daemon/broker/broker.h"
#include "daemon/broker/inherited.h"
#include "daemon/broker/log.h"
#include "proto/log_sink.h"
#include "proto/standard_fds.h"
#include "proto/status.h"

#define SETTINGS_MAX 64

struct options {
    const char *config, *socket;
    const char *settings[SETTINGS_MAX];
    int n_settings;
    bool check;
};

enum { KEY_CONFIG = 1, KEY_SOCKET, KEY_SET, KEY_CHECK, KEY_PRINT, KEY_HELP, KEY_VERSION };

static const struct {
    struct option option;
    const char *value, *help;
} rows[] = {
    {{"config", required_argument, NULL, KEY_CONFIG}, "FILE", "read the configuration from FILE"},
    {{"socket", required_argument, NULL, KEY_SOCKET}, "PATH", "listen on PATH"},
    {{"set", required_argument, NULL, KEY_SET}, "KEY=VALUE", "override one key; may be repeated"},
    {{"check-config", no_argument, NULL, KEY_CHECK}, "", "read the configuration and end"},
    {{"print-config", no_argument, NULL, KEY_PRINT}, "", "print all keys with their defaults"},
    {{"help", no_argument, NULL, KEY_HELP}, "", "print this and end"},
    {{"version", no_argument, NULL, KEY_VERSION}, "", "print the release and end"},
};
#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))

static void print_help(void)
{
    printf("Usage: commgemmd [OPTION]...\n"
           "The daemon that owns the user buffers, comms and device queues of this node.\n\n");
    for (size_t i = 0; i < ROW_COUNT; i++) {
        char left[32];
        snprintf(left, sizeof(left), "--%s%s%s", rows[i].option.name, rows[i].value[0] ? " " : "",
                 rows[i].value);
        printf("  %-20s %s\n", left, rows[i].help);
    }
    printf("\nKeys of --set and of the configuration file: commgemmd --print-config\n");
}

/* Returns an exit status, or -1 to go on. */
static int take_option(int key, struct options *options)
{
    switch (key) {
    case KEY_CONFIG:
        options->config = optarg;
        return -1;
    case KEY_SOCKET:
        options->socket = optarg;
        return -1;
    case KEY_SET:
        if (options->n_settings == SETTINGS_MAX) {
            fprintf(stderr, "commgemmd: --set may be given %d times\n", SETTINGS_MAX);
            return CGM_EXIT_USAGE;
        }
        options->settings[options->n_settings++] = optarg;
        return -1;
    case KEY_CHECK:
        options->check = true;
        return -1;
    case KEY_PRINT:
        cgm_config_print(stdout);
        return CGM_EXIT_OK;
    case KEY_HELP:
        print_help();
        return CGM_EXIT_OK;
    case KEY_VERSION:
        printf("commgemmd %s\n", COMMGEMM_RELEASE);
        return CGM_EXIT_OK;
    default:
        fprintf(stderr, "commgemmd: try --help\n");
        return CGM_EXIT_USAGE;
    }
}

static int parse(int argc, char **argv, struct options *options)
{
    struct option table[ROW_COUNT + 1] = {0};
    int key, exit_status = -1;
    for (size_t i = 0; i < ROW_COUNT; i++)
        table[i] = rows[i].option;
    while (exit_status < 0 && (key = getopt_long(argc, argv, "", table, NULL)) != -1)
        exit_status = take_option(key, options);
    if (exit_status < 0 && optind < argc) {
        fprintf(stderr, "commgemmd: '%s' is not an option; try --help\n", argv[optind]);
        return CGM_EXIT_USAGE;
    }
    return exit_status;
}

/* File, then --set, then --socket: the last one wins. */
static int configure(const struct options *options, struct cgm_config *config, char *detail,
                     size_t size)
{
    int status = CGM_OK;
    cgm_config_init(config);
    if (options->config)
        status = cgm_config_load(config, options->config, detail, size);
    for (int i = 0; i < options->n_settings && status == CGM_OK; i++) {
        char why[512];
        status = cgm_config_set_pair(config, options->settings[i], why, sizeof(why));
        if (status != CGM_OK)
            snprintf(detail, size, "--set: %s", why);
    }
    if (options->socket && status == CGM_OK)
        status = cgm_config_set(config, "socket", options->socket, detail, size);
    return status;
}

/* Wrong configuration is wrong use, and so is a place that is not there: ENOENT, which is no daemon
 * that does not run to this one. The rest as the status table says. */
static int fail(int status, const char *detail)
{
    fprintf(stderr, "commgemmd: %s\n", detail);
    return status == CGM_NOT_RUNNING ? CGM_EXIT_USAGE : cgm_status_exit(status);
}

int main(int argc, char **argv)
{
    struct options options = {0};
    struct cgm_config config;
    static struct cgm_broker broker;
    char detail[1024] = "";
    cgm_inherited_reset();
    int exit_status = parse(argc, argv, &options);
    if (exit_status == CGM_EXIT_OK && !cgm_standard_output_ends_well("commgemmd"))
        return CGM_EXIT_FAILED;
    if (exit_status >= 0)
        return exit_status;
    int status = configure(&options, &config, detail, sizeof(detail));
    if (status != CGM_OK)
        return fail(CGM_INVALID_ARGUMENT, detail);
    if (options.check)
        return CGM_EXIT_OK;
    cgm_log_sink_open();
    cgm_log_set_level((enum cgm_log_level)config.log_level);
    status = cgm_broker_init(&broker, &config, options.config, detail, sizeof(detail));
    if (status != CGM_OK)
        return fail(status, detail);
    status = cgm_broker_run(&broker);
    return cgm_status_exit(status);
}
