#include "daemon/broker/timings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/broker/log.h"
#include "proto/messages.h"
#include "proto/status.h"

#define FILE_BYTES_MAX ((off_t)CGM_TIMINGS_MAX * CGM_TIMING_LINE_BYTES)
#define WRITABLE_BY_OTHERS (S_IWGRP | S_IWOTH)

/* ---- entries -----------------------------------------------------------------------------------
 */

static struct cgm_timings_entry *find_key(const struct cgm_timings *timings, const char *key)
{
    for (size_t i = 0; i < timings->count; i++)
        if (strcmp(timings->entries[i].key, key) == 0)
            return &timings->entries[i];
    return NULL;
}

/* Which one goes: the oldest one, or of who has half of them, his own oldest one. */
static struct cgm_timings_entry *find_oldest(const struct cgm_timings *timings, uint32_t uid)
{
    size_t own = 0;
    struct cgm_timings_entry *oldest = NULL;
    for (size_t i = 0; i < timings->count; i++)
        own += timings->entries[i].uid == uid;
    for (size_t i = 0; i < timings->count; i++) {
        struct cgm_timings_entry *entry = &timings->entries[i];
        if ((own < timings->count / 2 || entry->uid == uid) &&
            (!oldest || entry->at_s < oldest->at_s))
            oldest = entry;
    }
    return oldest;
}

/* A new one at the end; NULL: out of memory. */
static struct cgm_timings_entry *grow(struct cgm_timings *timings)
{
    if (timings->count == timings->capacity) {
        size_t capacity = timings->capacity ? 2 * timings->capacity : 64;
        struct cgm_timings_entry *entries =
            realloc(timings->entries, capacity * sizeof(*timings->entries));
        if (!entries)
            return NULL;
        timings->entries = entries;
        timings->capacity = capacity;
    }
    struct cgm_timings_entry *entry = &timings->entries[timings->count++];
    *entry = (struct cgm_timings_entry){0};
    return entry;
}

int cgm_timings_add(struct cgm_timings *timings, const struct cgm_timing *timing, uint32_t uid)
{
    char line[CGM_TIMING_LINE_BYTES];
    const char *key;
    cgm_timing_write(timing, line, &key);
    char *copy = strdup(line);
    struct cgm_timings_entry *entry = copy ? find_key(timings, key) : NULL;
    if (copy && !entry)
        entry = timings->count < CGM_TIMINGS_MAX ? grow(timings) : find_oldest(timings, uid);
    if (!entry) {
        free(copy);
        return CGM_NO_MEMORY;
    }
    free(entry->line);
    entry->line = copy;
    entry->key = copy + (key - line);
    entry->at_s = timing->times.at_s;
    entry->uid = uid;
    timings->changed = true;
    return CGM_OK;
}

bool cgm_timings_find(const struct cgm_timings *timings, const struct cgm_timing *wanted,
                      struct cgm_times *ret_times)
{
    char line[CGM_TIMING_LINE_BYTES], detail[128];
    const char *key;
    struct cgm_timing found;
    cgm_timing_write(wanted, line, &key);
    const struct cgm_timings_entry *entry = find_key(timings, key);
    if (!entry || cgm_timing_read(entry->line, detail, sizeof(detail), &found) != CGM_OK)
        return false;
    *ret_times = found.times;
    return true;
}

uint32_t cgm_timings_clear(struct cgm_timings *timings)
{
    uint32_t count = (uint32_t)timings->count;
    for (size_t i = 0; i < timings->count; i++)
        free(timings->entries[i].line);
    timings->changed |= count > 0;
    timings->count = 0;
    return count;
}

/* ---- the folder --------------------------------------------------------------------------------
 */

static bool choose_folder(const char *state_dir, char *ret_path, size_t size)
{
    const char *systemd = getenv("STATE_DIRECTORY"), *xdg = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    int used = -1;
    if (strcmp(state_dir, "none") == 0)
        return false;
    if (state_dir[0])
        used = snprintf(ret_path, size, "%s", state_dir);
    else if (systemd && systemd[0])
        used = snprintf(ret_path, size, "%.*s", (int)strcspn(systemd, ":"), systemd);
    else if (xdg && xdg[0] == '/')
        used = snprintf(ret_path, size, "%s/commgemm", xdg);
    else if (home && home[0] == '/')
        used = snprintf(ret_path, size, "%s/.local/state/commgemm", home);
    return used > 0 && (size_t)used < size;
}

/* With the folders above it. */
static int make_folder(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int error = mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : errno;
        *slash = '/';
        if (error)
            return error;
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : errno;
}

/* NULL, or why what an fd is open on is not to be believed. */
static const char *distrust(int fd, mode_t kind)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return strerror(errno);
    if ((st.st_mode & S_IFMT) != kind)
        return kind == S_IFREG ? "it is no file" : "it is no folder";
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return "it is another user's";
    if (st.st_mode & WRITABLE_BY_OTHERS)
        return "others than its owner may write it";
    return kind == S_IFREG && st.st_size > FILE_BYTES_MAX ? "it is too large" : NULL;
}

static int open_folder(char *path)
{
    int error = make_folder(path);
    int fd = error ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const char *why = error ? strerror(error) : fd < 0 ? strerror(errno) : distrust(fd, S_IFDIR);
    if (!why)
        return fd;
    cgm_log_warning("state_dir %s: %s; what auto measures is forgotten with the daemon", path, why);
    if (fd >= 0)
        close(fd);
    return -1;
}

/* ---- reading -----------------------------------------------------------------------------------
 */

struct loading {
    struct cgm_timings *timings;
    int status;
};

static void load_line(void *context, const char *line, const struct cgm_timing *timing)
{
    struct loading *loading = context;
    (void)line;
    if (loading->status == CGM_OK)
        loading->status = cgm_timings_add(loading->timings, timing, CGM_TIMINGS_KEPT);
}

static int read_file(struct cgm_timings *timings, int fd, char *ret_detail, size_t size)
{
    struct loading loading = {timings, CGM_OK};
    const char *why = distrust(fd, S_IFREG);
    FILE *file = why ? NULL : fdopen(fd, "r");
    if (!file) {
        close(fd);
        return cgm_detail(ret_detail, size, CGM_IO, "%s", why ? why : "no memory to read it");
    }
    int status = cgm_timings_read(file, load_line, &loading, ret_detail, size);
    fclose(file);
    if (status == CGM_OK && loading.status != CGM_OK)
        status = cgm_detail(ret_detail, size, loading.status, "no memory for what is in it");
    return status;
}

static void load(struct cgm_timings *timings)
{
    char detail[192];
    /* A pipe of this name must not keep the daemon waiting. */
    int fd = openat(timings->folder, CGM_TIMINGS_FILE,
                    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    int status = CGM_OK;
    if (fd >= 0)
        status = read_file(timings, fd, detail, sizeof(detail));
    else if (errno != ENOENT)
        status = cgm_detail(detail, sizeof(detail), CGM_IO, "%s", strerror(errno));
    if (status != CGM_OK) {
        cgm_log_warning("%s: %s; it is ignored, and replaced when something is measured",
                        timings->path, detail);
        cgm_timings_clear(timings);
    }
    timings->changed = false;
    if (timings->count > 0)
        cgm_log_info("%s: times of %zu plans", timings->path, timings->count);
}

void cgm_timings_open(struct cgm_timings *timings, const char *state_dir)
{
    char folder[280];
    *timings = (struct cgm_timings){.folder = -1};
    if (!choose_folder(state_dir, folder, sizeof(folder)))
        return;
    snprintf(timings->path, sizeof(timings->path), "%s/%s", folder, CGM_TIMINGS_FILE);
    timings->folder = open_folder(folder);
    if (timings->folder >= 0)
        load(timings);
}

/* ---- writing -----------------------------------------------------------------------------------
 */

static bool write_file(const struct cgm_timings *timings, FILE *file)
{
    struct cgm_timings_out out;
    cgm_timings_begin(&out, file);
    for (size_t i = 0; i < timings->count; i++)
        cgm_timings_line(&out, timings->entries[i].line);
    cgm_timings_end(&out);
    return !ferror(file);
}

/* 0 or an errno. */
static int replace_file(const struct cgm_timings *timings)
{
    char name[32];
    snprintf(name, sizeof(name), ".timings.%d", (int)getpid());
    int fd =
        openat(timings->folder, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    int error = file ? 0 : errno;
    if (file && !write_file(timings, file))
        error = errno ? errno : EIO;
    if (file ? fclose(file) != 0 && !error : fd >= 0 && close(fd) != 0)
        error = errno;
    if (!error && renameat(timings->folder, name, timings->folder, CGM_TIMINGS_FILE) < 0)
        error = errno;
    if (error && fd >= 0)
        unlinkat(timings->folder, name, 0);
    return error;
}

int cgm_timings_save(struct cgm_timings *timings)
{
    if (!timings->changed || timings->folder < 0)
        return 0;
    int error = replace_file(timings);
    timings->changed = error != 0; /* the next change tries again, and the end */
    if (error && !timings->failed)
        cgm_log_warning("%s: %s; it stays as it was, and what changes is forgotten with the daemon",
                        timings->path, strerror(error));
    timings->failed = error != 0;
    return error;
}

void cgm_timings_close(struct cgm_timings *timings)
{
    cgm_timings_save(timings);
    cgm_timings_clear(timings);
    free(timings->entries);
    if (timings->folder >= 0)
        close(timings->folder);
    *timings = (struct cgm_timings){.folder = -1};
}
