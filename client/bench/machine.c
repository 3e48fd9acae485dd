#include "client/bench/machine.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "client/bench/status_row.h"
#include "client/common/json_text.h"

#define CPU_BYTES 96u
#define DATE_BYTES sizeof("2026-11-22")

/* The text behind "key : " in a line of /proc/cpuinfo; false: the line has another key. */
static bool value_of(const char *line, const char *key, char *ret_value, size_t size)
{
    size_t length = strlen(key);
    if (strncmp(line, key, length) != 0)
        return false;
    const char *value = line + length + strspn(line + length, " \t");
    if (*value != ':')
        return false;
    value += 1 + strspn(value + 1, " \t");
    snprintf(ret_value, size, "%.*s", (int)strcspn(value, "\n"), value);
    return true;
}

/* Not every architecture has a name for its model. */
static void name_cpu(char *ret_name, size_t size)
{
    struct utsname system;
    char line[512];
    bool found = false;
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file && !found && fgets(line, sizeof(line), file))
        found = value_of(line, "model name", ret_name, size);
    if (file)
        fclose(file);
    if (!found)
        snprintf(ret_name, size, "%s", uname(&system) == 0 ? system.machine : "unknown");
}

static long count_processors(void)
{
    return sysconf(_SC_NPROCESSORS_ONLN);
}

static void write_today(char *ret_date)
{
    time_t now = time(NULL);
    struct tm broken;
    ret_date[0] = '\0';
    if (localtime_r(&now, &broken))
        strftime(ret_date, DATE_BYTES, "%Y-%m-%d", &broken);
}

void cgm_machine_gpus(commgemm_client *client, char *ret_gpus, size_t size)
{
    json_t *row = cgm_status_row(client);
    const char *backend = json_string_value(json_object_get(row, "backend"));
    const char *names = json_string_value(json_object_get(row, "device_names"));
    ret_gpus[0] = '\0';
    if (backend && names && strcmp(backend, "cpu") != 0)
        snprintf(ret_gpus, size, "%s", names);
    json_decref(row);
}

void cgm_machine_caption(const char *gpus, char *ret_text, size_t size)
{
    char cpu[CPU_BYTES], date[DATE_BYTES];
    name_cpu(cpu, sizeof(cpu));
    write_today(date);
    snprintf(ret_text, size, "%s, %s%s%s, %ld processors", date, gpus, gpus[0] ? "; " : "", cpu,
             count_processors());
}

static bool is_plain(const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-_=+./,:@%";
    return word[0] != '\0' && word[strspn(word, plain)] == '\0';
}

void cgm_machine_command(int argc, char **argv, char *ret_text, size_t size)
{
    const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
    size_t used = 0;
    ret_text[0] = '\0';
    for (int i = 0; i < argc && used < size; i++) {
        const char *word = i == 0 && slash ? slash + 1 : argv[i];
        const char *quote = is_plain(word) ? "" : "'";
        used += (size_t)snprintf(ret_text + used, size - used, "%s%s%s%s", i > 0 ? " " : "", quote,
                                 word, quote);
    }
}

int cgm_machine_add_json(const char *gpus, const char *command, json_t *object)
{
    char cpu[CPU_BYTES], date[DATE_BYTES];
    name_cpu(cpu, sizeof(cpu));
    write_today(date);
    json_t *machine =
        json_pack("{s:s, s:I, s:o}", "cpu", cpu, "processors", (json_int_t)count_processors(),
                  "gpus", gpus[0] ? json_string(gpus) : json_null());
    return json_object_set_new(object, "machine", machine) |
           json_object_set_new(object, "command", cgm_json_text(command)) |
           json_object_set_new(object, "date", json_string(date));
}
