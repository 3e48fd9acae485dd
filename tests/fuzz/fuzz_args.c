/* A command line: it is taken, with every field within its limits, or refused with a sentence. The
 * first byte chooses the program, each line is a word. */
#include <string.h>

#include "client/bench/options.h"
#include "client/ctl/ctl.h"
#include "proto/status.h"
#include "tests/fuzz/fuzz.h"

#define WORDS_MAX 48
#define LINE_BYTES 4096u

/* The words as main gets them: pointers into one text, in memory of their own, so that a step
 * beyond a word's end is seen. */
static int split(char *text, char **ret_words)
{
    int count = 1;
    ret_words[0] = (char *)(uintptr_t) "program";
    for (char *word = strtok(text, "\n"); word && count < WORDS_MAX; word = strtok(NULL, "\n"))
        ret_words[count++] = word;
    ret_words[count] = NULL;
    return count;
}

static void parse_ctl(int count, char **words)
{
    struct cgm_ctl ctl = {0};
    struct cgm_args args;
    int status = cgm_args_parse(&cgm_ctl_program, count, words, &ctl, &args);
    FUZZ_CHECK(status == CGM_OK || (status == CGM_INVALID_ARGUMENT && args.detail[0]));
    FUZZ_CHECK(memchr(args.detail, '\0', sizeof(args.detail)));
    if (status != CGM_OK)
        return;
    FUZZ_CHECK(ctl.mode <= 0777);
    FUZZ_CHECK(!args.verb || ctl.help || ctl.version ||
               ((unsigned)args.n_words >= args.verb->min_words &&
                (unsigned)args.n_words <= args.verb->max_words));
}

static void parse_bench(int count, char **words)
{
    char detail[CGM_BENCH_DETAIL_BYTES] = "";
    struct cgm_bench_options options;
    int status = cgm_bench_options_parse(count, words, detail, &options);
    FUZZ_CHECK(status == CGM_OK || detail[0]);
    FUZZ_CHECK(memchr(detail, '\0', sizeof(detail)));
    if (status == CGM_OK)
        FUZZ_CHECK(options.world >= 1 && options.mode <= 0777 && options.timeout_s < UINT64_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *words[WORDS_MAX + 1];
    if (size < 1 || size > LINE_BYTES)
        return -1;
    char *text = malloc(size);
    FUZZ_CHECK(text);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    int count = split(text, words);
    if (data[0] & 1)
        parse_bench(count, words);
    else
        parse_ctl(count, words);
    free(text);
    return 0;
}
