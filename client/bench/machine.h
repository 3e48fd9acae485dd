/* Where and how a figure was made: goes into every report and every picture. */
#ifndef CGM_BENCH_MACHINE_H
#define CGM_BENCH_MACHINE_H

#include <jansson.h>
#include <stddef.h>

#include "commgemm.h"

#define CGM_GPUS_BYTES 160u

/* The names of the daemon's GPUs, "4 x NVIDIA H200"; "" with the CPU backend, and where the daemon
 * does not say. */
void cgm_machine_gpus(commgemm_client *client, char *ret_gpus, size_t size);

/* "2026-11-22, 4 x NVIDIA H200; Intel(R) Xeon(R) Platinum 8480C, 224 processors". */
void cgm_machine_caption(const char *gpus, char *ret_text, size_t size);

/* Joins the arguments as they would be typed, behind the program's name without its folder. */
void cgm_machine_command(int argc, char **argv, char *ret_text, size_t size);

/* Adds "machine" (cpu, processors, gpus), "command" and "date". Not 0 when there is no memory. */
int cgm_machine_add_json(const char *gpus, const char *command, json_t *object);

#endif
