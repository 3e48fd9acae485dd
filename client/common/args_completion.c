/* A bash completion script. It finds the verb before the cursor, then offers, in this order: values
 * of the option before the cursor, options when the word begins with '-', the next word of a verb,
 * file names. */
#include <ctype.h>
#include <string.h>

#include "client/common/args_table.h"

/* The program's name as part of a function's name. */
static void print_identifier(FILE *out, const char *name)
{
    for (; *name != '\0'; name++)
        fputc(isalnum((unsigned char)*name) ? *name : '_', out);
}

static void print_option_names(FILE *out, const struct cgm_option_table *table)
{
    for (size_t i = 0; i < table->count; i++)
        if (!table->options[i].hidden)
            fprintf(out, " --%s", table->options[i].name);
}

static void print_pattern(FILE *out, const struct cgm_option *option)
{
    fprintf(out, "--%s", option->name);
    if (option->letter != 0)
        fprintf(out, "|-%c", option->letter);
}

/* The option takes the next word as its value. */
static bool takes_word(const struct cgm_option *option)
{
    return option->kind != CGM_ARG_FLAG && option->implied == NULL && !option->hidden;
}

/* A line of case "$previous" in: what the value of the option before the cursor can be. */
static void print_value_case(FILE *out, const struct cgm_option *option)
{
    char choices[512];

    fputs("    ", out);
    print_pattern(out, option);
    cgm_option_choices(option, " ", choices, sizeof(choices));
    if (choices[0] != '\0')
        fprintf(out, ") words=\"%s\" ;;\n", choices);
    else
        fputs(option->kind == CGM_ARG_PATH ? ") files=1 ;;\n" : ") return ;;\n", out);
}

static void print_skip_pattern(FILE *out, const struct cgm_option *option)
{
    fputc('|', out);
    print_pattern(out, option);
}

static bool is_in(const struct cgm_option_table *table, const char *name)
{
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->options[i].name, name) == 0)
            return true;
    return false;
}

/* Several verbs may have the same option; it stands in a case once. */
static bool is_in_earlier_verb(const struct cgm_program *program, size_t verb, const char *name)
{
    while (verb-- > 0)
        if (is_in(&program->verbs[verb].table, name))
            return true;
    return false;
}

static void each_option_with_value(FILE *out, const struct cgm_program *program,
                                   void (*print)(FILE *, const struct cgm_option *))
{
    const struct cgm_option *option;

    for (unsigned i = 0; (option = cgm_option_at(program, NULL, i)) != NULL; i++)
        if (takes_word(option))
            print(out, option);
    for (size_t v = 0; v < program->n_verbs; v++) {
        const struct cgm_option_table *table = &program->verbs[v].table;
        for (size_t i = 0; i < table->count; i++)
            if (takes_word(&table->options[i]) &&
                !is_in_earlier_verb(program, v, table->options[i].name))
                print(out, &table->options[i]);
    }
}

/* The words that may come first; with `first` those that may follow it. */
static void print_verb_words(FILE *out, const struct cgm_program *program, const char *first)
{
    for (size_t i = 0; i < program->n_verbs; i++) {
        const struct cgm_verb *verb = &program->verbs[i];
        const char *blank = strchr(verb->name, ' ');
        if (verb->hidden)
            continue;
        if (first == NULL && blank == NULL)
            fprintf(out, " %s", verb->name);
        else if (first != NULL && cgm_verb_is_under(verb, first))
            fprintf(out, " %s", blank + 1);
    }
}

/* case "$verb" in: what may stand behind a verb. Arguments in small letters are words to type,
 * VERB is a verb, those with FILE are file names. */
static void print_verb_case(FILE *out, const struct cgm_program *program,
                            const struct cgm_verb *verb)
{
    fprintf(out, "    \"%s\")\n        words=\"", verb->name);
    print_verb_words(out, program, verb->name);
    if (islower((unsigned char)verb->arguments[0]))
        fprintf(out, " %s", verb->arguments);
    if (strcmp(verb->arguments, "[VERB]") == 0)
        print_verb_words(out, program, NULL);
    fputs("\"\n", out);
    if (verb->table.count > 0) {
        fputs("        options+=\"", out);
        print_option_names(out, &verb->table);
        fputs("\"\n", out);
    }
    if (strstr(verb->arguments, "FILE") != NULL)
        fputs("        files=1\n", out);
    fputs("        ;;\n", out);
}

static void print_verb_cases(FILE *out, const struct cgm_program *program)
{
    fputs("    \"\") words=\"", out);
    print_verb_words(out, program, NULL);
    fputs("\" ;;\n", out);
    for (size_t i = 0; i < program->n_verbs; i++) {
        const struct cgm_verb *verb = &program->verbs[i];
        bool more = verb->table.count > 0 || verb->arguments[0] != '\0' ||
                    cgm_verbs_are_under(program, verb->name);
        if (!verb->hidden && more)
            print_verb_case(out, program, verb);
    }
}

/* Finds the verb: the first word that is no option, and the second where both make a verb. */
static void print_verb_search(FILE *out, const struct cgm_program *program)
{
    fputs("    for ((i = 1; i < COMP_CWORD; i++)); do\n"
          "        case \"${COMP_WORDS[i]}\" in\n"
          "        =",
          out);
    each_option_with_value(out, program, print_skip_pattern);
    fputs(")\n"
          "            ((i++))\n"
          "            [[ ${COMP_WORDS[i-1]} != = && ${COMP_WORDS[i]} == = ]] && ((i++))\n"
          "            ;;\n"
          "        -*) ;;\n"
          "        *)\n"
          "            case \"$verb ${COMP_WORDS[i]}\" in\n",
          out);
    for (size_t i = 0; i < program->n_verbs; i++) {
        const struct cgm_verb *verb = &program->verbs[i];
        bool single = strchr(verb->name, ' ') == NULL;
        if (!verb->hidden)
            fprintf(out, "            \"%s%s\") verb=\"%s\" ;;\n", single ? " " : "", verb->name,
                    verb->name);
    }
    fputs("            esac\n"
          "            ;;\n"
          "        esac\n"
          "    done\n",
          out);
}

void cgm_args_completion(const struct cgm_program *program, FILE *out)
{
    fprintf(out, "# bash completion for %s\n_", program->name);
    print_identifier(out, program->name);
    fputs(
        "()\n{\n"
        "    local current=\"${COMP_WORDS[COMP_CWORD]}\" previous=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
        "    local i verb=\"\" words=\"\" files=\"\" options=\"",
        out);
    for (size_t t = 0; t < program->n_tables; t++)
        print_option_names(out, &program->tables[t]);
    fputs("\"\n"
          "    COMPREPLY=()\n"
          "    if [[ $current == = ]]; then\n"
          "        current=\"\"\n"
          "    elif [[ $previous == = ]]; then\n"
          "        previous=\"${COMP_WORDS[COMP_CWORD-2]}\"\n"
          "    fi\n"
          "    case \"$previous\" in\n",
          out);
    each_option_with_value(out, program, print_value_case);
    fputs("    *) previous=\"\" ;;\n"
          "    esac\n"
          "    if [[ -n $previous ]]; then\n"
          "        [[ -n $files ]] && mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
          "        [[ -n $words ]] && mapfile -t COMPREPLY < <(compgen -W \"$words\" -- "
          "\"$current\")\n"
          "        return\n"
          "    fi\n",
          out);
    print_verb_search(out, program);
    fputs("    case \"$verb\" in\n", out);
    print_verb_cases(out, program);
    fputs("    esac\n"
          "    if [[ $current == -* ]]; then\n"
          "        mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$current\")\n"
          "        return\n"
          "    fi\n"
          "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
          "    [[ -n $files ]] && mapfile -t -O \"${#COMPREPLY[@]}\" COMPREPLY < <(compgen -f -- "
          "\"$current\")\n"
          "}\ncomplete -o filenames -F _",
          out);
    print_identifier(out, program->name);
    fprintf(out, " %s\n", program->name);
}
