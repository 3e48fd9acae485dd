/* A file of times, and each line of it: taken and written again as it was, or refused with a
 * sentence that says where. */
#include <stdio.h>
#include <string.h>

#include "proto/status.h"
#include "proto/timing.h"
#include "tests/fuzz/fuzz.h"

struct seen {
    unsigned lines;
    struct cgm_timings_out out;
};

static void check_line(void *context, const char *line, const struct cgm_timing *timing)
{
    struct seen *seen = context;
    char again[CGM_TIMING_LINE_BYTES];
    const char *key;
    cgm_timing_write(timing, again, &key);
    FUZZ_CHECK(strcmp(again, line) == 0 && key > again && key < again + strlen(again));
    FUZZ_CHECK(timing->times.n > 1 && timing->times.n <= CGM_TIMES_MAX && timing->times.ns[0] > 0);
    FUZZ_CHECK(timing->world > 1 && timing->world <= CGM_COMM_SIZE_MAX);
    cgm_timings_line(&seen->out, line);
    seen->lines++;
}

/* Most files that libFuzzer makes have the wrong sum: what is in their lines is looked at all the
 * same. */
static void read_lines(const uint8_t *data, size_t size)
{
    char line[CGM_TIMING_LINE_BYTES], detail[128];
    struct cgm_timing timing;
    for (size_t i = 0; i < size; i++) {
        size_t n = 0;
        while (i < size && data[i] != '\n' && n + 1 < sizeof(line))
            line[n++] = (char)data[i++];
        line[n] = '\0';
        detail[0] = '\0';
        int status = cgm_timing_read(line, detail, sizeof(detail), &timing);
        FUZZ_CHECK(status == CGM_OK || (status == CGM_INVALID_ARGUMENT && detail[0]));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy, detail[256] = "";
    size_t copy_size;
    struct seen seen = {0};
    read_lines(data, size);
    if (size == 0)
        return 0;
    FILE *file = fmemopen((void *)(uintptr_t)data, size, "r");
    FILE *again = open_memstream(&copy, &copy_size);
    FUZZ_CHECK(file && again);
    cgm_timings_begin(&seen.out, again);
    int status = cgm_timings_read(file, check_line, &seen, detail, sizeof(detail));
    cgm_timings_end(&seen.out);
    fclose(again);
    fclose(file);
    FUZZ_CHECK(status == CGM_OK || strncmp(detail, "line ", 5) == 0);
    FUZZ_CHECK(status != CGM_OK || (copy_size == size && memcmp(copy, data, size) == 0));
    free(copy);
    return 0;
}
