#include "client/common/progress.h"

#include <inttypes.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_NS 2000000000u /* before the first drawing */
#define FRAME_NS 100000000u     /* between two */
#define BAR_CELLS 30u

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void cgm_progress_init(struct cgm_progress *progress, FILE *out, const char *label, uint64_t total)
{
    *progress = (struct cgm_progress){
        .out = out,
        .label = label,
        .total = total,
        .begin_ns = now_ns(),
        .terminal = isatty(fileno(out)) == 1,
    };
}

static void draw(const struct cgm_progress *progress, uint64_t done, double elapsed_s)
{
    static const char full[] = "##############################";
    static const char empty[] = "                              ";

    if (progress->total == 0) {
        fprintf(progress->out, "\r%s  %" PRIu64 "  %.0f s\033[K", progress->label, done, elapsed_s);
    } else {
        double part = done < progress->total ? (double)done / (double)progress->total : 1;
        unsigned cells = (unsigned)(part * BAR_CELLS);
        double left_s = part > 0 ? elapsed_s * (1 - part) / part : 0;
        fprintf(progress->out, "\r%s  [%.*s%.*s] %3.0f %%  %.0f s left\033[K", progress->label,
                (int)cells, full, (int)(BAR_CELLS - cells), empty, 100 * part, left_s);
    }
    fflush(progress->out);
}

void cgm_progress_update(struct cgm_progress *progress, uint64_t done)
{
    if (!progress->terminal)
        return;
    uint64_t now = now_ns();
    if (now - progress->begin_ns < PATIENCE_NS || now - progress->drawn_ns < FRAME_NS)
        return;
    progress->drawn = true;
    progress->drawn_ns = now;
    draw(progress, done, (double)(now - progress->begin_ns) / 1e9);
}

void cgm_progress_fini(struct cgm_progress *progress)
{
    if (!progress->drawn)
        return;
    fputs("\r\033[K", progress->out);
    fflush(progress->out);
    progress->drawn = false;
}
