/* Files that take their names when they are complete, in places where that is not so easy. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "client/common/new_file.h"
#include "proto/status.h"

static char folder[] = "/tmp/test_new_file.XXXXXX";
static char path[64];

static int save(const char *text)
{
    struct cgm_new_file file;
    size_t bytes = strlen(text);
    int status = cgm_new_file_open(path, &file);

    if (status != CGM_OK)
        return status;
    if (write(file.fd, text, bytes) != (ssize_t)bytes) {
        cgm_new_file_discard(&file);
        return CGM_IO;
    }
    return cgm_new_file_finish(&file);
}

static bool holds(const char *at, const char *text)
{
    char seen[64] = "";
    int fd = open(at, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, seen, sizeof(seen) - 1);

    if (fd >= 0)
        close(fd);
    return n >= 0 && strcmp(seen, text) == 0;
}

static void test_the_mode_stays(void **state)
{
    static const mode_t modes[] = {0600, 0640, 0644, 0660};
    struct stat info;

    (void)state;
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        assert_int_equal(save("before"), CGM_OK);
        assert_int_equal(chmod(path, modes[i]), 0);
        assert_int_equal(save("after"), CGM_OK);
        assert_true(holds(path, "after"));
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_mode & 07777, modes[i]);
    }
    unlink(path);
}

/* linux/posix_acl_xattr.h, in little endian */
struct acl {
    uint32_t version;
    struct {
        uint16_t tag, bits;
        uint32_t id;
    } entries[5];
};
enum { ACL_OWNER = 1, ACL_USER = 2, ACL_GROUP = 4, ACL_MASK = 16, ACL_OTHERS = 32, NO_ID = -1 };

/* Who may read all that is made in the folder may not read what takes the place of a file that he
 * could not. */
static void test_the_acl_of_the_folder_adds_no_reader(void **state)
{
    static const struct acl acl = {2,
                                   {{ACL_OWNER, 7, (uint32_t)NO_ID},
                                    {ACL_USER, 4, 65533},
                                    {ACL_GROUP, 5, (uint32_t)NO_ID},
                                    {ACL_MASK, 7, (uint32_t)NO_ID},
                                    {ACL_OTHERS, 0, (uint32_t)NO_ID}}};
    struct stat info;

    (void)state;
    assert_int_equal(save("before"), CGM_OK);
    assert_int_equal(chmod(path, 0640), 0);
    if (setxattr(folder, "system.posix_acl_default", &acl, sizeof(acl), 0) != 0)
        skip();
    int status = save("after");
    assert_int_equal(removexattr(folder, "system.posix_acl_default"), 0);
    assert_int_equal(status, CGM_OK);
    assert_true(holds(path, "after"));
    assert_int_equal(getxattr(path, "system.posix_acl_access", NULL, 0), -1);
    assert_int_equal(errno, ENODATA);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0640);
    unlink(path);
}

/* 77: nothing can be mounted here. */
static int save_over_mount(const char *under)
{
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
        return 77;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount(under, path, NULL, MS_BIND, NULL) != 0)
        return 77;
    return save("after") == CGM_OK && holds(path, "after") ? 0 : 1;
}

/* As containers share one with the host. */
static void test_a_file_that_is_mounted_is_written(void **state)
{
    char under[96];
    int status;

    (void)state;
    unlink(path);
    assert_int_equal(save("before"), CGM_OK);
    snprintf(under, sizeof(under), "%s/under", folder);
    assert_int_equal(link(path, under), 0);
    unlink(path);
    assert_int_equal(save(""), CGM_OK);
    pid_t child = fork();
    if (child == 0)
        _exit(save_over_mount(under));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_true(WEXITSTATUS(status) == 77 || holds(under, "after"));
    unlink(under);
    unlink(path);
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int set_up(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof(path), "%s/x", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_mode_stays),
        cmocka_unit_test(test_the_acl_of_the_folder_adds_no_reader),
        cmocka_unit_test(test_a_file_that_is_mounted_is_written),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
