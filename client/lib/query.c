#include <stdlib.h>
#include <string.h>

#include "client/lib/client.h"
#include "client/lib/json.h"

static const char *const names[] = {
#define X(number, SYMBOL, spelling) [number] = spelling,
    CGM_QUERIES(X)
#undef X
};
#define N_NAMES (sizeof(names) / sizeof(names[0]))

static int find_what(const char *what, uint32_t *ret_what)
{
    struct cgm_text list = {0};
    for (uint32_t i = 0; i < N_NAMES; i++) {
        if (what && strcmp(what, names[i]) == 0) {
            free(list.bytes);
            *ret_what = i;
            return CGM_OK;
        }
        cgm_text_add(&list, i ? ", " : "");
        cgm_text_add(&list, names[i]);
    }
    cgm_fail(CGM_INVALID_ARGUMENT, "what is \"%.80s\"; it must be one of %s",
             what ? what : "(null)", list.bytes ? list.bytes : "");
    free(list.bytes);
    return CGM_INVALID_ARGUMENT;
}

static int add_row(struct cgm_text *text, const Cgm__Row *row)
{
    if (row->n_key != row->n_value)
        return cgm_fail(CGM_BAD_MESSAGE, "a row of the daemon's reply has %zu keys and %zu values",
                        row->n_key, row->n_value);
    cgm_text_add(text, "{");
    for (size_t i = 0; i < row->n_key; i++) {
        if (!cgm_json_is_value(row->value[i]))
            return cgm_fail(CGM_BAD_MESSAGE, "the daemon's value of %.80s is not JSON: %.80s",
                            row->key[i], row->value[i]);
        cgm_text_add(text, i ? "," : "");
        cgm_text_add_string(text, row->key[i]);
        cgm_text_add(text, ":");
        cgm_text_add(text, row->value[i]);
    }
    cgm_text_add(text, "}");
    return CGM_OK;
}

static int add_rows(struct cgm_text *text, const Cgm__QueryReply *page, bool *first)
{
    int status = CGM_OK;
    for (size_t i = 0; status == CGM_OK && i < page->n_row; i++) {
        cgm_text_add(text, *first ? "" : ",");
        *first = false;
        status = add_row(text, page->row[i]);
    }
    return status;
}

/* One page; *cursor goes on to the next. A daemon that does not go on would keep us for ever. */
static int add_page(commgemm_client *client, Cgm__Query *query, struct cgm_text *text, bool *first,
                    bool *ret_more)
{
    struct cgm_reply reply;
    int status = cgm_client_call(client, CGM_MSG_QUERY, &query->base, CGM_MSG_QUERY_REPLY, &reply);
    if (status != CGM_OK)
        return status;
    const Cgm__QueryReply *page = (const Cgm__QueryReply *)reply.message;
    status = add_rows(text, page, first);
    *ret_more = page->has_next;
    if (status == CGM_OK && page->has_next && query->has_after && page->next <= query->after)
        status = cgm_fail(CGM_BAD_MESSAGE, "the daemon's cursor went from %llu to %llu",
                          (unsigned long long)query->after, (unsigned long long)page->next);
    query->has_after = page->has_next;
    query->after = page->next;
    cgm_reply_fini(&reply);
    return status;
}

static int collect(commgemm_client *client, uint32_t what, struct cgm_text *text)
{
    Cgm__Query query = CGM__QUERY__INIT;
    bool first = true, more = true;
    int status = CGM_OK;
    query.what = what;
    cgm_text_add(text, "{\"version\":1,");
    cgm_text_add_string(text, names[what]);
    cgm_text_add(text, ":[");
    while (status == CGM_OK && more)
        status = add_page(client, &query, text, &first, &more);
    cgm_text_add(text, "]}");
    if (status == CGM_OK && text->failed)
        status = cgm_fail_plain(CGM_NO_MEMORY);
    return status;
}

int commgemm_query(commgemm_client *client, const char *what, char **ret_json)
{
    struct cgm_text text = {0};
    uint32_t number;
    int status = cgm_check_client(client);
    if (status == CGM_OK)
        status = cgm_check_pointer(ret_json, "ret_json");
    if (status == CGM_OK)
        status = find_what(what, &number);
    if (status != CGM_OK)
        return status;
    status = collect(client, number, &text);
    if (status == CGM_OK)
        *ret_json = text.bytes;
    else
        free(text.bytes);
    return status;
}

int commgemm_drain(commgemm_client *client, int undo)
{
    Cgm__Drain request = CGM__DRAIN__INIT;
    int status = cgm_check_client(client);
    request.has_undo = undo != 0;
    request.undo = undo != 0;
    return status == CGM_OK ? cgm_client_tell(client, CGM_MSG_DRAIN, &request.base) : status;
}
