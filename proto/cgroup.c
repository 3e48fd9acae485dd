#include "proto/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/status.h"

#define FILE_BYTES 8192u /* of the kernel's files; those of groups are shorter */
#define MAX 2u

struct cgm_cgroup_version {
    const char *file_system;
    const char *controller; /* among the mount's options, and in the line of /proc/self/cgroup */
    const char *limits[MAX];
    const char *used;
    const char *reclaimable[MAX]; /* lines of memory.stat, groups below included */
    const char *limit_above;      /* a line of memory.stat: the least of all groups above, too */
};

/* A process that is above memory.high is kept waiting until its pages are taken back: what cannot
 * be taken back is not to go so far. slab_reclaimable counts what open files hold, too. */
static const struct cgm_cgroup_version version_2 = {
    .file_system = "cgroup2",
    .controller = "",
    .limits = {"memory.max", "memory.high"},
    .used = "memory.current",
    .reclaimable = {"inactive_file", "active_file"},
};

static const struct cgm_cgroup_version version_1 = {
    .file_system = "cgroup",
    .controller = "memory",
    .limits = {"memory.limit_in_bytes"},
    .used = "memory.usage_in_bytes",
    .reclaimable = {"total_inactive_file", "total_active_file"},
    .limit_above = "hierarchical_memory_limit",
};

/* ---- files ------------------------------------------------------------------------------------
 */

/* Not through stdio, which allocates. A line that is too long is left out. */
struct lines {
    int fd;
    size_t begin, end;
    bool is_over;
    char text[FILE_BYTES];
};

static bool lines_open(struct lines *lines, const char *base, const char *path)
{
    char whole[2 * CGM_CGROUP_PATH];
    snprintf(whole, sizeof(whole), "%s%s", base, path);
    lines->fd = open(whole, O_RDONLY | O_CLOEXEC);
    lines->begin = lines->end = 0;
    lines->is_over = false;
    return lines->fd >= 0;
}

static bool lines_read(struct lines *lines)
{
    ssize_t n;
    memmove(lines->text, lines->text + lines->begin, lines->end - lines->begin);
    lines->end -= lines->begin;
    lines->begin = 0;
    if (lines->end == sizeof(lines->text)) {
        lines->is_over = true;
        lines->end = 0;
    }
    do
        n = read(lines->fd, lines->text + lines->end, sizeof(lines->text) - lines->end);
    while (n < 0 && errno == EINTR);
    lines->end += n > 0 ? (size_t)n : 0;
    return n > 0;
}

/* NULL: no more. */
static char *lines_next(struct lines *lines)
{
    for (;;) {
        char *line = lines->text + lines->begin;
        char *newline = memchr(line, '\n', lines->end - lines->begin);
        if (!newline && !lines_read(lines))
            return NULL;
        if (!newline)
            continue;
        *newline = '\0';
        lines->begin = (size_t)(newline + 1 - lines->text);
        if (!lines->is_over)
            return line;
        lines->is_over = false;
    }
}

static bool file_read(const struct cgm_cgroup *group, const char *name, char *ret_text, size_t size)
{
    char path[3 * CGM_CGROUP_PATH];
    snprintf(path, sizeof(path), "%s%s/%s", group->tree->point, group->path, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : pread(fd, ret_text, size - 1, 0);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return false;
    ret_text[n] = '\0';
    return true;
}

/* "max" is no number, and sets no limit. */
static bool number_parse(const char *text, uint64_t *ret_number)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    *ret_number = strtoull(text, &end, 10);
    return *end == '\n' || *end == '\0';
}

static bool file_number(const struct cgm_cgroup *group, const char *name, uint64_t *ret_number)
{
    char text[64];
    return file_read(group, name, text, sizeof(text)) && number_parse(text, ret_number);
}

/* Lines are "key number". */
static bool stat_number(const char *stat, const char *key, uint64_t *ret_number)
{
    size_t length = strlen(key);
    for (const char *line = stat; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) == 0 && line[length] == ' ')
            return number_parse(line + length + 1, ret_number);
    }
    return false;
}

/* ---- where they are ---------------------------------------------------------------------------
 */

/* Whether word is one of those of list, between commas. */
static bool list_has(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    }
    return false;
}

/* The kernel writes space, tab, newline and backslash as \ and three octal digits. */
static bool unescape(const char *from, char *ret_text, size_t size)
{
    size_t n = 0;
    for (; *from && n + 1 < size; n++) {
        unsigned code;
        bool escaped = *from == '\\' && sscanf(from + 1, "%3o", &code) == 1;
        ret_text[n] = escaped ? (char)code : *from;
        from += escaped && strlen(from) >= 4 ? 4 : 1;
    }
    ret_text[n] = '\0';
    return *from == '\0';
}

static const struct cgm_cgroup_version *version_of(const char *file_system, const char *options)
{
    if (strcmp(file_system, version_2.file_system) == 0)
        return &version_2;
    if (strcmp(file_system, version_1.file_system) == 0 && list_has(options, version_1.controller))
        return &version_1;
    return NULL;
}

/* "31 23 0:26 ROOT POINT rw,relatime shared:9 - cgroup2 cgroup2 rw". Where both versions are
 * mounted memory is v1's, or that one were not there. */
static void mount_consider(char *line, struct cgm_cgroup_tree *tree)
{
    char *fields[5], *file_system, *options, *rest = NULL;
    char *end = strstr(line, " - ");
    if (!end)
        return;
    *end = '\0';
    fields[0] = strtok_r(line, " ", &rest);
    for (int i = 1; i < 5; i++)
        fields[i] = strtok_r(NULL, " ", &rest);
    file_system = strtok_r(end + 3, " ", &rest);
    strtok_r(NULL, " ", &rest);
    options = strtok_r(NULL, " ", &rest);
    if (!fields[4] || !options)
        return;
    const struct cgm_cgroup_version *version = version_of(file_system, options);
    size_t base = strlen(tree->base);
    if (!version || (tree->version && (tree->version == version || version == &version_2)))
        return;
    tree->version = NULL;
    memcpy(tree->point, tree->base, base);
    if (unescape(fields[3], tree->root, sizeof(tree->root)) &&
        unescape(fields[4], tree->point + base, sizeof(tree->point) - base))
        tree->version = version;
}

int cgm_cgroup_find(const char *base, struct cgm_cgroup_tree *ret_tree)
{
    struct lines lines;
    char *line;
    ret_tree->version = NULL;
    if ((size_t)snprintf(ret_tree->base, sizeof(ret_tree->base), "%s", base) >=
        sizeof(ret_tree->base))
        return CGM_IO;
    if (!lines_open(&lines, base, "/proc/self/mountinfo"))
        return errno == ENOENT ? CGM_OK : CGM_IO;
    while ((line = lines_next(&lines)) != NULL)
        mount_consider(line, ret_tree);
    close(lines.fd);
    return CGM_OK;
}

/* ---- groups -----------------------------------------------------------------------------------
 */

/* What is below the mount of the path of a group. One that is not below it is in no sight, and what
 * is mounted may be above it. */
static const char *below_mount(const struct cgm_cgroup_tree *tree, const char *path)
{
    size_t length = strcmp(tree->root, "/") == 0 ? 0 : strlen(tree->root);
    bool below = strncmp(path, tree->root, length) == 0 &&
                 (path[length] == '/' || path[length] == '\0') &&
                 strncmp(path + length, "/..", 3) != 0;
    return below && strcmp(path + length, "/") != 0 ? path + length : "";
}

/* "4:memory,cpu:/path"; "0::/path" is v2's. NULL: another one's. */
static const char *path_of_line(const struct cgm_cgroup_version *version, char *line)
{
    char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
    if (!path)
        return NULL;
    *path = '\0';
    if (version == &version_2 ? list[1] != '\0' : !list_has(list + 1, version->controller))
        return NULL;
    return path + 1;
}

bool cgm_cgroup_own(const struct cgm_cgroup_tree *tree, struct cgm_cgroup *ret_group)
{
    struct lines lines;
    const char *path = NULL;
    char *line;
    if (!tree->version || !lines_open(&lines, tree->base, "/proc/self/cgroup"))
        return false;
    while (!path && (line = lines_next(&lines)) != NULL)
        path = path_of_line(tree->version, line);
    close(lines.fd);
    if (!path || strlen(path) >= sizeof(ret_group->path))
        return false;
    ret_group->tree = tree;
    ret_group->is_own = true;
    strcpy(ret_group->path, below_mount(tree, path));
    return true;
}

bool cgm_cgroup_up(struct cgm_cgroup *group)
{
    char *slash = strrchr(group->path, '/');
    group->is_own = false;
    if (!slash)
        return false;
    *slash = '\0';
    return true;
}

/* That of groups that cannot be seen from here is known as the own group's. */
static bool limit_above(const struct cgm_cgroup *group, uint64_t *ret_bytes)
{
    char stat[FILE_BYTES];
    const char *key = group->tree->version->limit_above;
    return key && group->is_own && file_read(group, "memory.stat", stat, sizeof(stat)) &&
           stat_number(stat, key, ret_bytes);
}

bool cgm_cgroup_limit(const struct cgm_cgroup *group, uint64_t *ret_bytes, const char **ret_file)
{
    const struct cgm_cgroup_version *version = group->tree->version;
    uint64_t bytes, least = UINT64_MAX;
    for (unsigned i = 0; i < MAX && version->limits[i]; i++)
        if (file_number(group, version->limits[i], &bytes) && bytes < least) {
            least = bytes;
            *ret_file = version->limits[i];
        }
    if (limit_above(group, &bytes) && bytes < least) {
        least = bytes;
        *ret_file = version->limit_above;
    }
    if (least == UINT64_MAX)
        return false;
    *ret_bytes = least;
    return true;
}

bool cgm_cgroup_used(const struct cgm_cgroup *group, uint64_t *ret_bytes)
{
    return file_number(group, group->tree->version->used, ret_bytes);
}

uint64_t cgm_cgroup_reclaimable(const struct cgm_cgroup *group)
{
    char stat[FILE_BYTES];
    uint64_t all = 0, bytes;
    if (!file_read(group, "memory.stat", stat, sizeof(stat)))
        return 0;
    for (unsigned i = 0; i < MAX; i++)
        if (stat_number(stat, group->tree->version->reclaimable[i], &bytes) &&
            bytes <= UINT64_MAX - all)
            all += bytes;
    return all;
}

void cgm_cgroup_name(const struct cgm_cgroup *group, char *ret_name, size_t size)
{
    const char *root = group->tree->root;
    char name[2 * CGM_CGROUP_PATH];
    bool nothing_above = strcmp(root, "/") == 0 && group->path[0];
    int length = snprintf(name, sizeof(name), "%s%s", nothing_above ? "" : root, group->path);
    size_t cut = (size_t)length < size ? 0 : (size_t)length - (size - sizeof("..."));
    snprintf(ret_name, size, "%s%s", cut ? "..." : "", name + cut);
}
