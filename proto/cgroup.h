/* The limits of memory of the control groups that this process is in, of cgroup v2 and v1: its own
 * group's, and those of the groups above it as far as they can be seen from here. What is absent or
 * says nothing that can be read sets no limit. Nothing is allocated. */
#ifndef CGM_CGROUP_H
#define CGM_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Longer paths are not followed. */
#define CGM_CGROUP_PATH 1024u

struct cgm_cgroup_version;

/* Where the groups that limit memory are mounted. It stays so while a process runs. */
struct cgm_cgroup_tree {
    const struct cgm_cgroup_version *version; /* NULL: nowhere */
    char base[CGM_CGROUP_PATH];               /* before every path: "", but in tests */
    char point[CGM_CGROUP_PATH];              /* the mount, base included */
    char root[CGM_CGROUP_PATH];               /* the group that is mounted there */
};

/* OK, also where there is none; IO when the mounts cannot be read now. */
int cgm_cgroup_find(const char *base, struct cgm_cgroup_tree *ret_tree);

struct cgm_cgroup {
    const struct cgm_cgroup_tree *tree;
    char path[CGM_CGROUP_PATH]; /* below the mount; "" is what is mounted */
    bool is_own;                /* no group above the process's own */
};

/* This process's group as it is now: it may be moved to another one at any time. False where it
 * cannot be known. */
bool cgm_cgroup_own(const struct cgm_cgroup_tree *tree, struct cgm_cgroup *ret_group);

/* Makes it the group above; false at the mount. */
bool cgm_cgroup_up(struct cgm_cgroup *group);

/* False: this group sets none. *ret_file is the file that does. */
bool cgm_cgroup_limit(const struct cgm_cgroup *group, uint64_t *ret_bytes, const char **ret_file);

/* Of all that is in the group and below it. False where it cannot be read. */
bool cgm_cgroup_used(const struct cgm_cgroup *group, uint64_t *ret_bytes);

/* Of what is used, the pages of files that the kernel takes back before it refuses any. Files are
 * what is in a file system: memory that has no file is not among them. Costs more to read than the
 * others. */
uint64_t cgm_cgroup_reclaimable(const struct cgm_cgroup *group);

/* As far as it is known here: "/system.slice/commgemmd.service", or its end. */
void cgm_cgroup_name(const struct cgm_cgroup *group, char *ret_name, size_t size);

#endif
