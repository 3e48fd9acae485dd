#include <assert.h>
#include <getopt.h>
#include <string.h>

#include "client/common/args_table.h"
#include "proto/status.h"

#define NAME_BYTES_MAX 48u
#define LONG_VALUE 256 /* what getopt returns for long option i: this + i */

/* One scan with getopt: the program's options and, behind the verb, the verb's. */
struct scan {
    const struct cgm_program *program;
    const struct cgm_verb *verb;
    void *settings;
    struct cgm_args *args;
    bool ended; /* an option with `ends` was there */
    struct option longs[2 * CGM_OPTIONS_MAX + 1];
    char underscored[CGM_OPTIONS_MAX][NAME_BYTES_MAX];
    char letters[3 * CGM_OPTIONS_MAX + 3];
};

static void spell_with_underscores(const char *name, char *ret_name)
{
    size_t i = 0;

    for (; name[i] != '\0'; i++)
        ret_name[i] = name[i] == '-' ? '_' : name[i];
    ret_name[i] = '\0';
}

/* Fills getopt's tables; `order` is "+:" (stop at the first word) or ":" (options anywhere). */
static void prepare(struct scan *scan, const char *order)
{
    const struct cgm_option *option;
    size_t n_longs = 0, n_letters = strlen(order);

    memcpy(scan->letters, order, n_letters);
    for (unsigned i = 0; (option = cgm_option_at(scan->program, scan->verb, i)) != NULL; i++) {
        assert(i < CGM_OPTIONS_MAX && strlen(option->name) < NAME_BYTES_MAX);
        int has_value = option->kind == CGM_ARG_FLAG ? no_argument
                        : option->implied != NULL    ? optional_argument
                                                     : required_argument;
        scan->longs[n_longs++] =
            (struct option){option->name, has_value, NULL, LONG_VALUE + (int)i};
        if (strchr(option->name, '-') != NULL) {
            spell_with_underscores(option->name, scan->underscored[i]);
            scan->longs[n_longs++] =
                (struct option){scan->underscored[i], has_value, NULL, LONG_VALUE + (int)i};
        }
        if (option->letter != 0) {
            scan->letters[n_letters++] = option->letter;
            for (int colons = has_value; colons > 0; colons--)
                scan->letters[n_letters++] = ':';
        }
    }
    scan->longs[n_longs] = (struct option){0};
    scan->letters[n_letters] = '\0';
}

/* The position of the option that getopt's return value (or optopt) stands for; -1 for none. */
static int position_of(const struct scan *scan, int value)
{
    const struct cgm_option *option;

    if (value >= LONG_VALUE)
        return value - LONG_VALUE;
    for (unsigned i = 0; (option = cgm_option_at(scan->program, scan->verb, i)) != NULL; i++)
        if (option->letter == value)
            return (int)i;
    return -1;
}

static int refuse_option(struct scan *scan, int result, const char *word)
{
    char *detail = scan->args->detail;
    int position = optopt == 0 ? -1 : position_of(scan, optopt);

    if (position < 0 && optopt > 0 && optopt < LONG_VALUE) {
        snprintf(detail, CGM_ARGS_DETAIL_BYTES, "unknown option -%c", optopt);
    } else if (optopt < 0) { /* a letter beyond ASCII: getopt has its first byte alone */
        snprintf(detail, CGM_ARGS_DETAIL_BYTES, "unknown option: - and byte 0x%02x",
                 (unsigned)(unsigned char)optopt);
    } else if (position < 0) {
        snprintf(detail, CGM_ARGS_DETAIL_BYTES, "unknown or ambiguous option %s", word);
    } else {
        const struct cgm_option *option =
            cgm_option_at(scan->program, scan->verb, (unsigned)position);
        if (result == ':')
            snprintf(detail, CGM_ARGS_DETAIL_BYTES, "--%s needs a value (%s)", option->name,
                     cgm_option_value(option));
        else
            snprintf(detail, CGM_ARGS_DETAIL_BYTES, "--%s takes no value; it was given as %s",
                     option->name, word);
    }
    return CGM_INVALID_ARGUMENT;
}

/* Leaves the words in args->words. */
static int scan_options(struct scan *scan, const char *order, int argc, char **argv)
{
    int result;

    prepare(scan, order);
    opterr = 0;
    optind = 0; /* glibc: start afresh */
    while ((result = getopt_long(argc, argv, scan->letters, scan->longs, NULL)) != -1) {
        if (result == '?' || result == ':')
            return refuse_option(scan, result, argv[optind - 1]);
        int position = position_of(scan, result);
        const struct cgm_option *option =
            cgm_option_at(scan->program, scan->verb, (unsigned)position);
        scan->args->given[position] = true;
        scan->ended |= option->ends;
        int status = cgm_option_store(option, optarg, scan->settings, scan->args->detail);
        if (status != CGM_OK)
            return status;
    }
    scan->args->n_words = argc - optind;
    scan->args->words = argv + optind;
    return CGM_OK;
}

/* The longest verb that the words begin with. */
static const struct cgm_verb *find_verb(const struct cgm_program *program, int n_words,
                                        char **words, int *ret_length)
{
    const struct cgm_verb *found = NULL;

    for (size_t i = 0; i < program->n_verbs; i++) {
        const struct cgm_verb *verb = &program->verbs[i];
        const char *blank = strchr(verb->name, ' ');
        if (blank == NULL && strcmp(verb->name, words[0]) == 0 && found == NULL) {
            found = verb;
            *ret_length = 1;
        }
        if (blank != NULL && n_words > 1 && cgm_verb_is_under(verb, words[0]) &&
            strcmp(blank + 1, words[1]) == 0) {
            found = verb;
            *ret_length = 2;
        }
    }
    return found;
}

/* "word" is not a verb: lists those that could have been meant, below `first` or (NULL) all. */
static int refuse_verb(struct scan *scan, const char *first, const char *word)
{
    char *detail = scan->args->detail;
    size_t used = (size_t)snprintf(detail, CGM_ARGS_DETAIL_BYTES, "\"%.40s%s%.40s\" is no verb; %s",
                                   first != NULL ? first : "", first != NULL ? " " : "", word,
                                   "the verbs are");
    const char *separator = " ";

    for (size_t i = 0; i < scan->program->n_verbs && used < CGM_ARGS_DETAIL_BYTES; i++) {
        const struct cgm_verb *verb = &scan->program->verbs[i];
        bool below =
            first != NULL ? cgm_verb_is_under(verb, first) : strchr(verb->name, ' ') == NULL;
        if (verb->hidden || !below)
            continue;
        used += (size_t)snprintf(detail + used, CGM_ARGS_DETAIL_BYTES - used, "%s%s", separator,
                                 verb->name);
        separator = ", ";
    }
    return CGM_INVALID_ARGUMENT;
}

static int check_words(struct scan *scan)
{
    const struct cgm_verb *verb = scan->verb;
    struct cgm_args *args = scan->args;
    unsigned n_words = (unsigned)args->n_words;

    if (scan->ended || (n_words >= verb->min_words && n_words <= verb->max_words))
        return CGM_OK;
    if (n_words > verb->max_words && cgm_verbs_are_under(scan->program, verb->name))
        return refuse_verb(scan, verb->name, args->words[0]);
    if (n_words < verb->min_words)
        snprintf(args->detail, sizeof(args->detail), "%s needs %s", verb->name, verb->arguments);
    else if (verb->max_words == 0)
        snprintf(args->detail, sizeof(args->detail), "%s takes no argument, got \"%s\"", verb->name,
                 args->words[0]);
    else
        snprintf(args->detail, sizeof(args->detail), "%s takes %s only, got also \"%s\"",
                 verb->name, verb->arguments, args->words[verb->max_words]);
    return CGM_INVALID_ARGUMENT;
}

static int scan_behind_verb(struct scan *scan)
{
    char **words = scan->args->words;
    int n_words = scan->args->n_words, length = 0;

    scan->verb = find_verb(scan->program, n_words, words, &length);
    if (scan->verb == NULL)
        return refuse_verb(scan, NULL, words[0]);
    scan->args->verb = scan->verb;
    /* The verb's last word stands where getopt expects the program's name. */
    int status = scan_options(scan, ":", n_words - length + 1, words + length - 1);
    return status == CGM_OK ? check_words(scan) : status;
}

int cgm_args_parse(const struct cgm_program *program, int argc, char **argv, void *settings,
                   struct cgm_args *ret_args)
{
    struct scan scan = {.program = program, .settings = settings, .args = ret_args};
    const char *order = program->n_verbs > 0 ? "+:" : ":";

    memset(ret_args, 0, sizeof(*ret_args));
    int status = scan_options(&scan, order, argc, argv);
    if (status != CGM_OK || program->n_verbs == 0 || ret_args->n_words == 0)
        return status;
    return scan_behind_verb(&scan);
}

bool cgm_args_given(const struct cgm_program *program, const struct cgm_args *args,
                    const char *name)
{
    const struct cgm_option *option;

    for (unsigned i = 0; (option = cgm_option_at(program, args->verb, i)) != NULL; i++)
        if (strcmp(option->name, name) == 0)
            return args->given[i];
    assert(!"the option is in a table");
    return false;
}
