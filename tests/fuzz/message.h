/* Messages made of few bytes: one byte decides each field of a message, so that any input is a
 * message of the right shape, and a small change of the input is a small change of the message. */
#ifndef CGM_TESTS_FUZZ_MESSAGE_H
#define CGM_TESTS_FUZZ_MESSAGE_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

#define FUZZ_VALUES 28u

/* What a target knows and this file does not. */
struct fuzz_words {
    /* An id that cannot be guessed, such as a plan's; 0: there is none. */
    uint64_t (*known_id)(unsigned n);
    /* The content of a field of bytes; returns its length, at most room. NULL: `value` bytes. */
    size_t (*bytes)(const char *field, uint8_t value, uint8_t *ret_bytes, size_t room);
};

/* Writes the packed message. A field takes the next of `values`, zeros follow the last one. An
 * optional field is absent at 0; a repeated one has value >> 4 members, that count up from
 * value & 7, or are all the same with value & 8. */
size_t fuzz_message(const ProtobufCMessageDescriptor *descriptor, const struct fuzz_words *words,
                    const uint8_t values[FUZZ_VALUES], uint8_t *ret_bytes, size_t room);

/* The number that a byte stands for: itself below 192, then powers of two, then odd ones, from 224
 * on ids that the target knows. */
uint64_t fuzz_number(const struct fuzz_words *words, uint8_t value);

#endif
