/* The man page of a program's tables, in the man(7) macros: they take arbitrary text with nothing
 * but its backslashes, dashes and leading dots escaped. */
#include <ctype.h>
#include <string.h>

#include "client/common/args_table.h"

#define PLAIN_INDENT 4u /* blanks before a line that is kept as it is */
#define LINE_CHARACTERS 78u

static void print_escaped(FILE *out, const char *text, size_t length)
{
    if (length > 0 && (text[0] == '.' || text[0] == '\''))
        fputs("\\&", out);
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\\')
            fputs("\\e", out);
        else if (text[i] == '-')
            fputs("\\-", out);
        else
            fputc(text[i], out);
    }
}

/* Words, in lines that are not too long. */
static void print_words(FILE *out, const char *text, size_t length)
{
    const char *end = text + length;
    size_t column = 0;

    while (text < end) {
        size_t blank = strcspn(text, " ");
        size_t word = blank < (size_t)(end - text) ? blank : (size_t)(end - text);
        bool fits = column + 1 + word <= LINE_CHARACTERS;
        if (column > 0)
            fputc(fits ? ' ' : '\n', out);
        column = fits && column > 0 ? column + 1 + word : word;
        print_escaped(out, text, word);
        text += word;
        text += *text == ' ';
    }
}

static void print_text(FILE *out, const char *text)
{
    print_words(out, text, strlen(text));
}

/* As the beginning of a sentence. */
static void print_capitalized(FILE *out, const char *text)
{
    fputc(toupper((unsigned char)text[0]), out);
    print_text(out, text + 1);
}

static bool is_plain_line(const char *line)
{
    return strspn(line, " ") >= PLAIN_INDENT;
}

/* Paragraphs and lines kept as they are, as struct cgm_section says. */
static void print_paragraphs(FILE *out, const char *text)
{
    bool plain = false;

    for (const char *line = text; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        bool next_plain = is_plain_line(line);
        if (next_plain != plain)
            fputs(next_plain ? ".RS 4\n.nf\n" : ".fi\n.RE\n", out);
        plain = next_plain;
        if (length == 0)
            fputs(".PP\n", out);
        else if (plain)
            print_escaped(out, line + PLAIN_INDENT, length - PLAIN_INDENT);
        else
            print_words(out, line, length);
        if (length > 0)
            fputc('\n', out);
        line += length + (line[length] == '\n');
    }
    if (plain)
        fputs(".fi\n.RE\n", out);
}

static void print_option(FILE *out, const struct cgm_option *option)
{
    const char *value = cgm_option_value(option);
    char choices[512];

    fputs(".TP\n", out);
    if (option->letter != 0)
        fprintf(out, "\\fB\\-%c\\fR, ", option->letter);
    fputs("\\fB\\-\\-", out);
    print_text(out, option->name);
    fputs("\\fR", out);
    if (value != NULL)
        fprintf(out, option->implied != NULL ? "[=\\fI%s\\fR]" : "=\\fI%s\\fR", value);
    fputc('\n', out);
    print_text(out, option->summary);
    cgm_option_choices(option, ", ", choices, sizeof(choices));
    if (choices[0] != '\0') {
        fputs(": ", out);
        print_text(out, choices);
    }
    fputc('\n', out);
}

static void print_options(FILE *out, const struct cgm_option_table *table)
{
    for (size_t i = 0; i < table->count; i++)
        if (!table->options[i].hidden)
            print_option(out, &table->options[i]);
}

static void print_verb(FILE *out, const struct cgm_verb *verb)
{
    fprintf(out, ".TP\n\\fB%s\\fR", verb->name);
    if (verb->arguments[0] != '\0')
        fprintf(out, " \\fI%s\\fR", verb->arguments);
    fputc('\n', out);
    print_capitalized(out, verb->summary);
    fputs(".\n", out);
    if (verb->description != NULL) {
        print_text(out, verb->description);
        fputc('\n', out);
    }
    if (verb->table.count > 0) {
        fputs(".RS\n", out);
        print_options(out, &verb->table);
        fputs(".RE\n", out);
    }
}

static void print_upper(FILE *out, const char *text)
{
    for (; *text != '\0'; text++)
        fputc(toupper((unsigned char)*text), out);
}

static void print_heading(FILE *out, const char *macro, const char *title)
{
    fprintf(out, ".%s ", macro);
    print_upper(out, title);
    fputc('\n', out);
}

void cgm_args_manual(const struct cgm_program *program, FILE *out)
{
    fputs(".TH ", out);
    print_upper(out, program->name);
    fprintf(out, " 1 \"%s\" \"commgemm %s\" \"commgemm\"\n.SH NAME\n",
            program->date != NULL ? program->date : "", COMMGEMM_RELEASE);
    print_text(out, program->name);
    fputs(" \\- ", out);
    print_text(out, program->summary);
    fprintf(out, "\n.SH SYNOPSIS\n\\fB%s\\fR ", program->name);
    print_text(out, program->usage);
    fputs("\n.SH DESCRIPTION\n", out);
    print_paragraphs(out, program->description);
    if (program->n_verbs > 0)
        print_heading(out, "SH", "verbs");
    for (size_t i = 0; i < program->n_verbs; i++)
        if (!program->verbs[i].hidden)
            print_verb(out, &program->verbs[i]);
    print_heading(out, "SH", "options");
    for (size_t t = 0; t < program->n_tables; t++) {
        if (program->tables[t].heading != NULL)
            fprintf(out, ".SS %s\n", program->tables[t].heading);
        print_options(out, &program->tables[t]);
    }
    for (size_t i = 0; i < program->n_sections; i++) {
        print_heading(out, "SH", program->sections[i].title);
        print_paragraphs(out, program->sections[i].text);
    }
}
