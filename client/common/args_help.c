#include <string.h>

#include "client/common/args_table.h"

#define LINE_CHARACTERS 100u
#define TEXT_COLUMN 30u /* where summaries begin */

/* Prints words, broken at LINE_CHARACTERS, every line behind the first indented. */
static void print_wrapped(FILE *out, const char *text, unsigned column, unsigned indent)
{
    bool first = true;

    for (const char *word = text; *word != '\0';) {
        unsigned length = (unsigned)strcspn(word, " ");
        if (!first && column + 1 + length > LINE_CHARACTERS) {
            fprintf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (!first) {
            fputc(' ', out);
            column++;
        }
        fprintf(out, "%.*s", (int)length, word);
        column += length;
        first = false;
        word += length + strspn(word + length, " ");
    }
    fputc('\n', out);
}

/* A line of a list: `label` at the left, the summary in its column or on the next line. */
static void print_entry(FILE *out, const char *label, const char *summary)
{
    size_t width = strlen(label);

    if (width + 2 > TEXT_COLUMN)
        fprintf(out, "%s\n%*s", label, (int)TEXT_COLUMN, "");
    else
        fprintf(out, "%-*s", (int)TEXT_COLUMN, label);
    print_wrapped(out, summary, TEXT_COLUMN, TEXT_COLUMN);
}

static void print_option(FILE *out, const struct cgm_option *option)
{
    char label[160], letter[8] = "    ";
    const char *value = cgm_option_value(option);
    char suffix[64] = "";

    if (option->letter != 0)
        snprintf(letter, sizeof(letter), "-%c, ", option->letter);
    if (value != NULL)
        snprintf(suffix, sizeof(suffix), option->implied != NULL ? "[=%s]" : "=%s", value);
    snprintf(label, sizeof(label), "  %s--%s%s", letter, option->name, suffix);

    char summary[1024], choices[512];
    cgm_option_choices(option, ", ", choices, sizeof(choices));
    snprintf(summary, sizeof(summary), "%s%s%s", option->summary, choices[0] != '\0' ? ": " : "",
             choices);
    print_entry(out, label, summary);
}

static void print_table(FILE *out, const struct cgm_option_table *table)
{
    if (table->count == 0)
        return;
    fprintf(out, "\n%s:\n", table->heading != NULL ? table->heading : "Options");
    for (size_t i = 0; i < table->count; i++)
        if (!table->options[i].hidden)
            print_option(out, &table->options[i]);
}

/* All of them, or those under one of them. */
static void print_verbs(FILE *out, const struct cgm_program *program, const struct cgm_verb *above)
{
    if (above != NULL ? !cgm_verbs_are_under(program, above->name) : program->n_verbs == 0)
        return;
    fputs("\nVerbs:\n", out);
    for (size_t i = 0; i < program->n_verbs; i++) {
        const struct cgm_verb *verb = &program->verbs[i];
        char label[160];
        if (verb->hidden || (above != NULL && !cgm_verb_is_under(verb, above->name)))
            continue;
        snprintf(label, sizeof(label), "  %s%s%s", verb->name,
                 verb->arguments[0] != '\0' ? " " : "", verb->arguments);
        print_entry(out, label, verb->summary);
    }
}

/* A summary as a sentence: capital and full stop. */
static void print_sentence(FILE *out, const char *summary)
{
    char sentence[512];

    snprintf(sentence, sizeof(sentence), "%c%s.",
             summary[0] >= 'a' && summary[0] <= 'z' ? summary[0] - 'a' + 'A' : summary[0],
             summary + 1);
    print_wrapped(out, sentence, 0, 0);
}

void cgm_args_help(const struct cgm_program *program, const struct cgm_verb *verb, FILE *out)
{
    if (verb != NULL) {
        fprintf(out, "Usage: %s %s%s%s%s\n\n", program->name, verb->name,
                verb->table.count > 0 ? " [OPTION]..." : "", verb->arguments[0] != '\0' ? " " : "",
                verb->arguments);
        print_sentence(out, verb->summary);
        if (verb->description != NULL) {
            fputc('\n', out);
            print_wrapped(out, verb->description, 0, 0);
        }
        print_verbs(out, program, verb);
        print_table(out, &verb->table);
    } else {
        fprintf(out, "Usage: %s %s\n\n", program->name, program->usage);
        print_sentence(out, program->summary);
        print_verbs(out, program, NULL);
    }
    for (size_t t = 0; t < program->n_tables; t++)
        print_table(out, &program->tables[t]);
}
