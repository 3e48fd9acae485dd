/* A libcuda that goes no further than telling its version and whether it starts, as the environment
 * says: SICK_DRIVER_VERSION, SICK_DRIVER_INIT. */
#include <stdlib.h>
#include <string.h>

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

int cuInit(unsigned flags);
int cuDriverGetVersion(int *ret_version);
int cuGetProcAddress_v2(const char *name, void **ret_function, int version,
                        unsigned long long flags, int *ret_found);

int cuInit(unsigned flags)
{
    (void)flags;
    return number("SICK_DRIVER_INIT", 0);
}

int cuDriverGetVersion(int *ret_version)
{
    *ret_version = number("SICK_DRIVER_VERSION", 99000);
    return 0;
}

static int get_export_table(const void **ret_table, const void *id)
{
    (void)id;
    *ret_table = NULL;
    return 1;
}

static int succeed(void)
{
    return 0;
}

int cuGetProcAddress_v2(const char *name, void **ret_function, int version,
                        unsigned long long flags, int *ret_found)
{
    (void)version;
    (void)flags;
    *ret_function = strcmp(name, "cuInit") == 0               ? (void *)cuInit
                    : strcmp(name, "cuDriverGetVersion") == 0 ? (void *)cuDriverGetVersion
                    : strcmp(name, "cuGetProcAddress") == 0   ? (void *)cuGetProcAddress_v2
                    : strcmp(name, "cuGetExportTable") == 0   ? (void *)get_export_table
                                                              : (void *)succeed;
    if (ret_found)
        *ret_found = 0;
    return 0;
}
