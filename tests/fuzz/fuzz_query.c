/* What the daemon tells of itself: pages of rows become one JSON text, which jansson reads as
 * commgemmctl does, and every value becomes a text for people. The input is a packed QueryReply. */
#include <jansson.h>
#include <string.h>

#include "client/ctl/rows.h"
#include "client/lib/client.h"
#include "client/lib/json.h"
#include "proto/status.h"
#include "tests/fuzz/fuzz.h"

#define PAGES_MAX 3u

static const uint8_t *page_bytes;
static size_t page_size;
static unsigned pages;

int __wrap_cgm_client_call(commgemm_client *client, int type, const ProtobufCMessage *request,
                           int reply_type, struct cgm_reply *ret_reply);

/* The same page again and again, with a cursor that goes on, until there were enough. */
int __wrap_cgm_client_call(commgemm_client *client, int type, const ProtobufCMessage *request,
                           int reply_type, struct cgm_reply *ret_reply)
{
    (void)client;
    (void)request;
    FUZZ_CHECK(type == CGM_MSG_QUERY && reply_type == CGM_MSG_QUERY_REPLY);
    Cgm__QueryReply *page = cgm__query_reply__unpack(NULL, page_size, page_bytes);
    if (!page)
        return CGM_BAD_MESSAGE;
    page->has_next = page->has_next && ++pages < PAGES_MAX;
    page->next += pages;
    *ret_reply = (struct cgm_reply){.message = &page->base, .fds = {-1, -1, -1}};
    return CGM_OK;
}

/* A text that jansson takes, and that keeps to what values of ours look like, is one for us too. */
static void compare_with_jansson(const char *text)
{
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20)
            return;
    json_t *value = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    bool ours = cgm_json_is_value(text);
    FUZZ_CHECK(!value || ours || strchr(text, '[') || strchr(text, '{'));
    json_decref(value);
}

static void show_row(const json_t *row)
{
    char text[CGM_ROW_TEXT_BYTES];
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)row, key, value)
    {
        for (int format = CGM_ROW_PLAIN; format <= CGM_ROW_YES; format++)
            FUZZ_CHECK(strlen(cgm_row_text(row, key, (enum cgm_row_format)format, text)) <
                       CGM_ROW_TEXT_BYTES);
    }
}

static void show(const char *text)
{
    size_t i;
    json_t *row, *rows = cgm_rows_load(text, "status");
    json_array_foreach(rows, i, row)
    {
        show_row(row);
    }
    json_decref(rows);
}

static void compare_values(void)
{
    Cgm__QueryReply *page = cgm__query_reply__unpack(NULL, page_size, page_bytes);
    for (size_t i = 0; page && i < page->n_row; i++)
        for (size_t k = 0; k < page->row[i]->n_value; k++)
            compare_with_jansson(page->row[i]->value[k]);
    if (page)
        cgm__query_reply__free_unpacked(page, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static commgemm_client client;
    char *text = NULL;
    page_bytes = data;
    page_size = size;
    pages = 0;
    compare_values();
    int status = commgemm_query(&client, "status", &text);
    FUZZ_CHECK(status != CGM_OK || text);
    if (status == CGM_OK)
        show(text);
    free(text);
    return 0;
}
