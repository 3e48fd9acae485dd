#include "daemon/broker/candidates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void add(struct cgm_candidates *candidates, const char *path)
{
    if (candidates->count < CGM_CANDIDATES_MAX)
        snprintf(candidates->paths[candidates->count++], sizeof(candidates->paths[0]), "%s", path);
}

/* $COMMGEMM_LIBEXEC, the daemon's own folder, ../libexec/commgemm beside that. */
static bool find_executable(const char *backend, char *ret_path, size_t size)
{
    char own[200];
    const char *given = getenv("COMMGEMM_LIBEXEC");
    ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);
    own[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(own, '/');
    if (slash)
        *slash = '\0';
    const char *const folders[][2] = {
        {given ? given : "", ""}, {own, ""}, {own, "/../libexec/commgemm"}};
    for (size_t i = given ? 0 : 1; i < sizeof(folders) / sizeof(folders[0]); i++) {
        int used = snprintf(ret_path, size, "%s%s/commgemm-executor-%s", folders[i][0],
                            folders[i][1], backend);
        if (used > 0 && (size_t)used < size && access(ret_path, X_OK) == 0)
            return true;
    }
    return false;
}

/* auto chooses the CPU where the CUDA executor is missing: it is to be known if there is a GPU. */
static void note_missing_cuda(struct cgm_candidates *candidates, const struct cgm_config *config)
{
    if (config->backend == CGM_CONFIG_AUTO && access("/dev/nvidiactl", F_OK) == 0)
        snprintf(candidates->passed_over, sizeof(candidates->passed_over),
                 "commgemm-executor-cuda is not installed, and this machine has an NVIDIA GPU");
}

void cgm_candidates_find(struct cgm_candidates *candidates, const struct cgm_config *config)
{
    static const char *const names[] = {"cuda", "cpu"};
    char path[256];
    if (candidates->chosen || candidates->current > 0)
        return;
    candidates->count = 0;
    candidates->passed_over[0] = '\0';
    if (config->executor[0]) {
        add(candidates, config->executor);
        return;
    }
    for (int i = 0; i < 2; i++) {
        bool wanted =
            config->backend == CGM_CONFIG_AUTO || (config->backend == CGM_CONFIG_CUDA) == (i == 0);
        if (wanted && find_executable(names[i], path, sizeof(path)))
            add(candidates, path);
        else if (wanted && i == 0)
            note_missing_cuda(candidates, config);
    }
}

const char *cgm_candidates_path(const struct cgm_candidates *candidates)
{
    return candidates->count > 0 ? candidates->paths[candidates->current] : "";
}

const char *cgm_candidates_name(const struct cgm_candidates *candidates)
{
    const char *path = cgm_candidates_path(candidates), *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool cgm_candidates_has_next(const struct cgm_candidates *candidates)
{
    return !candidates->chosen && candidates->current + 1 < candidates->count;
}

void cgm_candidates_pass_over(struct cgm_candidates *candidates, const char *why)
{
    snprintf(candidates->passed_over, sizeof(candidates->passed_over), "%s", why);
    candidates->current++;
}

void cgm_candidates_start_over(struct cgm_candidates *candidates)
{
    if (!candidates->chosen)
        candidates->current = 0;
}

void cgm_candidates_choose(struct cgm_candidates *candidates)
{
    candidates->chosen = true;
    if (candidates->current == 0 && candidates->count > 1)
        candidates->passed_over[0] = '\0';
}
