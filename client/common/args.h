/* Command lines as tables. One table of options (and, for a program with verbs, one of verbs) is
 * what the parser, --help, the shell completion and the man page are all made from.
 *
 *     struct settings { const char *socket; uint64_t bytes; bool json; };
 *     static const struct cgm_option options[] = {
 *         {.name = "socket", .kind = CGM_ARG_PATH, .value = "PATH",
 *          CGM_FIELD(struct settings, socket), .summary = "the daemon's socket"},
 *         {.name = "json", .letter = 'j', .kind = CGM_ARG_FLAG,
 *          CGM_FIELD(struct settings, json), .summary = "print JSON"},
 *     };
 *
 * Defaults are what the settings hold before cgm_args_parse. A long name is also taken with '_' for
 * '-', and any unambiguous beginning of it. */
#ifndef CGM_ARGS_H
#define CGM_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define CGM_OPTIONS_MAX 128u
#define CGM_ARGS_DETAIL_BYTES 1024u

/* What the value looks like, and the C type of the field that it is stored into. */
enum cgm_arg_kind {
    CGM_ARG_FLAG,   /* no value; bool */
    CGM_ARG_TEXT,   /* const char *, points into argv */
    CGM_ARG_PATH,   /* const char *, completed as a file name; not empty */
    CGM_ARG_INT,    /* int64_t within [min, max] */
    CGM_ARG_UINT,   /* uint64_t within [min, max] */
    CGM_ARG_BYTES,  /* uint64_t within [min, max]; suffixes K, M, G, T (powers of 1024) */
    CGM_ARG_REAL,   /* double within [min, max], finite */
    CGM_ARG_MODE,   /* uint32_t, octal, at most 0777 */
    CGM_ARG_CHOICE, /* int: the position in `choices` */
    CGM_ARG_TYPE,   /* int: a number of proto/types.h's table `table`, within [min, max] */
};

struct cgm_option {
    const char *name; /* long, without dashes */
    char letter;      /* 0: none */
    enum cgm_arg_kind kind;
    size_t offset;       /* of the field; CGM_FIELD */
    const char *value;   /* placeholder in help: "N", "PATH"; NULL: made from kind */
    const char *summary; /* begins with a small letter, no full stop */
    int64_t min, max;    /* of numbers; both 0: no limits; max < min: no upper one */
    const char *choices; /* CHOICE: "cpu|cuda" */
    int table;           /* TYPE: enum cgm_type_table */
    /* Not NULL: the value may be left out (`--private`, `--private=cpu`), then it is this text. */
    const char *implied;
    bool ends;   /* what it asks for needs nothing else (--help): verb and words are not checked */
    bool hidden; /* from help, completion and man page */
};
#define CGM_FIELD(type, field) .offset = offsetof(type, field)

/* A group of options under one heading in help and man page. */
struct cgm_option_table {
    const char *heading; /* NULL: "Options" */
    const struct cgm_option *options;
    size_t count;
};
#define CGM_OPTION_TABLE(title, array)                                                             \
    {                                                                                              \
        .heading = (title), .options = (array), .count = sizeof(array) / sizeof((array)[0])        \
    }

/* One thing that a program can be asked to do. */
struct cgm_verb {
    const char *name;      /* one or two words: "buffers create" */
    const char *arguments; /* "NAME FILE.npy"; "" for none */
    unsigned min_words, max_words;
    struct cgm_option_table table; /* its own options; count 0 for none */
    const char *summary;           /* one line */
    const char *description;       /* for the man page, after the summary; may be NULL */
    bool hidden;
    /* settings: what cgm_args_parse filled; returns the exit status. */
    int (*run)(void *settings, int n_words, char **words);
};

/* A section of the man page in plain text: paragraphs are separated by empty lines; a line that
 * begins with four spaces is kept as it is. */
struct cgm_section {
    const char *title, *text;
};

struct cgm_program {
    const char *name;
    const char *summary;     /* "control the commgemm daemon" */
    const char *usage;       /* behind the name in the usage line: "[OPTION]... VERB" */
    const char *description; /* man page; paragraphs as in a section */
    const struct cgm_option_table *tables; /* options that are good everywhere */
    size_t n_tables;
    const struct cgm_verb *verbs;
    size_t n_verbs;
    const struct cgm_section *sections; /* behind the options: EXIT STATUS, EXAMPLES, ... */
    size_t n_sections;
    const char *date; /* of the man page: "2026-11-20" */
};

/* What a command line came to. */
struct cgm_args {
    int n_words; /* that are no options; pointers into argv */
    char **words;
    const struct cgm_verb *verb;        /* NULL when the program has none or none was given */
    bool given[CGM_OPTIONS_MAX];        /* by position: the program's tables, then the verb's */
    char detail[CGM_ARGS_DETAIL_BYTES]; /* what is wrong, with the offending option and value */
};

/* Parses argv (argv[0] is skipped; its words may be reordered) into settings. A program with verbs
 * takes its own options before and behind the verb. The number of words is checked against the
 * verb, not for a program without verbs. OK, or INVALID_ARGUMENT with ret_args->detail; fields of
 * options before the bad one are set then. Not thread-safe (getopt). */
int cgm_args_parse(const struct cgm_program *program, int argc, char **argv, void *settings,
                   struct cgm_args *ret_args);

/* True when the option was on the command line. `name` must be in a table. */
bool cgm_args_given(const struct cgm_program *program, const struct cgm_args *args,
                    const char *name);

/* "4096", "4K", "2g"; "1.5G", "12Q" and "-1" are refused. OK or INVALID_ARGUMENT. */
int cgm_bytes_parse(const char *text, uint64_t *ret_bytes);

/* --help: of the program, or of one verb (else NULL). */
void cgm_args_help(const struct cgm_program *program, const struct cgm_verb *verb, FILE *out);

/* A bash completion script, to be sourced. */
void cgm_args_completion(const struct cgm_program *program, FILE *out);

/* A man page, section 1. */
void cgm_args_manual(const struct cgm_program *program, FILE *out);

#endif
