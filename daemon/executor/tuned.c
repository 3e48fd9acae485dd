#include "daemon/executor/tuned.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef unsigned long long ull;

static bool is_serial(const struct cgm_tried *tried)
{
    return tried->candidate.algorithm->number == CGM_ALGO_NO_OVERLAP;
}

static bool comes_before(const struct cgm_tried *a, const struct cgm_tried *b)
{
    if (is_serial(a) || is_serial(b))
        return is_serial(a) && !is_serial(b);
    return a->ns && (!b->ns || a->ns < b->ns);
}

void cgm_tuned_sort(struct cgm_tuned *tuned)
{
    for (uint32_t i = 2; i < tuned->n; i++) {
        struct cgm_tried moved = tuned->tried[i];
        uint32_t to = i;
        for (; to > 1 && comes_before(&moved, &tuned->tried[to - 1]); to--)
            tuned->tried[to] = tuned->tried[to - 1];
        tuned->tried[to] = moved;
    }
}

/* ---- text -------------------------------------------------------------------------------------
 */

static void append(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void append(char *text, size_t size, const char *format, ...)
{
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, size - used, format, arguments);
    va_end(arguments);
}

static ull microseconds(uint64_t ns)
{
    return (ns + 500) / 1000;
}

/* Room for what is put behind the times; nothing is late of what was kept. */
#define ROOM_BEHIND (sizeof("; kept since 2026-11-20") + sizeof("; products in TF32"))
#define ROOM_MORE sizeof(" and 15 more")

#define NAME_BYTES 96

static void write_name(const struct cgm_candidate *candidate, char ret_name[NAME_BYTES])
{
    char variant[CGM_VARIANT_TEXT];
    cgm_variant_write(candidate->variant, variant);
    snprintf(ret_name, NAME_BYTES, "%s%s%s", candidate->algorithm->name, variant[0] ? " " : "",
             variant);
}

/* A variant of the chosen one's algorithm by its parameter alone. */
static void write_other(const struct cgm_tuned *tuned, uint32_t i, char ret_name[NAME_BYTES])
{
    const struct cgm_candidate *candidate = &tuned->tried[i].candidate;
    if (candidate->variant && candidate->algorithm == tuned->tried[0].candidate.algorithm)
        cgm_variant_write(candidate->variant, ret_name);
    else
        write_name(candidate, ret_name);
}

static void write_others(const struct cgm_tuned *tuned, char *text, size_t size)
{
    for (uint32_t i = 1; i < tuned->n; i++) {
        char other[NAME_BYTES + 32], name[NAME_BYTES];
        write_other(tuned, i, name);
        if (tuned->tried[i].ns)
            snprintf(other, sizeof(other), "%s %llu", name, microseconds(tuned->tried[i].ns));
        else
            snprintf(other, sizeof(other), "%s -", name);
        if (strlen(text) + strlen(other) + ROOM_MORE + ROOM_BEHIND > size) {
            append(text, size, " and %u more", tuned->n - i);
            return;
        }
        append(text, size, "%s %s", i == 1 ? ";" : ",", other);
    }
}

void cgm_tuned_write(const struct cgm_tuned *tuned, char *ret_text, size_t size)
{
    char date[32], name[NAME_BYTES];
    time_t at = (time_t)tuned->at_s;
    struct tm broken;
    ret_text[0] = '\0';
    write_name(&tuned->tried[0].candidate, name);
    append(ret_text, size, "auto: %s measured %llu us", name, microseconds(tuned->tried[0].ns));
    write_others(tuned, ret_text, size);
    if (tuned->n_late)
        append(ret_text, size, "; no time for %u", tuned->n_late);
    if (at && gmtime_r(&at, &broken) && strftime(date, sizeof(date), "%Y-%m-%d", &broken))
        append(ret_text, size, "; kept since %s", date);
}
