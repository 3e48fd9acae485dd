#include "client/common/args_table.h"

#include <string.h>

#include "proto/types.h"

const struct cgm_option *cgm_option_at(const struct cgm_program *program,
                                       const struct cgm_verb *verb, unsigned i)
{
    for (size_t t = 0; t < program->n_tables; t++) {
        if (i < program->tables[t].count)
            return &program->tables[t].options[i];
        i -= (unsigned)program->tables[t].count;
    }
    return verb != NULL && i < verb->table.count ? &verb->table.options[i] : NULL;
}

const char *cgm_option_value(const struct cgm_option *option)
{
    static const char *const placeholders[] = {
        [CGM_ARG_TEXT] = "TEXT", [CGM_ARG_PATH] = "PATH",   [CGM_ARG_INT] = "N",
        [CGM_ARG_UINT] = "N",    [CGM_ARG_BYTES] = "BYTES", [CGM_ARG_REAL] = "X",
        [CGM_ARG_MODE] = "MODE", [CGM_ARG_CHOICE] = "NAME", [CGM_ARG_TYPE] = "NAME",
    };

    return option->value != NULL ? option->value : placeholders[option->kind];
}

/* Copies with every `from` replaced by the text `to`. */
static void copy_joined(const char *text, char from, const char *to, char *ret_text, size_t size)
{
    size_t used = 0;

    for (; *text != '\0' && used + 1 < size; text++) {
        if (*text == from)
            used += (size_t)snprintf(ret_text + used, size - used, "%s", to);
        else
            ret_text[used++] = *text;
    }
    ret_text[used < size ? used : size - 1] = '\0';
}

/* Separated by ", ". */
static void list_types(const struct cgm_option *option, char *ret_list, size_t size)
{
    enum cgm_type_table table = (enum cgm_type_table)option->table;
    size_t used = 0;

    if (option->max == 0) {
        cgm_type_list(table, ret_list, size);
        return;
    }
    for (int number = (int)option->min; number <= option->max && used < size; number++)
        if (cgm_type_name(table, number) != NULL)
            used += (size_t)snprintf(ret_list + used, size - used, "%s%s", used > 0 ? ", " : "",
                                     cgm_type_name(table, number));
}

void cgm_option_choices(const struct cgm_option *option, const char *separator, char *ret_text,
                        size_t size)
{
    char list[512] = "";

    if (option->kind == CGM_ARG_CHOICE) {
        copy_joined(option->choices, '|', separator, ret_text, size);
        return;
    }
    if (option->kind == CGM_ARG_TYPE)
        list_types(option, list, sizeof(list));
    /* Drop the comma, widen the blank. */
    char words[512];
    copy_joined(list, ',', "", words, sizeof(words));
    copy_joined(words, ' ', separator, ret_text, size);
}

bool cgm_verb_is_under(const struct cgm_verb *verb, const char *word)
{
    size_t length = strlen(word);

    return strncmp(verb->name, word, length) == 0 && verb->name[length] == ' ';
}

bool cgm_verbs_are_under(const struct cgm_program *program, const char *word)
{
    for (size_t i = 0; i < program->n_verbs; i++)
        if (cgm_verb_is_under(&program->verbs[i], word))
            return true;
    return false;
}
