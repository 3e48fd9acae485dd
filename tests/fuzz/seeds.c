/* The main program of a fuzz target where there is no libFuzzer: seeds FOLDER... runs every file of
 * the folders, and a few changed copies of each. An input that breaks something is left in a file
 * whose name is printed, as is the number that the changes follow from. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

#define INPUT_BYTES_MAX (1u << 20)
#define CHANGES_PER_SEED 64u

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
    __attribute__((weak));
/* Of the sanitizers, where there are any. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static uint8_t input[INPUT_BYTES_MAX];
static size_t input_bytes;
static uint64_t state;
static unsigned long runs;

static unsigned draw(size_t below)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return below ? (unsigned)((state >> 33) % below) : 0;
}

/* As libFuzzer's, in small. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size)
{
    static const uint8_t odd[] = {0, 1, 0x7f, 0x80, 0xff, '"', '\n', ' '};
    unsigned what = draw(4);
    if (what == 0 && size < max_size) {
        size_t at = draw(size + 1);
        memmove(data + at + 1, data + at, size - at);
        data[at] = (uint8_t)draw(256);
        return size + 1;
    }
    if (size == 0)
        return 0;
    size_t at = draw(size);
    if (what == 1 && size < max_size) {
        memmove(data + at, data + at + 1, size - at - 1);
        return size - 1;
    }
    data[at] = what == 2 ? odd[draw(sizeof(odd))] : (uint8_t)(data[at] ^ 1u << draw(8));
    return size;
}

/* Also called from a signal handler. */
static void keep_input(void)
{
    static const char text[] = "the input is in the file broken-input\n";
    int fd = open("broken-input", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, input, input_bytes) < 0 || close(fd) < 0)
        return;
    if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
        return;
}

static void on_signal(int number)
{
    keep_input();
    signal(number, SIG_DFL);
    raise(number);
}

static void run_once(void)
{
    LLVMFuzzerTestOneInput(input, input_bytes);
    runs++;
}

static void change(void)
{
    size_t most = input_bytes + 64 < sizeof(input) ? input_bytes + 64 : sizeof(input);
    for (unsigned n = 1 + draw(4); n > 0; n--)
        input_bytes = LLVMFuzzerCustomMutator
                          ? LLVMFuzzerCustomMutator(input, input_bytes, most, draw(1u << 30))
                          : LLVMFuzzerMutate(input, input_bytes, most);
}

static void run_file(const char *path)
{
    static uint8_t seed[INPUT_BYTES_MAX];
    FILE *file = fopen(path, "r");
    FUZZ_CHECK(file);
    size_t size = fread(seed, 1, sizeof(seed), file);
    fclose(file);
    for (unsigned i = 0; i <= CHANGES_PER_SEED; i++) {
        memcpy(input, seed, size);
        input_bytes = size;
        if (i > 0)
            change();
        run_once();
    }
}

static void run_folder(const char *folder)
{
    char path[4096];
    DIR *entries = opendir(folder);
    FUZZ_CHECK(entries);
    for (struct dirent *entry; (entry = readdir(entries));) {
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] != '.')
            run_file(path);
    }
    closedir(entries);
}

int main(int argc, char **argv)
{
    struct timespec now;
    const char *given = getenv("CGM_TEST_SEED");
    clock_gettime(CLOCK_REALTIME, &now);
    state = given ? strtoull(given, NULL, 0) : (uint64_t)now.tv_nsec + (uint64_t)now.tv_sec;
    printf("seed %ju; CGM_TEST_SEED repeats it\n", (uintmax_t)state);
    fflush(stdout);
    signal(SIGABRT, on_signal);
    signal(SIGFPE, on_signal);
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(keep_input);
    run_once(); /* nothing at all is an input, too */
    for (int i = 1; i < argc; i++)
        run_folder(argv[i]);
    printf("%lu inputs\n", runs);
    return 0;
}
