/* Odd values, odd messages, odd file descriptors. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/fault/hostile/hostile.h"

#define ARENA_BYTES (1u << 20)
#define REPEATED_MAX 80u /* more than anything allows; once in a while very many more */
#define REPEATED_VERY_MANY 9000u

uint64_t chance(uint64_t below)
{
    uint64_t number = (uint64_t)random() << 31 ^ (uint64_t)random();
    return number % below;
}

uint64_t odd_number(struct hostile *hostile)
{
    static const uint64_t limits[] = {0,          1,          2,          3,          8,
                                      16,         64,         4096,       65536,      1ull << 31,
                                      1ull << 32, 1ull << 46, 1ull << 62, 1ull << 63, UINT32_MAX,
                                      INT32_MAX,  UINT64_MAX, 1ull << 20, 255,        256,
                                      511,        0x100000001};
    switch (chance(4)) {
    case 0:
        return limits[chance(sizeof(limits) / sizeof(limits[0]))] + chance(3) - 1;
    case 1:
        return hostile->n_ids
                   ? hostile->ids[chance(hostile->n_ids < IDS_MAX ? hostile->n_ids : IDS_MAX)] +
                         (chance(4) == 0 ? chance(9) - 4 : 0)
                   : chance(100);
    case 2:
        return chance(200);
    default:
        return chance(UINT64_MAX) << chance(64);
    }
}

/* ---- messages ------------------------------------------------------------------------------- */

static struct {
    _Alignas(16) uint8_t bytes[ARENA_BYTES];
    size_t used;
} arena;

/* Zeroed; NULL when there is no room. What can be left out gets half of it. */
static void *arena_take(size_t size, bool optional)
{
    size = (size + 15) / 16 * 16;
    size_t room = optional ? ARENA_BYTES / 2 : ARENA_BYTES;
    if (arena.used > room || size > room - arena.used)
        return NULL;
    void *memory = arena.bytes + arena.used;
    arena.used += size;
    return memset(memory, 0, size);
}

static size_t odd_length(void)
{
    return chance(20) == 0 ? chance(70000) : chance(100);
}

static char *odd_text(void)
{
    static const char *const texts[] = {
        "",      "a",       "tp", "honest", "honest.in.0", "%s%n%s%n", "../../etc/passwd",
        "x\ny",  "\x1b[2J", ".x", "-rf",    ":",           "name",     "\xff\xfe",
        "GPU-0", "commgemm"};
    size_t length = odd_length();
    char *text = chance(2) ? NULL : arena_take(length + 1, true);
    if (!text)
        return (char *)(uintptr_t)texts[chance(sizeof(texts) / sizeof(texts[0]))];
    memset(text, 'a' + (int)chance(26), length);
    return text;
}

static void odd_value(struct hostile *hostile, const ProtobufCFieldDescriptor *field, void *at);

static void odd_fields(struct hostile *hostile, ProtobufCMessage *message)
{
    const ProtobufCMessageDescriptor *descriptor = message->descriptor;
    for (unsigned i = 0; i < descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &descriptor->fields[i];
        char *at = (char *)message + field->offset,
             *has = (char *)message + field->quantifier_offset;
        if (field->label != PROTOBUF_C_LABEL_REPEATED) {
            bool is_pointer =
                field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_MESSAGE;
            if (field->label == PROTOBUF_C_LABEL_OPTIONAL && chance(2))
                continue;
            odd_value(hostile, field, at);
            if (field->label == PROTOBUF_C_LABEL_OPTIONAL && !is_pointer)
                *(protobuf_c_boolean *)has = 1;
            continue;
        }
        size_t count = chance(50) == 0 ? chance(REPEATED_VERY_MANY) : chance(REPEATED_MAX);
        if (field->type == PROTOBUF_C_TYPE_MESSAGE)
            count %= REPEATED_MAX;
        size_t element = field->type == PROTOBUF_C_TYPE_BYTES ? sizeof(ProtobufCBinaryData) : 8;
        if (field->type == PROTOBUF_C_TYPE_UINT32 || field->type == PROTOBUF_C_TYPE_INT32)
            element = 4;
        char *list = arena_take(count * element, true);
        for (size_t k = 0; list && k < count; k++)
            odd_value(hostile, field, list + k * element);
        *(size_t *)(void *)has = list ? count : 0;
        memcpy(at, &list, sizeof(list));
    }
}

static ProtobufCMessage *message_new(struct hostile *hostile,
                                     const ProtobufCMessageDescriptor *descriptor)
{
    ProtobufCMessage *message = arena_take(descriptor->sizeof_message, false);
    if (!message)
        abort();
    protobuf_c_message_init(descriptor, message);
    odd_fields(hostile, message);
    return message;
}

static void odd_value(struct hostile *hostile, const ProtobufCFieldDescriptor *field, void *at)
{
    uint64_t number = odd_number(hostile);
    uint32_t half = (uint32_t)number;
    ProtobufCBinaryData data = {0};
    void *pointer;
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        pointer = odd_text();
        memcpy(at, &pointer, sizeof(pointer));
        break;
    case PROTOBUF_C_TYPE_BYTES:
        data.len = chance(3) ? 64 : odd_length();
        data.data = arena_take(data.len, true);
        data.len = data.data ? data.len : 0;
        memcpy(at, &data, sizeof(data));
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
        pointer = message_new(hostile, field->descriptor);
        memcpy(at, &pointer, sizeof(pointer));
        break;
    case PROTOBUF_C_TYPE_BOOL:
        *(protobuf_c_boolean *)at = (protobuf_c_boolean)chance(2);
        break;
    case PROTOBUF_C_TYPE_UINT64:
        memcpy(at, &number, sizeof(number));
        break;
    default:
        memcpy(at, &half, sizeof(half));
    }
}

ProtobufCMessage *odd_message(struct hostile *hostile, int type)
{
    arena.used = 0;
    return message_new(hostile, cgm_message_descriptor(type));
}

/* ---- file descriptors ----------------------------------------------------------------------- */

/* All of holes, or without any: what devices could not pin is refused before it does harm. */
int sealed_memfd(uint64_t bytes)
{
    int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && (ftruncate(fd, (off_t)bytes) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0 ||
                    (bytes > 0 && chance(2) && fallocate(fd, 0, 0, (off_t)bytes) < 0))) {
        close(fd);
        return -1;
    }
    return fd;
}

static int one_of(int pair[2], int made)
{
    if (made < 0)
        return -1;
    int chosen = (int)chance(2);
    close(pair[1 - chosen]);
    return pair[chosen];
}

static int read_only(int fd)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int other = open(path, O_RDONLY | O_CLOEXEC);
    close(fd);
    return other;
}

int odd_fd(void)
{
    int pair[2], fd;
    switch (chance(14)) {
    case 0:
        return one_of(pair, pipe2(pair, O_CLOEXEC));
    case 1:
        return one_of(pair, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
    case 2:
        return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    case 3:
        return open("/dev/zero", O_RDWR | O_CLOEXEC);
    case 4:
        return open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    case 5:
        return open("/", O_PATH | O_CLOEXEC);
    case 6:
        return eventfd(0, EFD_CLOEXEC);
    case 7:
        return epoll_create1(EPOLL_CLOEXEC);
    case 8: /* not sealed */
        fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        return fd >= 0 && ftruncate(fd, 1 << 20) == 0 ? fd : -1;
    case 9:
        return memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
    case 10:
        return read_only(sealed_memfd(1 << 16));
    case 11: /* short */
        return sealed_memfd(chance(4096));
    case 12:
        return open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    default:
        return sealed_memfd(1 << 20);
    }
}
