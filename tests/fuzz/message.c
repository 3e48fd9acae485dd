#include "tests/fuzz/message.h"

#include <stdbool.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

#define BYTES_MAX 1024u

struct writer {
    uint8_t *bytes;
    size_t used, room;
};

static void put(struct writer *writer, const void *bytes, size_t size)
{
    if (size > writer->room - writer->used)
        size = writer->room - writer->used;
    memcpy(writer->bytes + writer->used, bytes, size);
    writer->used += size;
}

static void put_varint(struct writer *writer, uint64_t value)
{
    uint8_t bytes[10];
    size_t n = 0;
    for (; value > 0x7f; value >>= 7)
        bytes[n++] = (uint8_t)(value | 0x80);
    bytes[n++] = (uint8_t)value;
    put(writer, bytes, n);
}

uint64_t fuzz_number(const struct fuzz_words *words, uint8_t value)
{
    static const uint64_t odd[16] = {UINT64_MAX,     UINT32_MAX,     INT32_MAX,       1ull << 31,
                                     1ull << 32,     INT64_MAX,      1ull << 63,      1ull << 46,
                                     UINT64_MAX - 1, UINT32_MAX - 1, UINT64_MAX - 63, 0777,
                                     01777,          3u << 20,       1000000007,      255};
    if (value < 192)
        return value;
    if (value < 208)
        return 1ull << (4 * (value - 192));
    if (value < 224)
        return odd[value - 208];
    return words->known_id ? words->known_id(value - 224u) : value;
}

static void put_text(struct writer *writer, uint8_t value)
{
    static const char *const texts[] = {
        "a",         "b",
        "c",         "job:1",
        "",          ".hidden",
        "-dash",     "no/no",
        "\n",        "\"",
        "%s%n",      "\xff\xfe",
        "GPU-0",     "0123456789012345678901234567890123456789012345678901234567890123456789",
        "a.b_c-d:e", "012345678901234567890123456789012345678901234567890123456789012"};
    const char *text = texts[value % (sizeof(texts) / sizeof(texts[0]))];
    put_varint(writer, strlen(text));
    put(writer, text, strlen(text));
}

static void put_bytes(struct writer *writer, const struct fuzz_words *words, const char *field,
                      uint8_t value)
{
    uint8_t bytes[BYTES_MAX];
    size_t size = value;
    memset(bytes, value, sizeof(bytes));
    if (words->bytes)
        size = words->bytes(field, value, bytes, sizeof(bytes));
    put_varint(writer, size);
    put(writer, bytes, size);
}

static void put_field(struct writer *writer, const ProtobufCFieldDescriptor *field,
                      const struct fuzz_words *words, uint8_t value)
{
    bool text = field->type == PROTOBUF_C_TYPE_STRING, bytes = field->type == PROTOBUF_C_TYPE_BYTES;
    put_varint(writer, (uint64_t)field->id << 3 | (text || bytes ? 2u : 0u));
    if (text)
        put_text(writer, value);
    else if (bytes)
        put_bytes(writer, words, field->name, value);
    else if (field->type == PROTOBUF_C_TYPE_BOOL)
        put_varint(writer, value & 1);
    else
        put_varint(writer, fuzz_number(words, value));
}

static void put_list(struct writer *writer, const ProtobufCFieldDescriptor *field,
                     const struct fuzz_words *words, uint8_t value)
{
    for (uint8_t i = 0; i < value >> 4; i++)
        put_field(writer, field, words, (uint8_t)((value & 7) + (value & 8 ? 0 : i)));
}

size_t fuzz_message(const ProtobufCMessageDescriptor *descriptor, const struct fuzz_words *words,
                    const uint8_t values[FUZZ_VALUES], uint8_t *ret_bytes, size_t room)
{
    struct writer writer = {ret_bytes, 0, room};
    for (unsigned i = 0; i < descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
        uint8_t value = i < FUZZ_VALUES ? values[i] : 0;
        if (field->type == PROTOBUF_C_TYPE_MESSAGE)
            continue;
        if (field->label == PROTOBUF_C_LABEL_REPEATED)
            put_list(&writer, field, words, value);
        else if (field->label == PROTOBUF_C_LABEL_REQUIRED)
            put_field(&writer, field, words, value);
        else if (value != 0)
            put_field(&writer, field, words, (uint8_t)(value - 1));
    }
    return writer.used;
}
