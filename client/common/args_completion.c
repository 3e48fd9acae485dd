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

/* case "$previous" in: what the value of the option before the cursor can be. */
static void print_value_cases(FILE *out, const struct cgm_option_table *table)
{
    char choices[512];

    for (size_t i = 0; i < table->count; i++) {
        const struct cgm_option *option = &table->options[i];
        if (option->hidden || option->kind == CGM_ARG_FLAG || option->implied != NULL)
            continue;
        fputs("    ", out);
        print_pattern(out, option);
        cgm_option_choices(option, " ", choices, sizeof(choices));
        if (choices[0] != '\0')
            fprintf(out, ") words=\"%s\" ;;\n", choices);
        else
            fputs(option->kind == CGM_ARG_PATH ? ") files=1 ;;\n" : ") return ;;\n", out);
    }
}

/* Patterns of options whose value is the next word, for skipping it. */
static void print_skip_patterns(FILE *out, const struct cgm_option_table *table)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct cgm_option *option = &table->options[i];
        if (option->kind == CGM_ARG_FLAG || option->implied != NULL)
            continue;
        fputc('|', out);
        print_pattern(out, option);
    }
}

static void each_table(FILE *out, const struct cgm_program *program,
                       void (*print)(FILE *, const struct cgm_option_table *))
{
    for (size_t t = 0; t < program->n_tables; t++)
        print(out, &program->tables[t]);
    for (size_t i = 0; i < program->n_verbs; i++)
        if (!program->verbs[i].hidden)
            print(out, &program->verbs[i].table);
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

/* case "$verb" in: what may stand behind a verb. */
static void print_verb_cases(FILE *out, const struct cgm_program *program)
{
    for (size_t i = 0; i < program->n_verbs; i++) {
        const struct cgm_verb *verb = &program->verbs[i];
        if (verb->hidden)
            continue;
        fprintf(out, "    \"%s\")\n        options+=\"", verb->name);
        print_option_names(out, &verb->table);
        fputs("\"\n        words=\"", out);
        print_verb_words(out, program, verb->name);
        /* Arguments in small letters are words to type, those with FILE are file names. */
        if (islower((unsigned char)verb->arguments[0]))
            fprintf(out, " %s", verb->arguments);
        fputs("\"\n", out);
        if (strstr(verb->arguments, "FILE") != NULL)
            fputs("        files=1\n", out);
        fputs("        ;;\n", out);
    }
    fputs("    \"\") words=\"", out);
    print_verb_words(out, program, NULL);
    fputs("\" ;;\n", out);
}

/* Finds the verb: the first word that is no option, and the second where both make a verb. */
static void print_verb_search(FILE *out, const struct cgm_program *program)
{
    fputs("    for ((i = 1; i < COMP_CWORD; i++)); do\n"
          "        case \"${COMP_WORDS[i]}\" in\n"
          "        =",
          out);
    each_table(out, program, print_skip_patterns);
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
    each_table(out, program, print_value_cases);
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
