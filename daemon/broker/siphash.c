#include "daemon/broker/siphash.h"

struct state {
    uint64_t a, b, c, d;
};

static uint64_t rotate(uint64_t value, unsigned bits)
{
    return value << bits | value >> (64 - bits);
}

static void rounds(struct state *s, int count)
{
    for (int i = 0; i < count; i++) {
        s->a += s->b;
        s->c += s->d;
        s->b = rotate(s->b, 13) ^ s->a;
        s->d = rotate(s->d, 16) ^ s->c;
        s->a = rotate(s->a, 32) + s->d;
        s->c += s->b;
        s->d = rotate(s->d, 21) ^ s->a;
        s->b = rotate(s->b, 17) ^ s->c;
        s->c = rotate(s->c, 32);
    }
}

static void absorb(struct state *s, uint64_t word)
{
    s->d ^= word;
    rounds(s, 2);
    s->a ^= word;
}

/* Little endian, whatever the machine is. */
static uint64_t load(const uint8_t *bytes, size_t count)
{
    uint64_t word = 0;
    for (size_t i = 0; i < count; i++)
        word |= (uint64_t)bytes[i] << (8 * i);
    return word;
}

uint64_t cgm_siphash(const uint64_t key[2], const uint8_t *bytes, size_t size)
{
    struct state s = {
        .a = key[0] ^ 0x736f6d6570736575u,
        .b = key[1] ^ 0x646f72616e646f6du,
        .c = key[0] ^ 0x6c7967656e657261u,
        .d = key[1] ^ 0x7465646279746573u,
    };
    size_t whole = size / 8 * 8;
    for (size_t at = 0; at < whole; at += 8)
        absorb(&s, load(bytes + at, 8));
    absorb(&s, (uint64_t)size << 56 | load(bytes + whole, size - whole));
    s.c ^= 0xff;
    rounds(&s, 4);
    return s.a ^ s.b ^ s.c ^ s.d;
}
