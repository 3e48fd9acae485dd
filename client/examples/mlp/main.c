#include "client/examples/mlp/mlp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void usage(void)
{
    fputs("usage: mlp files FOLDER                      make the .npy files\n"
          "       mlp load FOLDER SOCKET WORLD RANK     buffers from the files, forward, stay\n"
          "       mlp find FOLDER SOCKET WORLD RANK     the same buffers again, forward,\n"
          "                                             once more with the next executor\n"
          "       mlp report FOLDER SOCKET WORLD        check everything, print the table\n",
          stderr);
    exit(2);
}

static uint32_t number_of(const char *text, uint32_t min, uint32_t max)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (end == text || *end || value < min || value > max)
        mlp_fail("'%s' is not a number from %u to %u", text, min, max);
    return (uint32_t)value;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(const struct mlp *mlp, const char *socket, uint32_t rank);
    } ranks[] = {{"load", mlp_rank_load}, {"find", mlp_rank_find}};
    struct mlp mlp;

    if (argc == 3 && strcmp(argv[1], "files") == 0) {
        mlp_make_files(argv[2]);
        return 0;
    }
    if (argc < 5)
        usage();
    mlp_open(argv[2], number_of(argv[4], 1, MLP_WORLD_MAX), &mlp);
    if (argc == 5 && strcmp(argv[1], "report") == 0) {
        mlp_report(&mlp, argv[3]);
        return 0;
    }
    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
        if (argc == 6 && strcmp(argv[1], ranks[i].name) == 0) {
            ranks[i].run(&mlp, argv[3], number_of(argv[5], 0, mlp.world - 1));
            return 0;
        }
    }
    usage();
}
