/* The CPU backend with a doctor, whose first finding counts how often it was asked. */
#include <stdio.h>
#include <time.h>

#include "daemon/executor/executor.h"

static void look(struct cgm_backend *backend, cgm_doctor_add *add, void *context)
{
    static unsigned looks;
    struct timespec while_others_ask = {.tv_nsec = 100000000};
    char text[64];
    (void)backend;
    nanosleep(&while_others_ask, NULL);
    snprintf(text, sizeof(text), "look %u", ++looks);
    add(context, "count", CGM_DOCTOR_OK, text, "");
    add(context, "words", CGM_DOCTOR_WARNING, "a \"quoted\" \\ and a\nline", "none");
}

int main(void)
{
    struct cgm_backend_ops ops = cgm_backend_cpu;
    ops.doctor = look;
    return cgm_executor_serve(&ops, 3);
}
