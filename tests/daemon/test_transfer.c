/* Reading and writing buffers, directly and through staging memory, with the real executor. */
#include "tests/daemon/broker_fixture.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commgemm.h"
#include "tests/daemon/enter.h"

#define BYTES (40u << 20) /* several times the staging memory */

struct scene {
    struct daemon daemon;
    commgemm_client *client;
    struct commgemm_buffer buffer;
    uint8_t *expected, *got;
};

static void fill_random(uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)rand();
}

static int scene_open(void **state)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    daemon_init(&scene->daemon);
    daemon_start(&scene->daemon, REAL_EXECUTOR, NULL);
    scene->client = enter(&scene->daemon);
    assert_int_equal(commgemm_buffer_create(scene->client, "bytes", BYTES, 2, 0, 0, &scene->buffer),
                     COMMGEMM_OK);
    scene->expected = malloc(BYTES);
    scene->got = malloc(BYTES);
    *state = scene;
    return 0;
}

static int scene_close(void **state)
{
    struct scene *scene = *state;
    commgemm_disconnect(scene->client);
    daemon_stop(&scene->daemon);
    free(scene->expected);
    free(scene->got);
    free(scene);
    return 0;
}

/* Without the fd the library knows no other way than the daemon's copies. */
static struct commgemm_buffer invisible(const struct scene *scene)
{
    struct commgemm_buffer buffer = scene->buffer;
    buffer.fd = -1;
    return buffer;
}

static void test_ways_agree(void **state)
{
    struct scene *scene = *state;
    struct commgemm_buffer device = invisible(scene);
    const struct commgemm_buffer *ways[] = {&scene->buffer, &device};
    for (int w = 0; w < 4; w++) {
        fill_random(scene->expected, BYTES);
        assert_int_equal(
            commgemm_buffer_write(scene->client, ways[w & 1], 0, scene->expected, BYTES),
            COMMGEMM_OK);
        assert_int_equal(commgemm_buffer_read(scene->client, ways[w >> 1], 0, scene->got, BYTES),
                         COMMGEMM_OK);
        assert_memory_equal(scene->expected, scene->got, BYTES);
    }
}

/* Odd offsets and sizes touch nothing but their own bytes. */
static void test_unaligned_pieces(void **state)
{
    struct scene *scene = *state;
    struct commgemm_buffer device = invisible(scene);
    fill_random(scene->expected, BYTES);
    assert_int_equal(commgemm_buffer_write(scene->client, &device, 0, scene->expected, BYTES),
                     COMMGEMM_OK);
    for (int i = 0; i < 200; i++) {
        uint64_t bytes = (uint64_t)rand() % (i % 20 ? 100 : 20u << 20) + 1;
        uint64_t offset = (uint64_t)rand() % (BYTES - bytes + 1);
        fill_random(scene->expected + offset, bytes);
        assert_int_equal(
            commgemm_buffer_write(scene->client, &device, offset, scene->expected + offset, bytes),
            COMMGEMM_OK);
        memset(scene->got, 0, bytes);
        assert_int_equal(commgemm_buffer_read(scene->client, &device, offset, scene->got, bytes),
                         COMMGEMM_OK);
        assert_memory_equal(scene->expected + offset, scene->got, bytes);
    }
    assert_int_equal(commgemm_buffer_read(scene->client, &scene->buffer, 0, scene->got, BYTES),
                     COMMGEMM_OK);
    assert_memory_equal(scene->expected, scene->got, BYTES);
}

static void expect_refusal(int status, int expected, const char *words)
{
    assert_int_equal(status, expected);
    assert_non_null(strstr(commgemm_last_error(), words));
}

static void test_refusals(void **state)
{
    struct scene *scene = *state;
    struct commgemm_buffer device = invisible(scene), reader;
    uint8_t byte = 0;
    expect_refusal(commgemm_buffer_read(scene->client, &device, BYTES, &byte, 1),
                   COMMGEMM_INVALID_ARGUMENT, "offset_bytes is 41943040");
    expect_refusal(commgemm_buffer_read(scene->client, &device, UINT64_MAX, &byte, 2),
                   COMMGEMM_INVALID_ARGUMENT, "offset_bytes");
    expect_refusal(commgemm_buffer_write(scene->client, &device, 0, NULL, 1),
                   COMMGEMM_INVALID_ARGUMENT, "data");
    assert_int_equal(commgemm_buffer_open(scene->client, "bytes", 0, 1, &reader), COMMGEMM_OK);
    expect_refusal(commgemm_buffer_write(scene->client, &reader, 0, &byte, 1), COMMGEMM_PERMISSION,
                   "reading only");
    device.id = 4242;
    expect_refusal(commgemm_buffer_read(scene->client, &device, 0, &byte, 1), COMMGEMM_NOT_FOUND,
                   "src");
    /* The daemon itself knows the bounds of the memory, whatever a client says of them. */
    device.id = scene->buffer.id;
    device.bytes = UINT64_MAX;
    expect_refusal(commgemm_buffer_write(scene->client, &device, UINT64_MAX / 2, &byte, 1),
                   COMMGEMM_INVALID_ARGUMENT, "leave the object's");
    assert_int_equal(commgemm_buffer_read(scene->client, &scene->buffer, 0, &byte, 0), COMMGEMM_OK);
}

static void assert_opens(struct scene *scene, int read_only, int fd)
{
    struct commgemm_buffer again;
    assert_int_equal(commgemm_buffer_open(scene->client, NULL, scene->buffer.id, read_only, &again),
                     COMMGEMM_OK);
    assert_int_equal(again.fd, fd);
}

/* As after each executor's death, also one that is named. What may be done with it is another fd's
 * matter. */
static void test_who_opens_again_has_no_more_fds(void **state)
{
    struct scene *scene = *state;
    struct commgemm_buffer read_only;
    assert_int_equal(commgemm_buffer_open(scene->client, NULL, scene->buffer.id, 1, &read_only),
                     COMMGEMM_OK);
    assert_int_not_equal(read_only.fd, scene->buffer.fd);
    for (int i = 0; i < 10; i++) {
        assert_opens(scene, 0, scene->buffer.fd);
        assert_opens(scene, 1, read_only.fd);
    }
    assert_int_equal(commgemm_buffer_write(scene->client, &scene->buffer, 0, "new", 4),
                     COMMGEMM_OK);
    assert_int_equal(commgemm_buffer_close(scene->client, scene->buffer.id), COMMGEMM_OK);
    assert_int_equal(commgemm_buffer_write(scene->client, &scene->buffer, 0, "new", 4),
                     COMMGEMM_NOT_FOUND);
    assert_int_equal(commgemm_buffer_read(scene->client, &read_only, 0, scene->got, 4),
                     COMMGEMM_NOT_FOUND);
}

/* Copies of others, and of those who are gone, keep nobody waiting for memory of his own. */
static void test_copies_take_turns(void **state)
{
    enum { CLIENTS = 4, COPIES = 60 }; /* two minutes of them, one after the other */
    struct daemon daemon;
    struct client client[CLIENTS], other;
    Cgm__MemoryCopy copy = CGM__MEMORY_COPY__INIT;
    int fd;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, REAL_EXECUTOR, "test_delay_us=1000000", NULL);
    client_open(&other, &daemon);
    wait_for_executor(&other);
    for (size_t i = 0; i < CLIENTS; i++) {
        client_open(&client[i], &daemon);
        copy.dst = copy.src = buffer_create(&client[i], NULL, 8192, 0, &fd);
        copy.src_offset = copy.bytes = 4096;
        for (size_t k = 0; k < COPIES; k++)
            client_send(&client[i], CGM_MSG_MEMORY_COPY, &copy.base, NULL, 0);
        close(fd);
    }
    buffer_create(&other, NULL, 4096, 0, &fd);
    close(fd);
    for (size_t i = 0; i < CLIENTS; i++)
        client_close(&client[i]);
    copy.dst = copy.src = buffer_create(&other, NULL, 8192, 0, &fd);
    client_ok(&other, CGM_MSG_MEMORY_COPY, &copy.base);
    wait_for_status(&other, "buffers", 2);
    close(fd);
    client_close(&other);
    daemon_stop(&daemon);
}

/* How long a copy takes is up to whose memory it is: nobody's memory is made later for that. */
static void test_a_slow_copy_is_in_nobodys_way(void **state)
{
    enum { COPIES = 20 }; /* one may happen to take no time at all */
    struct daemon daemon;
    struct client client, other;
    Cgm__MemoryCopy copy = CGM__MEMORY_COPY__INIT;
    bool overtaken = false;
    int fd;
    (void)state;
    daemon_init(&daemon);
    daemon_start(&daemon, REAL_EXECUTOR, "test_delay_us=1000000", NULL);
    client_open(&client, &daemon);
    client_open(&other, &daemon);
    wait_for_executor(&other);
    copy.dst = copy.src = buffer_create(&client, NULL, 8192, 0, &fd);
    copy.src_offset = copy.bytes = 4096;
    close(fd);
    for (unsigned i = 0; i < COPIES && !overtaken; i++) {
        struct pollfd answer = {.fd = client.fd, .events = POLLIN};
        uint32_t serial = client_send(&client, CGM_MSG_MEMORY_COPY, &copy.base, NULL, 0);
        status_number(&client, "buffers"); /* the daemon has the copy before what follows */
        buffer_create(&other, NULL, 4096, 0, &fd);
        close(fd);
        overtaken = !client.events && poll(&answer, 1, 0) == 0;
        struct message *reply = client_reply(&client, serial);
        assert_int_equal(reply->type, CGM_MSG_OK);
        message_free(reply);
    }
    assert_true(overtaken);
    client_close(&other);
    client_close(&client);
    daemon_stop(&daemon);
}

int main(void)
{
    unsigned seed = (unsigned)getpid();
    print_message("seed %u\n", seed);
    srand(seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ways_agree, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_unaligned_pieces, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_refusals, scene_open, scene_close),
        cmocka_unit_test_setup_teardown(test_who_opens_again_has_no_more_fds, scene_open,
                                        scene_close),
        cmocka_unit_test(test_copies_take_turns),
        cmocka_unit_test(test_a_slow_copy_is_in_nobodys_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
